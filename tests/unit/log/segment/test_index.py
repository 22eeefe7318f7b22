import struct

import pytest

from streamlog.errors import CorruptFile
from streamlog.log.segment.index import (
    FIRST,
    OFFSET_ENTRY,
    SECOND,
    TIME_ENTRY,
    IndexEntries,
    IndexFile,
)
from streamlog.log.storage.file_pool import FilePool
from tests.simulation.disk import SimDisk


def filled(count: int) -> IndexEntries:
    """Entries (10, 100), (20, 200), ..."""
    entries = IndexEntries(OFFSET_ENTRY)
    for i in range(1, count + 1):
        entries.append(10 * i, 100 * i)
    return entries


def stored(data: bytes, entry: struct.Struct = OFFSET_ENTRY) -> IndexFile:
    disk = SimDisk()
    disk.replace("/x.index", data)
    return IndexFile(FilePool(disk, 4), "/x.index", entry)


def test_layouts_are_kafkas() -> None:
    offsets = IndexEntries(OFFSET_ENTRY)
    offsets.append(5, 4096)
    assert offsets.packed() == bytes.fromhex("00000005 00001000")
    times = IndexEntries(TIME_ENTRY)
    times.append(1_700_000_000_000, 5)
    assert times.packed() == bytes.fromhex("0000018bcfe56800 00000005")


def test_what_is_packed_is_loaded_again() -> None:
    entries = filled(7)
    loaded = IndexEntries.load(entries.packed(), OFFSET_ENTRY, "x")
    assert list(loaded) == list(entries)
    assert loaded.packed() == entries.packed()
    assert loaded.last() == (70, 700)
    assert len(IndexEntries.load(b"", OFFSET_ENTRY, "x")) == 0


@pytest.mark.parametrize(
    "data",
    [
        filled(3).packed()[:-1],
        filled(3).packed() + bytes(3),
        filled(3).packed() + bytes(8),
        bytes(16),
        filled(3).packed()[8:] + filled(1).packed(),
        OFFSET_ENTRY.pack(1, 500) + OFFSET_ENTRY.pack(2, 500),
    ],
    ids=["cut", "overlong", "zeros at the end", "zeros", "out of order", "same position twice"],
)
def test_a_damaged_file_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"some\.index"):
        IndexEntries.load(data, OFFSET_ENTRY, "some.index")


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 257, 5_000])
def test_a_file_is_searched_like_memory(count: int) -> None:
    entries = filled(count)
    file = stored(entries.packed())
    assert file.last() == entries.last()
    for bound in {0, 9, 10, 11, 10 * count - 1, 10 * count, 10 * count + 1, 12_345, 2_560, 2_570}:
        assert file.floor(FIRST, bound) == entries.floor(FIRST, bound)
        assert file.floor(SECOND, 10 * bound) == entries.floor(SECOND, 10 * bound)


@pytest.mark.parametrize("step", [1, 7, 255, 256, 257, 3_000])
def test_who_reads_on_or_back_finds_what_memory_has(step: int) -> None:
    entries = filled(5_000)
    file = stored(entries.packed())
    forth = range(0, 51_000, 10 * step)
    for bound in [*forth, *reversed(forth), 50_000, 0, 25_000]:
        assert file.floor(FIRST, bound) == entries.floor(FIRST, bound)
        assert file.floor(SECOND, 10 * bound + 1) == entries.floor(SECOND, 10 * bound + 1)


def test_what_was_remembered_of_a_file_is_for_who_read_it() -> None:
    """A segment may be cut, written on and sealed again, while its index stays open."""
    disk = SimDisk()
    disk.replace("/x.index", filled(600).packed())
    pool = FilePool(disk, 4)
    assert IndexFile(pool, "/x.index", OFFSET_ENTRY).floor(FIRST, 25) == (20, 200)
    file = pool.pin("/x.index").file
    file.truncate(0)
    file.pwrite(OFFSET_ENTRY.pack(15, 120), 0)
    assert IndexFile(pool, "/x.index", OFFSET_ENTRY).floor(FIRST, 25) == (15, 120)


def test_floor_is_the_last_entry_up_to_a_bound() -> None:
    entries = filled(3)
    assert entries.floor(FIRST, 9) is None
    assert entries.floor(FIRST, 10) == (10, 100)
    assert entries.floor(SECOND, 299) == (20, 200)
    assert entries.floor(SECOND, 10**9) == (30, 300)
    assert entries.count_up_to(FIRST, 25) == 2


def test_a_missing_file_is_empty_until_it_is_there() -> None:
    disk = SimDisk()
    file = IndexFile(FilePool(disk, 4), "/x.index", OFFSET_ENTRY)
    assert file.last() is None
    assert file.floor(FIRST, 10) is None
    disk.replace("/x.index", filled(1).packed())
    assert file.last() == (10, 100)


def test_a_file_that_shrinks_is_corrupt() -> None:
    disk = SimDisk()
    disk.replace("/x.index", filled(600).packed())
    file = IndexFile(FilePool(disk, 4), "/x.index", OFFSET_ENTRY)
    assert file.last() == (6_000, 60_000)
    disk.replace("/x.index", b"")
    with pytest.raises(CorruptFile):
        file.last()
    with pytest.raises(CorruptFile):
        file.floor(FIRST, 3_000)
