"""Leaders that were elected unclean, while the object store has more than they have."""

import asyncio
import logging
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.errors import ObjectStoreUnavailable, OffsetOutOfRange
from streamlog.log.leader_epochs import EpochStart
from streamlog.metadata import commands as c
from streamlog.model import EpochEnd, NodeId
from streamlog.partition.partition import Partition
from streamlog.partition.tiering.tier_plan import shared_end
from streamlog.tier.manifest import TieredSegment, TierManifest
from tests.partition_world import publish, values_of
from tests.unit.partition.replica_world import ReplicaWorld, until
from tests.unit.partition.tiering.test_tiered_partition import (
    COUNT,
    all_of,
    fill,
    objects,
    tiered,
    until_front_is_gone,
    value,
)


async def lose(world: ReplicaWorld, lost: int, leader: int) -> Partition:
    """The last replica in sync is gone, and another one leads without what it lacks."""
    await world.stop(lost)
    await world.start(leader)
    await world.ask(c.ElectLeader(stream="s", partition=0, leader=NodeId(leader), unclean=True))
    partition = world[leader].partition()
    await until(lambda: partition.is_leader and partition.high_watermark_known)
    return partition


async def overwrite(partition: Partition, first: int, end: int) -> list[bytes]:
    values = [b"other" + value(number) for number in range(first, end)]
    for it in values:
        await publish(partition, it)
    return values


def is_cut(partition: Partition) -> bool:
    manifest = partition.tiered.manifest
    return manifest is not None and manifest.leader_epoch == partition.leader_epoch


async def shorter(world: ReplicaWorld, end: int) -> tuple[int, int]:
    """The leader and another replica, which has only what is below ``end``, and is down."""
    leader = world.leader.node_id
    other = 2 if leader == 1 else 1
    await fill(world, 0, end)
    await until(lambda: world[other].partition().high_watermark == end)
    await world.stop(other)
    await fill(world, end)
    await until_front_is_gone(world.leader.partition(), end + 10)
    return leader, other


async def test_what_a_shorter_leader_shares_with_the_store_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(9), tiered(tmp_path, 2, min_isr=1) as world:
        old, other = await shorter(world, 32)
        partition = await lose(world, old, other)
        assert partition.log_end_offset == 32
        await until(lambda: is_cut(partition))
        await until(lambda: partition.local_log_start_offset > 10)
        assert partition.log_start_offset == 0
        await all_of(partition, 0, 32)
        image = partition.tiered.image
        assert image is not None
        assert 0 < image.end_offset <= 32
        (told,) = [
            it for it in caplog.records if getattr(it, "end", 0) and it.levelno == logging.ERROR
        ]
        assert (told.__dict__["offset"], told.__dict__["epoch"]) == (32, partition.leader_epoch)
        expected = [*map(value, range(32)), *await overwrite(partition, 32, 90)]
        await until_front_is_gone(partition, 60)
        assert await values_of(partition, 0) == expected
        assert await partition.find_epoch_end(0) == EpochEnd(0, 32)
        # Who led before has other records at these offsets, and lets go of them.
        await world.start(old)
        late = world[old].partition()
        await until(lambda: late.high_watermark == 90)
        assert await values_of(late, 0) == expected
        assert late.local_log_start_offset > 60


async def test_nothing_of_the_store_is_left_for_an_empty_leader(tmp_path: Path) -> None:
    async with asyncio.timeout(9), tiered(tmp_path, 2, min_isr=1) as world:
        leader = world.leader.node_id
        other = 2 if leader == 1 else 1
        await world.stop(other)
        await fill(world)
        await until_front_is_gone(world.leader.partition())
        count = len(objects(world))
        partition = await lose(world, leader, other)
        assert (partition.log_start_offset, partition.log_end_offset) == (0, 0)
        with pytest.raises(OffsetOutOfRange):
            await partition.read(1, 1)
        assert await partition.offset_for_timestamp(0) is None
        await until(lambda: is_cut(partition))
        assert count > 3
        expected = await overwrite(partition, 0, COUNT)
        await until_front_is_gone(partition)
        assert await values_of(partition, 0) == expected
        assert partition.log_start_offset == 0


async def test_the_store_of_a_later_epoch_is_not_the_front_of_an_older_log(tmp_path: Path) -> None:
    """The first one that led comes back, and leads uncleanly in its turn: what the second one has copied below the
    first one's log was never before it.
    """
    async with asyncio.timeout(9), tiered(tmp_path, 2, min_isr=1) as world:
        first, second = await shorter(world, 12)
        stopped = world.leader.partition()
        partition = await lose(world, first, second)
        start = stopped.local_log_start_offset  # no retention moves it after the stop
        await overwrite(partition, 12, 90)
        await until_front_is_gone(partition, 75)
        await world.stop(second)
        await world.start(first)
        await world.ask(c.ElectLeader(stream="s", partition=0, leader=NodeId(first), unclean=True))
        partition = world[first].partition()
        seen = await values_of_what_is_served(partition, 12, start)
        assert seen == []
        await until(lambda: is_cut(partition))
        assert partition.log_start_offset == partition.local_log_start_offset == start
        await all_of(partition, start, COUNT)
        with pytest.raises(OffsetOutOfRange):
            await partition.read(0, 1)


async def values_of_what_is_served(partition: Partition, first: int, end: int) -> list[int]:
    """Offsets that can be read."""
    found = []
    for offset in range(first, end):
        try:
            (await partition.read(offset, 1)).close()
            found.append(offset)
        except (OffsetOutOfRange, ObjectStoreUnavailable):
            pass
    return found


def manifest_of(*segments: tuple[int, int, list[EpochStart]]) -> TierManifest:
    made = tuple(
        TieredSegment(
            base_offset=base,
            end_offset=end,
            max_timestamp_ms=0,
            size_bytes=100,
            crc32c=0,
            leader_epochs=tuple(epochs),
            name=f"{base:020d}-{0:010d}-{'ab' * 16}",
            parts=(),
        )
        for base, end, epochs in segments
    )
    return TierManifest(stream_id=UUID(int=1), partition=0, segments=made)


@pytest.mark.parametrize(
    ("local", "local_start", "log_end", "shared"),
    [
        ([EpochStart(0, 0), EpochStart(2, 15)], 0, 40, 30),  # all
        ([EpochStart(0, 0)], 0, 12, 12),  # what it has
        ([EpochStart(0, 0)], 0, 20, 15),
        ([EpochStart(0, 0), EpochStart(3, 12)], 0, 40, 12),
        ([EpochStart(2, 20)], 20, 40, 30),
        ([EpochStart(0, 10)], 10, 14, 14),
        ([EpochStart(0, 20)], 20, 40, 15),  # epoch 2 was never before it
        ([EpochStart(0, 30)], 30, 40, 15),
        ([EpochStart(3, 30)], 30, 40, 30),
        ([], 0, 0, 0),
        ([], 30, 30, 30),
    ],
)
def test_up_to_where_a_log_and_the_store_are_the_same(
    local: list[EpochStart], local_start: int, log_end: int, shared: int
) -> None:
    """The store has epoch 0 up to 15, and epoch 2 from there to 30."""
    manifest = manifest_of(
        (0, 10, [EpochStart(0, 0)]),
        (10, 20, [EpochStart(0, 10), EpochStart(2, 15)]),
        (20, 30, [EpochStart(2, 20)]),
    )
    assert shared_end(manifest, local, local_start=local_start, log_end=log_end) == shared
