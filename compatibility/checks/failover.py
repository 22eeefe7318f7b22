"""A leader is killed while the client reads and writes."""

import time
from dataclasses import dataclass, field

from compatibility.checks.check import same, same_records
from compatibility.outcome import Failed
from compatibility.program import ANSWER_TIMEOUT_S, Program, Record, record_of
from compatibility.scene import Scene, value, values

BEFORE = 100
AFTER = 100
"""Records that are read before the leader dies, and as many that are written after that."""
PAUSE_S = 0.01


def leader_change(scene: Scene) -> str:
    """Nothing that was acknowledged is missing, nothing is read twice or out of order."""
    topic = scene.topic()
    leader = scene.cluster.leader_of(topic)
    try:
        return _write_and_read(scene, topic, leader)
    finally:
        scene.cluster.restore()


@dataclass
class _Stream:
    """What was given to the writer so far, and what has come out of both."""

    writer: Program
    reader: Program
    given: int = 0
    told: int = 0
    read: list[Record] = field(default_factory=list)

    def pass_one(self) -> None:
        self.writer.send(value(self.given))
        self.given += 1
        time.sleep(PAUSE_S)
        self.collect()

    def collect(self) -> None:
        self.told += len(self.writer.lines())
        self.read += [record_of(line) for line in self.reader.lines()]


def _write_and_read(scene: Scene, topic: str, leader: int) -> str:
    """Idempotent, since otherwise a batch that is sent again may rightly be stored twice."""
    writer = scene.start("produce", topic=topic, partition=0, codec="none", idempotent=True)
    reader = scene.start("consume", topic=topic, partition=0, offset=0)
    stream = _Stream(writer, reader)
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while len(stream.read) < BEFORE:
        stream.pass_one()
        if time.monotonic() > deadline:
            raise Failed(f"{len(stream.read)} of {stream.given} records read before the change")
    scene.cluster.crash(leader)
    after = stream.given + AFTER
    while stream.given < after or scene.cluster.leader_of(topic) == leader:
        stream.pass_one()
        if time.monotonic() > deadline:
            raise Failed(f"nobody else leads after {stream.given} records")
    told = stream.told + len(writer.finish())
    same(told, stream.given, "acknowledged")
    stream.read += reader.records(stream.given - len(stream.read))
    reader.finish()
    wanted = values(0, stream.given)
    same_records(stream.read, wanted)
    same(scene.end(topic), stream.given, "end of the log")
    return ""
