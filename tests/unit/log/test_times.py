import pytest

from streamlog.errors import StorageFailed
from streamlog.log.log import PartitionLog
from streamlog.log.segment import Segment
from streamlog.log.settings import LogSettings
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
