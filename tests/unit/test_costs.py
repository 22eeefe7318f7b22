"""What a message may cost, in counts that are the same on every run: no clock is read here.

A limit that is passed says that somebody made the hot path dearer. Where the new cost buys
something, raise the limit in the same commit and say in its message what it buys; where it does
not, `python -m benchmarks.profile` shows the step, and `git bisect` with this test the commit.
"""

import gc
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from streamlog.ingest.admission.batches.batch_staging import BatchStagingLimit
from streamlog.ingest.admission.batches.fast_batches import FastBatchLimit
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.partition_ingest import ConflictAnswers, PartitionIngest
from streamlog.ingest.pub_acks import PubAcks
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Router
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from tests.ingest_way import TurnsWritten, Written
from tests.led_partition import FakePartition, as_partition
from tests.nats_frames import FrameParser
from tests.partition_world import World, tp
from tests.unit.hot_path import MESSAGES, HotPath, frames, instructions

INSTRUCTIONS_MAX: Final = {
    "parse": 1_600.0,
    "take replies": 40.0,
    "seal": 220.0,
    "build acks": 350.0,
    "iterate": 5_500.0,
    "decode to columns": 1_000.0,
}
"""Of one message of 100 bytes, by step. About a quarter above what they were when written."""

COMPILED_STEPS: Final = sorted(INSTRUCTIONS_MAX.keys() - {"iterate"})
"""Those that make no Python object for a message."""

CALLS_MAX: Final = 48
"""Python functions, ours and built-in ones, from one read of the socket to its acks."""
PARTITION_CALLS_MAX: Final = 90
"""The same, disk included, for each of many partitions that a read has one message for."""
BLOCKS_MAX: Final = 60
"""Python objects, about, that one step on a whole batch may leave behind or make."""

ADVICE: Final = "see the head of this file for what to do"


def calls_of(step: Callable[[], Any]) -> int:
    """How many Python and built-in functions are called.

    A collection of garbage does not count: it comes when it likes, and libraries have calls made
    at its start and end.
    """
    count = 0

    def heard(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    gc.collect()
    gc.disable()
    sys.setprofile(heard)
    try:
        step()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


class Way:
    """From the socket to the acks, for one partition, without socket and disk."""

    def __init__(self, count: int) -> None:
        self._read = frames(count)
        self._partition = FakePartition()
        metrics = NodeMetrics()
        self.written = Written()
        self._answers = PubAcks(self.written, metrics, Router())
        room = InFlightBytes(
            in_flight_bytes_max=1 << 30, backpressure_timeout_ms=1, metrics=metrics
        )
        self._ingest = PartitionIngest(
            as_partition(self._partition),
            deduplicator=Deduplicator("bench", duplicate_window_ms=120_000),
            settings=IngestSettings(message_bytes_max=1 << 20),
            answers=self._answers,
            conflicts=ConflictAnswers(self._answers, room, None),
            room=room,
            staging=BatchStagingLimit(room, in_flight_bytes_max=1 << 30),
            fast_batches=FastBatchLimit(),
            metrics=metrics,
            now_ms=lambda: 1_000_000,
            grown={},
        )
        self._parser = FrameParser()
        self._parser.bind(1, self._ingest.inflow)

    def take(self) -> None:
        """One read of the socket, all in it committed and acknowledged."""
        self._parser.feed(self._read)
        self._ingest.take()
        self._partition.commit()


class ManyWays:
    """From the socket to the acks, for many partitions with a message each, without the socket."""

    def __init__(self, registry: ReplicaManager, partitions: list[Partition]) -> None:
        metrics = NodeMetrics()
        self.written = TurnsWritten()
        self._answers = PubAcks(self.written, metrics, Router())
        self._flusher = registry._flusher
        room = InFlightBytes(
            in_flight_bytes_max=1 << 30, backpressure_timeout_ms=1, metrics=metrics
        )
        self._ingests = [
            PartitionIngest(
                partition,
                leader_epoch=partition.leader_epoch,
                deduplicator=Deduplicator(partition.tp.stream, duplicate_window_ms=120_000),
                settings=IngestSettings(message_bytes_max=1 << 20),
                answers=self._answers,
                conflicts=ConflictAnswers(self._answers, room, None),
                room=room,
                staging=BatchStagingLimit(room, in_flight_bytes_max=1 << 30),
                fast_batches=FastBatchLimit(),
                metrics=metrics,
                now_ms=lambda: 1_000_000,
                grown={},
            )
            for partition in partitions
        ]
        self._parser = FrameParser()
        for sid, ingest in enumerate(self._ingests):
            self._parser.bind(sid, ingest.inflow)
        lines = (b"MSG a.b %d _INBOX.%d 1\r\nx\r\n" % (sid, sid) for sid in range(len(partitions)))
        self._read = b"".join(lines)

    @classmethod
    async def create(cls, world: World, registry: ReplicaManager, count: int) -> "ManyWays":
        names = [f"s{count}-{number}" for number in range(count)]
        for name in names:
            await world.create(name, sync="os")
        return cls(registry, [registry.partition(tp(name)) for name in names])

    def take(self) -> None:
        """One read of the socket, all in it committed and acknowledged."""
        for inflow in self._parser.feed(self._read):
            ingest = inflow.owner
            assert isinstance(ingest, PartitionIngest)
            ingest.take()
        self._flusher._work()
        self.written.end_turn()


async def test_python_calls_are_for_a_batch_and_not_for_a_message() -> None:
    calls = {}
    for count in (1, MESSAGES):
        way = Way(count)
        way.take()
        calls[count] = calls_of(way.take)
        assert way.written[-1].count(b'"seq"') == count
    assert calls[MESSAGES] == calls[1], f"calls grow with the messages: {calls}; {ADVICE}"
    assert calls[1] <= CALLS_MAX, f"{calls[1]} calls for one batch, not {CALLS_MAX}; {ADVICE}"


async def test_each_of_many_partitions_costs_few_calls(tmp_path: Path) -> None:
    calls = {}
    world = World(tmp_path)
    async with world.node() as registry:
        for count in (10, 20):
            way = await ManyWays.create(world, registry, count)
            way.take()
            calls[count] = calls_of(way.take)
            assert len(way.written) == 2, "one write for the acks of all"
            assert way.written[-1].count(b'"seq"') == count
    each = (calls[20] - calls[10]) / 10
    assert each <= PARTITION_CALLS_MAX, f"{each} calls for a partition; {ADVICE}"


@pytest.mark.parametrize("step", COMPILED_STEPS)
def test_a_step_calls_no_python_for_a_message(step: str) -> None:
    calls = {}
    for count in (1, MESSAGES):
        path = HotPath(count)
        for each in path.steps.values():
            each()
        path.parse()
        calls[count] = calls_of(path.steps[step])
    assert calls[MESSAGES] == calls[1], f"{step}: calls grow with the messages: {calls}; {ADVICE}"


@pytest.mark.parametrize("step", COMPILED_STEPS)
def test_a_step_leaves_no_object_for_a_message(step: str) -> None:
    path = HotPath()
    for each in path.steps.values():
        each()
    path.parse()
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        kept = path.steps[step]()
        left = sys.getallocatedblocks() - before
    finally:
        gc.enable()
    del kept
    assert left <= BLOCKS_MAX, f"{step}: {left} objects for {MESSAGES} messages; {ADVICE}"


def test_a_message_takes_few_instructions(tmp_path: Path) -> None:
    """All steps in one test: valgrind takes many seconds to start a program, on each worker that is given a step."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("instructions are counted by valgrind, which is not there")
    if platform.machine() != "x86_64" or platform.python_implementation() != "CPython":
        pytest.skip("the limits are those of CPython on x86_64")
    counted = instructions(valgrind, tmp_path)
    too_many = [
        f"{step}: {counted[step]:,.1f} instructions for each message, not {limit:,.0f}"
        for step, limit in INSTRUCTIONS_MAX.items()
        if counted[step] > limit
    ]
    assert not too_many, f"{too_many}; {ADVICE}"
