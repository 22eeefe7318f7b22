"""All logs are read again now and then."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamlog.partition import reader as reader_module
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from tests.partition_world import World, publish, tp
from tests.unit.partition.freeing_disk import FreeingDisk
from tests.unit.partition.replica_world import TIMEOUT_S, until

SETTINGS: dict[str, Any] = {"scrub_interval_ms": 1, "segment_bytes": 4096}


async def fill(world: World, registry: ReplicaManager, *names: str) -> None:
    """Three segments of each stream."""
    for name in names:
        await world.create(name)
        for i in range(6):
            await publish(registry.partition(tp(name)), bytes([65 + i]) * 2000)


def flip(world: World, name: str) -> None:
    """A bit in the first segment."""
    file = sorted((world.data_dir / "streams" / name / "0").glob("*.log"))[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


async def test_damage_is_found_without_a_reader(world: World) -> None:
    async with world.node(**SETTINGS) as registry:
        await fill(world, registry, "s", "t")
        flip(world, "t")
        await until(lambda: registry.partition(tp("t")).is_damaged)
        assert not registry.partition(tp("s")).is_damaged
        assert world.metrics.corrupt_batches._value.get() == 1
        assert world.metrics.scrubbed_bytes._value.get() > 0
        found = {it.tp.stream: it.statistics().is_damaged for it in registry.partitions()}
        assert found == {"s": False, "t": True}


async def test_it_is_off_where_it_is_not_wanted(world: World) -> None:
    async with world.node(**{**SETTINGS, "scrub_interval_ms": 0}) as registry:
        await fill(world, registry, "s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(registry._scrub.run(), 0.1)
        assert world.metrics.scrubbed_bytes._value.get() == 0


async def test_each_segment_is_read_once(world: World) -> None:
    async with world.node(**{**SETTINGS, "scrub_interval_ms": 0}) as registry:
        await fill(world, registry, "s")
        partition = registry.partition(tp("s"))
        scrubbed = world.metrics.scrubbed_bytes._value
        segments = [it.size_bytes for it in partition.state.log.segments]
        await partition.reader.scrub(1 << 30)
        assert scrubbed.get() == sum(segments)
        assert not partition.is_damaged


SLOW: dict[str, Any] = {
    "scrub_interval_ms": 0,
    "segment_bytes": 1 << 20,
    "scrub_bytes_per_s": 64 << 10,
}
"""A segment takes sixteen seconds."""


@contextlib.asynccontextmanager
async def scrubbing(
    world: World, disk: FreeingDisk
) -> AsyncIterator[tuple[ReplicaManager, Partition, "asyncio.Task[None]"]]:
    """In the middle of the first of three segments, which is open for nobody else."""
    async with world.node(disk, **SLOW) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        for _ in range(3):
            await publish(partition, bytes(1_000_000))
        await partition.wait_quiet()
        log = partition.state.log
        task = asyncio.create_task(partition.reader.scrub(SLOW["scrub_bytes_per_s"]))
        await until(lambda: is_checked(partition))
        assert log.segment_count == 3
        yield registry, partition, task
        task.cancel()


def is_checked(partition: Partition) -> bool:
    """Somebody has the first segment's file in hand."""
    pool, path = partition.state.log._pool, partition.state.log.segments.first.path
    pooled = pool._files.get(path)
    return pooled is not None and pooled.pins > 0


async def test_a_scrub_ends_with_the_node(world: World) -> None:
    """A stop does not wait for it: no thread has a file any more."""
    disk = FreeingDisk()
    async with scrubbing(world, disk) as (registry, _, task):
        await registry.close()
        await asyncio.wait_for(task, TIMEOUT_S)
        assert not disk.open_count


async def test_a_scrub_that_is_cancelled_lets_go_of_its_file(world: World) -> None:
    async with scrubbing(world, FreeingDisk()) as (_, partition, task):
        task.cancel()
        await until(lambda: not is_checked(partition))


async def test_a_deleted_log_is_scrubbed_no_more(world: World) -> None:
    """Its room would be free only with the end of the check."""
    disk = FreeingDisk()
    async with scrubbing(world, disk) as (_, _, task):
        await world.delete("s")
        await asyncio.wait_for(task, TIMEOUT_S)
        await until(lambda: len(disk.freed) == 3)


async def test_a_scrub_makes_way_and_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the segment that it was at, so that all are checked in the end."""
    monkeypatch.setattr(reader_module, "RESUME_S", 0.0)
    async with scrubbing(world, FreeingDisk()) as (_, partition, task):
        first = next(iter(partition.reader._checks))
        partition.reader.make_way()
        await until(lambda: partition.reader._checks - {first})
        await until(lambda: is_checked(partition))  # the thread of the second check opens the file
        assert not task.done()


async def test_checks_that_somebody_waits_for_do_not_make_way(world: World) -> None:
    async with world.node(**{**SETTINGS, "scrub_interval_ms": 0}) as registry:
        await fill(world, registry, "s")
        flip(world, "s")
        partition = registry.partition(tp("s"))
        checking = asyncio.create_task(partition.reader.recheck(0))
        await until(lambda: partition.reader._checks or checking.done())
        partition.reader.make_way()
        await checking
        assert partition.is_damaged
