"""Consumer groups: one member, three that come and one that goes, offsets that stay."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from compatibility.checks.check import same, same_records
from compatibility.outcome import Failed
from compatibility.program import Program, Record, record_of
from compatibility.scene import TIMEOUT_S, Scene, values

COUNT: Final = 300
EACH: Final = 20
"""Records in each partition between two rebalances."""
PARTITIONS: Final = 6
SETTLE_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.1


def group(scene: Scene) -> str:
    """One member reads all partitions, each in order, from the earliest record."""
    topic = scene.topic(partitions=3)
    for partition in range(3):
        scene.publish(topic, values(partition * COUNT, (partition + 1) * COUNT), partition)
    program = scene.start("group", topic=topic, group=f"{topic}-g", client_id="only")
    found = _by_partition(program.records(3 * COUNT))
    for partition in range(3):
        wanted = values(partition * COUNT, (partition + 1) * COUNT)
        same_records(found[partition], wanted, partition=partition)
    program.finish()
    same(_committed(scene, topic, 3), {0: COUNT, 1: COUNT, 2: COUNT}, "committed")
    return ""


def commit_and_resume(scene: Scene) -> str:
    """Another member goes on exactly where the one before it stopped."""
    topic = scene.topic()
    wanted = values(0, COUNT)
    scene.publish(topic, wanted)
    stop = COUNT // 3 + 1
    ask = {"topic": topic, "group": f"{topic}-g", "client_id": "one"}
    first = scene.start("group", **ask, count=stop)
    same_records(first.records(stop), wanted[:stop])
    same(first.finish(), [], "more than was asked for")
    same(_committed(scene, topic, 1), {0: stop}, "committed")
    second = scene.start("group", **ask)
    same_records(second.records(COUNT - stop), wanted[stop:], stop)
    second.finish()
    same(_committed(scene, topic, 1), {0: COUNT}, "committed at the end")
    return ""


def rebalance(scene: Scene) -> str:
    """Three members share six partitions, then two; records are read by whom they belong to."""
    topic = scene.topic(partitions=PARTITIONS)
    members: dict[str, Program] = {}
    seen: dict[str, list[Record]] = defaultdict(list)
    for name in ("a", "b", "c"):
        members[name] = scene.start("group", topic=topic, group=f"{topic}-g", client_id=name)
        owners = _wait_shared(scene, topic, members)
    _publish_everywhere(scene, topic, 0)
    _wait_read(members, seen, owners, EACH)
    members.pop("c").finish()
    owners = _wait_shared(scene, topic, members)
    _publish_everywhere(scene, topic, EACH)
    _wait_read(members, seen, owners, 2 * EACH)
    for member in members.values():
        member.finish()
    ends = dict.fromkeys(range(PARTITIONS), 2 * EACH)
    same(_committed(scene, topic, PARTITIONS), ends, "committed")
    return ""


def _by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return found


def _publish_everywhere(scene: Scene, topic: str, first: int) -> None:
    for partition in range(PARTITIONS):
        scene.publish(topic, values(first, first + EACH), partition)


def _wait_read(
    members: Mapping[str, Program],
    seen: dict[str, list[Record]],
    owners: Mapping[int, str],
    end: int,
) -> None:
    """Until every partition's owner has read its last records, each in its place.

    What was not committed before a rebalance may be read again, by the new owner.
    """
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    wanted = {(p, offset) for p in owners for offset in range(end - EACH, end)}
    while True:
        for name, member in members.items():
            seen[name] += [record_of(line) for line in member.lines()]
        found = {
            (record.partition, record.offset)
            for name in members
            for record in seen[name]
            if owners[record.partition] == name
        }
        if wanted <= found:
            break
        if time.monotonic() > deadline:
            raise Failed(f"{len(wanted - found)} of {len(wanted)} records not read by the owner")
        time.sleep(POLL_S)
    texts = values(0, end)
    for record in (record for records in seen.values() for record in records):
        same(record.value, texts[record.offset], f"record {record.offset}")


def _wait_shared(scene: Scene, topic: str, members: Mapping[str, Program]) -> dict[int, str]:
    """Until each member has as many partitions as the others, and none is left; whose each is."""
    deadline, found = time.monotonic() + SETTLE_TIMEOUT_S, {}
    share = PARTITIONS // len(members)
    while time.monotonic() < deadline:
        found = _assigned(scene, f"{topic}-g")
        owners = {p: name for name, partitions in found.items() for p in partitions}
        counts = {name: len(partitions) for name, partitions in found.items()}
        if counts == dict.fromkeys(members, share) and len(owners) == PARTITIONS:
            return owners
        for name, member in members.items():
            if (said := member.failure()) is not None:
                raise Failed(f"member {name}: {said}")
        time.sleep(POLL_S)
    raise Failed(f"not shared by {', '.join(members)} within {SETTLE_TIMEOUT_S:.0f} s: {found}")


def _assigned(scene: Scene, group: str) -> dict[str, list[int]]:
    """By client id, as DescribeGroups tells; empty where there is no such group yet."""
    try:
        (future,) = scene.cluster.admin.describe_consumer_groups([group]).values()
        described: Any = future.result(TIMEOUT_S)
    except KafkaException:
        return {}
    return {
        member.client_id: [it.partition for it in member.assignment.topic_partitions]
        for member in described.members
    }


def _committed(scene: Scene, topic: str, partitions: int) -> dict[int, int]:
    """As OffsetFetch tells."""
    wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
    asked = ConsumerGroupTopicPartitions(f"{topic}-g", wanted)
    (future,) = scene.cluster.admin.list_consumer_group_offsets([asked]).values()
    try:
        found: Any = future.result(TIMEOUT_S)
    except KafkaException as refused:
        raise Failed(f"committed offsets cannot be had: {refused}") from None
    return {it.partition: it.offset for it in found.topic_partitions}
