"""Files that are put away, and the thread that unlinks them."""

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamlog.log.storage.file_pool import FilePool
from streamlog.log.storage.removal import Removal
from tests.later import Later
from tests.simulation.disk import SimDisk


class ListedDisk(SimDisk):
    """Somebody may do something while a folder is listed."""

    def __init__(self) -> None:
        super().__init__()
        self.after_list: list[Callable[[], None]] = []

    def sizes(self, directory: str) -> dict[str, int]:
        found = super().sizes(directory)
        while self.after_list:
            self.after_list.pop()()
        return found


class Bench:
    def __init__(self) -> None:
        self.disk, self.later = ListedDisk(), Later()
        self.removal = Removal(self.disk, self.later)
        self.pool = FilePool(self.disk, 4, removal=self.removal)
        self.disk.make_directory("/a")
        self.disk.make_directory("/b")

    def write(self, *paths: str) -> None:
        for path in paths:
            self.pool.write_new(path, b"data")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_file_is_nowhere_at_once_and_unlinked_later(bench: Bench) -> None:
    bench.write("/a/x", "/a/y")
    bench.pool.discard("/a/x", "/a/none")
    assert bench.disk.names("/a") == ["x.1.deleted", "y"]
    bench.later.run()
    assert bench.disk.names("/a") == ["y"]


def test_a_name_that_is_used_again_keeps_its_new_file(bench: Bench) -> None:
    for _ in range(3):
        bench.write("/a/x")
        bench.pool.discard("/a/x")
    bench.write("/a/x")
    assert len(bench.disk.names("/a")) == 4
    bench.later.run()
    assert bench.disk.names("/a") == ["x"]


def test_each_folder_is_queued_once(bench: Bench) -> None:
    names = [f"/{folder}/{number}" for folder in "ab" for number in range(100)]
    bench.write(*names)
    bench.pool.discard(*names)
    assert bench.later.count == 2
    bench.later.run()
    assert bench.disk.names("/a") == bench.disk.names("/b") == []


def test_what_is_put_away_while_its_folder_is_cleared_goes_too(bench: Bench) -> None:
    bench.write("/a/x", "/a/y")
    bench.pool.discard("/a/x")
    bench.disk.after_list.append(lambda: bench.pool.discard("/a/y"))
    bench.later.run()
    bench.later.run()
    assert bench.disk.names("/a") == []


def test_what_is_read_is_closed_by_the_thread(bench: Bench) -> None:
    bench.write("/a/x")
    pooled = bench.pool.pin("/a/x")
    bench.pool.discard("/a/x")
    bench.later.run()
    assert pooled.file.pread(4, 0) == b"data"
    bench.pool.unpin(pooled)
    assert bench.disk.open_files == 1
    bench.later.run()
    assert bench.disk.open_files == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_folder_without_room_for_another_name(bench: Bench, code: int) -> None:
    """A full disk must not keep what is removed to make room."""
    bench.write("/a/x")
    bench.disk.fail("rename", code)
    bench.pool.discard("/a/x")
    assert bench.disk.names("/a") == []


def test_what_cannot_be_unlinked_is_tried_with_the_next(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.write("/a/x", "/a/y")
    bench.disk.fail("unlink", errno.EIO)
    bench.pool.discard("/a/x")
    bench.later.run()
    assert "removed files remain" in caplog.text
    bench.pool.discard("/a/y")
    bench.later.run()
    assert bench.disk.names("/a") == []


def test_a_folder_that_moves_takes_its_files_along(bench: Bench) -> None:
    bench.write("/a/x", "/a/y")
    bench.pool.discard("/a/x")
    bench.disk.rename("/a", "/c")
    bench.removal.remove_folder("/c")
    bench.later.run()
    assert not bench.disk.has_folder("/c")


def test_after_the_stop_nothing_is_unlinked_and_nothing_stays_open() -> None:
    disk = SimDisk()
    removal = Removal(disk, ThreadPoolExecutor(1))
    pool = FilePool(disk, 4, removal=removal)
    disk.make_directory("/a")
    for name in ("x", "y"):
        pool.write_new(f"/a/{name}", b"data")
    pooled = pool.pin("/a/y")
    pool.discard("/a/x")
    removal.flushed().result()
    assert disk.names("/a") == ["y"]
    removal.stop(0)
    pool.discard("/a/y")
    pool.unpin(pooled)
    assert disk.names("/a") == ["y.2.deleted"]
    assert not disk.open_files
    removal.flushed().result(0)
    pool.close()
    pool = FilePool(disk, 4)  # of who may wait
    pool.clear_discarded("/a", disk.sizes("/a"))
    assert disk.names("/a") == []
