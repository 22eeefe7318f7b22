"""What a folder must hold is known: what is missing is damage, whatever befell which file."""

import contextlib
import dataclasses
import errno
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from streamlog.errors import CorruptBatch, CorruptFile, StreamlogError
from streamlog.log.layout import EPOCHS_NAME
from streamlog.log.log import PartitionLog
from streamlog.log.manifest import MANIFEST_NAME, LogManifest, SealedSegment, decode, encode
from streamlog.log.segment.end_checksums import EndChecksums
from streamlog.log.settings import LogSettings
from streamlog.log.storage.removal import Removal
from streamlog.record.offset_set import OffsetSet
from tests.compacted_log import KeyedLog
from tests.later import Later
from tests.log_folder import FOLDER, append, make_batch, open_log, read_batches, sync
from tests.simulation.disk import PowerCut, SimDisk

SIZE = len(make_batch(0, 2))
SETTINGS = LogSettings(segment_bytes=4 * SIZE, index_interval_bytes=SIZE - 1)
OTHER = FOLDER.parent / "1"
END = 36


def path(base_offset: int, suffix: str = ".log") -> str:
    return f"{FOLDER}/{base_offset:020d}{suffix}"


def fill(log: PartitionLog, word: bytes, end: int = END) -> list[bytes]:
    batches = []
    while log.log_end_offset < end:
        at = log.log_end_offset
        batches.append(append(log, [word] * 2, timestamp_ms=1_000 + at, epoch=at // 14))
        sync(log)
    return batches


def reopen(disk: SimDisk, recovery_point: int = END, **known: Any) -> PartitionLog:
    disk.kill()
    return open_log(disk, SETTINGS, recovery_point=recovery_point, **known)


def stored(disk: SimDisk) -> LogManifest:
    file = f"{FOLDER}/{MANIFEST_NAME}"
    return decode(disk.content(file), b"s/0", file)


@pytest.fixture
def disk() -> SimDisk:
    """Eighteen batches of two records in segments 0, 8, 16, 24 and 32; closed."""
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    fill(log, b"word0")
    log.close()
    return disk


# The two by which it was found


def test_a_log_does_not_begin_later_because_its_first_segment_is_missing(disk: SimDisk) -> None:
    disk.remove(path(0))
    log = reopen(disk)
    assert (log.log_start_offset, log.damaged_from, log.log_end_offset) == (0, 0, END)


def test_an_emptied_segment_is_no_segment_without_records(disk: SimDisk) -> None:
    disk.cut(path(8))
    log = reopen(disk)
    assert (log.damaged_from, log.log_end_offset) == (8, END)
    with pytest.raises(StreamlogError, match="emptied"):
        log.read(8, 10_000, END)
    assert next(header.base_offset for header, _ in read_batches(log, 16)) == 16


# Every file, and all that may befall it

KINDS = {
    "first segment": path(0),
    "middle segment": path(16),
    "last sealed segment": path(24),
    "active segment": path(32),
    "index": path(8, ".index"),
    "time index": path(8, ".timeindex"),
    "index of the active segment": path(32, ".index"),
    "epochs": f"{FOLDER}/{EPOCHS_NAME}",
    "manifest": f"{FOLDER}/{MANIFEST_NAME}",
}


def remove(disk: SimDisk, file: str) -> None:
    disk.remove(file)


def empty(disk: SimDisk, file: str) -> None:
    disk.cut(file)


def cut_between(disk: SimDisk, file: str) -> None:
    disk.cut(file, SIZE if file.endswith(".log") else len(disk.content(file)) // 2)


def cut_within(disk: SimDisk, file: str) -> None:
    disk.cut(file, len(disk.content(file)) - 3)


def swap_with_a_neighbour(disk: SimDisk, file: str) -> None:
    for base in (0, 8, 16, 24, 32):
        if f"{base:020d}" in file:
            other = file.replace(f"{base:020d}", f"{(base + 8) % 40:020d}")
            disk.swap(file, other)
            return
    disk.flip(file, 0)


def put_older_back(disk: SimDisk, file: str) -> None:
    """As it was when half of the log was there."""
    older = SimDisk()
    log = open_log(older, SETTINGS)
    fill(log, b"word0", END // 2)
    log.close()
    disk.replace(file, older.content(file)) if older.has_file(file) else disk.remove(file)


def swap_with_another_partitions(disk: SimDisk, file: str) -> None:
    """Whose records have the same sizes, so that this file has the same size, too."""
    disk.swap(file, file.replace(str(FOLDER), str(OTHER)))


def flip_first(disk: SimDisk, file: str) -> None:
    disk.flip(file, 3)


def flip_middle(disk: SimDisk, file: str) -> None:
    disk.flip(file, 8 * (len(disk.content(file)) // 2) + 5)


BEFALLS = (
    remove, empty, cut_between, cut_within, swap_with_a_neighbour,
    put_older_back, swap_with_another_partitions, flip_first, flip_middle,
)  # fmt: skip


def missing(log: PartitionLog, batches: list[bytes]) -> set[int]:
    """The numbers of those that are not served; none is served that was not written."""
    lost = set()
    for number, batch in enumerate(batches):
        try:
            with log.read(2 * number, 1, log.log_end_offset) as piece:
                data = piece.read()
        except StreamlogError:
            lost.add(number)
            continue
        if not data:
            lost.add(number)  # beyond the end
        else:
            same = bytearray(batch)
            same[12:16] = data[12:16]  # the leader epoch: no checksum covers it
            assert data == same, number
    return lost


@pytest.mark.parametrize("checkpointed", [END, 20, 0])
@pytest.mark.parametrize("befalls", BEFALLS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_missing_in_silence(
    kind: str, befalls: Callable[[SimDisk, str], None], checkpointed: int
) -> None:
    if kind == "active segment" and befalls is swap_with_another_partitions:
        return  # no digest is kept of it
    disk = SimDisk()
    other = PartitionLog.open(OTHER, SETTINGS, disk=disk, files=open_log(disk, SETTINGS)._pool)
    fill(other, b"other")
    other.close()
    log = reopen(disk, 0)
    batches = fill(log, b"word0")
    log.close()
    befalls(disk, KINDS[kind])
    log = reopen(disk, checkpointed)
    lost = missing(log, batches)
    assert log.log_start_offset == 0
    is_told = log.damaged_from is not None or log.recovery.lost_end
    if kind != "active segment" or checkpointed == END:
        assert is_told or not lost
        assert log.log_end_offset == END or log.recovery.lost_end
    if kind not in ("first segment", "middle segment", "last sealed segment", "active segment"):
        assert not lost
    # Nor is it forgotten by the next start.
    log.close()
    again = reopen(disk, checkpointed)
    assert missing(again, batches) >= lost
    assert again.damaged_from is not None or not log.damaged_from or log.recovery.lost_end


# The same size, and dense batches of the same offsets


def damaged_at(log: PartitionLog, base_offset: int) -> list[tuple[int, int]]:
    """As its first reader finds them."""
    found = next(it for it in log.segments if it.base_offset == base_offset)
    found.verify()
    return [(it.offset, it.end_offset) for it in found.damages]


def changed(log: PartitionLog) -> list[int]:
    """Base offsets of the segments that a look at the files finds changed."""
    return [it.base_offset for it, problem in log.lost_files() if problem is None]


@pytest.fixture
def others(disk: SimDisk) -> dict[int, bytes]:
    """Segments of another partition, by base offset."""
    other = SimDisk()
    log = open_log(other, SETTINGS)
    fill(log, b"other")
    log.close()
    found = {base: other.content(path(base)) for base in (0, 8, 16, 24)}
    assert {len(it) for it in found.values()} == {len(disk.content(path(0)))}
    return found


@pytest.mark.parametrize("base_offset", [0, 8, 16, 24])
def test_another_partitions_segment_of_the_same_size_is_damage(
    disk: SimDisk, others: dict[int, bytes], base_offset: int
) -> None:
    disk.replace(path(base_offset), others[base_offset])
    log = reopen(disk)
    assert changed(log) == [base_offset]
    with pytest.raises(StreamlogError, match="not the one that was stored"):
        log.read(base_offset, 10_000, END)
    assert log.damaged_from == base_offset
    assert damaged_at(log, base_offset) == [(base_offset, base_offset + 8)]


@pytest.mark.parametrize("number", [0, 3])
def test_one_end_that_differs_is_enough(
    disk: SimDisk, others: dict[int, bytes], number: int
) -> None:
    """All is of another file then, unless the batch itself is damaged."""
    at, data = number * SIZE, bytearray(disk.content(path(8)))
    data[at : at + SIZE] = others[8][at : at + SIZE]
    disk.replace(path(8), bytes(data))
    assert damaged_at(reopen(disk), 8) == [(8, 16)]


@pytest.mark.parametrize("number", [0, 3])
def test_a_checksum_that_rots_costs_one_batch(disk: SimDisk, number: int) -> None:
    disk.flip(path(8), 8 * (number * SIZE + 18))
    assert damaged_at(reopen(disk), 8) == [(8 + 2 * number, 10 + 2 * number)]


def test_a_first_read_finds_what_was_replaced_since_the_start(
    disk: SimDisk, others: dict[int, bytes]
) -> None:
    log = reopen(disk)
    disk.replace(path(8), others[8])
    with pytest.raises(StreamlogError, match="not the one that was stored"):
        log.read(8, 10_000, END)


def test_a_look_at_the_files_finds_it_while_the_old_one_is_open(
    disk: SimDisk, others: dict[int, bytes]
) -> None:
    log = reopen(disk)
    assert len(list(read_batches(log))) == END // 2
    assert log.lost_files() == []
    disk.replace(path(8), others[8])
    assert changed(log) == changed(log) == [8]


def test_a_look_reads_each_file_once_unless_it_changes(disk: SimDisk) -> None:
    log = reopen(disk)
    disk.fail("pread", errno.EIO, part="0008.log", times=1)
    assert log.lost_files() == []
    before = disk.calls["pread"]
    assert log.lost_files() == []
    assert disk.calls["pread"] == before + 2, "the one that could not be read"
    assert log.lost_files() == []
    assert disk.calls["pread"] == before + 2
    disk.overwrite(path(16), disk.content(path(16))[:-1] + b"!")
    log.lost_files()
    assert disk.calls["pread"] == before + 4


def test_retention_takes_no_time_from_another_logs_segment(
    disk: SimDisk, others: dict[int, bytes]
) -> None:
    settings = dataclasses.replace(SETTINGS, retention_ms=60_000)
    assert (
        open_log(disk, settings, recovery_point=END).retained_start(10**9, END, erased=OffsetSet())
        == END
    )
    disk.replace(path(8), others[8])
    assert (
        open_log(disk, settings, recovery_point=END).retained_start(10**9, END, erased=OffsetSet())
        == 8
    )


def test_no_leader_epoch_is_taken_from_another_logs_segment(disk: SimDisk) -> None:
    other = SimDisk()
    log = open_log(other, SETTINGS)
    while log.log_end_offset < END:
        append(log, [b"other"] * 2, epoch=7)
    sync(log)
    before = reopen(disk).epochs.entries
    disk.replace(path(16), other.content(path(16)))
    disk.remove(f"{FOLDER}/{EPOCHS_NAME}")
    log = reopen(disk)
    assert log.epochs.entries == before
    assert log.damaged_from == 16


@pytest.mark.parametrize("base_offset", [8, 32])
def test_a_slice_ends_before_the_end_of_a_file_that_was_cut(
    disk: SimDisk, base_offset: int
) -> None:
    """Or it is refused: an answer has promised all of it before the first byte is sent."""
    size = len(disk.content(path(base_offset)))
    refused = 0
    for length in range(0, size, SIZE // 2):
        log = reopen(disk)
        assert len(list(read_batches(log))) == END // 2
        before = disk.content(path(base_offset))
        disk.overwrite(path(base_offset), before[:length])
        offsets = base_offset, base_offset + 2
        for offset, max_bytes in itertools.product(offsets, range(1, size, 7)):
            try:
                with log.read(offset, max_bytes, END) as part:
                    assert len(part.read()) == len(part) > 0
            except StreamlogError:
                refused += 1
        disk.overwrite(path(base_offset), before)
    assert refused


def test_whoever_reads_all_of_it_again_finds_it(disk: SimDisk, others: dict[int, bytes]) -> None:
    log = reopen(disk)
    segment = log.segment_for_read(8)
    assert segment is not None
    assert segment.recheck(lambda _: None) == ()
    disk.replace(path(8), others[8])
    segment.let_go()
    assert [(it.offset, it.end_offset) for it in segment.recheck(lambda _: None)] == [(8, 16)]


def test_each_sealed_segment_is_named_with_the_checksums_of_its_ends(disk: SimDisk) -> None:
    for it in stored(disk).sealed:
        data = disk.content(path(it.base_offset))
        first, last = (int.from_bytes(data[at + 17 : at + 21], "big") for at in (0, 3 * SIZE))
        assert it.ends == EndChecksums(first, 3 * SIZE, last)


def test_they_are_made_anew_with_the_manifest(disk: SimDisk) -> None:
    before = stored(disk).sealed
    disk.remove(f"{FOLDER}/{MANIFEST_NAME}")
    reopen(disk)
    assert stored(disk).sealed == before


def test_they_are_forgotten_with_a_cut_and_known_again_with_the_next_seal(disk: SimDisk) -> None:
    before = stored(disk).sealed
    log = reopen(disk)
    log.truncate_to(12)
    fill(log, b"word1")
    after = stored(disk).sealed
    assert after[0] == before[0]
    assert after[1].ends.first_crc == before[1].ends.first_crc
    assert after[1].ends.last_crc != before[1].ends.last_crc
    assert reopen(disk).damaged_from is None


@pytest.mark.parametrize("encrypts", [False, True])
def test_a_cleaning_names_those_of_the_new_segment(*, encrypts: bool) -> None:
    disk = SimDisk()
    log = KeyedLog(disk)
    log.encrypt(encrypts)
    for number in range(30):
        log.append((b"k%d" % (number % 3), b"x" * 100))
    before = stored_after(disk, log.sync).sealed
    after = stored_after(disk, log.seal_and_clean).sealed
    assert after[0].ends != before[0].ends
    for it in after:
        assert it.ends.is_known
        assert it.ends.differing_at(disk, path(it.base_offset)) == set()
    disk.kill()
    log.open(recovery_point=30)
    assert log.log.damaged_from is None


def stored_after(disk: SimDisk, call: Callable[[], object]) -> LogManifest:
    call()
    return stored(disk)


def test_a_cleaning_takes_nothing_from_another_file() -> None:
    disk, other = SimDisk(), SimDisk()
    for it, value in ((disk, b"x"), (other, b"y")):
        log = KeyedLog(it)
        for number in range(30):
            log.append((b"k%d" % (number % 3), value * 100))
        log.sync()
    disk.kill()
    log = KeyedLog(disk)
    assert len(log.kept()) == 30  # so that all is verified
    disk.replace(path(0), other.content(path(0)))
    log.log.segments.let_go()
    with pytest.raises(CorruptBatch, match="not the one that was stored"):
        log.clean()


def test_a_header_that_cannot_be_read_is_for_its_readers_to_tell(disk: SimDisk) -> None:
    disk.fail("pread", errno.EIO, part="0008.log", times=1)
    log = reopen(disk)
    assert log.damaged_from is None
    assert len(list(read_batches(log))) == END // 2


# What is known


def test_a_small_log_has_none(disk: SimDisk) -> None:
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    append(log, 2)
    sync(log)
    log.close()
    assert not disk.has_file(f"{FOLDER}/{MANIFEST_NAME}")


def test_it_names_what_was_synced(disk: SimDisk) -> None:
    manifest = stored(disk)
    assert [it.base_offset for it in manifest.sealed] == [0, 8, 16, 24]
    assert {it.size_bytes for it in manifest.sealed} == {4 * SIZE}
    assert manifest.active_offset == 32


def test_it_forgets_before_files_go(disk: SimDisk) -> None:
    log = reopen(disk)
    log.advance_log_start(17)
    assert stored(disk).log_start_offset == 17
    log.truncate_to(26)
    assert [it.base_offset for it in stored(disk).sealed] == [16]
    assert stored(disk).active_offset == 24


def test_a_log_that_begins_anew_begins_there_after_a_crash(disk: SimDisk) -> None:
    log = reopen(disk)
    log.truncate_fully_to(50)
    disk.crash()
    log = reopen(disk, 0)
    assert (log.log_start_offset, log.log_end_offset, log.damaged_from) == (50, 50, None)


def test_a_full_disk_leaves_it_behind_until_there_is_room(disk: SimDisk) -> None:
    log = reopen(disk)
    fill(log, b"word0", END + 4)
    disk.fail("write_small", errno.ENOSPC, part=MANIFEST_NAME, times=99)
    fill(log, b"word0", END + 8)
    disk.faults.clear()
    assert (log.recovery_point, stored(disk).active_offset) == (END + 8, 32)
    sync(log)
    assert stored(disk).active_offset == 40
    assert not log.failed


@pytest.mark.parametrize("has_power", [True, False])
def test_a_log_is_cut_on_a_full_disk(disk: SimDisk, *, has_power: bool) -> None:
    """A follower whose disk is full must be able to follow another leader: that makes room."""
    log = reopen(disk)
    disk.capacity_bytes = sum(disk.sizes(str(FOLDER)).values())
    log.truncate_to(20)
    assert (log.log_end_offset, log.failed) == (20, False)
    assert log.manifest.stored is None
    disk.capacity_bytes = None
    if has_power:
        sync(log)
        assert (stored(disk).active_offset, len(stored(disk).sealed)) == (16, 2)
    else:
        disk.crash()
    log = reopen(disk, 20)
    assert (log.log_start_offset, log.log_end_offset, log.damaged_from) == (0, 20, None)


def test_one_of_another_folder_or_cut_is_none() -> None:
    manifest = LogManifest(
        3,
        20,
        25,
        (
            SealedSegment(0, 10, 100),
            SealedSegment(10, 20, 90, True, EndChecksums(1, 60, 2**32 - 1)),
        ),
        7,
    )
    data = encode(manifest, b"s/0")
    assert decode(data, b"s/0", "x") == manifest
    for wrong in (data[:-1], data[:5], b"", data + b"x", data[:20] + b"\xff" + data[21:]):
        with pytest.raises(CorruptFile):
            decode(wrong, b"s/0", "x")
    with pytest.raises(CorruptFile, match="another folder"):
        decode(data, b"s/1", "x")


def test_damage_below_the_log_start_is_none_any_more(disk: SimDisk) -> None:
    disk.remove(path(0))
    log = reopen(disk)
    assert log.damaged_from == 0
    log.advance_log_start(9)
    assert log.damaged_from is None
    log.close()
    log = reopen(disk)
    assert (log.log_start_offset, log.damaged_from) == (9, None)


def test_damage_at_the_start_is_mended_by_beginning_anew_there(disk: SimDisk) -> None:
    log = reopen(disk)
    log.advance_log_start(3)
    log.close()
    disk.remove(path(0))
    log = reopen(disk, log_start_offset=3)
    log.cut_damage()
    assert (log.log_start_offset, log.log_end_offset, log.damaged_from) == (3, 3, None)


# Crashes

Known = list[tuple[int, int]]


def story(log: PartitionLog, note: Callable[[int, int], None]) -> None:
    """Rolls, purges, cuts; ``note`` hears of the log start that was kept, and of what is synced."""
    for end in (4, 10, 18, 26, 34):
        fill(log, b"word0", end)
        note(log.log_start_offset, log.recovery_point)
    log.advance_log_start(9)
    note(9, log.recovery_point)
    note(9, 20)
    log.truncate_to(20)
    fill(log, b"word1", 30)
    note(9, 30)
    log.advance_log_start(30)
    note(30, 30)
    fill(log, b"word2", 44)
    note(30, 44)


def calls_of_the_story() -> int:
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    disk.calls.clear()
    story(log, lambda *_: None)
    return sum(disk.calls.values())


@pytest.mark.parametrize("unlinks", ["at once", "a step later", "never"])
def test_whatever_crash_leaves_fits_the_manifest(unlinks: str) -> None:
    """After each system call, and with each choice of what had reached the platter by then.
    ``unlinks``: when the room of what was removed is freed.
    """
    for cut_after, seed in itertools.product(range(1, calls_of_the_story(), 2), range(2)):
        disk, later = SimDisk(seed), Later()
        removal = Removal(disk, later) if unlinks != "at once" else None
        log = open_log(disk, SETTINGS, removal=removal)
        known = [(0, 0)]
        disk.calls_left = cut_after

        def note(start: int, end: int, known: Known = known, later: Later = later) -> None:
            known.append((start, end))
            if unlinks == "a step later":
                later.run(1)

        with contextlib.suppress(PowerCut):
            story(log, note)
        disk.crash()
        start, end = known[-1]
        later = Later()
        log = open_log(disk, SETTINGS, removal=Removal(disk, later))
        later.run()
        assert not [it for it in disk.sizes(str(FOLDER)) if it.endswith(".deleted")]
        assert log.damaged_from is None, (cut_after, seed)
        assert not log.recovery.lost_end, (cut_after, seed)
        assert not log.recovery.damages, (cut_after, seed)
        assert log.log_start_offset >= min(start, 9), (cut_after, seed)
        assert log.log_end_offset >= min(end, 20) or end == log.log_end_offset, (cut_after, seed)
