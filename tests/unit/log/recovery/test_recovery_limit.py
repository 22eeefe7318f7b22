import errno

import pytest

from streamlog.errors import StorageFailed, StorageFull
from streamlog.log.log import PartitionLog
from streamlog.log.recovery.recovery_limit import FILE_NAME, RecoveryLimit
from streamlog.log.sidecar_files import SidecarFiles
from tests.log_folder import FOLDER, append, open_log, sync
from tests.simulation.disk import SimDisk

PATH = f"{FOLDER}/{FILE_NAME}"


def filled(log: PartitionLog, batches: int, epoch: int = 0) -> PartitionLog:
    """Of two records each, and synced."""
    for _ in range(batches):
        append(log, 2, epoch=epoch)
    sync(log)
    return log


def loaded(disk: SimDisk) -> RecoveryLimit:
    limit = RecoveryLimit(SidecarFiles(disk, str(FOLDER)))
    limit.load()
    return limit


def test_a_log_that_was_never_cut_has_none(disk: SimDisk, log: PartitionLog) -> None:
    filled(log, 5)
    assert log.recovery_limit.offset is None
    assert log.recovery_limit.bound(7) == 7
    assert not disk.has_file(PATH)


def test_what_was_not_synced_may_be_cut_off_without_one(disk: SimDisk, log: PartitionLog) -> None:
    filled(log, 5)
    append(log, 2)
    log.truncate_to(10)
    assert log.recovery_limit.offset is None
    assert not disk.has_file(PATH)


@pytest.mark.parametrize("whole", [False, True])
def test_a_cut_outlives_a_power_cut(disk: SimDisk, log: PartitionLog, whole: bool) -> None:
    filled(log, 5)
    if whole:
        log.truncate_fully_to(4)
    else:
        log.truncate_to(5)
    disk.crash()
    assert loaded(disk).bound(10) == 4


def test_a_second_cut_does_not_raise_it(disk: SimDisk, log: PartitionLog) -> None:
    filled(log, 5)
    log.truncate_to(4)
    filled(log, 3, epoch=1)
    log.truncate_to(8)
    assert loaded(disk).offset == log.recovery_limit.offset == 4
    log.truncate_to(2)
    assert loaded(disk).offset == log.recovery_limit.offset == 2
    assert log.recovery_limit.cuts == 3


def test_a_start_cuts_what_is_torn_below_a_checkpoint_that_is_older(
    disk: SimDisk, log: PartitionLog
) -> None:
    filled(log, 5)
    log.truncate_to(4)
    append(log, 2, epoch=1)
    append(log, 2, epoch=1)
    path = log.segments.first.path
    disk.kill()
    torn = bytearray(disk.content(path))
    torn[-1] ^= 1
    disk.replace(path, bytes(torn))
    log = open_log(disk, recovery_point=10)
    assert (log.log_end_offset, log.damaged_from) == (6, None)
    assert log.recovery.lost_synced == 0
    assert log.recovery_limit.bound(10) == 4


def test_a_younger_checkpoint_lifts_it(disk: SimDisk, log: PartitionLog) -> None:
    filled(log, 5)
    log.truncate_to(4)
    filled(log, 5, epoch=1)
    log.recovery_limit.lift()
    assert not disk.has_file(PATH)
    disk.kill()
    log = open_log(disk, recovery_point=14)
    assert log.log_end_offset == 14
    assert log.recovery_limit.bound(14) == 14


def test_one_that_came_back_goes_with_a_checkpoint_that_says_no_more(
    disk: SimDisk, log: PartitionLog
) -> None:
    filled(log, 5)
    log.truncate_to(4)
    disk.kill()
    assert open_log(disk, recovery_point=4).recovery_limit.offset is None
    assert not disk.has_file(PATH)


def test_a_log_that_has_lost_what_was_synced_has_one(disk: SimDisk, log: PartitionLog) -> None:
    filled(log, 2)
    disk.kill()
    log = open_log(disk, recovery_point=10)
    assert log.recovery.lost_synced == 6
    disk.crash()
    assert loaded(disk).bound(10) == 4


@pytest.mark.parametrize("data", [b"x", b"\xff" * 12, bytes(7) + b"\x05" + bytes(4)])
def test_one_that_is_damaged_leaves_nothing_to_believe(
    disk: SimDisk, log: PartitionLog, data: bytes
) -> None:
    filled(log, 5)
    log.truncate_to(4)
    disk.kill()
    disk.replace(PATH, data)
    log = open_log(disk, recovery_point=4)
    assert log.log_end_offset == 4
    assert log.recovery_limit.bound(4) == 0


@pytest.mark.parametrize("operation", ["write_small", "rename", "sync_directory"])
def test_a_cut_that_cannot_be_noted_fails_the_log(
    disk: SimDisk, log: PartitionLog, operation: str
) -> None:
    filled(log, 5)
    disk.fail(operation, errno.EIO, times=9)
    with pytest.raises(StorageFailed):
        log.truncate_to(4)
    assert log.failed
    with pytest.raises(StorageFailed):
        append(log)


def test_a_log_that_has_lost_records_is_not_opened_until_that_can_be_noted(
    disk: SimDisk, log: PartitionLog
) -> None:
    filled(log, 2)
    disk.kill()
    disk.fail("write_small", errno.ENOSPC, part=FILE_NAME)
    with pytest.raises(StorageFull):
        open_log(disk, recovery_point=10)
    assert open_log(disk, recovery_point=10).log_end_offset == 4


def test_a_disk_that_does_not_let_go_of_it_is_asked_again(disk: SimDisk, log: PartitionLog) -> None:
    filled(log, 5)
    log.truncate_to(4)
    disk.fail("unlink", errno.EIO)
    with pytest.raises(StorageFailed):
        log.recovery_limit.lift()
    assert log.recovery_limit.offset == 4
    log.recovery_limit.lift()
    assert not disk.has_file(PATH)
