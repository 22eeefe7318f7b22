from collections.abc import Callable

import pytest

from streamlog.errors import StorageFailed
from streamlog.log.log import PartitionLog
from streamlog.log.segment.index import TIME_ENTRY
from streamlog.log.segment.segment import IndexCheck, Segment
from streamlog.log.settings import LogSettings
from streamlog.record.offset_set import OffsetSet
from tests.log_folder import FOLDER, append, make_batch, open_log
from tests.record_batches import HandRecord, hand_batch
from tests.simulation.disk import SimDisk

SIZE = len(make_batch(0, 2))
SETTINGS = LogSettings(segment_bytes=3 * SIZE, index_interval_bytes=SIZE)
TIMES = [1_000, 1_010, 1_010, 1_005, 1_020, 1_015, 1_001, 1_030]
"""Of batches of two records: the clock goes back three times."""


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def log(disk: SimDisk) -> PartitionLog:
    log = open_log(disk, SETTINGS)
    for time in TIMES:
        append(log, 2, timestamp_ms=time)
    assert log.segment_count == 3
    return log


def naive(time: int, start: int, upper: int) -> tuple[int, int] | None:
    for i, batch_time in enumerate(TIMES):
        for offset in (2 * i, 2 * i + 1):
            if batch_time >= time and start <= offset < upper:
                return offset, batch_time
    return None


def test_the_first_record_of_a_time_or_later(log: PartitionLog) -> None:
    for start in (0, 1, 5, 16):
        log.advance_log_start(start)
        for time in range(995, 1_035):
            for upper in range(start, 17):
                assert log.offset_for_timestamp(time, upper) == naive(time, start, upper)


def test_the_first_record_of_the_latest_time(log: PartitionLog) -> None:
    for start in (0, 1, 5, 16):
        log.advance_log_start(start)
        for upper in range(start, 17):
            seen = [time for i, time in enumerate(TIMES) if start <= 2 * i + 1 and 2 * i < upper]
            expected = naive(max(seen), start, upper) if upper > start else None
            assert log.latest_timestamp(upper) == expected


def test_an_empty_log_has_no_times(disk: SimDisk) -> None:
    log = open_log(disk)
    assert log.offset_for_timestamp(0, 0) is None
    assert log.latest_timestamp(0) is None
    assert log.first_timestamp_ms() is None
    assert log.last_timestamp_ms() is None


def test_times_of_records_are_looked_up_in_their_batch(disk: SimDisk) -> None:
    log = open_log(disk)
    records = [HandRecord(b"x", timestamp_delta=delta) for delta in (5, 0, 20, 10)]
    log.append(hand_batch(records, base_timestamp_ms=1_000, max_timestamp_ms=1_020), 1_000)
    for time, found in ((990, (0, 1_005)), (1_005, (0, 1_005)), (1_006, (2, 1_020))):
        assert log.offset_for_timestamp(time, 4) == found
    assert log.offset_for_timestamp(1_021, 4) is None
    assert log.offset_for_timestamp(1_006, 2) is None
    assert log.latest_timestamp(4) == (2, 1_020)
    log.advance_log_start(3)
    assert log.offset_for_timestamp(1_000, 4) == (3, 1_010)


def test_first_and_last_times(disk: SimDisk, log: PartitionLog) -> None:
    assert (log.first_timestamp_ms(), log.last_timestamp_ms()) == (1_000, 1_030)
    log.advance_log_start(7)
    assert (log.first_timestamp_ms(), log.last_timestamp_ms()) == (1_005, 1_030)
    log.roll()
    assert log.last_timestamp_ms() == 1_030
    log.close()
    log = open_log(disk, SETTINGS, recovery_point=16, log_start_offset=7)
    assert (log.first_timestamp_ms(), log.last_timestamp_ms()) == (1_005, 1_030)
    log.advance_log_start(16)
    assert (log.first_timestamp_ms(), log.last_timestamp_ms()) == (None, None)


def test_whoever_minds_blocking_verifies_elsewhere(disk: SimDisk, log: PartitionLog) -> None:
    log.close()
    log = open_log(disk, SETTINGS, recovery_point=16)

    def refuse(segment: Segment) -> None:
        if not segment.verified:
            raise StorageFailed(segment.path)

    with pytest.raises(StorageFailed, match=f"{6:020d}"):
        log.offset_for_timestamp(1_020, 16, verify=refuse)
    segment = log.segment_for_read(6)
    assert segment is not None
    segment.verify()
    assert log.offset_for_timestamp(1_020, 16, verify=refuse) == (8, 1_020)


def test_damaged_batches_are_passed_over(disk: SimDisk, log: PartitionLog) -> None:
    log.close()
    path = f"{FOLDER}/{6:020d}.log"
    data = bytearray(disk.content(path))
    data[SIZE + 70] ^= 1
    disk.replace(path, bytes(data))
    log = open_log(disk, SETTINGS, recovery_point=16)
    assert log.offset_for_timestamp(1_005, 16) == (2, 1_010)
    assert log.offset_for_timestamp(1_012, 16) == (10, 1_015)
    assert log.offset_for_timestamp(1_016, 16) == (14, 1_030)
    log.advance_log_start(8)
    assert log.first_timestamp_ms() == 1_015


# Time indexes that are well-formed, and wrong

GROWING = LogSettings(segment_bytes=1_000 * SIZE, index_interval_bytes=SIZE)
COUNT = 300
STEP_MS = 10
ACTIVE = f"{FOLDER}/{0:020d}.timeindex"

Entries = list[tuple[int, int]]


def all_earlier(entries: Entries) -> Entries:
    """As another log's that was written a moment before."""
    return [(time - 15, offset) for time, offset in entries]


def all_later(entries: Entries) -> Entries:
    return [(time + 15, offset) for time, offset in entries]


def one_earlier(entries: Entries) -> Entries:
    """A bit that rots; no sample is taken of it."""
    return [(time - 15 * (i == 76), offset) for i, (time, offset) in enumerate(entries)]


def last_later(entries: Entries) -> Entries:
    return [*entries[:-1], (entries[-1][0] + 1_000, entries[-1][1])]


@pytest.fixture(params=[all_earlier, all_later, one_earlier, last_later])
def misled(disk: SimDisk, request: pytest.FixtureRequest) -> bytes:
    """The folder of a log with one segment, whose time index is wrong now; what it was."""
    lie: Callable[[Entries], Entries] = request.param
    log = open_log(disk, GROWING)
    for i in range(COUNT):
        append(log, timestamp_ms=1_000 + STEP_MS * i)
    log.close()
    before = disk.content(ACTIVE)
    entries = list(TIME_ENTRY.iter_unpack(before))
    assert len(entries) > 128
    disk.replace(ACTIVE, b"".join(TIME_ENTRY.pack(*entry) for entry in lie(entries)))
    return before


def reopen(disk: SimDisk) -> PartitionLog:
    return open_log(disk, GROWING, recovery_point=COUNT)


def check(log: PartitionLog) -> None:
    end = log.log_end_offset
    for i in range(end):
        time = 1_000 + STEP_MS * i
        assert log.offset_for_timestamp(time, end) == (i, time)
        assert log.offset_for_timestamp(time - 3, end) == (i, time)
    assert log.offset_for_timestamp(time + 1, end) is None
    assert log.latest_timestamp(end) == (end - 1, time)


def test_a_wrong_time_index_of_the_active_segment(disk: SimDisk, misled: bytes) -> None:
    log = reopen(disk)
    check(log)
    log.close()
    assert disk.content(ACTIVE) == misled


def test_the_same_where_nobody_asks_for_a_time(disk: SimDisk, misled: bytes) -> None:
    log = reopen(disk)
    log.segments.last.verify()
    log.close()
    assert disk.content(ACTIVE) == misled


def test_the_same_after_more_was_appended(disk: SimDisk, misled: bytes) -> None:
    log = reopen(disk)
    for i in range(COUNT, COUNT + 9):
        append(log, timestamp_ms=1_000 + STEP_MS * i)
    check(log)
    for i in range(COUNT + 9, COUNT + 19):
        append(log, timestamp_ms=1_000 + STEP_MS * i)
    check(log)
    log.close()
    check(open_log(disk, GROWING, recovery_point=COUNT + 19))


@pytest.mark.parametrize("is_read", [False, True])
def test_the_same_of_a_log_at_rest(disk: SimDisk, misled: bytes, is_read: bool) -> None:
    log = reopen(disk)
    if is_read:
        log.segments.last.verify()
    assert log.rest()
    assert not is_read or disk.content(ACTIVE) == misled
    check(log)
    assert log.rest()
    check(log)
    log.close()
    assert disk.content(ACTIVE) == misled


def test_the_same_where_it_is_sealed_before_anyone_looks(disk: SimDisk, misled: bytes) -> None:
    log = reopen(disk)
    log.segments.last.verify()
    log.roll()
    assert disk.content(ACTIVE).startswith(misled)
    check(log)


def test_the_same_where_it_is_sealed_while_it_is_verified(
    disk: SimDisk, misled: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    contradictions = IndexCheck.contradictions

    def rolled(self: IndexCheck) -> dict[str, str]:
        if misled_log.segment_count == 1:
            misled_log.roll()
        return contradictions(self)

    misled_log = reopen(disk)
    monkeypatch.setattr(IndexCheck, "contradictions", rolled)
    check(misled_log)
    misled_log.close()
    assert disk.content(ACTIVE).startswith(misled)


@pytest.mark.parametrize("look", ["since", "latest"])
def test_an_active_segment_that_seems_older_than_it_is(disk: SimDisk, look: str) -> None:
    """The clock went back, and the entry of the latest time is lost."""
    log = open_log(disk, GROWING)
    for i in range(COUNT):
        append(log, timestamp_ms=1_000 + STEP_MS * i if i < 154 else 9_999 if i == 154 else 1_500)
    log.close()
    data = disk.content(ACTIVE)
    assert list(TIME_ENTRY.iter_unpack(data))[-1] == (9_999, 154)
    disk.replace(ACTIVE, data[: -TIME_ENTRY.size])
    log = reopen(disk)
    assert log.recovery.scanned_segments == 0
    if look == "since":
        assert log.offset_for_timestamp(5_000, COUNT) == (154, 9_999)
    else:
        assert log.latest_timestamp(COUNT) == (154, 9_999)


def test_another_logs_time_index_is_noticed_at_the_start(disk: SimDisk) -> None:
    """Nobody need ask for a time before."""
    log = open_log(disk, GROWING)
    for i in range(COUNT):
        append(log, timestamp_ms=1_000 + STEP_MS * i)
    log.close()
    entries = list(TIME_ENTRY.iter_unpack(disk.content(ACTIVE)))
    disk.replace(ACTIVE, b"".join(TIME_ENTRY.pack(*entry) for entry in all_later(entries)))
    log = open_log(disk, LogSettings(retention_ms=1), recovery_point=COUNT)
    assert log.recovery.scanned_segments == 1
    assert log.retained_start(1_000 + STEP_MS * COUNT, COUNT, erased=OffsetSet()) == COUNT


@pytest.mark.parametrize("kept_bytes", [0, TIME_ENTRY.size])
def test_a_time_index_without_its_end_makes_no_segment_older(
    disk: SimDisk, kept_bytes: int
) -> None:
    """The latest time is not at the end of a segment where the clock went back: retention would
    take the records too early, and a lookup pass over them.
    """
    times = [1_000, 1_010, 1_900, 1_020, 1_030, 1_040]
    settings = LogSettings(segment_bytes=6 * SIZE, index_interval_bytes=SIZE, retention_ms=100)
    log = open_log(disk, settings)
    for time in (*times, 1_050):
        append(log, 2, timestamp_ms=time)
    log.close()
    disk.replace(ACTIVE, disk.content(ACTIVE)[:kept_bytes])
    log = open_log(disk, settings, recovery_point=14)
    assert log.segment_count == 2
    assert log.retained_start(1_999, 14, erased=OffsetSet()) == 0
    assert log.retained_start(2_001, 14, erased=OffsetSet()) == 14
    assert log.offset_for_timestamp(1_500, 14) == (4, 1_900)
