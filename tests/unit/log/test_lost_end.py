"""What was damaged past the recovery point while no power was lost, and ends that are lost, told by
each start until the controller has heard of them.
"""

import errno
import itertools
from collections.abc import Callable

import pytest

from streamlog.errors import StorageFull
from streamlog.log.log import PartitionLog
from streamlog.log.recovery.lost_end import FILE_NAME, Gone
from streamlog.log.settings import LogSettings
from tests.log_folder import FOLDER, append, make_batch, open_log, read_batches, sync
from tests.simulation.disk import PowerCut, SimDisk

COUNT = 10
BATCH = make_batch(0, 2)
SIZE = len(BATCH)
SETTINGS = LogSettings(segment_bytes=4 * SIZE, index_interval_bytes=SIZE)
ACTIVE, END = 16, 20


@pytest.fixture
def disk() -> SimDisk:
    """Ten batches of two records in segments 0, 8 and 16, written by a process that was killed."""
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    for i in range(COUNT):
        append(log, 2, timestamp_ms=1_000 + i, epoch=int(i >= 5))
    return disk


def path(base_offset: int) -> str:
    return f"{FOLDER}/{base_offset:020d}.log"


def reopen(disk: SimDisk, recovery_point: int = 0, *, power_lost: bool = False) -> PartitionLog:
    disk.kill()
    return open_log(disk, SETTINGS, recovery_point=recovery_point, power_lost=power_lost)


def flip(disk: SimDisk, file: str, position: int, bit: int = 4) -> None:
    disk.flip(file, 8 * position + bit)


def served(log: PartitionLog) -> set[int]:
    """The base offsets of the batches that can be read."""
    damages = [damage for _, damage in log.recovery.damages]
    found, offset = set(), log.log_start_offset
    while offset < log.log_end_offset:
        hidden = [it for it in damages if it.offset <= offset < it.end_offset]
        if hidden:
            offset = hidden[0].end_offset
            continue
        header, _ = next(read_batches(log, offset))
        found.add(header.base_offset)
        offset = header.next_offset
    return found


def is_told(log: PartitionLog) -> bool:
    return log.damaged_from is not None or log.recovery.lost_end


def test_what_a_killed_process_left_is_whole(disk: SimDisk) -> None:
    log = reopen(disk)
    assert (log.log_end_offset, is_told(log)) == (END, False)
    assert served(log) == set(range(0, END, 2))


@pytest.mark.parametrize("base", [0, ACTIVE])
@pytest.mark.parametrize("at", [0, 1, 3], ids=["first", "second", "last"])
@pytest.mark.parametrize("position", [*range(12), *range(16, 28), 57, 60, 61, SIZE - 1])
def test_a_batch_that_was_damaged_is_not_torn(
    disk: SimDisk, base: int, at: int, position: int
) -> None:
    """Whichever it is: what comes after it is served, and the last one's loss is told. Of a leader
    epoch (bytes 12 to 15) no checksum knows.
    """
    damaged = base + 2 * at
    if damaged >= END:
        return
    flip(disk, path(base), at * SIZE + position)
    log = reopen(disk)
    assert is_told(log)
    found = served(log)
    assert found == set(range(0, END, 2)) - {damaged}
    assert log.log_end_offset == END or (damaged == END - 2 and log.recovery.lost_end)


@pytest.mark.parametrize("kept", [0, 1, 8, 12, 17, 60, 61, 62, SIZE - 1])
def test_a_process_killed_while_it_wrote_loses_nothing(disk: SimDisk, kept: int) -> None:
    disk.cut(path(ACTIVE), SIZE + kept)
    log = reopen(disk, 0)
    assert (log.log_end_offset, is_told(log)) == (END - 2, False)
    assert log.recovery.cut_bytes == kept
    assert FILE_NAME not in disk.names(str(FOLDER))
    append(log, 2, epoch=1)
    assert served(log) == set(range(0, END, 2))


@pytest.mark.parametrize("cut_after", range(0, 3 * SIZE, 7))
def test_a_write_of_several_batches_may_be_cut_short(disk: SimDisk, cut_after: int) -> None:
    more = b"".join(make_batch(END + 2 * i, 2, epoch=1) for i in range(3))
    disk.replace(path(ACTIVE), disk.content(path(ACTIVE)) + more[:cut_after])
    log = reopen(disk)
    assert (log.log_end_offset, is_told(log)) == (END + cut_after // SIZE * 2, False)


def test_after_a_power_cut_the_same_is_torn(disk: SimDisk) -> None:
    flip(disk, path(8), SIZE + 61)
    log = reopen(disk, 8, power_lost=True)
    assert (log.log_end_offset, is_told(log)) == (10, False)


def test_junk_that_no_process_can_have_left_is_told(disk: SimDisk) -> None:
    disk.replace(path(ACTIVE), disk.content(path(ACTIVE)) + bytes(100))
    log = reopen(disk)
    assert (log.log_end_offset, log.recovery.lost_end) == (END, True)


def test_an_older_epoch_is_no_reason_to_cut(disk: SimDisk) -> None:
    """A disk that has forgotten nothing has no batch that was cut off before."""
    flip(disk, path(8), 2 * SIZE + 13)
    log = reopen(disk)
    assert (log.log_end_offset, len(served(log))) == (END, COUNT)


# It is told until the controller has heard


def last_is_damaged(disk: SimDisk) -> None:
    flip(disk, path(ACTIVE), SIZE + 3)


def length_is_damaged(disk: SimDisk) -> None:
    flip(disk, path(ACTIVE), SIZE + 9)


def active_is_missing(disk: SimDisk) -> None:
    disk.remove(path(ACTIVE))


def active_is_empty(disk: SimDisk) -> None:
    disk.cut(path(ACTIVE), 0)


def active_ends_early(disk: SimDisk) -> None:
    disk.cut(path(ACTIVE), SIZE)


LOSSES = [last_is_damaged, length_is_damaged, active_is_missing, active_ends_early]


def prepared(loss: Callable[[SimDisk], None]) -> tuple[SimDisk, int]:
    """And its checkpoint: from before the last roll, unless the loss shows by it alone."""
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    for i in range(COUNT):
        if 2 * i == ACTIVE:
            log.roll()
            sync(log)  # the manifest knows no more of the active segment than that it is there
        append(log, 2, timestamp_ms=1_000 + i)
    sync(log)
    loss(disk)
    return disk, END if loss is active_ends_early else 8


@pytest.mark.parametrize("loss", LOSSES, ids=lambda it: it.__name__)
def test_a_lost_end_outlives_a_kill_at_any_call(loss: Callable[[SimDisk], None]) -> None:
    for calls in itertools.count():
        disk, checkpointed = prepared(loss)
        disk.kill()
        disk.calls_left = calls
        try:
            log = open_log(disk, SETTINGS, recovery_point=checkpointed, power_lost=False)
        except PowerCut:
            log = None
        again = reopen(disk, checkpointed)
        assert again.recovery.lost_end, calls
        third = reopen(disk, min(checkpointed, again.log_end_offset))
        assert third.recovery.lost_end, calls
        if log is not None:
            break


@pytest.mark.parametrize("loss", LOSSES, ids=lambda it: it.__name__)
def test_a_lost_end_outlives_a_power_cut(loss: Callable[[SimDisk], None]) -> None:
    disk, checkpointed = prepared(loss)
    assert reopen(disk, checkpointed).recovery.lost_end
    disk.crash()
    assert reopen(disk, 0, power_lost=True).recovery.lost_end


def test_it_is_forgotten_once_others_count_without_it() -> None:
    disk, checkpointed = prepared(active_is_missing)
    log = reopen(disk, checkpointed)
    log.lost_end.forget()
    log = reopen(disk, log.log_end_offset)
    assert not log.recovery.lost_end
    log.lost_end.forget()


def test_a_full_disk_is_no_reason_not_to_open() -> None:
    disk, checkpointed = prepared(active_is_missing)
    disk.kill()
    disk.fail("write_small", errno.ENOSPC, part=FILE_NAME, times=9)
    log = open_log(disk, SETTINGS, recovery_point=checkpointed, power_lost=False)
    assert log.recovery.lost_end
    assert not log.lost_end.is_noted


def test_what_is_gone_for_good_is_known_until_somebody_removes_the_file() -> None:
    disk, checkpointed = prepared(active_ends_early)
    log = reopen(disk, checkpointed)
    end = log.log_end_offset
    assert log.lost_end.gone is None
    assert log.lost_end.settle(end) == (end, END)
    for _ in range(2):
        disk.crash()
        log = reopen(disk, end)
        assert (log.lost_end.gone, log.recovery.lost_end) == ((end, END), False)
        assert not log.lost_end.is_acknowledged()
    disk.unlink(log.lost_end.path)
    assert log.lost_end.is_acknowledged()
    assert reopen(disk, end).lost_end.gone is None


def test_a_file_that_a_full_disk_did_not_take_is_not_an_acknowledgement() -> None:
    disk, checkpointed = prepared(active_ends_early)
    disk.kill()
    disk.fail("write_small", errno.ENOSPC, part=FILE_NAME, times=2)
    log = open_log(disk, SETTINGS, recovery_point=checkpointed, power_lost=False)
    end = log.log_end_offset
    with pytest.raises(StorageFull):
        log.lost_end.settle(end)
    with pytest.raises(FileNotFoundError):
        disk.read_small(log.lost_end.path)
    assert (log.lost_end.gone, log.lost_end.is_acknowledged()) == ((end, END), False)
    log.lost_end.store()
    assert not log.lost_end.is_acknowledged()
    assert reopen(disk, end).lost_end.gone == (end, END)


def known_to_the_manifest(loss: Callable[[SimDisk], None]) -> SimDisk:
    """Records of the active segment are lost, and the manifest's synced end is behind them."""
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    for i in range(COUNT):
        append(log, 2, timestamp_ms=1_000 + i)
    sync(log)  # names the active segment
    loss(disk)
    return disk


@pytest.mark.parametrize("loss", [active_is_missing, active_is_empty], ids=lambda it: it.__name__)
def test_records_that_the_manifest_knew_are_lost_once(loss: Callable[[SimDisk], None]) -> None:
    disk = known_to_the_manifest(loss)
    log = reopen(disk, END)
    assert log.recovery.lost_end
    end = log.log_end_offset
    assert log.lost_end.settle(end) == (end, END)
    disk.unlink(log.lost_end.path)
    for _ in range(2):
        log = reopen(disk, end)
        assert (log.recovery.lost_end, log.lost_end.gone) == (False, None)


def test_the_manifest_forgets_lost_records_only_once_the_loss_is_noted() -> None:
    disk = known_to_the_manifest(active_is_missing)
    disk.kill()
    disk.fail("write_small", errno.ENOSPC, part=FILE_NAME, times=9)
    log = open_log(disk, SETTINGS, recovery_point=END, power_lost=False)
    assert log.recovery.lost_end
    assert reopen(disk, log.log_end_offset).recovery.lost_end


def test_another_loss_does_not_hide_the_one_before() -> None:
    disk, checkpointed = prepared(active_ends_early)
    log = reopen(disk, checkpointed)
    log.lost_end.settle(log.log_end_offset)
    log.lost_end.note(END + 7)
    again = reopen(disk, log.log_end_offset)
    assert again.recovery.lost_end and again.lost_end.gone == (log.log_end_offset, END)
    again.lost_end.forget()
    again = reopen(disk, log.log_end_offset)
    assert not again.recovery.lost_end and again.lost_end.gone == (log.log_end_offset, END)
    again.lost_end.note(END + 7)
    reopen(disk, log.log_end_offset).lost_end.settle(log.log_end_offset + 1)
    assert reopen(disk, 0).lost_end.gone == (log.log_end_offset, END + 7)


@pytest.mark.parametrize(
    ("gone", "text"),
    [
        (Gone(7, 7), "from offset 7 on, not known how many"),
        (Gone(7, 8), "offset 7"),
        (Gone(7, 10), "offsets 7 to 9"),
    ],
)
def test_which_are_gone_in_words(gone: Gone, text: str) -> None:
    assert str(gone) == text
