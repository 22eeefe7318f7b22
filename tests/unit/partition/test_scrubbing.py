"""All logs are read again now and then."""

import asyncio
import contextlib

from streamlog.partition.registry import Registry
from tests.partition_world import World, publish, tp
from tests.replica_world import until

SETTINGS = {"scrub_interval_ms": 1, "segment_bytes": 4096}


async def fill(world: World, registry: Registry, *names: str) -> None:
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
        found = {it.tp.stream: it.is_damaged for it in registry.statistics()}
        assert found == {"s": False, "t": True}


async def test_it_is_off_where_it_is_not_wanted(world: World) -> None:
    async with world.node(**{**SETTINGS, "scrub_interval_ms": 0}) as registry:
        await fill(world, registry, "s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(registry._scrubbing.run(), 0.1)
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
