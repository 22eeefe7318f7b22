import asyncio

import pytest

from streamlog.ingest.admission.refusal import NOT_LEADER
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.partition_ingest import DELAYED_OVERHEAD_BYTES, DelayedAcks
from streamlog.ingest.pub_acks import PubAcks
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Router
from tests.ingest_way import Written
from tests.led_partition import FakePartition, as_partition


class Waiters:
    def __init__(self) -> None:
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
