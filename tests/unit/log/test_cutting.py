"""A log is cut where the disk is full, or the process has no file descriptors left."""

import errno
from collections.abc import Callable

import pytest

from streamlog.errors import Overloaded, StorageFull
from streamlog.log.log import PartitionLog
from streamlog.log.storage import disk as disk_module
from tests.log_folder import append, make_batch, open_log, read_batches, sync
from tests.simulation.disk import SimDisk

CUTS: dict[str, Callable[[PartitionLog], None]] = {
    "in the last segment": lambda log: log.truncate_to(28),
    "segments go": lambda log: log.truncate_to(11),
    "below its start": lambda log: log.truncate_to(3),
    "whole, lower": lambda log: log.truncate_fully_to(3),
    "whole, higher": lambda log: log.truncate_fully_to(40),
}
ENDS = {
    "in the last segment": 28,
    "segments go": 11,
    "below its start": 3,
    "whole, lower": 3,
    "whole, higher": 40,
}


def filled(disk: SimDisk) -> PartitionLog:
    """Opened again: its segments were not read yet, and no file is open."""
    log = open_log(disk)
    for number in range(30):
        append(log, [bytes([number]) * 400], epoch=number // 4)
        if number % 10 == 9:
            sync(log)
    log.advance_log_start(5)
    sync(log)
    log.close()
    log = open_log(disk, recovery_point=30)
    assert log.segment_count > 4
    return log


@pytest.mark.parametrize("what", CUTS)
@pytest.mark.parametrize(
    ("code", "times"), [(errno.ENOSPC, 1), (errno.ENOSPC, 10**6), (errno.EMFILE, 2)]
)
def test_it_is_done_or_left_as_it_was(
    what: str, code: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever call finds no room: the log is not closed by it, and can be cut afterwards."""
    monkeypatch.setattr(disk_module, "DESCRIPTORS_PAUSE_S", 0)
    is_full = code == errno.ENOSPC
    for operation in ("create",) if is_full else ("create", "open", "sync_directory"):
        for skip in range(12):
            disk = SimDisk(skip)
            log = filled(disk)
            before = list(read_batches(log))
            # On a full disk there is room for a name in place of those that went.
            disk.fail(operation, code, part=".tmp" if is_full else "", skip=skip, times=times)
            try:
                CUTS[what](log)
            except (StorageFull, Overloaded):
                disk.faults.clear()
                assert list(read_batches(log)) == before
                CUTS[what](log)
            disk.faults.clear()
            assert log.failure == "", (operation, skip)
            assert log.log_end_offset == ENDS[what]
            kept = [it for it in before if it[0].next_offset <= ENDS[what]]
            kept = kept if log.log_start_offset < ENDS[what] else []
            assert list(read_batches(log)) == kept
            append(log, [b"anew"], epoch=50)
            assert log.recovery_limit.bound(30) == min(ENDS[what], 30)
            assert sync(log) == ENDS[what] + 1
            disk.crash()
            log = open_log(disk, recovery_point=30, log_start_offset=log.log_start_offset)
            assert log.log_end_offset == ENDS[what] + 1
            assert [data for _, data in read_batches(log)][:-1] == [data for _, data in kept]
            assert log.epochs.latest == 50
            assert not log.recovery.damages


def test_nothing_is_appended_before_the_recovery_point_is_limited() -> None:
    """Else a checkpoint of before the cut would say of it that it was synced."""
    disk = SimDisk()
    log = filled(disk)
    disk.fail("create", errno.ENOSPC, part="recovery-point-limit", times=10**6)
    log.truncate_to(11)
    batch = make_batch(11, epoch=50)
    for write in (lambda: log.append(batch, 1), lambda: log.append_fetched(memoryview(batch))):
        with pytest.raises(StorageFull):
            write()
        assert (log.log_end_offset, log.failure) == (11, "")
    disk.faults.clear()
    log.append(batch, 1)
    assert log.recovery_limit.offset == 11
