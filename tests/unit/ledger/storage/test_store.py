"""The blocks' files: cut at any byte, damaged anywhere, and how much a start reads."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from streamlog.errors import CorruptBatch, OffsetOutOfRange
from streamlog.ledger.storage.store import CHECKPOINT_NAME, ENTRY, POSITIONS_NAME, BlockStore
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk, OsFile

SMALL = LogSettings(segment_bytes=2_000, segment_age_ms=2**62)
BLOCKS = [b"%d " % number + b"x" * (37 * number % 211) for number in range(60)]
FIRST = "00000000000000000000.log"


class CachedDisk(OsDisk):
    """Leaves everything in the page cache: quick, and as good where only a process is killed."""

    def open(self, path: str, *, writable: bool = True) -> OsFile:
        return CachedFile(super().open(path, writable=writable).fileno())

    def create(self, path: str) -> OsFile:
        return CachedFile(super().create(path).fileno())

    def sync_directory(self, path: str) -> None:
        pass

    def write_small(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)


class CachedFile(OsFile):
    def sync(self) -> None:
        pass


def opened(folder: Path, disk: OsDisk | None = None) -> BlockStore:
    return BlockStore.open(folder, disk or OsDisk(), settings=SMALL)


def filled(folder: Path, blocks: list[bytes] = BLOCKS, *, disk: OsDisk | None = None) -> BlockStore:
    store = opened(folder, disk)
    for number in range(store.height, len(blocks)):
        store.append(number, [blocks[number]])
        if number % 7 == 0:
            store.sync()
    store.sync()
    return store


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.log")}


def all_of(store: BlockStore) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < store.height:
        found += [block.data for block in store.read(len(found), max_bytes=500)]
    return found


def test_blocks_come_back_by_number(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert [store.block(number) for number in range(len(BLOCKS))] == BLOCKS
    assert all_of(store) == BLOCKS
    with pytest.raises(OffsetOutOfRange):
        store.read(len(BLOCKS))
    with pytest.raises(AssertionError, match="block 3 where 60 is next"):
        store.append(3, [b"again"])
    store.close()


def test_the_same_blocks_make_the_same_files_however_they_came(tmp_path: Path) -> None:
    filled(tmp_path / "one").close()
    other = opened(tmp_path / "other")
    other.append(0, BLOCKS[:25])
    other.close()
    other = opened(tmp_path / "other")
    other.append(25, BLOCKS[25:])
    other.close()
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
    assert len(contents(tmp_path / "one")) > 3


def test_a_process_killed_at_any_byte_goes_on_with_the_next_whole_block(tmp_path: Path) -> None:
    """The last segment's file, as a kill in the midst of a write leaves it."""
    filled(tmp_path / "whole").close()
    whole = contents(tmp_path / "whole")
    last = max(whole)
    first_of_last = int(last[:20])
    for size in range(0, len(whole[last]) + 1, 3):
        folder = tmp_path / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", folder)
        (folder / CHECKPOINT_NAME).unlink()
        (folder / last).write_bytes(whole[last][:size])
        store = opened(folder, CachedDisk())
        assert first_of_last <= store.height <= len(BLOCKS)
        assert [store.block(number) for number in range(store.height)] == BLOCKS[: store.height]
        store.append(store.height, BLOCKS[store.height :])
        store.close()
        assert contents(folder) == whole


def test_a_start_reads_the_last_segment_alone(tmp_path: Path) -> None:
    """However long the chain; also after a kill, when nothing was closed."""
    read = []
    for count in (60, 600):
        folder = tmp_path / str(count)
        store = filled(folder, [b"x" * 100] * count, disk=CachedDisk())
        assert store.segment_count > count // 20
        killed = opened(folder)  # the first one was never closed
        assert killed.height == count
        read.append(killed.recovery.scanned_bytes)
        killed.close()
    assert max(read) <= 2 * SMALL.segment_bytes


class CountingDisk(OsDisk):
    """Counts what is read."""

    def __init__(self) -> None:
        self.reads = 0

    def open(self, path: str, *, writable: bool = True) -> OsFile:
        return self._counted(super().open(path, writable=writable))

    def create(self, path: str) -> OsFile:
        return self._counted(super().create(path))

    def _counted(self, file: OsFile) -> OsFile:
        disk = self

        class Counted(OsFile):
            def pread(self, length: int, position: int) -> bytes:
                disk.reads += 1
                return super().pread(length, position)

        return Counted(file.fileno())


LARGE = LogSettings(segment_bytes=400_000, segment_age_ms=2**62, index_interval_bytes=1)
"""Segments whose indexes take several reads to search."""


def lookup_reads(folder: Path, count: int) -> set[int]:
    """How many each of some blocks took, in a chain whose files are all checked."""
    disk = CountingDisk()
    store = BlockStore.open(folder, disk, settings=LARGE)
    for segment in store.unchecked():
        segment.verify()
    found = set()
    for number in Random(1).sample(range(count), 40):
        disk.reads = 0
        assert store.block(number).startswith(b"%d " % number)
        found.add(disk.reads)
    store.close()
    return found


def test_a_block_is_found_in_as_many_reads_in_a_long_chain_as_in_a_short_one(
    tmp_path: Path,
) -> None:
    for count in (50, 5_000):
        store = BlockStore.open(tmp_path / str(count), CachedDisk(), settings=LARGE)
        store.append(0, [b"%d " % number + b"x" * 100 for number in range(count)])
        assert store.segment_count == 1 + count // 2_500
        store.close()
        # Its place, whether it is there, its length, the next one's, and the block.
        assert lookup_reads(tmp_path / str(count), count) == {5}
    (tmp_path / "5000" / POSITIONS_NAME).unlink()
    assert max(lookup_reads(tmp_path / "5000", 5_000)) > 5


def spoilt(good: bytes, rng: Random) -> Iterator[bytes]:
    """Positions as power cuts, failing disks and older chains may leave them."""
    yield b""
    yield good[:-3]
    yield bytes(len(good))
    yield good[8:] + good[:8]
    yield rng.randbytes(len(good))
    yield b"".join(ENTRY.pack(rng.randrange(9), rng.randrange(2_000)) for _ in BLOCKS)
    yield good + rng.randbytes(100)


def test_wrong_positions_lead_nowhere_and_are_mended(tmp_path: Path) -> None:
    filled(tmp_path).close()
    positions = tmp_path / POSITIONS_NAME
    good = positions.read_bytes()
    assert len(good) == ENTRY.size * len(BLOCKS)
    for bad in (None, *spoilt(good, Random(1))):
        positions.unlink()
        if bad is not None:
            positions.write_bytes(bad)
        store = opened(tmp_path, CachedDisk())
        assert [store.block(number) for number in range(len(BLOCKS))] == BLOCKS
        store.close()
        assert positions.read_bytes()[: len(good)] == good


def test_positions_follow_a_chain_that_is_cut_and_goes_on_otherwise(tmp_path: Path) -> None:
    store = filled(tmp_path)
    others = [b"other " + block[::-1] for block in BLOCKS[::2]]
    store.truncate(11)
    assert [store.block(number) for number in range(11)] == BLOCKS[:11]
    store.append(11, others)
    assert [store.block(number) for number in range(store.height)] == BLOCKS[:11] + others
    store.close()


def test_without_room_for_positions_blocks_are_sought(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / POSITIONS_NAME).mkdir()  # whatever keeps it from being opened
    for store in (filled(tmp_path), opened(tmp_path)):  # who fails to write, and to read
        assert [store.block(number) for number in range(len(BLOCKS))] == BLOCKS
        store.close()
        (told,) = [it for it in caplog.records if it.levelname == "WARNING"]
        assert told.getMessage() == "blocks are sought, for want of their positions"
        caplog.clear()


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_flipped_bit_is_found_and_cut_and_the_rest_written_again(
    tmp_path: Path, *, with_checkpoint: bool
) -> None:
    filled(tmp_path).close()
    whole = contents(tmp_path)
    names = sorted(whole)
    damaged = bytearray(whole[names[1]])
    damaged[len(damaged) // 2] ^= 4
    (tmp_path / names[1]).write_bytes(damaged)
    if not with_checkpoint:
        (tmp_path / CHECKPOINT_NAME).unlink()
    store = opened(tmp_path)
    for segment in store.unchecked():
        segment.verify()
    height = store.cut_damage()
    if with_checkpoint:  # else the start itself has read, and cut, it
        assert height is not None
        assert list(tmp_path.glob("*.damaged"))
    assert int(names[1][:20]) <= store.height < int(names[2][:20])
    assert all_of(store) == BLOCKS[: store.height]
    store.append(store.height, BLOCKS[store.height :])
    store.close()
    assert contents(tmp_path) == whole


def test_a_damaged_block_is_never_served(tmp_path: Path) -> None:
    filled(tmp_path).close()
    segment = tmp_path / FIRST
    data = bytearray(segment.read_bytes())
    data[62] ^= 1
    segment.write_bytes(data)
    store = opened(tmp_path)
    with pytest.raises(CorruptBatch):
        store.block(0)
    assert store.damaged_from == 0
    with pytest.raises(CorruptBatch):
        store.slice(0, 1)  # also to who does not check what it reads
    store.close()


def test_a_bit_that_flips_after_it_was_checked_is_found_by_a_second_look(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert store.block(2) == BLOCKS[2]
    position = (tmp_path / FIRST).read_bytes().index(b"2 xx")
    with (tmp_path / FIRST).open("r+b") as file:
        file.seek(position)
        file.write(b"3")
    with pytest.raises(CorruptBatch):
        store.block(2)
    assert store.cut_damage() is None
    store.recheck(2)
    assert store.cut_damage() == 2
    store.close()


def test_missing_files_are_a_damage_too(tmp_path: Path) -> None:
    filled(tmp_path).close()
    whole = contents(tmp_path)
    names = sorted(whole)
    (tmp_path / names[2]).unlink()
    store = opened(tmp_path)
    for segment in store.unchecked():
        segment.verify()
    store.cut_damage()
    assert store.height == int(names[2][:20])
    store.append(store.height, BLOCKS[store.height :])
    store.close()
    assert contents(tmp_path) == whole

    (tmp_path / names[0]).unlink()
    store = opened(tmp_path)
    assert store.height == 0
    store.append(0, BLOCKS)
    store.close()
    assert contents(tmp_path) == whole


def test_a_checkpoint_that_is_damaged_costs_some_reading(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / CHECKPOINT_NAME).write_bytes(b"0\n1\nnonsense")
    store = opened(tmp_path)
    assert all_of(store) == BLOCKS
    store.close()
