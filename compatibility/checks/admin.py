"""Administration: calls on streams, calls on groups.

``{"op": ...}`` is one of these, and the answer holds what stands behind the arrow:

- ``create {topic, partitions, replicas, configs}``
- ``widen {topic, partitions}``, ``delete {topic}``
- ``topics`` → ``topics``: names; ``describe {topic}`` → ``partitions``: how many
- ``configs {topic}`` → ``configs``: values by name; ``set {topic, configs}``: these, no others
- ``ends {topic, partition}`` → ``earliest``, ``latest``
- ``purge {topic, partition, offset}``: what is below
- ``groups`` → ``groups``: names; ``members {group}`` → ``members``: how many
- ``committed {group, topic}`` → ``offsets`` by partition
- ``reset {group, topic, partition, offset}``, ``forget {group}``
"""

import json
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from compatibility.checks.check import same
from compatibility.outcome import Failed, NotOffered
from compatibility.program import Line, Program
from compatibility.scene import Scene, values

COUNT = 50
PATIENCE_S = 30.0
"""Other nodes learn of a change after the one that was asked."""


class _Calls:
    """Makes calls, and remembers those that the client does not have."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._made = 0
        self._without: list[str] = []

    def call(self, op: str, **arguments: Any) -> Line | None:
        """The answer; None where the client has no such call."""
        try:
            answer = self._program.ask({"op": op, **arguments})
        except NotOffered:
            self._without.append(op)
            return None
        except Failed as failed:
            raise Failed(f"{op}: {failed}") from None
        self._made += 1
        return answer

    def soon(self, key: str, wanted: object, op: str, **arguments: Any) -> None:
        """Ask until the answer is this."""
        deadline = time.monotonic() + PATIENCE_S
        while (answer := self.call(op, **arguments)) is not None and answer.get(key) != wanted:
            if time.monotonic() > deadline:
                same(answer.get(key), wanted, op)

    def finish(self) -> str:
        self._program.finish()
        if not self._made:
            raise NotOffered("no such calls")
        return f"without {', '.join(dict.fromkeys(self._without))}" if self._without else ""


def streams(scene: Scene) -> str:
    """From creation to deletion, with what the judge sees in between."""
    topic = f"{scene.name}-own"
    scene.expect(topic)
    calls = _Calls(scene.start("admin"))
    replicas, configs = scene.cluster.copies, {"retention.ms": "3600000"}
    created = calls.call("create", topic=topic, partitions=2, replicas=replicas, configs=configs)
    if created is None:
        topic = scene.topic(partitions=2, configs=configs)
    same(_partitions(scene, topic), 2, "partitions created")
    listed = calls.call("topics")
    if listed is not None and topic not in listed["topics"]:
        raise Failed(f"topics: {topic} is not among them")
    calls.soon("partitions", 2, "describe", topic=topic)
    _change_configs(calls, topic)
    if calls.call("widen", topic=topic, partitions=3) is not None:
        same(_partitions(scene, topic), 3, "partitions after widen")
        calls.soon("partitions", 3, "describe", topic=topic)
    scene.publish(topic, values(0, COUNT), partition=1)
    calls.soon("latest", COUNT, "ends", topic=topic, partition=1)
    if calls.call("purge", topic=topic, partition=1, offset=10) is not None:
        calls.soon("earliest", 10, "ends", topic=topic, partition=1)
    if calls.call("delete", topic=topic) is not None and topic in scene.topics():
        raise Failed("delete: it is still there")
    return calls.finish()


def _change_configs(calls: _Calls, topic: str) -> None:
    """One value changes, the other stays."""
    told = calls.call("configs", topic=topic)
    if told is not None:
        same(told["configs"].get("retention.ms"), "3600000", "configs")
    if calls.call("set", topic=topic, configs={"segment.bytes": "1048576"}) is None:
        return
    deadline = time.monotonic() + PATIENCE_S
    while (told := calls.call("configs", topic=topic)) is not None:
        seen = {key: told["configs"].get(key) for key in ("segment.bytes", "retention.ms")}
        wanted = {"segment.bytes": "1048576", "retention.ms": "3600000"}
        if seen == wanted:
            break
        if time.monotonic() > deadline:
            same(seen, wanted, "configs after set")


def groups(scene: Scene) -> str:
    """A group that the judge has made is listed, described, set back and forgotten."""
    topic = scene.topic()
    name = f"{topic}-g"
    scene.publish(topic, values(0, COUNT))
    _commit(scene, topic, name, 40)
    calls = _Calls(scene.start("admin"))
    listed = calls.call("groups")
    if listed is not None and name not in listed["groups"]:
        raise Failed(f"groups: {name} is not among {json.dumps(listed['groups'])}")
    described = calls.call("members", group=name)
    if described is not None:
        same(described["members"], 0, "members of a group that nobody is in")
    committed = calls.call("committed", group=name, topic=topic)
    if committed is not None:
        same(committed["offsets"], {"0": 40}, "committed")
    if calls.call("reset", group=name, topic=topic, partition=0, offset=7) is not None:
        calls.soon("offsets", {"0": 7}, "committed", group=name, topic=topic)
    if calls.call("forget", group=name) is not None:
        again = calls.call("groups")
        if again is not None and name in again["groups"]:
            raise Failed("forget: it is still listed")
    return calls.finish()


def _commit(scene: Scene, topic: str, group: str, offset: int) -> None:
    settings = {"group.id": group, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": scene.cluster.servers, **settings})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def _partitions(scene: Scene, topic: str) -> int:
    metadata = scene.cluster.admin.list_topics(topic, timeout=PATIENCE_S)
    return len(metadata.topics[topic].partitions)
