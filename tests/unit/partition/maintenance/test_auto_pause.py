"""Partitions that nobody writes to let go of their files until somebody does."""

from typing import NamedTuple

import pytest

from streamlog.partition.maintenance.auto_pause import AutoPause
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from tests.partition_world import World, publish, tp, values_of
from tests.unit.partition.replica_world import until

HOUR_MS = 3_600_000


class Clock:
    """A time that a test sets, from the beginning of the records on."""

    def __init__(self, partition: Partition) -> None:
        self.ms = partition.state.log.last_timestamp_ms() or 0

    def __call__(self) -> int:
        return self.ms


class Looked(NamedTuple):
    """What there is after a look."""

    resting: bool
    open_files: int


class Watch:
    """Looks at the partitions of a node when it is told to."""

    def __init__(self, registry: ReplicaManager, partition: Partition) -> None:
        self.clock = Clock(partition)
        self._registry = registry
        self._partition = partition
        self._resting = AutoPause(registry._settings, registry.partitions, now_ms=self.clock)

    async def look(self, later_ms: int = 0) -> Looked:
        self.clock.ms += later_ms
        await self._resting.look()
        return Looked(self._partition.state.log.is_resting, self._registry._files.open_count)


async def quiet(partition: Partition) -> None:
    """All is synced and nothing more is to be: a rest may begin at once."""
    await until(lambda: not partition.state.log._unsynced and partition.is_quiet)


async def test_it_rests_after_its_time_and_wakes_with_the_next_append(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", auto_pause_ms=HOUR_MS)
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        await quiet(partition)
        watch = Watch(registry, partition)
        assert await watch.look() == (False, 1)
        assert await watch.look(HOUR_MS - 1) == (False, 1)
        assert await watch.look(1) == (True, 0)
        assert [it.statistics().is_auto_paused for it in registry.partitions()] == [True]
        assert await publish(partition, b"b") == 1
        await quiet(partition)
        assert await watch.look() == (False, 1)
        assert await watch.look(HOUR_MS - 1) == (False, 1)
        assert await watch.look(1) == (True, 0)
        assert await values_of(partition) == [b"a", b"b"]


async def test_readers_do_not_end_it_and_what_they_opened_is_closed(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", auto_pause_ms=HOUR_MS)
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        await quiet(partition)
        watch = Watch(registry, partition)
        assert await watch.look(HOUR_MS) == (True, 0)
        assert await values_of(partition) == [b"a"]
        assert await partition.offset_for_timestamp(0) is not None
        resting, open_files = await watch.look()
        assert resting
        assert open_files > 0
        assert await watch.look(HOUR_MS) == (True, 0)


async def test_it_has_been_idle_since_its_last_record_whatever_was_started_since(
    world: World,
) -> None:
    async with world.node() as registry:
        await world.create("s", auto_pause_ms=HOUR_MS)
        await publish(registry.partition(tp("s")), b"a")
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        await quiet(partition)
        watch = Watch(registry, partition)
        assert (await watch.look(HOUR_MS)).resting
        assert await publish(partition, b"b") == 1


async def test_an_empty_one_rests_its_time_after_the_start(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", auto_pause_ms=HOUR_MS)
        partition = registry.partition(tp("s"))
        watch = Watch(registry, partition)
        assert not (await watch.look()).resting
        assert not (await watch.look(HOUR_MS - 1)).resting
        assert await watch.look(1) == (True, 0)
        assert await publish(partition, b"a") == 0


@pytest.mark.parametrize(("node_ms", "own_ms", "rests"), [
    (0, None, False), (HOUR_MS, None, True), (HOUR_MS, 0, False), (0, HOUR_MS, True),
])  # fmt: skip
async def test_a_stream_says_it_or_else_the_node(
    world: World, node_ms: int, own_ms: int | None, rests: bool
) -> None:
    async with world.node(idle_close_ms=node_ms) as registry:
        await world.create("s", auto_pause_ms=own_ms)
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        await quiet(partition)
        watch = Watch(registry, partition)
        assert (await watch.look(2 * HOUR_MS)).resting == rests


@pytest.mark.parametrize("sync", ["os", "interval"])
async def test_what_was_never_synced_is_first(world: World, sync: str) -> None:
    async with world.node() as registry:
        await world.create("s", auto_pause_ms=HOUR_MS, sync=sync)
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        watch = Watch(registry, partition)
        assert not (await watch.look(HOUR_MS)).resting
        await until(lambda: partition.recovery_point == 1)
        await quiet(partition)
        assert (await watch.look()).resting


async def test_one_that_is_offline_is_left_alone(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", auto_pause_ms=HOUR_MS)
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        await quiet(partition)
        partition.state.log.fail("broken")
        watch = Watch(registry, partition)
        assert not (await watch.look(HOUR_MS)).resting


async def test_it_looks_by_itself(world: World) -> None:
    async with world.node(retention_check_ms=10, idle_close_ms=1) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        for number in range(3):
            assert await publish(partition, b"a") == number
            await until(lambda: partition.state.log.is_resting)
