"""A log that nobody writes to: its files closed, its indexes where a sealed segment has them."""

import errno

import pytest

from streamlog.errors import StorageFailed, StorageFull
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from tests.log_folder import FOLDER, append, open_log, read_batches, sync
from tests.simulation.disk import SimDisk

SETTINGS = LogSettings(segment_bytes=100_000, index_interval_bytes=200)
SEGMENT = f"{FOLDER}/{0:020d}"


@pytest.fixture
def log(disk: SimDisk) -> PartitionLog:
    """With a batch at each of the times 1,000 to 1,099, synced."""
    made = open_log(disk, SETTINGS)
    fill(made, 100)
    sync(made)
    return made


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        append(log, timestamp_ms=1_000 + log.log_end_offset)


def entries(log: PartitionLog) -> int:
    """In memory."""
    indexer = log._active.indexer
    return len(indexer.offsets) + len(indexer.times)


def check(log: PartitionLog) -> None:
    """All of it is found, by offset and by time."""
    end = log.log_end_offset
    assert [header.base_offset for header, _ in read_batches(log)] == list(range(end))
    for offset in range(0, end, 7):
        with log.read(offset, 1, end) as piece:
            assert len(piece)
        assert log.offset_for_timestamp(1_000 + offset, end) == (offset, 1_000 + offset)
    assert log.latest_timestamp(end) == (end - 1, 999 + end)


def test_nothing_is_open_and_nothing_indexed(disk: SimDisk, log: PartitionLog) -> None:
    assert entries(log) > 20
    assert log.rest()
    assert (log.is_resting, entries(log), disk.open_files) == (True, 0, 0)
    check(log)
    assert log.is_resting
    assert log.rest()
    assert not disk.open_files, "what was read is closed again"


def test_an_append_ends_it(disk: SimDisk, log: PartitionLog) -> None:
    twin = open_log(SimDisk(0), SETTINGS)
    fill(twin, 100)
    before = entries(log)
    log.rest()
    fill(log, 1)
    assert (log.is_resting, entries(log) >= before) == (False, True)
    fill(log, 99)
    check(log)
    fill(twin, 100)
    assert list(log._active.indexer.offsets) == list(twin._active.indexer.offsets)
    assert not log.rest(), "it is not synced"
    sync(log)
    assert log.rest()
    check(log)


def test_fetched_batches_end_it_too(log: PartitionLog) -> None:
    leader = open_log(SimDisk(0), SETTINGS)
    fill(leader, 150)
    with leader.read(100, 1 << 20, 150) as piece:
        data = piece.read()
    log.rest()
    log.append_fetched(memoryview(data))
    assert not log.is_resting
    check(log)


def test_it_survives_a_stop_and_a_kill(disk: SimDisk, log: PartitionLog) -> None:
    log.rest()
    log.close()
    again = open_log(disk, SETTINGS, recovery_point=100)
    assert not again.recovery.scanned_segments
    check(again)
    again.rest()
    fill(again, 50)
    sync(again)
    disk.kill()
    killed = open_log(disk, SETTINGS, recovery_point=150)
    check(killed)


def test_a_resting_log_is_cut_rolled_and_purged(log: PartitionLog) -> None:
    log.rest()
    log.truncate_to(60)
    check(log)
    sync(log)
    log.rest()
    log.roll()
    fill(log, 40)
    assert log.segment_count == 2
    check(log)
    sync(log)
    log.rest()
    log.advance_log_start(100)
    assert (log.segment_count, log.size_bytes) == (1, 0)
    sync(log)
    assert log.rest()
    fill(log, 1)
    assert [header.base_offset for header, _ in read_batches(log)] == [100]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [None, b"", b"\x00" * 12])
def test_indexes_that_are_gone_or_damaged_are_built_again(
    disk: SimDisk,
    log: PartitionLog,
    caplog: pytest.LogCaptureFixture,
    suffix: str,
    damage: bytes | None,
) -> None:
    log.rest()
    disk.unlink(SEGMENT + suffix)
    if damage is not None:
        disk.write_small(SEGMENT + suffix, damage)
    fill(log, 50)
    assert "index rebuilt" in caplog.text
    check(log)


def test_what_cannot_be_read_cannot_be_written(disk: SimDisk, log: PartitionLog) -> None:
    """Neither the index nor the log: the log failed."""
    log.rest()
    disk.fail("read_small", errno.EIO)
    disk.fail("open", errno.EIO)
    with pytest.raises(StorageFailed):
        append(log)
    assert log.log_end_offset == 100


def test_a_full_disk_lets_nobody_rest(disk: SimDisk, log: PartitionLog) -> None:
    disk.capacity_bytes = sum(disk.sizes(str(FOLDER)).values())
    with pytest.raises(StorageFull):
        log.rest()
    assert not log.is_resting
    disk.capacity_bytes = None
    fill(log, 5)
    check(log)


def test_an_empty_log_rests_without_files_of_its_own(disk: SimDisk) -> None:
    log = open_log(disk, SETTINGS)
    sync(log)
    assert log.rest()
    assert (disk.open_files, sorted(disk.sizes(str(FOLDER)))) == (0, [f"{0:020d}.log"])
    fill(log, 30)
    check(log)


def test_a_failed_log_does_not_rest(disk: SimDisk, log: PartitionLog) -> None:
    log.fail("broken")
    assert not log.rest()
