import resource

import pytest

from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.storage.file_pool import FilePool, open_files_allowed
from tests.simulation.disk import SimDisk, SimFile


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    for name in "abcdef":
        disk.replace(f"/{name}", name.encode() * 10)
    return disk


def touch(pool: FilePool, *paths: str) -> None:
    for path in paths:
        pool.unpin(pool.pin(path))


def test_a_file_is_opened_once_while_it_is_used(disk: SimDisk) -> None:
    pool = FilePool(disk, 2)
    touch(pool, "/a", "/b", "/a", "/b")
    assert disk.calls["open"] == 2
    assert pool.open_count == disk.open_files == 2


def test_a_file_that_was_used_again_has_a_second_chance(disk: SimDisk) -> None:
    pool = FilePool(disk, 2)
    touch(pool, "/a", "/b", "/a", "/c")
    assert disk.open_files == 2
    touch(pool, "/a")
    assert disk.calls["open"] == 3
    touch(pool, "/b")
    assert disk.calls["open"] == 4


def test_a_written_file_is_used_again_for_as_long_as_it_is_open(disk: SimDisk) -> None:
    pool = FilePool(disk, 2)
    pooled = pool.write("/a", b"A", 10)
    assert pool.write("/a", b"A", 11, pooled) is pooled
    assert disk.calls["open"] == 1
    touch(pool, "/b", "/c", "/b", "/c")
    assert pool.open_count == disk.open_files == 2, "nothing is pinned between two writes"
    again = pool.write("/a", b"A", 12, pooled)
    assert again is not pooled, "it was closed meanwhile"
    pool.forget("/a")
    disk.replace("/a", b"new")
    assert pool.write("/a", b"A", 3, again) is not again, "another file has the name"
    assert disk.read_small("/a") == b"newA"


def test_a_file_that_is_forgotten_during_a_write_is_closed_after_it(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FilePool(disk, 2)
    real = SimFile.pwrite

    def forgetting(file: SimFile, data: bytes, position: int) -> int:
        pool.forget("/a")
        assert disk.open_files == 1
        return real(file, data, position)

    monkeypatch.setattr(SimFile, "pwrite", forgetting)
    pooled = pool.write("/a", b"A", 10)
    assert pooled.is_gone
    assert pool.open_count == disk.open_files == 0


def test_the_limit_is_a_share_of_what_the_process_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, allowed in ((1024, 768), (-1, 65_536), (1 << 20, 65_536)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, -1))
        assert open_files_allowed() == allowed


def test_pinned_files_stay_open_beyond_the_limit(disk: SimDisk) -> None:
    pool = FilePool(disk, 2)
    pinned = [pool.pin(f"/{name}") for name in "abcd"]
    assert disk.open_files == 4
    assert [p.file.pread(1, 0) for p in pinned] == [b"a", b"b", b"c", b"d"]
    for p in pinned:
        pool.unpin(p)
    assert pool.open_count == disk.open_files == 2


def test_a_file_pinned_twice_is_unpinned_twice(disk: SimDisk) -> None:
    pool = FilePool(disk, 1)
    first, second = pool.pin("/a"), pool.pin("/a")
    assert first is second
    pool.unpin(first)
    touch(pool, "/b", "/c")
    assert second.file.pread(1, 0) == b"a"
    pool.unpin(second)
    assert disk.open_files == 1


def test_a_forgotten_file_is_closed_with_its_last_pin(disk: SimDisk) -> None:
    pool = FilePool(disk, 4)
    old = pool.pin("/a")
    pool.forget("/a")
    disk.unlink("/a")
    disk.replace("/a", b"new")
    new = pool.pin("/a")
    assert old.file.pread(10, 0) == b"a" * 10
    assert new.file.pread(10, 0) == b"new"
    pool.unpin(old)
    pool.unpin(new)
    assert disk.open_files == 1
    pool.forget("/a")
    pool.forget("/a")
    assert disk.open_files == 0


def test_create_takes_the_place_of_what_was_open(disk: SimDisk) -> None:
    pool = FilePool(disk, 4)
    touch(pool, "/a")
    pool.create("/a")
    pooled = pool.pin("/a")
    assert pooled.file.size() == 0
    pool.unpin(pooled)
    assert disk.open_files == 1


def test_close_lets_go_of_all_but_the_pinned(disk: SimDisk) -> None:
    pool = FilePool(disk, 4)
    touch(pool, "/a", "/b")
    piece = FileSlice(pool, pool.pin("/c"), 2, 3)
    pool.close()
    assert disk.open_files == 1
    assert piece.read() == b"ccc"
    piece.close()
    assert disk.open_files == 0


def test_a_file_that_is_not_there(disk: SimDisk) -> None:
    pool = FilePool(disk, 4)
    with pytest.raises(FileNotFoundError):
        pool.pin("/nothing")
    assert pool.open_count == 0


def test_an_empty_slice_has_no_file(disk: SimDisk) -> None:
    with FileSlice(FilePool(disk, 4), None, 0, 0) as piece:
        assert len(piece) == 0
        assert piece.read() == b""
        with pytest.raises(AssertionError):
            piece.fileno()


def test_a_slice_is_closed_once_however_often(disk: SimDisk) -> None:
    pool = FilePool(disk, 0)
    piece = FileSlice(pool, pool.pin("/a"), 0, 4)
    assert (len(piece), piece.position) == (4, 0)
    piece.close()
    piece.close()
    assert disk.open_files == 0
    with pytest.raises(AssertionError):
        piece.read()


def test_keys_are_bound_as_long_as_a_log_uses_the_folder(disk: SimDisk) -> None:
    """A log that was closed does not let go of those of the one that has its folder now."""
    pool = FilePool(disk, 4)
    pool.bind_keys("/s/0", "a")
    pool.bind_keys("/s/0", "a")
    pool.release_keys("/s/0", "a")
    assert pool.key_scope("/s/0/x.key") == "a"
    pool.bind_keys("/s/0", "b")
    pool.release_keys("/s/0", "a")
    assert pool.key_scope("/s/0/x.key") == "b"
    assert pool.key_scope("/s/1/x.key") == ""
    pool.release_keys("/s/0", "b")
    pool.release_keys("/s/0", "b")
    assert pool.key_scope("/s/0/x.key") == ""
    assert pool._scopes == {}
