import errno
import os
from pathlib import Path

import pytest

from streamlog.errors import Overloaded, StorageFailed, StorageFull, Unavailable
from streamlog.log.storage import disk as disk_module
from streamlog.log.storage.disk import FileTooLarge, OsDisk, OsFile, storage_error, write_all


@pytest.fixture
def disk() -> OsDisk:
    return OsDisk()


def test_a_file_is_written_and_read_at_positions(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = disk.create(path)
    assert file.pwrite(b"0123456789", 0) == 10
    assert file.pwrite(memoryview(b"ab"), 4) == 2
    assert file.pread(4, 3) == b"3ab6"
    assert file.pread(100, 8) == b"89"
    assert file.pread(1, 10) == b""
    file.truncate(5)
    file.sync()
    assert file.size() == 5
    assert os.pread(file.fileno(), 9, 0) == b"0123a"
    file.close()


def test_create_empties_what_was_there(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    disk.create(str(tmp_path / "file")).close()
    assert (tmp_path / "file").read_bytes() == b""


def test_a_file_opened_for_reading_cannot_be_written(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    file = disk.open(str(tmp_path / "file"), writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"new", 0)
    file.close()


def test_sizes_are_those_of_plain_files(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"123")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert disk.sizes(str(tmp_path)) == {"file": 3}


def test_folders_come_with_their_parents_and_go(disk: OsDisk, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    disk.make_directory(str(path))
    disk.make_directory(str(path))
    assert path.is_dir()
    disk.remove_directory(str(path))
    assert not path.exists()


def test_a_small_file_is_replaced_as_a_whole(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "small")
    disk.write_small(path, b"first")
    disk.write_small(path, b"second")
    assert disk.read_small(path) == b"second"
    assert disk.sizes(str(tmp_path)) == {"small": 6}


def test_a_small_file_that_cannot_be_replaced_stays(disk: OsDisk, tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        disk.write_small(str(path), b"content")
    assert [entry.name for entry in tmp_path.iterdir()] == ["small"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EMFILE, Overloaded),
        (errno.EIO, StorageFailed),
        (errno.ENOENT, StorageFailed),
    ],
)
def test_errors_of_the_system_have_our_names(code: int, kind: type[Unavailable]) -> None:
    error = storage_error(OSError(code, os.strerror(code)), "/log")
    assert type(error) is kind
    assert str(error) == f"/log: {os.strerror(code)}"


class ReluctantFile(OsFile):
    """Takes three bytes at a time, and nothing where there are ten."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        return super().pwrite(data[: min(3, 10 - position)], position)


def test_all_is_written_however_often_that_takes(disk: OsDisk, tmp_path: Path) -> None:
    file = ReluctantFile(disk.create(str(tmp_path / "file")).fileno())
    write_all(file, bytearray(b"01234567"), 2)
    assert file.pread(100, 2) == b"01234567"
    with pytest.raises(OSError, match="nothing of 2 bytes was written"):
        write_all(file, b"abcdef", 6)
    file.close()


def test_a_large_file_is_read_whole(disk: OsDisk, tmp_path: Path) -> None:
    """A metadata snapshot of 54,500 streams has more than 64 MiB."""
    path, data = str(tmp_path / "file"), bytes(range(256)) * (65 << 12)
    disk.write_small(path, data)
    assert disk.read_small(path) == data


def test_a_file_above_the_limit_is_not_cut_when_it_is_read(disk: OsDisk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, disk_module.SMALL_FILE_BYTES_MAX + 1)  # takes no room
    with pytest.raises(FileTooLarge, match="1073741825 bytes"):
        disk.read_small(str(path))


def test_what_could_not_be_read_is_not_written(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "SMALL_FILE_BYTES_MAX", 3)
    path = tmp_path / "file"
    disk.write_small(str(path), b"123")
    with pytest.raises(FileTooLarge):
        disk.write_small(str(path), b"1234")
    assert disk.read_small(str(path)) == b"123"
    assert list(tmp_path.iterdir()) == [path]
    assert isinstance(storage_error(FileTooLarge("file", 4), "file"), StorageFailed)
