"""The power of a node is cut at its syncs: what was acknowledged is there at the next start."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.power.campaign import CannotMount, Recording, mounted, record, strike
from tests.power.cuts import cuts, write_files
from tests.power.judge import Lost
from tests.power.recorded_disk import Operation, cannot_mount, recorded

needs_fuse = pytest.mark.skipif(bool(cannot_mount()), reason=cannot_mount())


@contextmanager
def mounted_or_skipped(folder: Path) -> Iterator[Path]:
    try:
        with mounted(folder) as mount:
            yield mount
    except CannotMount as error:
        pytest.skip(str(error))


# The disk


def files_of(operations: list[Operation], folder: Path) -> dict[str, bytes]:
    """What a cut after them leaves, but for what was not synced."""
    *_, cut = cuts([*operations, Operation("sync names", 0, "/")])
    write_files(cut.disk_after(None), folder)
    return {
        str(it.relative_to(folder)): it.read_bytes() for it in folder.rglob("*") if it.is_file()
    }


def test_what_was_not_synced_is_gone(tmp_path: Path) -> None:
    made = [
        Operation("mkdir", 0, "/a"),
        Operation("sync names", 0, "/"),
        Operation("create", 0, "/a/f"),
        Operation("write", 0, file=0, data=b"synced"),
    ]
    sync, names = Operation("sync", 0, file=0), Operation("sync names", 0, "/a")
    more = Operation("write", 0, file=0, position=6, data=b" more")
    renamed = Operation("rename", 0, "/a/f", new_path="/a/g")
    assert files_of([*made, sync], tmp_path / "1") == {}, "its name is not there"
    assert files_of([*made, names], tmp_path / "2") == {"a/f": b""}
    assert files_of([*made, sync, names, more], tmp_path / "3") == {"a/f": b"synced"}
    assert files_of([*made, sync, names, renamed], tmp_path / "4") == {"a/f": b"synced"}
    again = [*made, sync, names, renamed, more, sync, names]
    assert files_of(again, tmp_path / "5") == {"a/g": b"synced more"}


def test_cuts_are_before_and_after_each_sync() -> None:
    operations = [
        Operation("create", 10, "/f"),
        Operation("sync", 20, file=0),
        Operation("sync", 30, file=0),
        Operation("write", 40, file=0, data=b"x"),
        Operation("write", 50, file=0, data=b"y"),
    ]
    assert [(it.operations, it.at_ns) for it in cuts(operations)] == [(1, 20), (2, 30), (3, 40)]
    assert [it.operations for it in cuts(operations, from_ns=30)] == [2, 3]


@needs_fuse
def test_all_that_a_process_does_is_recorded(tmp_path: Path) -> None:
    with mounted_or_skipped(tmp_path) as mount:
        folder = mount / "folder"
        folder.mkdir()
        path = folder / "file"
        with path.open("wb") as file:
            file.write(b"x" * 10_000)
            file.flush()
            os.fsync(file.fileno())
            os.truncate(path, 5_000)
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), b"y", 4_999)
            os.fdatasync(file.fileno())
        path.rename(folder / "renamed")
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
        os.close(descriptor)
        assert (folder / "renamed").read_bytes() == b"x" * 4_999 + b"y"
        assert [it.name for it in folder.iterdir()] == ["renamed"]
        with pytest.raises(FileExistsError):
            folder.mkdir()
        with pytest.raises(FileNotFoundError):
            path.unlink()
        with pytest.raises(OSError, match="not empty"):
            folder.rmdir()
    operations = recorded(tmp_path / "record")
    assert [it.kind for it in operations if it.kind != "write"] == [
        "mkdir", "create", "sync", "truncate", "sync", "rename", "sync names",
    ]  # fmt: skip
    assert [it.at_ns for it in operations] == sorted(it.at_ns for it in operations)


# A node on it


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    try:
        return record(tmp_path_factory.mktemp("power"), seed=1, steps=30)
    except CannotMount as error:
        pytest.skip(str(error))


@needs_fuse
@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_nothing_acknowledged_is_lost(
    recording: Recording, tmp_path: Path, seed: int | None
) -> None:
    assert strike(recording, tmp_path, seed=seed, cuts_max=25) == 25


@needs_fuse
@pytest.mark.slow
def test_a_disk_that_only_says_that_it_has_synced_is_found_out(
    recording: Recording, tmp_path: Path
) -> None:
    """So the judge would tell what is lost."""
    lying = [it for it in recording.operations if it.kind != "sync"]
    with pytest.raises(Lost):
        strike(recording._replace(operations=lying), tmp_path, seed=None, cuts_max=25)
