import errno
import struct
from dataclasses import replace
from typing import Any

import pytest

from streamlog.errors import CorruptBatch, OffsetOutOfRange, StorageFailed, StorageFull
from streamlog.log.log import PartitionLog
from streamlog.log.manifest import MANIFEST_NAME
from streamlog.log.settings import LogSettings
from streamlog.record.batch import batches
from streamlog.record.offset_set import OffsetSet
from tests.log_folder import FOLDER, append, make_batch, open_log, read_batches, sync
from tests.simulation.disk import SimDisk

SEGMENT = f"{FOLDER}/{0:020d}"


def names(disk: SimDisk) -> list[str]:
    return sorted(disk.sizes(str(FOLDER)))


def offsets(log: PartitionLog, offset: int, max_bytes: int, upper: int) -> list[int]:
    """Base offsets of the batches that a read returns."""
    with log.read(offset, max_bytes, upper) as piece:
        return [header.base_offset for header, _ in batches(piece.read())]


# Appending


def test_a_new_log_is_empty(disk: SimDisk, log: PartitionLog) -> None:
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert (log.size_bytes, log.segment_count) == (0, 1)
    assert names(disk) == [f"{0:020d}.log"]


def test_a_log_may_begin_at_any_offset(disk: SimDisk) -> None:
    log = open_log(disk, log_start_offset=4711)
    assert (log.log_start_offset, log.log_end_offset) == (4711, 4711)
    assert names(disk) == [f"{4711:020d}.log", MANIFEST_NAME]


def test_what_is_appended_lies_in_the_file_as_it_came(disk: SimDisk, log: PartitionLog) -> None:
    first, second = append(log, 3), append(log, 2)
    assert log.log_end_offset == 5
    assert log.size_bytes == len(first + second)
    assert disk.content(SEGMENT + ".log") == first + second


@pytest.mark.parametrize(
    "sealed", [(1, 2, 5), (3, 4, 5), (2, 3, 4)], ids=["before", "after", "epoch"]
)
def test_a_batch_that_was_sealed_for_another_place_is_not_written(
    log: PartitionLog, sealed: tuple[int, int, int]
) -> None:
    append(log, 2, epoch=5)
    before = list(read_batches(log))
    with pytest.raises(CorruptBatch, match="cannot follow at 2 in epoch 5"):
        log.append(make_batch(sealed[0], epoch=sealed[2]), 1_000, sealed)
    assert (log.log_end_offset, list(read_batches(log))) == (2, before)
    log.append(make_batch(2, epoch=6), 1_000, (2, 3, 6))
    assert (log.log_end_offset, log.epochs.latest) == (3, 6)


def test_one_system_call_for_each_batch(disk: SimDisk, log: PartitionLog) -> None:
    append(log)
    disk.calls.clear()
    for _ in range(10):
        append(log)
    assert disk.calls == {"pwrite": 10}


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        make_batch(0)[:60],
        make_batch(0)[:-1],
        make_batch(0) + b"x",
        make_batch(1),
        make_batch(0)[:16] + b"\x01" + make_batch(0)[17:],
        make_batch(0)[:23] + struct.pack(">i", -1) + make_batch(0)[27:],
        make_batch(0) + make_batch(1),
    ],
    ids=["nothing", "header", "cut", "long", "base offset", "magic", "delta", "two"],
)
def test_what_cannot_follow_is_refused(log: PartitionLog, batch: bytes) -> None:
    with pytest.raises(CorruptBatch):
        log.append(batch, 1_000)
    assert (log.log_end_offset, log.size_bytes, log.failed) == (0, 0, False)


def test_an_older_epoch_is_refused(log: PartitionLog) -> None:
    append(log, epoch=5)
    with pytest.raises(CorruptBatch, match="epoch 4"):
        append(log, epoch=4)
    append(log, epoch=6)
    assert [tuple(entry) for entry in log.epochs.entries] == [(5, 0), (6, 1)]


# A disk that is full or fails


def test_a_full_disk_keeps_nothing_of_the_batch(disk: SimDisk, log: PartitionLog) -> None:
    kept = append(log)
    disk.capacity_bytes = len(kept) + 20
    for _ in range(3):
        with pytest.raises(StorageFull, match=SEGMENT):
            append(log)
        assert disk.content(SEGMENT + ".log") == kept
    disk.capacity_bytes = None
    append(log)
    assert [header.base_offset for header, _ in read_batches(log)] == [0, 1]


def test_short_writes_are_finished(disk: SimDisk, log: PartitionLog) -> None:
    disk.short_writes = True
    wanted = [append(log, 5) for _ in range(5)]
    assert [data for _, data in read_batches(log)] == wanted


def test_a_short_write_before_the_disk_is_full_is_undone(disk: SimDisk, log: PartitionLog) -> None:
    kept = append(log)
    disk.fail("pwrite", errno.ENOSPC, skip=1)
    disk.short_writes = True
    with pytest.raises(StorageFull):
        append(log, 50)
    assert disk.content(SEGMENT + ".log") == kept


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_failing_write_takes_the_log_offline(disk: SimDisk, log: PartitionLog, code: int) -> None:
    kept = append(log)
    disk.fail("pwrite", code)
    with pytest.raises(StorageFailed):
        append(log)
    assert log.failed
    with pytest.raises(StorageFailed):
        append(log)
    with pytest.raises(StorageFailed):
        log.begin_sync()
    with pytest.raises(StorageFailed):
        log.roll()
    assert [data for _, data in read_batches(log)] == [kept]
    log.close()
    log = open_log(disk)
    append(log)
    assert log.log_end_offset == 2


def test_a_write_that_cannot_be_undone_takes_the_log_offline(
    disk: SimDisk, log: PartitionLog
) -> None:
    append(log)
    disk.capacity_bytes = disk.sizes(str(FOLDER))[f"{0:020d}.log"] + 20
    disk.fail("truncate", errno.EIO)
    with pytest.raises(StorageFailed, match="cut back"):
        append(log)
    assert log.failed
    disk.kill()
    disk.capacity_bytes = None
    log = open_log(disk)
    assert (log.log_end_offset, log.recovery.cut_bytes) == (1, 20)


# Segments


def test_it_rolls_by_size(disk: SimDisk) -> None:
    size = len(make_batch(0))
    log = open_log(disk, LogSettings(segment_bytes=3 * size))
    for _ in range(7):
        append(log)
    assert [segment.base_offset for segment in log._segments] == [0, 3, 6]
    assert log.size_bytes == 7 * size


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=100))
    for _ in range(3):
        append(log, 40)
    assert log.segment_count == 3


def test_it_rolls_by_age_when_the_next_batch_comes(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(segment_age_ms=500))
    append(log, timestamp_ms=1_000)
    append(log, timestamp_ms=1_499)
    assert log.segment_count == 1
    append(log, timestamp_ms=1_500)
    assert log.segment_count == 2
    append(log, timestamp_ms=1_999)
    assert log.segment_count == 2


def test_the_age_is_that_of_the_first_batch_after_a_restart_too(disk: SimDisk) -> None:
    settings = LogSettings(segment_age_ms=500)
    log = open_log(disk, settings)
    append(log, timestamp_ms=1_000)
    append(log, timestamp_ms=1_400)
    log.close()
    log = open_log(disk, settings, recovery_point=2)
    append(log, timestamp_ms=1_500)
    assert log.segment_count == 2


def test_an_empty_segment_is_not_rolled(log: PartitionLog) -> None:
    log.roll()
    append(log)
    log.roll()
    log.roll()
    assert log.segment_count == 2


def test_offsets_that_do_not_fit_an_index_entry_begin_a_new_segment(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log)
    batch = bytearray(make_batch(1))
    struct.pack_into(">i", batch, 23, 2**31 - 2)  # compaction leaves such batches
    log.append(bytes(batch), 1_000)
    append(log)
    assert [segment.base_offset for segment in log._segments] == [0, 2**31]


def test_a_roll_on_a_full_disk_changes_nothing(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1_000, index_interval_bytes=0))
    wanted = [append(log) for _ in range(5)]
    disk.capacity_bytes = sum(disk.sizes(str(FOLDER)).values())
    for _ in range(2):
        with pytest.raises(StorageFull):
            log.roll()
        assert names(disk) == [f"{0:020d}.log"]
    disk.capacity_bytes = None
    wanted.append(append(log))
    log.roll()
    wanted.append(append(log))
    assert [data for _, data in read_batches(log)] == wanted


def test_a_sealed_segment_has_kafkas_indexes(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(index_interval_bytes=100))
    sizes = [len(append(log, 2, timestamp_ms=time)) for time in (1_000, 1_005, 1_005, 1_002, 1_009)]
    log.roll()
    # Each entry: the last offset of a batch, and where that batch begins; never the first one.
    index = list(struct.iter_unpack(">II", disk.content(SEGMENT + ".index")))
    assert index == [(5, sum(sizes[:2])), (9, sum(sizes[:4]))]
    # Each entry: the latest time so far, and the last offset of the batch that reached it.
    times = list(struct.iter_unpack(">qI", disk.content(SEGMENT + ".timeindex")))
    assert times == [(1_005, 3), (1_009, 9)]


# Reading


def test_a_read_begins_with_the_batch_of_its_offset(
    three_by_two: tuple[PartitionLog, int],
) -> None:
    log, _ = three_by_two
    assert offsets(log, 0, 10_000, 12) == [0, 2, 4]
    assert offsets(log, 3, 10_000, 12) == [2, 4]
    assert offsets(log, 5, 10_000, 12) == [4]
    assert offsets(log, 6, 10_000, 12) == [6, 8, 10]


def test_the_first_batch_comes_whole_and_only_whole_ones_follow(
    three_by_two: tuple[PartitionLog, int],
) -> None:
    log, size = three_by_two
    assert offsets(log, 0, 0, 12) == [0]
    assert offsets(log, 1, size - 1, 12) == [0]
    assert offsets(log, 0, size, 12) == [0]
    assert offsets(log, 0, 2 * size - 1, 12) == [0]
    assert offsets(log, 0, 2 * size, 12) == [0, 2]


def test_nothing_that_ends_above_the_upper_offset(three_by_two: tuple[PartitionLog, int]) -> None:
    log, _ = three_by_two
    assert offsets(log, 0, 10_000, 4) == [0, 2]
    assert offsets(log, 0, 10_000, 5) == [0, 2]
    assert offsets(log, 4, 10_000, 5) == []
    assert offsets(log, 4, 10_000, 4) == []
    assert offsets(log, 8, 10_000, 4) == []
    assert offsets(log, 0, 0, 1) == []
    assert offsets(log, 6, 10_000, 9) == [6]


def test_offsets_out_of_range(three_by_two: tuple[PartitionLog, int]) -> None:
    log, _ = three_by_two
    assert offsets(log, 12, 10_000, 12) == []
    log.advance_log_start(3)
    for offset in (-1, 2, 13):
        with pytest.raises(OffsetOutOfRange, match=rf"{offset} is outside \[3, 12\]"):
            log.read(offset, 10_000, 12)
        assert log.segment_for_read(offset) is None
    assert offsets(log, 3, 10_000, 12) == [2, 4]


def test_a_tail_read_needs_no_look_at_the_file(disk: SimDisk, log: PartitionLog) -> None:
    for _ in range(20):
        append(log)
        at = log.log_end_offset - 1
        sync(log)
        log.read(at, 1_000, at + 1).close()
        append(log)
        disk.calls.clear()
        log.read(at + 1, 1_000, at + 2).close()
        assert "pread" not in disk.calls


def test_a_slice_outlives_retention_the_pool_and_the_log(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=100))
    first = append(log, 5)
    piece = log.read(0, 1_000, log.log_end_offset)
    for _ in range(40):
        append(log, 5)
        with log.read(log.log_end_offset - 1, 100, log.log_end_offset):
            pass
    log.advance_log_start(log.log_end_offset)
    assert f"{0:020d}.log" not in names(disk)
    log.close()
    assert piece.read() == first
    piece.close()
    assert disk.open_files == 0


def test_a_file_that_cannot_be_read(disk: SimDisk, three_by_two: tuple[PartitionLog, int]) -> None:
    log, _ = three_by_two
    disk.fail("pread", errno.EIO)
    with pytest.raises(StorageFailed, match=SEGMENT):
        log.read(3, 1_000, 12)
    assert not log.failed
    assert offsets(log, 3, 10_000, 12) == [2, 4]


# Letting go


def test_a_purge_frees_what_lies_wholly_below(
    disk: SimDisk, three_by_two: tuple[PartitionLog, int]
) -> None:
    log, size = three_by_two
    log.advance_log_start(5)
    assert (log.log_start_offset, log.segment_count) == (5, 3)
    log.advance_log_start(7)
    assert (log.log_start_offset, log.size_bytes) == (7, 3 * size)
    log.advance_log_start(3)
    assert log.log_start_offset == 7
    append(log)
    log.advance_log_start(13)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (13, 13, 0)
    assert [name for name in names(disk) if "." in name] == [f"{13:020d}.log"]


def test_a_purge_of_all_survives_a_power_cut(disk: SimDisk) -> None:
    for seed in range(10):
        disk = SimDisk(seed)
        log = open_log(disk)
        append(log, 5)
        sync(log)
        log.advance_log_start(5)
        disk.crash()
        assert open_log(disk).log_end_offset == 5  # or an offset would be given twice


def test_a_purge_frees_a_full_disk(disk: SimDisk, log: PartitionLog) -> None:
    append(log, 20)
    disk.capacity_bytes = sum(disk.sizes(str(FOLDER)).values())
    with pytest.raises(StorageFull):
        append(log)
    log.advance_log_start(20)
    append(log, 20)
    assert log.log_end_offset == 40


@pytest.mark.parametrize(
    ("limits", "kept", "by_segments"),
    [
        ({"retention_bytes": 4}, range(5, 9), range(4, 9)),
        ({"retention_bytes": 3}, range(6, 9), range(6, 9)),
        ({"retention_messages": 4}, range(5, 9), range(5, 9)),
        ({"retention_ms": 450}, range(5, 9), range(4, 9)),
        ({"retention_messages": 7, "retention_ms": 250}, range(7, 9), range(6, 9)),
        ({}, range(9), range(9)),
    ],
)
def test_retention_by_bytes_messages_and_age(
    limits: dict[str, Any], kept: range, by_segments: range
) -> None:
    size, disk = len(make_batch(0)), SimDisk()
    if "retention_bytes" in limits:
        limits = {"retention_bytes": limits["retention_bytes"] * size}
    log = open_log(disk, LogSettings(segment_bytes=2 * size, **limits))
    for i in range(9):
        append(log, timestamp_ms=1_000 + 100 * i)
    assert log.retained_start(1_950, 9, erased=OffsetSet()) == by_segments.start
    trim = log.trimmed_start(1_950, 9, erased=OffsetSet())
    first_ms = 1_000 + 100 * kept.start
    due_ms = first_ms + limits["retention_ms"] + 1 if "retention_ms" in limits else None
    assert (trim.start_offset, trim.due_ms) == (kept.start, due_ms)
    log.advance_log_start(kept.start)
    assert next(read_batches(log))[0].base_offset == log.log_start_offset == kept.start
    assert log.kept_bytes == len(kept) * size
    assert log.size_bytes == (9 - kept.start // 2 * 2) * size, "files go as whole segments"


def test_what_is_erased_is_not_among_the_messages_that_are_too_many(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(retention_messages=3))
    append(log, 10)
    erased = OffsetSet([1, 4, 7, 8])
    assert log.trimmed_start(0, 10, erased=erased).start_offset == 5
    assert log.trimmed_start(0, 8, erased=erased).start_offset == 3
    log.advance_log_start(5)
    assert log.trimmed_start(0, 10, erased=erased).start_offset == 5
    assert log.trimmed_start(0, 9, erased=erased).start_offset == 5, "there are two"


def test_a_damaged_segment_goes_only_whole(disk: SimDisk) -> None:
    """What is damaged may be repaired from another replica, and its time is not known."""
    size = len(make_batch(0))
    settings = LogSettings(segment_bytes=4 * size, index_interval_bytes=0)
    log = open_log(disk, settings)
    for i in range(9):
        append(log, timestamp_ms=1_000 + 100 * i)
    log.close()
    disk.flip(f"{FOLDER}/{0:020d}.log", size + 70)
    cases: list[dict[str, Any]] = [{"retention_ms": 350}, {"retention_bytes": 6 * size}]
    for limits in cases:
        log = open_log(disk, replace(settings, **limits), recovery_point=9)
        assert log.trimmed_start(1_600, 9, erased=OffsetSet()) == (0, None)
        log.settings = replace(settings, retention_ms=350)
        assert log.trimmed_start(1_700, 9, erased=OffsetSet()) == (4, 1_751)
        log.close()


def test_records_of_one_batch_go_one_by_one_where_they_are_too_many(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(retention_messages=2, retention_ms=100))
    append(log, 5, timestamp_ms=1_000)
    assert log.trimmed_start(1_050, 5, erased=OffsetSet()) == (3, 1_101)
    assert log.trimmed_start(1_050, 3, erased=OffsetSet()) == (1, 1_101)
    log.advance_log_start(3)
    assert log.kept_bytes == log.size_bytes, "a batch is read whole"
    assert log.trimmed_start(1_101, 5, erased=OffsetSet()) == (5, None)


def test_what_is_known_of_the_first_batch_is_forgotten_with_it(disk: SimDisk) -> None:
    """Another leader has other batches at the same offsets."""
    log = open_log(disk)
    append(log, [b"x" * 500], timestamp_ms=1_000)
    append(log, timestamp_ms=2_000)
    log.advance_log_start(1)
    assert (log.first_timestamp_ms(), log.kept_bytes) == (2_000, len(make_batch(0)))
    log.truncate_to(0)
    append(log, timestamp_ms=3_000)
    append(log, 2, timestamp_ms=4_000)
    log.advance_log_start(1)
    assert (log.first_timestamp_ms(), log.kept_bytes) == (4_000, len(make_batch(0, 2)))


def test_a_segment_that_is_large_enough_is_closed_early(disk: SimDisk) -> None:
    """By its records or its age: its files go sooner then."""
    size = len(make_batch(0))
    log = open_log(disk, LogSettings(early_bytes=4 * size, early_records=7, early_age_ms=100))
    for _ in range(9):
        append(log, timestamp_ms=1_000)
    append(log, timestamp_ms=9_000)
    assert [segment.base_offset for segment in log.segments] == [0, 7], "the second is too small"
    append(log, timestamp_ms=9_000)
    append(log, timestamp_ms=1_000)
    append(log, timestamp_ms=1_100)
    assert [segment.base_offset for segment in log.segments] == [0, 7, 12]


def test_a_log_start_alone_has_the_manifest_written_only_when_that_is_asked(disk: SimDisk) -> None:
    """Each write of it is a sync of its own, and the checkpoint has the log start already."""
    log = open_log(disk)
    append(log, 10)
    log.advance_log_start(1)
    sync(log)
    written = disk.calls["write_small"]
    log.advance_log_start(2, is_kept=True, is_noted_soon=False)
    assert not log.has_unsynced_manifest
    append(log)
    sync(log)
    assert disk.calls["write_small"] == written
    log.note_log_start()
    sync(log)
    assert disk.calls["write_small"] == written + 1
    log.advance_log_start(3, is_kept=True, is_noted_soon=False)
    log.roll()
    append(log)
    log.advance_log_start(11, is_kept=True, is_noted_soon=False)
    assert log.has_unsynced_manifest, "files have gone"


def test_retention_rolls_an_active_segment_that_is_all_too_old(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(retention_ms=100))
    append(log, 3, timestamp_ms=1_000)
    assert log.advance_log_start(log.retained_start(1_100, 3, erased=OffsetSet())) == []
    assert log.advance_log_start(log.retained_start(1_101, 2, erased=OffsetSet())) == []
    assert log.advance_log_start(log.retained_start(1_101, 3, erased=OffsetSet())) == [
        f"{0:020d}.log"
    ]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    assert log.advance_log_start(log.retained_start(9_999, 3, erased=OffsetSet())) == []


def test_retention_believes_no_damaged_time_index(disk: SimDisk) -> None:
    log = open_log(disk)
    for i in range(10):
        append(log, 20, timestamp_ms=1_000 + i)
    log.roll()
    log.close()
    end = log.log_end_offset
    path = f"{FOLDER}/{0:020d}.timeindex"
    for damage in (b"", struct.pack(">qI", 5, 3), b"\xff" * 12, disk.content(path)[:12]):
        disk.replace(path, damage)
        log = open_log(disk, LogSettings(retention_ms=100), recovery_point=end)
        assert log.advance_log_start(log.retained_start(1_050, end, erased=OffsetSet())) == []
        assert log.log_start_offset == 0
