"""Leaders that were elected unclean, while the object store has more than they have."""

import asyncio
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.condition import Condition
from streamlog.errors import ObjectStoreUnavailable
from streamlog.log.leader_epochs import EpochStart
from streamlog.metadata import commands as c
from streamlog.model import EpochEnd, NodeId
from streamlog.partition.partition import Partition
from streamlog.partition.replication.truncation import STORE_TAKEN, begin_at_store_end
from streamlog.partition.tiering.tier_manager import TIER_CUT
from streamlog.partition.tiering.tier_plan import shared_end
from streamlog.tier.manifest import TieredSegment, TierManifest
from tests.partition_world import publish, values_of
from tests.unit.partition.replica_world import ReplicaWorld, until
from tests.unit.partition.tiering.test_tiered_partition import (
    COUNT,
    all_of,
    fill,
    tiered,
    until_front_is_gone,
    value,
)


async def lose(world: ReplicaWorld, lost: int, leader: int) -> Partition:
    """The last replica in sync is gone, and another one leads without what it lacks."""
    await world.stop(lost)
    return await lead(world, leader)


async def lead(world: ReplicaWorld, leader: int) -> Partition:
    await world.start(leader)
    await world.ask(c.ElectLeader(stream="s", partition=0, leader=NodeId(leader), unclean=True))
    partition = world[leader].partition()
    await until(lambda: partition.is_leader and partition.high_watermark_known)
    return partition


async def until_settled(partition: Partition) -> None:
    """The object store has nothing that the leader lacks."""
    await until(lambda: not partition.state.is_behind_store)


async def overwrite(partition: Partition, first: int, end: int) -> list[bytes]:
    values = [b"other" + value(number) for number in range(first, end)]
    for it in values:
        await publish(partition, it)
    return values


def is_cut(partition: Partition) -> bool:
    manifest = partition.tiered.manifest
    return manifest is not None and manifest.leader_epoch == partition.leader_epoch


def tiered_end(partition: Partition) -> int:
    image = partition.tiered.image
    assert image is not None
    return image.end_offset


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


@pytest.mark.parametrize("end", [0, 12, 32])
async def test_a_shorter_leader_goes_on_behind_what_the_store_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end: int
) -> None:
    """An empty one, too."""
    async with asyncio.timeout(60), tiered(tmp_path, 2, min_isr=1) as world:
        old, other = await shorter(world, end)
        partition = await lose(world, old, other)
        stored_end = tiered_end(partition)
        assert stored_end > partition.log_end_offset == end
        with pytest.raises(ObjectStoreUnavailable, match="yet to take over"):
            await publish(partition, b"too early")
        await until_settled(partition)
        assert partition.log_end_offset == partition.high_watermark == stored_end
        assert partition.log_start_offset == 0
        expected = [*map(value, range(stored_end)), *await overwrite(partition, stored_end, 90)]
        assert await values_of(partition, 0) == expected
        assert [it.__dict__["offset"] for it in told(caplog, STORE_TAKEN)] == [stored_end]
        assert not told(caplog, TIER_CUT)
        await until_front_is_gone(partition, 60)
        assert await values_of(partition, 0) == expected
        assert await partition.find_epoch_end(0) == EpochEnd(0, stored_end)
        # What the other one had behind the store's end are other records.
        await world.start(old)
        late = world[old].partition()
        await until(lambda: late.high_watermark == 90)
        assert await values_of(late, 0) == expected
        assert late.local_log_start_offset > 60


async def test_a_leader_that_ends_below_the_log_start_loses_nothing_that_it_acknowledges(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(60), tiered(tmp_path, 2, min_isr=1) as world:
        old, other = await shorter(world, 12)
        await world.leader.partition().purge(COUNT)
        partition = await lose(world, old, other)
        await until_settled(partition)
        assert partition.log_start_offset == partition.log_end_offset == COUNT
        expected = await overwrite(partition, COUNT, 90)
        assert await values_of(partition, COUNT) == expected
        await world.stop(other)
        await world.start(other)
        partition = world[other].partition()
        await until(lambda: partition.is_leader and partition.high_watermark == 90)
        assert await values_of(partition, COUNT) == expected


async def test_without_the_store_a_shorter_leader_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes over when the store is there again, after a restart as well."""
    async with asyncio.timeout(60), tiered(tmp_path, 2, min_isr=1) as world:
        old, other = await shorter(world, 12)
        bucket, away = tmp_path / "bucket", tmp_path / "away"
        await world.stop(old)  # before: what it puts must not go into another folder
        bucket.rename(away)
        await lead(world, other)
        await world.stop(other)
        await world.start(other)
        partition = world[other].partition()
        await until(lambda: partition.is_leader and partition.high_watermark_known)
        with pytest.raises(ObjectStoreUnavailable, match="yet to take over"):
            await publish(partition, b"too early")
        image = partition.tiered.image
        assert image is not None
        with ThreadPoolExecutor(1) as workers:  # what was compared with another manifest
            await begin_at_store_end(partition, image._replace(version=image.version + 1), workers)
            assert partition.log_end_offset == 12

            async def leads_again() -> None:
                partition.state.leader_epoch += 1

            with monkeypatch.context() as patch:  # what was compared in another leadership
                patch.setattr(type(partition), "wait_quiet", lambda _self: leads_again())
                await begin_at_store_end(partition, image, workers)
            partition.state.leader_epoch -= 1
        assert partition.log_end_offset == 12
        shutil.rmtree(bucket, ignore_errors=True)
        away.rename(bucket)
        await until_settled(partition)
        assert await values_of(partition, 0) == [*map(value, range(tiered_end(partition)))]


async def test_of_two_histories_the_store_keeps_what_its_leader_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one that led comes back, leads uncleanly in its turn and copies more than the second one had, which
    then leads again.
    """
    async with asyncio.timeout(60), tiered(tmp_path, 2, min_isr=1) as world:
        first, second = await shorter(world, 12)
        partition = await lose(world, first, second)
        await until_settled(partition)
        parted = partition.log_end_offset
        others = await overwrite(partition, parted, parted + 3)
        partition = await lose(world, second, first)
        assert not partition.state.is_behind_store
        assert partition.log_end_offset == COUNT
        await fill(world, COUNT, 90)
        await until(lambda: tiered_end(partition) > 80)
        await all_of(partition, 0, 90)
        partition = await lose(world, first, second)
        await until_settled(partition)
        assert is_cut(partition)
        assert tiered_end(partition) <= parted
        expected = [*map(value, range(parted)), *others]
        assert partition.log_end_offset == len(expected)
        assert (
            await values_of(partition, partition.log_start_offset)
            == expected[partition.log_start_offset :]
        )
        (cut,) = told(caplog, TIER_CUT)
        assert (cut.__dict__["offset"], cut.__dict__["epoch"]) == (parted, partition.leader_epoch)


def told(caplog: pytest.LogCaptureFixture, condition: Condition) -> list[logging.LogRecord]:
    return [it for it in caplog.records if it.msg == condition]


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
