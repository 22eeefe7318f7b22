import asyncio

import pytest

from streamlog.errors import NoController
from streamlog.ingest.admission.refusal import NOT_LEADER, wrong_last_sequence
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.partition_ingest import (
    DELAYED_OVERHEAD_BYTES,
    ConflictAnswers,
    DelayedAcks,
)
from streamlog.ingest.pub_acks import PubAcks
from streamlog.metadata.commands import Command, Granted
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.read_barrier import ReadBarrier
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Router
from tests.fake_lease import FakeLease
from tests.ingest_way import Written
from tests.led_partition import FakePartition, as_partition
from tests.local_node import until


class Waiters:
    def __init__(self, barrier: ReadBarrier | None = None, lease: Lease | None = None) -> None:
        self.partition = FakePartition()
        metrics = NodeMetrics()
        self.written = Written()
        self.room = InFlightBytes(
            in_flight_bytes_max=1000, backpressure_timeout_ms=1, metrics=metrics
        )
        self.answers = PubAcks(self.written, metrics, Router())
        self.awaited = DelayedAcks(
            as_partition(self.partition),
            leader_epoch=0,
            stream="orders",
            answers=self.answers,
            conflicts=ConflictAnswers(self.answers, self.room, barrier, lease),
            room=self.room,
        )

    def move(self, high_watermark: int) -> None:
        self.partition.high_watermark = high_watermark
        for watcher in tuple(self.partition.watchers):
            watcher()

    def told(self) -> list[str]:
        """The reply subjects that were written to since."""
        data, self.written[:] = b"".join(self.written), []
        return [line.split()[1].decode() for line in data.splitlines() if line[:4] == b"PUB "]


async def test_answered_in_the_order_of_the_log_as_it_is_committed() -> None:
    world = Waiters()
    for reply, offset in ((b"c", 14), (b"a", 11), (b"now", 9), (b"b", 12), (b"a2", 11)):
        world.awaited.add(reply, offset, b"{}")
    assert world.told() == ["now"]
    assert world.room.taken_bytes == len(b"caba2") + 4 * (DELAYED_OVERHEAD_BYTES + 2)
    world.move(11)
    assert world.told() == []
    world.move(13)
    assert world.told() == ["a", "a2", "b"]
    world.move(15)
    assert world.told() == ["c"]
    assert (len(world.awaited), world.room.taken_bytes, world.partition.watchers) == (0, 0, [])


async def test_refused_from_an_offset_on() -> None:
    world = Waiters()
    for reply, offset in ((b"c", 14), (b"a", 11), (b"b", 12)):
        world.awaited.add(reply, offset, b"{}")
    world.awaited.refuse(12, NOT_LEADER)
    assert world.told() == ["b", "c"]
    world.awaited.refuse(12, NOT_LEADER)
    assert world.told() == []
    world.move(20)
    assert world.told() == ["a"]
    assert (world.room.taken_bytes, world.partition.watchers) == (0, [])
    await asyncio.sleep(0)


@pytest.mark.parametrize("change", ["follows", "leads again"])
async def test_nothing_is_committed_by_the_high_watermark_of_another_epoch(change: str) -> None:
    world = Waiters()
    world.awaited.add(b"a", 11, b"{}")
    world.partition.is_leader, world.partition.leader_epoch = change == "leads again", 1
    world.move(15)
    assert [b"10008" in line for line in world.written] == [True]
    assert (len(world.awaited), world.room.taken_bytes, world.partition.watchers) == (0, 0, [])
    world.written.clear()
    world.awaited.add(b"b", 11, b"{}")
    assert [b"10008" in line for line in world.written] == [True]


# Conflicts


class FakeMetadata:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.is_current, self.has_controller = False, True
        self.may_answer = asyncio.Event()

    async def request(self, command: Command) -> Granted:
        await self.may_answer.wait()
        if not self.has_controller:
            raise NoController("lost")
        return Granted(0, {"high_watermark": 3})

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        return Granted(3, {})


CONFLICT = wrong_last_sequence(10)


@pytest.mark.parametrize("change", ["", "follows", "leads again", "has no controller"])
async def test_a_conflict_is_told_by_a_leader_that_knows_it_is_one(change: str) -> None:
    """Its successor may have stored the message."""
    metadata = FakeMetadata()
    world = Waiters(ReadBarrier(metadata))
    conflicts = world.awaited._conflicts
    running = asyncio.create_task(conflicts.run())
    world.awaited.add(b"committed", 9, CONFLICT)
    world.awaited.add(b"later", 10, CONFLICT)
    world.move(11)
    await asyncio.sleep(0)
    assert world.told() == []
    assert world.room.taken_bytes > 0
    world.partition.is_leader = change != "follows"
    world.partition.leader_epoch = int(change == "leads again")
    metadata.has_controller = change != "has no controller"
    metadata.may_answer.set()
    await until(lambda: world.room.taken_bytes == 0)
    expected = b"10008" if change else b"10071"
    assert [expected in line for line in world.written] == [True, True]
    assert world.told() == ["committed", "later"]
    running.cancel()
    await asyncio.wait([running])


async def test_the_node_that_decides_tells_a_conflict_at_once() -> None:
    metadata = FakeMetadata()
    metadata.is_current = True
    world = Waiters(ReadBarrier(metadata))
    world.awaited.add(b"a", 9, CONFLICT)
    assert [b"10071" in line for line in world.written] == [True]
    assert world.room.taken_bytes == 0


async def test_a_controller_that_stood_still_tells_no_conflict() -> None:
    """It has yet to notice that another one was elected, and has let another node lead."""
    metadata, lease = FakeMetadata(), FakeLease()
    metadata.is_current = True
    world = Waiters(ReadBarrier(metadata), lease)
    world.awaited.add(b"a", 9, CONFLICT)
    lease.lapse()
    world.awaited.add(b"b", 9, CONFLICT)
    assert [b"10071" in line for line in world.written] == [True, False]
    assert b"10008" in world.written[1]
