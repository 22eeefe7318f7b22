import errno
import os
from pathlib import Path

import pytest

from streamlog.errors import StorageFailed
from streamlog.log.log import PartitionLog
from streamlog.log.storage.disk import OsDisk
from tests.log_folder import FOLDER, append, open_log, read_batches, sync
from tests.simulation.disk import Fault, SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def log(disk: SimDisk) -> PartitionLog:
    return open_log(disk)


def test_there_is_no_ticket_when_there_is_nothing_to_sync(log: PartitionLog) -> None:
    assert log.begin_sync() is None
    append(log)
    sync(log)
    assert log.begin_sync() is None


def test_one_ticket_covers_what_came_before_it(disk: SimDisk, log: PartitionLog) -> None:
    for _ in range(3):
        append(log, 2)
    ticket = log.begin_sync()
    assert ticket is not None
    append(log, 2)
    disk.calls.clear()
    ticket.run()
    assert log.recovery_point == 0
    assert log.finish_sync(ticket) == log.recovery_point == 6
    assert disk.calls["sync"] == 2  # the segment, and once the epochs
    assert sync(log) == 8


def test_a_file_that_is_all_there_is_to_sync_is_told(tmp_path: Path) -> None:
    log = open_log(OsDisk(), folder=tmp_path)
    append(log)
    ticket = log.begin_sync()
    assert ticket is not None
    assert ticket.descriptor is None, "the epochs are new, and the folder's entry"
    ticket.run()
    log.finish_sync(ticket)
    append(log)
    ticket = log.begin_sync()
    assert ticket is not None
    assert ticket.descriptor is not None
    assert str(Path(f"/proc/self/fd/{ticket.descriptor}").readlink()) == log._active.segment.path
    append(log)
    ticket.ended(None)
    assert log.finish_sync(ticket) == log.recovery_point == 2


def test_a_log_whose_file_could_not_be_synced_takes_nothing_more(tmp_path: Path) -> None:
    log = open_log(OsDisk(), folder=tmp_path)
    append(log)
    sync(log)
    append(log)
    ticket = log.begin_sync()
    assert ticket is not None
    with pytest.raises(StorageFailed, match="Input/output error"):
        ticket.ended(OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(StorageFailed):
        log.finish_sync(ticket)
    assert log.recovery_point == 1
    with pytest.raises(StorageFailed):
        append(log)


def test_only_one_ticket_is_out(log: PartitionLog) -> None:
    append(log)
    ticket = log.begin_sync()
    append(log)
    with pytest.raises(AssertionError):
        log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    with pytest.raises(AssertionError):
        log.finish_sync(ticket)


def test_a_segment_rolled_out_is_covered_with_its_indexes_and_the_new_name(disk: SimDisk) -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        log = open_log(disk)
        append(log, 3)
        sync(log)
        wanted = [data for _, data in read_batches(log)]
        wanted.append(append(log, 3))
        log.roll()
        wanted.append(append(log, 3))
        sync(log)
        append(log, 3)
        disk.crash()
        log = open_log(disk, recovery_point=0)
        assert [data for _, data in read_batches(log)][:3] == wanted


def test_a_sealed_segment_is_synced_even_when_its_data_were(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, 3)
    sync(log)
    log.roll()
    disk.calls.clear()
    sync(log)
    assert disk.calls["sync"] == 4  # the segment, two indexes, then the manifest
    assert disk.calls["sync_directory"] == 2


@pytest.mark.parametrize("operation", ["sync", "sync_directory", "write_small"])
def test_a_failed_sync_takes_the_log_offline(
    disk: SimDisk, log: PartitionLog, operation: str
) -> None:
    append(log)
    sync(log)
    log.roll()
    append(log, epoch=1)
    disk.fail(operation, errno.EIO)
    ticket = log.begin_sync()
    assert ticket is not None
    with pytest.raises(StorageFailed, match="sync failed"):
        ticket.run()
    assert log.failed
    with pytest.raises(StorageFailed):
        append(log)
    with pytest.raises(StorageFailed):
        log.finish_sync(ticket)
    assert log.recovery_point == 1
    log.close()
    assert disk.open_files == 0


def test_a_full_disk_does_not_fail_a_sync_for_the_epochs(disk: SimDisk, log: PartitionLog) -> None:
    append(log)
    append(log, epoch=7)
    disk.fail("write_small", errno.ENOSPC)
    assert sync(log) == 2
    disk.crash()
    log = open_log(disk, recovery_point=2)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (7, 1)]
    assert [path.rpartition("/")[2] for path in log.recovery.rebuilt] == ["leader-epoch-checkpoint"]


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("write_small", "leader-epoch-checkpoint"),
        ("sync_directory", ""),
        ("write_small", "segment-manifest"),
    ],
)
def test_a_sync_waits_for_file_descriptors(
    disk: SimDisk, log: PartitionLog, operation: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are opened by it, too: a lack of descriptors passes, and does not end the log."""
    monkeypatch.setattr("streamlog.log.storage.disk.DESCRIPTORS_PAUSE_S", 0.0)
    append(log, 3)
    log.roll()
    append(log, 3)
    disk.faults.append(Fault(operation, errno.EMFILE, part, times=3))
    assert sync(log) == 6
    assert not log.failed
    stored = log.manifest.stored
    assert stored is not None
    assert (stored.active_offset, stored.synced_end) == (3, 6)
    disk.crash()
    log = open_log(disk, recovery_point=6)
    assert (log.log_end_offset, log.recovery.damages) == (6, [])


def test_a_failed_sync_may_not_pass_for_one_after_a_restart(disk: SimDisk) -> None:
    """The kernel has the pages as clean; only writing them again brings them to the disk."""
    for seed in range(10):
        disk = SimDisk(seed)
        log = open_log(disk)
        append(log, 3)
        disk.fail("sync", errno.EIO)
        with pytest.raises(StorageFailed):
            sync(log)
        disk.kill()
        log = open_log(disk)
        assert log.log_end_offset == log.recovery_point == 3
        disk.crash()
        assert open_log(disk, recovery_point=3).log_end_offset == 3


def test_a_ticket_keeps_its_files_open(disk: SimDisk, log: PartitionLog) -> None:
    append(log, 3)
    log.roll()
    ticket = log.begin_sync()
    assert ticket is not None
    log.advance_log_start(3)
    assert f"{0:020d}.log" not in disk.sizes(str(FOLDER))
    ticket.run()
    assert log.finish_sync(ticket) == 3


def test_close_syncs_what_no_ticket_has(disk: SimDisk, log: PartitionLog) -> None:
    append(log, 3)
    log.begin_sync()
    append(log, 3)
    log.close()
    assert log.recovery_point == 6
    disk.crash()
    log = open_log(disk, recovery_point=6)
    assert (log.log_end_offset, log.recovery.scanned_segments) == (6, 0)


def test_a_closed_log_takes_nothing_more(disk: SimDisk, log: PartitionLog) -> None:
    log.close()
    with pytest.raises(StorageFailed, match="closed"):
        append(log)
    assert disk.open_files == 0


def test_close_on_a_failing_disk_tells_and_goes_on(
    disk: SimDisk, log: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, 3)
    disk.fail("sync", errno.EIO)
    log.close()
    assert "log closed without a sync" in caplog.text
    assert disk.open_files == 0
    assert log.recovery_point == 0
