"""What a log notes of an end that it has lost, file by file."""

import errno

import pytest

from streamlog.errors import Unavailable
from streamlog.log.recovery.lost_end import FILE_NAME, Gone, LostEnd
from streamlog.log.recovery.recovery import DeferredSyncs
from streamlog.log.sidecar_files import SidecarFiles
from streamlog.log.storage.file_pool import FilePool
from tests import log_folder
from tests.simulation.disk import SimDisk

FOLDER = str(log_folder.FOLDER)
OPERATIONS = ("create", "write", "sync", "rename", "unlink")


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(FOLDER)
    return disk


def opened(disk: SimDisk) -> LostEnd:
    found = LostEnd(SidecarFiles(disk, FOLDER))
    found.load()
    return found


def fail(disk: SimDisk) -> None:
    for operation in OPERATIONS:
        disk.fail(operation, errno.EIO)


def test_what_is_noted_already_is_not_written_again(disk: SimDisk) -> None:
    end = opened(disk)
    assert end.path == f"{FOLDER}/{FILE_NAME}"
    end.note(5)
    fail(disk)
    end.note(5)
    end.note(4)
    with pytest.raises(Unavailable):
        end.note(6)


def test_the_furthest_end_is_kept(disk: SimDisk) -> None:
    opened(disk).note(5)
    opened(disk).note(3)
    assert opened(disk).settle(2) == Gone(2, 5)
    assert str(Gone(2, 5)) == "offsets 2 to 4"
    assert str(Gone(2, 3)) == "offset 2"
    assert str(Gone(2, 2)) == "from offset 2 on, not known how many"


def test_nothing_is_forgotten_that_was_not_noted(disk: SimDisk) -> None:
    end = opened(disk)
    end.settle(2)
    assert not end.is_noted
    fail(disk)
    end.forget()
    assert end.gone == Gone(2, 2)


def test_what_is_gone_stays_until_it_is_acknowledged(disk: SimDisk) -> None:
    end = opened(disk)
    end.note(9)
    end.settle(4)
    assert (end.is_noted, end.is_acknowledged()) == (False, False)
    end.note(12)
    end.forget()
    again = opened(disk)
    assert (again.is_noted, again.gone) == (False, Gone(4, 9))
    assert again.settle(3) == Gone(3, 9)
    disk.unlink(again.path)
    assert again.is_acknowledged()
    assert not opened(disk).is_acknowledged(), "there was nothing to acknowledge"


def test_what_a_full_disk_has_not_let_be_noted_is_noted_later(disk: SimDisk) -> None:
    end = opened(disk)
    for operation in OPERATIONS[:2]:
        disk.fail(operation, errno.ENOSPC)
    end.note(5)
    assert not end.is_noted
    disk.faults.clear()
    end.note(5)
    assert end.is_noted
    assert opened(disk).is_noted


def test_files_are_synced_one_by_one_only_if_not_all_are_synced(disk: SimDisk) -> None:
    syncs, files = DeferredSyncs(), FilePool(disk, 16)
    assert syncs.run(disk, files, lambda: pytest.fail("there is nothing to sync")) == {}
    syncs.add(FOLDER, [])
    assert syncs.run(disk, files, lambda: pytest.fail("there is nothing to sync")) == {}
    syncs.add(FOLDER, [f"{FOLDER}/missing"])
    assert syncs.run(disk, files, lambda: True) == {}
    assert list(syncs.run(disk, files, lambda: False)) == [FOLDER]


@pytest.mark.parametrize("line", [b"gone 5", b"gone 5 x", b"gone 5 7 9", b"gone", b"x", b"\xff"])
def test_a_line_that_cannot_be_read_counts_as_a_lost_end(disk: SimDisk, line: bytes) -> None:
    disk.replace(f"{FOLDER}/{FILE_NAME}", b"gone 5 7\n")
    found = opened(disk)
    assert (found.is_noted, found.gone) == (False, Gone(5, 7))
    disk.replace(f"{FOLDER}/{FILE_NAME}", line + b"\n")
    found = opened(disk)
    assert (found.is_noted, found.gone) == (True, None)
