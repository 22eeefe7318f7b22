"""When a log is looked at, and that its start follows its limits."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamlog.clock import wall_ms
from streamlog.config import LogSection
from streamlog.errors import StorageFailed
from streamlog.partition.maintenance.retention_task import AGAIN_MS, RetentionTask
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from tests.partition_world import World, publish, tp, values_of
from tests.unit.partition.replica_world import until

SIZE = 1_069
"""Of a batch with one value of 1,000 bytes."""


async def test_messages_that_are_too_many_go_once_their_successors_are_committed(
    world: World,
) -> None:
    async with world.node() as registry:
        await world.create("s", retention_messages=3)
        partition = registry.partition(tp("s"))
        for number in range(10):
            await publish(partition, b"%d" % number, b"%d+" % number)
        await until(lambda: partition.log_start_offset == 17)
        assert await values_of(partition) == [b"8+", b"9", b"9+"]
        assert world.checkpoint("log-start-offset-checkpoint")[world.log_id("s")] == 17
    async with world.node() as registry:
        assert registry.partition(tp("s")).log_start_offset == 17


async def test_whole_batches_go_that_are_more_than_the_bytes_that_are_kept(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", retention_bytes=3 * SIZE)
        partition = registry.partition(tp("s"))
        for number in range(10):
            await publish(partition, b"%d" % number * 1_000)
        await until(lambda: partition.size_bytes <= 4 * SIZE)
        assert partition.size_bytes >= 3 * SIZE, "no less is kept than the limit says"
        assert partition.state.log.size_bytes > 9 * SIZE, "its files go when a segment is full"


async def begins_behind(partition: Partition, offset: int) -> None:
    await until(lambda: partition.log_start_offset > offset)


async def test_a_message_goes_when_it_is_too_old(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", retention_ms=400)
        partition = registry.partition(tp("s"))
        appended_ms = []
        for number in range(3):
            appended_ms.append(wall_ms())
            await publish(partition, b"%d" % number)
            await asyncio.sleep(0.15)
        for number in range(3):
            await begins_behind(partition, number)
            assert wall_ms() - appended_ms[number] >= 400
        assert partition.state.log.size_bytes == 0, "all of the segment is too old"


async def test_a_limit_that_is_lowered_holds_at_the_next_look(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", duplicate_window_ms=100)
        partition = registry.partition(tp("s"))
        for number in range(10):
            await publish(partition, b"%d" % number)
        await world.update("s", retention_messages=4)
        await until(lambda: partition.log_start_offset == 6)
        await world.update("s", retention_messages=-1, retention_ms=100)
        await until(lambda: partition.log_start_offset == 10)


class Ticking:
    """A task of its own over the partitions of a node whose own one does nothing."""

    def __init__(self, registry: ReplicaManager) -> None:
        self.now_ms = wall_ms()
        self.partitions: dict[object, Partition] = {}
        self.task = RetentionTask(
            registry._partitions, LogSection(retention_check_ms=10_000), now_ms=lambda: self.now_ms
        )

    async def publish(self, partition: Partition, count: int = 1) -> None:
        for _ in range(count):
            await publish(partition, b"x")
        self.task.changed(partition)

    async def starts(self, partition: Partition) -> int:
        """Where it begins after a turn."""
        await self.task.trim_due()
        await partition_settled(partition)
        return partition.log_start_offset


async def partition_settled(partition: Partition) -> None:
    upkeep = partition._surroundings.upkeep
    await upkeep._later.settle()  # type: ignore[attr-defined]


@pytest.fixture
async def ticking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[World, ReplicaManager, Ticking]]:
    async def idle(_self: RetentionTask) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(RetentionTask, "run", idle)
    world = World(tmp_path)
    async with world.node() as registry:
        yield world, registry, Ticking(registry)


async def test_what_is_past_a_limit_by_little_waits_a_second(
    ticking: tuple[World, ReplicaManager, Ticking],
) -> None:
    """Each move of a log start is a write to the disk."""
    world, registry, clock = ticking
    await world.create("s", retention_messages=200)
    partition = registry.partition(tp("s"))
    await clock.publish(partition, 201)
    assert await clock.starts(partition) == 1, "the first time at once"
    await clock.publish(partition)
    assert await clock.starts(partition) == 1
    await clock.publish(partition)
    assert await clock.starts(partition) == 3, "a hundredth of the limit"
    await clock.publish(partition)
    clock.now_ms += AGAIN_MS - 1
    assert await clock.starts(partition) == 3
    clock.now_ms += 1
    assert await clock.starts(partition) == 4, "though nothing has come since"
    clock.now_ms += AGAIN_MS
    await clock.publish(partition)
    assert await clock.starts(partition) == 5


async def test_a_log_with_an_age_is_looked_at_when_its_first_batch_is_too_old(
    ticking: tuple[World, ReplicaManager, Ticking], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, registry, clock = ticking
    await world.create("s", retention_ms=60_000)
    partition = registry.partition(tp("s"))
    looks = []
    trimmed_start = Partition.trimmed_start

    async def noted(self: Partition, now_ms: int) -> object:
        looks.append(now_ms)
        return await trimmed_start(self, now_ms)

    monkeypatch.setattr(Partition, "trimmed_start", noted)
    await clock.publish(partition, 2)
    first_ms = partition.state.log.first_timestamp_ms()
    assert first_ms is not None
    assert await clock.starts(partition) == 0
    for _ in range(10):
        await clock.publish(partition)
        clock.now_ms += 100
        assert await clock.starts(partition) == 0
    assert len(looks) == 1, "it is known when there is something to do"
    clock.now_ms = first_ms + 60_000
    assert await clock.starts(partition) == 0
    assert len(looks) == 1
    clock.now_ms += 1
    assert await clock.starts(partition) > 0
    assert len(looks) == 2


async def test_a_look_that_fails_is_told_of_and_made_again_with_all_others(
    ticking: tuple[World, ReplicaManager, Ticking],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, registry, clock = ticking
    await world.create("s", retention_messages=2)
    partition = registry.partition(tp("s"))
    trimmed_start = Partition.trimmed_start

    async def broken(_self: Partition, _now_ms: int) -> object:
        raise StorageFailed("as asked for")

    monkeypatch.setattr(Partition, "trimmed_start", broken)
    for _ in range(5):
        await clock.publish(partition)
        assert await clock.starts(partition) == 0
    assert [it.message for it in caplog.records].count("retention failed") == 1
    monkeypatch.setattr(Partition, "trimmed_start", trimmed_start)
    await clock.publish(partition)
    assert await clock.starts(partition) == 0
    await clock.task.look_at_all()
    assert await clock.starts(partition) == 4


async def test_a_partition_that_is_gone_is_forgotten(
    ticking: tuple[World, ReplicaManager, Ticking],
) -> None:
    world, registry, clock = ticking
    await world.create("s", retention_ms=60_000)
    partition = registry.partition(tp("s"))
    await clock.publish(partition)
    assert await clock.starts(partition) == 0
    await world.delete("s")
    await until(lambda: tp("s") not in registry._partitions)
    clock.task.changed(partition)
    clock.now_ms += 120_000
    await clock.task.trim_due()
    await clock.task.look_at_all()
    assert not clock.task._due_ms
    assert not clock.task._order
