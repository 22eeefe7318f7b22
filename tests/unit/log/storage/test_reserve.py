"""A reserve on the machine's own disk; that the disk is full is told by a stand-in."""

import errno
import os
from pathlib import Path

import pytest

from streamlog.log.storage.reserve import Reserve, ReservingDisk

SIZE = 128 * 1024


class Crowded:
    """Refuses for want of room while the reserve is there."""

    def __init__(self, reserve: Path, code: int = errno.ENOSPC) -> None:
        self._reserve = reserve
        self._code = code
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self._reserve.exists():
            raise OSError(self._code, os.strerror(self._code))
        return "done"


def test_it_is_kept_once_and_given_up_once(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve = Reserve(path, SIZE)
    assert not reserve.is_kept
    reserve.keep()
    assert reserve.is_kept
    content = path.read_bytes()
    assert len(content) == SIZE
    reserve.keep()
    assert path.read_bytes() == content, "it is not written again"
    assert reserve.give_up()
    assert not reserve.is_kept
    assert not path.exists()
    assert not reserve.give_up()


def test_a_reserve_of_another_size_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    path.write_bytes(b"short")
    reserve = Reserve(path, SIZE)
    reserve.keep()
    assert path.stat().st_size == SIZE


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "missing" / "reserve", SIZE)
    with pytest.raises(FileNotFoundError):
        reserve.keep()
    assert not reserve.is_kept


def test_what_finds_no_room_is_done_with_the_reserve(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve", SIZE)
    reserve.keep()
    disk, call = ReservingDisk(reserve), Crowded(tmp_path / "reserve")
    assert disk.with_room(call) == "done"
    assert call.calls == 2
    assert not reserve.is_kept


def test_without_a_reserve_a_full_disk_is_told(tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, "full")

    disk = ReservingDisk(Reserve(tmp_path / "reserve", SIZE))
    with pytest.raises(OSError, match="full"):
        disk.with_room(refuse)


def test_another_failure_costs_no_reserve(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve", SIZE)
    reserve.keep()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        ReservingDisk(reserve).with_room(Crowded(tmp_path / "reserve", errno.EIO))
    assert reserve.is_kept


def test_it_is_a_disk_like_any_other(tmp_path: Path) -> None:
    disk = ReservingDisk(Reserve(tmp_path / "reserve", SIZE))
    disk.make_directory(str(tmp_path / "a" / "b"))
    path = str(tmp_path / "a" / "b" / "file")
    with_content = disk.create(path)
    assert with_content.pwrite(b"content", 0) == 7
    with_content.close()
    again = disk.open(path)
    again.pwrite(b"C", 0)
    assert again.pread(100, 0) == b"Content"
    again.close()
    disk.write_small(path, b"small")
    assert disk.read_small(path) == b"small"
