import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamlog.config import LogSection
from streamlog.log.checkpoint import encode_checkpoint
from streamlog.partition.maintenance.scheduled_tasks import ScheduledTasks
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.partition.storage.checkpoints import RECOVERY_POINT, Checkpoints
from tests.partition_world import Told, World, publish, run_of, tp
from tests.unit.failing_disk import FailingDisk

QUICK: dict[str, Any] = {
    "checkpoint_interval_ms": 10,
    "sync_interval_ms": 10,
    "retention_check_ms": 10,
}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (files have no events)
            await asyncio.sleep(0.005)


async def test_checkpoints_follow(world: World) -> None:
    file = world.data_dir / "high-watermark-checkpoint"
    file.write_bytes(encode_checkpoint([]))
    async with world.node(**QUICK) as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a", b"b")
        await until(lambda: world.checkpoint(file.name) == {world.log_id("s"): 2})
        await world.delete("s")
        await until(lambda: file.read_bytes() == encode_checkpoint([]))


async def test_checkpoints_that_fail_are_told_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    file = world.data_dir / "high-watermark-checkpoint"
    async with world.node(disk, **QUICK) as registry:
        await world.create("s")
        with caplog.at_level(logging.WARNING):
            disk.faults.break_("write_small", code=errno.ENOSPC, path="high-watermark")
            await publish(registry.partition(tp("s")), b"a")
            await until(lambda: "checkpoints not written" in caplog.text)
        disk.faults.mend()
        await until(lambda: world.checkpoint(file.name) == {world.log_id("s"): 1})


class DelayedDisk(FailingDisk):
    """Something happens while the checkpoint is written."""

    meanwhile: Callable[[], None] | None = None

    def write_small(self, path: str, data: bytes) -> None:
        if "recovery-point-offset" in path and self.meanwhile is not None:
            self.meanwhile()
        super().write_small(path, data)


class LimitedLog:
    """A partition whose log was cut after a checkpoint, and upkeep that does nothing by itself."""

    def __init__(self, world: World, partition: Partition) -> None:
        self.partition = partition
        self.log = partition.state.log
        self.workers = ThreadPoolExecutor(1)
        self.disk = DelayedDisk()
        checkpoints = Checkpoints(world.data_dir, self.disk)
        self.upkeep = ScheduledTasks(
            {partition.tp: partition}, checkpoints, self.workers, LogSection()
        )
        self.limit = world.data_dir / "streams" / "s" / "0" / "recovery-point-limit"
        self._world = world

    @property
    def recovery_point(self) -> int:
        """As the checkpoint has it."""
        return self._world.checkpoint(RECOVERY_POINT)[self._world.log_id("s")]

    def cut(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.partition.state.high_watermark = min(self.partition.high_watermark, offset)

    async def write(self) -> None:
        self.upkeep.offsets_changed(self.partition)
        await self.upkeep.write_checkpoints()


@pytest.fixture
async def limited(world: World) -> AsyncIterator[LimitedLog]:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        for _ in range(3):
            await publish(partition, b"x")
        limited = LimitedLog(world, partition)
        await limited.write()
        assert limited.recovery_point == 3
        limited.cut(2)
        assert limited.limit.exists()
        yield limited
        limited.partition.state.cutting = False
        limited.workers.shutdown()


async def test_a_checkpoint_lifts_the_limit_of_the_one_before(limited: LimitedLog) -> None:
    limited.disk.faults.break_("write_small", path="recovery-point-offset")
    await limited.write()
    assert limited.limit.exists(), "the old checkpoint is still there"
    limited.disk.faults.mend()
    await limited.write()
    assert limited.recovery_point == 2
    assert not limited.limit.exists()


async def test_a_checkpoint_does_not_lift_the_limit_of_a_cut_that_came_meanwhile(
    limited: LimitedLog,
) -> None:
    limited.disk.meanwhile = lambda: limited.cut(1)
    await limited.write()
    assert limited.recovery_point == 2
    assert limited.limit.exists()
    limited.disk.meanwhile = None
    await limited.write()
    assert not limited.limit.exists()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_a_checkpoint_does_not_lift_the_limit_of_a_log_that_is_being_cut(
    limited: LimitedLog, when: str
) -> None:
    state = limited.partition.state
    state.cutting = when == "before"
    limited.disk.meanwhile = lambda: setattr(state, "cutting", when == "meanwhile")
    await limited.write()
    assert limited.limit.exists()
    limited.disk.meanwhile = None
    state.cutting = False
    await limited.write()
    assert not limited.limit.exists()


async def test_the_interval_syncs(world: World) -> None:
    async with world.node(sync="interval", **QUICK) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        await until(lambda: partition.recovery_point == 1)


async def test_sync_os_leaves_it_to_the_system_but_for_sealed_segments(world: World) -> None:
    async with world.node(sync="os", segment_bytes=4096, **QUICK) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"x" * 1000)
        await asyncio.sleep(0.05)
        assert partition.recovery_point == 0
        for _ in range(5):
            await publish(partition, b"x" * 1000)
        await until(lambda: partition.recovery_point >= 4)


async def test_a_stop_right_after_an_append_loses_nothing(world: World) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        told = Told()
        partition.append(run_of(b"x"), told)
        await registry.close()
        assert partition.recovery_point == 1
        assert await told.answer == 0


async def test_retention_deletes_and_the_checkpoint_follows(world: World) -> None:
    file = world.data_dir / "log-start-offset-checkpoint"
    async with world.node(segment_bytes=4096, **QUICK) as registry:
        await world.create("s", retention_messages=5)
        partition = registry.partition(tp("s"))
        for _ in range(30):
            await publish(partition, b"x" * 1000)
        await until(lambda: partition.log_start_offset > 20)
        await until(
            lambda: world.checkpoint(file.name) == {world.log_id("s"): partition.log_start_offset}
        )


async def test_age_empties_an_idle_stream(world: World) -> None:
    async with world.node(**QUICK) as registry:
        await world.create("s", retention_ms=100)
        partition = registry.partition(tp("s"))
        await publish(partition, b"x")
        await until(lambda: partition.log_start_offset == 1)
        assert await publish(partition, b"y") == 1


async def test_retention_that_fails_is_told_and_stops_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    async with world.node(disk, segment_bytes=4096, **QUICK) as registry:
        await world.create("s", retention_messages=1)
        partition = registry.partition(tp("s"))
        with caplog.at_level(logging.WARNING):
            disk.faults.break_("unlink", path=".log")
            for _ in range(10):
                await publish(partition, b"x" * 1000)
            await until(lambda: "removed files remain" in caplog.text)
        disk.faults.mend()
        for _ in range(5):
            await publish(partition, b"x" * 1000)
        await until(lambda: partition.statistics().segment_count <= 2)
        folder = world.data_dir / "streams" / "s" / "0"
        await until(lambda: not list(folder.glob("*.deleted")))
        assert isinstance(registry, ReplicaManager)
