"""Which logs are compacted when, over real files."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from streamlog.clock import wall_ms
from streamlog.config import LogSection
from streamlog.log.compaction.cleaner import Cleaning
from streamlog.log.compaction.segment_swap import Swap
from streamlog.log.settings import UNLIMITED
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.partition.maintenance import log_cleaner
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.partition.stream_limits import log_settings
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.offset_set import OffsetSet
from tests.partition_world import Told, World, tp
from tests.unit.failing_disk import FailingDisk
from tests.unit.partition.replica_world import until

NODE: dict[str, Any] = {"compaction_interval_ms": 20, "segment_bytes": 16_384}
COMPACT: dict[str, Any] = {
    "cleanup_policy": "compact",
    "duplicate_window_ms": 100,
    "segment_age_ms": 100,
    "min_cleanable_dirty_ratio": 0.0,
}


async def put(partition: Partition, *pairs: tuple[bytes, bytes | None]) -> None:
    for key, value in pairs:
        run, told = RecordRun(), Told()
        run.append(key, value)
        partition.append(run, told)
        await told.answer


async def pairs_of(partition: Partition) -> list[tuple[bytes | None, bytes | None]]:
    found: list[tuple[bytes | None, bytes | None]] = []
    at = partition.log_start_offset
    while at < partition.high_watermark:
        with await partition.read(at, 1 << 20) as piece:
            data = piece.read()
        for header, batch in batches(data):
            found += [(it.key, it.value) for it in iter_records(batch)]
            at = header.next_offset
    return found


async def overwritten(
    world: World, registry: ReplicaManager, name: str, **settings: Any
) -> Partition:
    """Ten keys, three times each."""
    await world.create(name, **{**COMPACT, **settings})
    partition = registry.partition(tp(name))
    for number in range(3):
        await put(partition, *((b"k%d" % key, b"%d" % number * 100) for key in range(10)))
    return partition


def all_clean(partition: Partition) -> bool:
    return partition.first_dirty_offset == partition.log_end_offset


def of(counter: Any) -> float:
    value: float = counter._value.get()
    return value


def files(world: World, name: str, ending: str) -> list[Path]:
    return sorted((world.data_dir / "streams" / name / "0").glob("*" + ending))


async def test_an_idle_stream_is_compacted_too(world: World) -> None:
    async with world.node(**NODE) as registry:
        partition = await overwritten(world, registry, "s")
        await until(lambda: all_clean(partition))
        assert await pairs_of(partition) == [(b"k%d" % key, b"2" * 100) for key in range(10)]
        assert partition.log_end_offset == 30
        metrics = world.metrics
        await until(lambda: of(metrics.compaction_dirty_ratio) == 0)
        assert of(metrics.compaction_read_bytes) > of(metrics.compaction_removed_bytes) > 0
        assert of(metrics.compaction_last_seconds) > 0
        assert of(metrics.compaction_failures) == of(metrics.compaction_failing) == 0


async def test_other_streams_are_left_alone(world: World) -> None:
    async with world.node(**NODE) as registry:
        plain = await overwritten(world, registry, "plain", cleanup_policy="delete")
        partition = await overwritten(world, registry, "s")
        await until(lambda: all_clean(partition))
        assert len(await pairs_of(plain)) == 30
        assert plain.first_dirty_offset == 0


async def test_segments_that_are_sealed_after_a_compaction_are_synced(world: World) -> None:
    """There are fewer then than there were; each new one is synced all the same."""
    async with world.node(**NODE) as registry:
        settings = {**COMPACT, "sync": "os", "segment_age_ms": 3_600_000}
        await world.create("s", **settings)
        partition = registry.partition(tp("s"))
        await put(partition, *((b"k", os.urandom(4_096)) for _ in range(40)))
        log = partition.state.log
        await until(lambda: log.segment_count <= 2)
        for number in range(3):
            pairs = [(b"%d %d" % (number, key), os.urandom(4_096)) for key in range(5)]
            await put(partition, *pairs)  # more than a segment
            await until(lambda: log.recovery_point >= log.sealed_end)


async def test_what_is_clean_is_known_after_a_restart(world: World) -> None:
    async with world.node(**NODE) as registry:
        partition = await overwritten(world, registry, "s")
        await until(lambda: all_clean(partition))
    assert world.checkpoint("cleaner-offset-checkpoint") == {world.log_id("s"): 30}
    async with world.node(compaction_interval_ms=3_600_000) as registry:
        partition = registry.partition(tp("s"))
        assert partition.first_dirty_offset == 30
        assert len(await pairs_of(partition)) == 10
        await world.delete("s")
        await world.create("s")
        assert registry.partition(tp("s")).first_dirty_offset == 0
    assert world.checkpoint("cleaner-offset-checkpoint") == {}


async def test_the_policy_may_change_at_any_time(world: World) -> None:
    async with world.node(**NODE) as registry:
        partition = await overwritten(world, registry, "s", cleanup_policy="delete")
        await world.update("s", cleanup_policy="compact")
        await until(lambda: all_clean(partition))
        assert len(await pairs_of(partition)) == 10
        await world.update("s", cleanup_policy="delete")
        await put(partition, (b"k0", b"a"), (b"k0", b"b"))
        assert len(await pairs_of(partition)) == 12


async def test_tombstones_go_after_their_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.node(**NODE) as registry:
        partition = await overwritten(world, registry, "s", delete_retention_ms=3_600_000)
        await put(partition, (b"k0", None))
        await until(lambda: all_clean(partition))
        assert (b"k0", None) in await pairs_of(partition)
        monkeypatch.setattr(log_cleaner, "wall_ms", lambda: wall_ms() + 3_600_000)
        await until(lambda: partition.state.cleaning.horizon_ms is None)
        assert b"k0" not in dict(await pairs_of(partition))


async def test_tombstones_wait_for_all_replicas(world: World) -> None:
    async with world.node(**NODE) as registry:
        partition = await overwritten(world, registry, "s", delete_retention_ms=0)
        assert partition.state.is_whole
        partition.state.replicas = frozenset((1, 2))  # type: ignore[arg-type]
        assert not partition.state.is_whole
        await put(partition, (b"k0", None))
        await until(lambda: all_clean(partition))
        await put(partition, (b"k1", None))
        await until(lambda: all_clean(partition))
        assert {(b"k0", None), (b"k1", None)} < set(await pairs_of(partition))
        partition.state.replicas = frozenset((1,))
        await until(lambda: partition.state.cleaning.horizon_ms is None)
        assert len(await pairs_of(partition)) == 8


async def test_one_that_fails_is_marked_and_others_go_on(world: World) -> None:
    disk = FailingDisk()
    disk.faults.break_("create", code=errno.EIO, path="bad/0/00000000000000000000.log.cleaned")
    async with world.node(disk, **NODE) as registry:
        bad = await overwritten(world, registry, "bad")
        good = await overwritten(world, registry, "good")
        await until(lambda: all_clean(good))
        await until(lambda: of(world.metrics.compaction_failing) == 1)
        assert "Input/output error" in bad.state.cleaning.failure
        assert of(world.metrics.compaction_failures) == 1
        assert bad.failure is None
        assert len(await pairs_of(bad)) == 30
        await put(bad, (b"k0", b"goes on"))
        disk.faults.mend()
        bad.state.cleaning.failed_until = 0
        await until(lambda: all_clean(bad))
        await until(lambda: of(world.metrics.compaction_failing) == 0)


async def test_a_full_disk_leaves_the_log_as_it_was(world: World) -> None:
    disk = FailingDisk()
    disk.faults.break_("pwrite", code=errno.ENOSPC, path=".cleaned")
    async with world.node(disk, **NODE) as registry:
        # Nothing can be compacted before all is written: a full disk refuses appends.
        partition = await overwritten(world, registry, "s", segment_age_ms=3_600_000)
        partition.state.log.roll()
        await until(lambda: of(world.metrics.compaction_failures) >= 1)
        assert len(await pairs_of(partition)) == 30
        assert not files(world, "s", ".cleaned")
        assert partition.failure is None
        disk.faults.mend()


async def test_what_is_erased_is_compacted_first_however_little_is_dirty(world: World) -> None:
    """Else the record before the erased one would stay, where no other replica has it."""
    settings = {**NODE, "erasure_lag_ms": 100}
    async with world.node(**settings) as registry:
        partition = await overwritten(world, registry, "s")
        await until(lambda: partition.first_dirty_offset == 30)
        await world.update("s", min_cleanable_dirty_ratio=1.0)
        await put(partition, (b"k", b"old"), (b"k", b"new"), (b"other", b"x"))
        await partition.erasing.erase(OffsetSet([31]))
        await until(lambda: not partition.state.log.erasures.unremoved)
        assert (b"k", b"old") not in await pairs_of(partition)
        assert (b"other", b"x") in await pairs_of(partition)


async def test_damage_that_a_cleaning_meets_is_told(world: World) -> None:
    async with world.node(**{**NODE, "compaction_interval_ms": 3_600_000}) as registry:
        partition = await overwritten(world, registry, "s")
        partition.state.log.roll()
        await put(partition, (b"k0", b"x"))
        # Where appends are slow, segments end by their age: it need not be the first.
        file = next(it for it in files(world, "s", ".log") if b"1" * 100 in it.read_bytes())
        data = bytearray(file.read_bytes())
        data[data.index(b"1" * 100) + 50] ^= 1
        file.write_bytes(data)
        await asyncio.sleep(0.1)  # the least lag
        await registry._log_cleaner.clean_all()
        assert "checksum" in partition.state.cleaning.failure
        assert partition.is_damaged
        assert partition.first_dirty_offset == 0


SLOW: dict[str, Any] = {**NODE, "compaction_bytes_per_s": 65_536, "segment_bytes": 1 << 24}


async def begun(world: World, registry: ReplicaManager) -> Partition:
    """A cleaning that would take minutes."""
    await world.create("s", **COMPACT)
    partition = registry.partition(tp("s"))
    await put(partition, *((b"k", bytes(1_000_000)) for _ in range(8)))
    await until(lambda: partition.state.cleaning.running is not None)
    return partition


async def test_a_stop_waits_for_no_cleaning(world: World) -> None:
    async with world.node(**SLOW) as registry:
        await begun(world, registry)
    assert not files(world, "s", ".cleaned")
    async with world.node(compaction_interval_ms=3_600_000) as registry:
        assert len(await pairs_of(registry.partition(tp("s")))) == 8


async def test_who_cuts_the_log_calls_a_cleaning_off(world: World) -> None:
    async with world.node(**SLOW) as registry:
        partition = await begun(world, registry)
        await partition.wait_quiet()
        assert partition.state.cleaning.running is None
        assert not partition.state.log.is_swapping


async def test_a_stop_amid_a_swap_waits_for_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = await world.started(**NODE)
    # One segment of all: of a part of it, a cleaning on a busy machine would find nothing to leave out.
    partition = await overwritten(world, registry, "s", segment_age_ms=3_600_000)
    partition.state.log.roll()
    partition.sync_soon()
    seen: list[bool] = []

    def swapped(cleaning: Cleaning, swap: Any) -> None:
        seen.append(True)

    monkeypatch.setattr(Cleaning, "swapped", swapped)
    commit = asyncio.Event()
    loop = asyncio.get_running_loop()
    real = Swap.commit

    def slow_commit(swap: Swap) -> None:
        loop.call_soon_threadsafe(commit.set)
        real(swap)

    monkeypatch.setattr(Swap, "commit", slow_commit)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(registry.run())
        await commit.wait()
        running.cancel()
    assert seen
    assert partition.state.cleaning.running is None
    assert not partition.state.log.is_swapping
    await registry.close()
    async with world.node(compaction_interval_ms=3_600_000) as again:
        kept = await pairs_of(again.partition(tp("s")))
    assert dict(kept) == {b"k%d" % key: b"2" * 100 for key in range(10)}
    assert len(kept) < 30, "what was swapped in is there"


def test_what_a_stream_says_of_compaction_holds_for_its_log() -> None:
    node = LogSection(segment_age_ms=5_000)
    plain = StreamConfig.of(name="s", retention_ms=9_000, min_compaction_lag_ms=7)
    assert log_settings(plain, node).compaction is None
    assert log_settings(plain, node).retention_ms == 9_000
    only = log_settings(plain.changed(cleanup_policy="compact"), node)
    assert only.retention_ms == UNLIMITED
    assert not only.is_limited
    assert only.segment_age_ms == 5_000
    assert only.compaction is not None
    assert only.compaction.min_lag_ms == 9_000  # the duplicate window
    both = plain.changed(
        cleanup_policy="compact,delete", max_compaction_lag_ms=400, min_cleanable_dirty_ratio=0.1,
        delete_retention_ms=3,
    )  # fmt: skip
    settings = log_settings(both, node)
    assert settings.retention_ms == 9_000
    assert settings.segment_age_ms == 400
    assert settings.compaction is not None
    assert settings.compaction.max_lag_ms == 400
    assert settings.compaction.min_dirty_ratio == 0.1
    assert settings.compaction.delete_retention_ms == 3
