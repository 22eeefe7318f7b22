"""Members of one group that come and go, and what each of them has read."""

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Literal

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)

from compatibility.checks.check import same
from compatibility.outcome import Failed
from compatibility.program import Program, Record, record_of
from compatibility.scene import TIMEOUT_S, Scene, values

PARTITIONS: Final = 6
EACH: Final = 20
"""Records that go to each partition at a time."""
SETTLE_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.25

Owners = Mapping[int, str]
"""Whose each partition is."""
Protocol = Literal["classic", "consumer"]


_TYPES: Final[Mapping[Protocol, ConsumerGroupType]] = {
    "classic": ConsumerGroupType.CLASSIC,
    "consumer": ConsumerGroupType.CONSUMER,
}


class Membership:
    """Client programs in one group, that read a topic of six partitions."""

    def __init__(self, scene: Scene, protocol: Protocol = "classic") -> None:
        self.protocol = protocol
        self.topic = scene.topic(partitions=PARTITIONS)
        self.group = f"{self.topic}-g"
        self._scene = scene
        self._members: dict[str, Program] = {}
        self._seen: dict[str, list[Record]] = defaultdict(list)
        self._end = 0

    def join(self, name: str) -> None:
        ask = {"topic": self.topic, "group": self.group, "client_id": name}
        if self.protocol != "classic":
            ask["protocol"] = self.protocol
        self._members[name] = self._scene.start("group", **ask)

    def leave(self, name: str) -> None:
        self._members.pop(name).finish()

    def wait_shared(self) -> Owners:
        """Until each member has as many partitions as the others, and none is left."""
        deadline, found = time.monotonic() + SETTLE_TIMEOUT_S, {}
        share = dict.fromkeys(self._members, PARTITIONS // len(self._members))
        while time.monotonic() < deadline:
            found = self._assigned()
            owners = {p: name for name, partitions in found.items() for p in partitions}
            counts = {name: len(partitions) for name, partitions in found.items()}
            if counts == share and len(owners) == PARTITIONS:
                return owners
            self._check_alive()
            time.sleep(POLL_S)
        names = ", ".join(self._members)
        raise Failed(f"not shared by {names} within {SETTLE_TIMEOUT_S:.0f} s: {found}")

    def publish(self) -> None:
        """The next records, to each partition."""
        first, self._end = self._end, self._end + EACH
        for partition in range(PARTITIONS):
            self._scene.publish(self.topic, values(first, self._end), partition, at_once=1)

    def wait_read(self, owners: Owners | None = None) -> None:
        """Until what was published last is read, if told by whom it has to be, each in its place.

        What was not committed before a rebalance may be read again, by the new owner.
        """
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        new = range(self._end - EACH, self._end)
        missing = {(partition, offset) for partition in range(PARTITIONS) for offset in new}
        while missing:
            for name, member in self._members.items():
                found = [record_of(line) for line in member.lines()]
                self._seen[name] += found
                if owners is not None:
                    found = [it for it in found if owners[it.partition] == name]
                missing -= {(it.partition, it.offset) for it in found}
            if missing and time.monotonic() > deadline:
                raise Failed(f"{len(missing)} of {PARTITIONS * EACH} records were not read")
            time.sleep(POLL_S)
        texts = values(0, self._end)
        for record in (record for records in self._seen.values() for record in records):
            same(record.value, texts[record.offset], f"record {record.offset}")

    def finish(self) -> None:
        """All leave; all that was published is committed."""
        for name in list(self._members):
            self.leave(name)
        ends = dict.fromkeys(range(PARTITIONS), self._end)
        same(committed(self._scene, self.topic, PARTITIONS), ends, "committed")

    def coordinator(self) -> int:
        """The node that the group is led by."""
        return int(self._described().coordinator.id)

    def _assigned(self) -> dict[str, list[int]]:
        """By client id; empty where there is no such group yet."""
        try:
            described = self._described()
        except KafkaException:
            return {}
        members = described.members
        if members and described.type != _TYPES[self.protocol]:
            raise Failed(f"the group's protocol is {described.type.name}")
        return {
            it.client_id: [p.partition for p in it.assignment.topic_partitions] for it in members
        }

    def _described(self) -> Any:
        """As DescribeGroups tells."""
        admin = self._scene.cluster.new_admin()
        (future,) = admin.describe_consumer_groups([self.group]).values()
        return future.result(TIMEOUT_S)

    def _check_alive(self) -> None:
        for name, member in self._members.items():
            if (said := member.failure()) is not None:
                raise Failed(f"member {name}: {said}")


def committed(scene: Scene, topic: str, partitions: int) -> dict[int, int]:
    """By the group of the topic's name and ``-g``, as OffsetFetch tells."""
    wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
    asked = ConsumerGroupTopicPartitions(f"{topic}-g", wanted)
    admin = scene.cluster.new_admin()
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    try:
        found: Any = future.result(TIMEOUT_S)
    except KafkaException as refused:
        raise Failed(f"committed offsets cannot be had: {refused}") from None
    return {it.partition: it.offset for it in found.topic_partitions}
