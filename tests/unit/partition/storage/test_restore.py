"""What a backup has, appended by a leader: offsets stay, and the same again is a success."""

import pytest

from streamlog.errors import CorruptBatch, InvalidRecord, NotLeader
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches, read_header
from streamlog.record.compacted import gap
from streamlog.record.erasure import erasure_batches
from streamlog.record.offset_set import OffsetSet
from tests.log_folder import make_batch
from tests.partition_world import Told, World, publish, tp, values_of
from tests.record_batches import HandRecord, hand_batch

GAP = gap(0, 100, leader_epoch=0, max_timestamp_ms=0)


async def restore(partition: Partition, *data: bytes) -> None:
    """Once it is committed."""
    told = Told()
    partition.restore(memoryview(b"".join(data)), told)
    await told.answer


async def test_offsets_and_times_stay_and_epochs_are_the_leaders(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        first = make_batch(100, [b"a", b"b"], timestamp_ms=77, epoch=0)
        late = make_batch(102, [b"c"], timestamp_ms=78, epoch=9)
        await restore(partition, GAP, first, late)
        assert (partition.high_watermark, partition.log_end_offset) == (103, 103)
        with await partition.read(100, 1 << 20) as part:
            headers = [header for header, _ in batches(part.read())]
        assert [(it.base_offset, it.max_timestamp_ms) for it in headers] == [(100, 77), (102, 78)]
        assert {it.leader_epoch for it in headers} == {partition.leader_epoch}
        await partition.purge(100)
        assert partition.log_start_offset == 100
        assert await publish(partition, b"goes on") == 103


async def test_the_same_again_is_passed_over(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        some, more = make_batch(0, [b"a"]), make_batch(1, [b"b"])
        await restore(partition, some)
        await restore(partition, some)
        await restore(partition, some, more)
        assert await values_of(partition) == [b"a", b"b"]
        assert partition.state.in_flight_bytes == 0


async def test_it_is_there_after_a_restart(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        await restore(registry.partition(tp("s")), make_batch(0, [b"a"]), make_batch(1, [b"b"]))
    async with world.node() as registry:
        assert await values_of(registry.partition(tp("s"))) == [b"a", b"b"]


async def test_what_was_erased_stays_erased(world: World) -> None:
    erased = OffsetSet()
    erased.add(0)
    batch = b"".join(erasure_batches(erased, base_offset=2, leader_epoch=0, timestamp_ms=1_000))
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await restore(partition, make_batch(0, [b"a", b"b"]), batch)
        assert 0 in partition.erased
        assert 1 not in partition.erased


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (make_batch(5), CorruptBatch),
        (make_batch(0)[:-1], CorruptBatch),
        (make_batch(0)[:-1] + b"?", CorruptBatch),
        (hand_batch([HandRecord(b"v")], producer=(7, 0, 0)), InvalidRecord),
    ],
    ids=["a hole", "cut", "damaged", "numbered"],
)
async def test_what_cannot_follow_is_refused(
    world: World, data: bytes, error: type[Exception]
) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        with pytest.raises(error):
            await restore(partition, data)
        assert partition.log_end_offset == 0
        assert await publish(partition, b"goes on") == 0


async def test_a_batch_that_reaches_over_the_end_is_refused(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"somebody's own")
        with pytest.raises(CorruptBatch):
            await restore(partition, make_batch(0, [b"a", b"b"]))
        assert await values_of(partition) == [b"somebody's own"]


async def test_only_a_leader_takes_it(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        partition.state.resign("another leads")
        with pytest.raises(NotLeader):
            await restore(partition, make_batch(0))


async def test_a_batch_stays_as_it_is(world: World) -> None:
    batch = make_batch(0, [b"x" * 1000])
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await restore(partition, batch)
        with await partition.read(0, 1 << 20) as part:
            assert read_header(part.read()).crc == read_header(batch).crc
