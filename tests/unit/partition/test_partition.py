import asyncio
import errno
from pathlib import Path

import pytest

from streamlog.errors import (
    CorruptBatch,
    NotLeader,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
)
from streamlog.partition.partition import Partition
from tests.partition_world import Told, World, failures_of, publish, run_of, tp, values_of
from tests.unit.failing_disk import FailingDisk
from tests.unit.partition.replica_world import until


async def test_an_acknowledgement_never_comes_inside_append(world: World) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        told = Told()
        assert partition.append(run_of(b"a"), told) == 0
        assert not told.answer.done()
        assert partition.in_flight_bytes > 0
        assert await told.answer == 0
        assert partition.in_flight_bytes == 0


async def test_one_sync_covers_all_that_came_while_the_last_one_ran(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        told = [Told() for _ in range(500)]
        for one in told:
            partition.append(run_of(b"x"), one)
        assert await asyncio.gather(*(one.answer for one in told)) == list(range(500))
        syncs = world.metrics.registry.get_sample_value("streamlog_fsync_duration_seconds_count")
        assert syncs is not None
        assert syncs < 10
        count = world.metrics.registry.get_sample_value("streamlog_commit_latency_seconds_count")
        assert count == 500


async def test_partitions_sync_beside_each_other(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", partitions=20)
        partitions = [registry.partition(tp("s", i)) for i in range(20)]
        offsets = await asyncio.gather(*(publish(p, b"a", b"b") for p in partitions))
        assert offsets == [0] * 20


async def test_watchers_hear_of_each_advance_and_may_leave_while_told(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        heard: list[int] = []

        def once() -> None:
            heard.append(partition.high_watermark)
            partition.remove_watcher(once)

        partition.add_watcher(once)
        await publish(partition, b"a")
        await publish(partition, b"b")
        assert heard == [1]
        partition.remove_watcher(once)


async def test_reads_stop_at_the_high_watermark(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        told = Told()
        partition.append(run_of(b"b"), told)
        with await partition.read(0, 1 << 20) as piece:
            committed = len(piece)
        with await partition.read(1, 1 << 20) as piece:
            assert len(piece) == 0
        await told.answer
        with await partition.read(0, 1 << 20) as piece:
            assert len(piece) > committed
        with pytest.raises(OffsetOutOfRange):
            await partition.read(3, 100)


async def test_times(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        assert await partition.offset_for_timestamp(0) is None
        assert await partition.latest_timestamp() is None
        await publish(partition, b"a", b"b")
        first = await partition.offset_for_timestamp(0)
        assert first is not None
        assert first[0] == 0
        latest = await partition.latest_timestamp()
        assert latest is not None
        assert latest[1] >= first[1]


async def test_purge_is_durable_when_it_returns(world: World) -> None:
    registry = await world.started(segment_bytes=4096)
    await world.create("s")
    partition = registry.partition(tp("s"))
    for _ in range(20):
        await publish(partition, b"x" * 1000)
    assert await partition.purge(7) == 7
    assert await partition.purge(3) == 0
    assert await partition.purge(10**9) == 13
    assert partition.log_start_offset == partition.high_watermark == 20
    assert partition.statistics().size_bytes == 0
    async with world.node() as registry:  # after a kill
        partition = registry.partition(tp("s"))
        assert partition.log_start_offset == partition.log_end_offset == 20
        assert await publish(partition, b"y") == 20


async def test_purges_at_once_keep_the_furthest(world: World) -> None:
    registry = await world.started()
    await world.create("s")
    partition = registry.partition(tp("s"))
    for _ in range(10):
        await publish(partition, b"x")
    await asyncio.gather(*(partition.purge(n) for n in (8, 2, 5)))
    assert partition.log_start_offset == 8
    async with world.node() as registry:
        assert registry.partition(tp("s")).log_start_offset == 8


async def test_a_purge_that_cannot_be_kept_is_refused(world: World) -> None:
    disk = FailingDisk()
    async with world.node(disk) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"x")
        disk.faults.break_("write_small", code=errno.ENOSPC, path="checkpoint")
        with pytest.raises(StorageFull):
            await partition.purge(1)
        assert partition.log_start_offset == 0
        disk.faults.mend()
        assert await partition.purge(1) == 1


async def test_a_full_disk_refuses_keeps_and_recovers(world: World) -> None:
    disk = FailingDisk()
    async with world.node(disk, disk_check_interval_ms=10) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        assert await publish(partition, b"kept") == 0
        disk.faults.break_("pwrite", code=errno.ENOSPC)
        with pytest.raises(StorageFull):
            partition.append(run_of(b"lost"), Told())
        assert partition.failure is None
        assert not registry.has_room
        disk.faults.break_("pwrite", code=errno.ENOSPC, path=".tmp")
        with pytest.raises(StorageFull):  # it would fit, but not as much as is to be free
            partition.append(run_of(b"lost"), Told())
        disk.faults.mend()
        await until(lambda: registry.has_room)
        assert await publish(partition, b"again") == 1
        assert await values_of(partition) == [b"kept", b"again"]


@pytest.mark.parametrize("operation", ["pwrite", "sync"])
async def test_a_failing_disk_takes_one_partition_offline(
    world: World, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    async with world.node(disk) as registry:
        await world.create("s")
        await world.create("t")
        partition, other = registry.partition(tp("s")), registry.partition(tp("t"))
        await publish(partition, b"kept")
        heard: list[object] = []
        partition.add_watcher(lambda: heard.append(partition.failure))
        disk.faults.break_(operation, path="streams/s/")
        told = Told()
        with pytest.raises(StorageFailed):
            partition.append(run_of(b"lost"), told)
            await told.answer
        for _ in range(3):
            with pytest.raises(StorageFailed):
                partition.append(run_of(b"x"), Told())
        assert heard, "the watchers are told"
        assert [it.getMessage() for it in caplog.records].count("partition offline") == 1
        assert set(failures_of(registry)) == {tp("s")}
        assert await values_of(partition) == [b"kept"]
        assert await publish(other, b"x") == 0
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert (await values_of(partition))[0] == b"kept"
        await publish(partition, b"again")


async def test_too_many_open_files_delay_a_sync_and_lose_nothing(world: World) -> None:
    disk = FailingDisk()
    async with world.node(disk, open_files_max=16) as registry:
        await world.create("s", partitions=20)
        first = registry.partition(tp("s", 0))
        told = Told()
        first.append(run_of(b"x"), told)
        for i in range(1, 20):
            registry.partition(tp("s", i)).append(run_of(b"x"), Told())
        disk.faults.break_("open", code=errno.EMFILE)
        await asyncio.sleep(0)
        disk.faults.mend()
        assert await told.answer == 0


async def damaged(world: World) -> Path:
    """A stream with a flipped byte in a sealed segment; where."""
    async with world.node(segment_bytes=4096) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        for i in range(20):
            await publish(partition, bytes([65 + i]) * 1000)
    path = sorted((world.data_dir / "streams" / "s" / "0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


async def test_a_flipped_byte_is_found_named_and_not_served(world: World) -> None:
    path = await damaged(world)
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        offset, found = 0, None
        while found is None:
            try:
                with await partition.read(offset, 1) as piece:
                    assert piece.read()
                offset += 1
            except CorruptBatch as error:
                found = error
        assert str(path) in str(found)
        with await partition.read(offset + 1, 1) as piece:
            assert piece.read(), "what comes after it is served"
        with pytest.raises(CorruptBatch):
            await partition.read(offset, 1)
        count = world.metrics.registry.get_sample_value("streamlog_corrupt_batches_total")
        assert count == 1


async def test_an_unchecked_segment_is_checked_off_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await damaged(world)
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        threads: list[bool] = []
        from streamlog.log.segment import segment as module

        inner = module.Segment.verify

        def verify(self: module.Segment) -> None:
            try:
                asyncio.get_running_loop()
                threads.append(False)
            except RuntimeError:
                threads.append(True)
            inner(self)

        monkeypatch.setattr(module.Segment, "verify", verify)
        assert await partition.latest_timestamp() is not None
        assert threads == [True]
        assert await partition.offset_for_timestamp(0) is not None
        (await partition.read(19, 1)).close()
        assert threads
        assert all(threads)


async def test_a_closed_partition_refuses_everything(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition: Partition = registry.partition(tp("s"))
        await registry.close()
        assert not partition.is_leader
        with pytest.raises(NotLeader):
            await partition.read(0, 1)
        with pytest.raises(NotLeader):
            await partition.purge(1)
        with pytest.raises(NotLeader):
            await partition.offset_for_timestamp(0)
