"""What is damaged is found, named, and never served; all the rest is."""

import errno
import threading

import pytest

from streamlog.errors import CorruptBatch, StorageFailed
from streamlog.log.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from streamlog.log.log import PartitionLog
from streamlog.log.manifest import MANIFEST_NAME
from streamlog.log.settings import LogSettings
from streamlog.record.batch import batches
from tests.log_folder import FOLDER, append, make_batch, open_log
from tests.simulation.disk import SimDisk

SIZE = len(make_batch(0, 2))
SETTINGS = LogSettings(segment_bytes=6 * SIZE, index_interval_bytes=SIZE)
PATH = f"{FOLDER}/{0:020d}.log"


@pytest.fixture
def disk() -> SimDisk:
    """Two segments of six batches of two records, and an active one of two; closed."""
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    for i in range(14):
        append(log, 2, timestamp_ms=1_000 + i)
    log.close()
    disk.kill()
    return disk


def reopen(disk: SimDisk) -> PartitionLog:
    return open_log(disk, SETTINGS, recovery_point=28)


def overwrite(disk: SimDisk, position: int, data: bytes, path: str = PATH) -> None:
    content = bytearray(disk.content(path))
    content[position : position + len(data)] = data
    disk.replace(path, bytes(content))


def offsets(log: PartitionLog, offset: int, upper: int = 28) -> list[int]:
    with log.read(offset, 10_000, upper) as piece:
        return [header.base_offset for header, _ in batches(piece.read())]


def damage_count(log: PartitionLog, offset: int) -> int:
    segment = log.segment_for_read(offset)
    assert segment is not None
    return len(segment.damages)


def test_a_segment_is_checked_once_when_it_is_first_read(disk: SimDisk) -> None:
    log = reopen(disk)
    segment = log.segment_for_read(3)
    assert segment is not None
    assert not segment.verified
    assert offsets(log, 3) == [2, 4, 6, 8, 10]
    assert segment.verified
    disk.calls.clear()
    assert offsets(log, 5) == [4, 6, 8, 10]
    segment.verify()
    assert disk.calls["pread"] < 5


def test_what_this_process_wrote_is_not_checked(disk: SimDisk) -> None:
    log = reopen(disk)
    log.roll()
    append(log, 2)
    segment = log.segment_for_read(28)
    assert segment is not None
    assert segment.verified
    last = log.segment_for_read(26)
    assert last is not None
    assert not last.verified
    assert offsets(log, 24, 30) == [24, 26]


def test_of_the_active_segment_only_what_was_there_is_checked(disk: SimDisk) -> None:
    log = reopen(disk)
    segment = log.segment_for_read(24)
    assert segment is not None
    append(log, 2)
    segment.verify()
    append(log, 2)
    assert segment.damages == ()
    assert offsets(log, 24, 32) == [24, 26, 28, 30]


def test_a_segment_that_grew_and_was_sealed_since_the_start_keeps_its_indexes(
    disk: SimDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """It is checked when it is first read, but had more by then than at the start."""
    log = reopen(disk)
    for i in range(14, 20):
        append(log, 2, timestamp_ms=1_000 + i)
    stem = f"{FOLDER}/{24:020d}"
    indexes = [disk.content(stem + suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
    with log.read(24, 1 << 20, 40) as piece:
        assert len(piece) == 6 * SIZE
    assert [disk.content(stem + it) for it in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)] == indexes
    assert "rebuilt" not in caplog.text
    assert list(log.segments)[2].max_timestamp_ms == 1_017


@pytest.mark.parametrize("at", [3, 9, 16, 20, 40, 61, SIZE - 1])
@pytest.mark.parametrize("index", range(6))
def test_a_flipped_byte_hides_one_batch(
    disk: SimDisk, at: int, index: int, caplog: pytest.LogCaptureFixture
) -> None:
    position = index * SIZE
    overwrite(disk, position + at, bytes([disk.content(PATH)[position + at] ^ 0x10]))
    log = reopen(disk)
    good = [i for i in range(0, 12, 2) if i != 2 * index]
    for offset in range(12):
        if offset // 2 == index:
            with pytest.raises(CorruptBatch, match=f"{PATH} position {position}: offsets") as error:
                log.read(offset, 10_000, 28)
            assert f"[{2 * index}, {2 * index + 2})" in str(error.value)
            continue
        start = offset - offset % 2
        expected = [i for i in good if i >= start and (i < 2 * index or start > 2 * index)]
        assert offsets(log, offset) == expected
        assert offsets(log, offset, start + 2) == [start]
    [record] = [record for record in caplog.records if "damaged batch" in record.message]
    assert record.__dict__["file"] == PATH
    assert (record.__dict__["position"], record.__dict__["offset"]) == (position, 2 * index)
    assert [damage_count(log, offset) for offset in (0, 12)] == [1, 0]


def test_two_damages_are_told_apart(disk: SimDisk) -> None:
    for index in (1, 4):
        overwrite(disk, index * SIZE + 70, b"\xff")
    log = reopen(disk)
    assert [offsets(log, offset) for offset in (0, 4, 10)] == [[0], [4, 6], [10]]
    for offset in (2, 3, 8, 9):
        with pytest.raises(CorruptBatch):
            log.read(offset, 10_000, 28)


def test_a_damaged_batch_in_the_active_segment(disk: SimDisk) -> None:
    overwrite(disk, 70, b"\xff", f"{FOLDER}/{24:020d}.log")
    log = reopen(disk)
    with pytest.raises(CorruptBatch):
        log.read(24, 10_000, 28)
    append(log, 2)
    assert offsets(log, 26, 30) == [26, 28]
    log.truncate_to(25)
    assert log.log_end_offset == 24
    append(log, 4)
    assert offsets(log, 24) == [24]
    assert damage_count(log, 24) == 0


def test_a_segment_cut_short_misses_its_last_records(disk: SimDisk) -> None:
    """Where no manifest tells its size."""
    disk.cut(PATH, 4 * SIZE - 10)
    disk.remove(f"{FOLDER}/{MANIFEST_NAME}")
    log = reopen(disk)
    assert offsets(log, 0) == [0, 2, 4]
    for offset in range(6, 12):
        with pytest.raises(CorruptBatch, match=PATH):
            log.read(offset, 10_000, 28)
    assert offsets(log, 12) == [12, 14, 16, 18, 20, 22]


def test_an_unreadable_segment_is_not_taken_for_checked(disk: SimDisk) -> None:
    log = reopen(disk)
    segment = log.segment_for_read(0)
    assert segment is not None
    disk.fail("pread", errno.EIO)
    with pytest.raises(StorageFailed, match=PATH):
        segment.verify()
    assert not segment.verified
    assert offsets(log, 0) == [0, 2, 4, 6, 8, 10]


def test_two_threads_check_a_segment_once(disk: SimDisk) -> None:
    log = reopen(disk)
    segment = log.segment_for_read(0)
    assert segment is not None
    disk.calls.clear()
    threads = [threading.Thread(target=segment.verify) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert segment.verified
    assert disk.calls["read_small"] == 2


def test_a_wrong_entry_in_a_believed_index_costs_time_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = open_log(SimDisk(), LogSettings(index_interval_bytes=10_000))
    for _ in range(5):
        append(log, 2)
    log._active.indexer.offsets.append(3, 2 * SIZE - 3)
    assert offsets(log, 4, 10) == [4, 6, 8]
    assert "index entry is wrong" in caplog.text


def recheck(log: PartitionLog, offset: int) -> list[int]:
    """The offsets that are found damaged now."""
    segment = log.segment_for_read(offset)
    assert segment is not None
    return [damage.offset for damage in segment.recheck(lambda _: None)]


def test_what_was_good_once_is_checked_again_and_not_served_once_that_is_noted(
    disk: SimDisk,
) -> None:
    log = reopen(disk)
    assert offsets(log, 0) == [0, 2, 4, 6, 8, 10]
    assert recheck(log, 0) == []
    overwrite(disk, 3 * SIZE - 1, b"!")
    assert recheck(log, 0) == [4]
    assert damage_count(log, 0) == 0, "nothing is noted"
    segment = log.segment_for_read(0)
    assert segment is not None
    segment.note_damages(segment.recheck(lambda _: None))
    assert offsets(log, 0) == [0, 2]
    assert log.damaged_from == 4
    with pytest.raises(CorruptBatch):
        offsets(log, 4)
    assert offsets(log, 6) == [6, 8, 10]


def test_a_hint_does_not_lead_into_what_was_found_damaged(disk: SimDisk) -> None:
    log = reopen(disk)
    with log.read(0, 2 * SIZE, 28) as piece:
        assert len(piece) == 2 * SIZE
    overwrite(disk, 3 * SIZE - 1, b"!")
    segment = log.segment_for_read(0)
    assert segment is not None
    segment.note_damages(segment.recheck(lambda _: None))
    with pytest.raises(CorruptBatch):
        offsets(log, 4)


def test_a_recheck_is_paced_and_reads_all_of_it(disk: SimDisk) -> None:
    log = reopen(disk)
    segment = log.segment_for_read(0)
    assert segment is not None
    read: list[int] = []
    segment.recheck(read.append)
    assert sum(read) >= segment.size_bytes


def test_of_the_active_segment_what_is_there_is_checked_again(disk: SimDisk) -> None:
    log = reopen(disk)
    append(log, 2)
    assert recheck(log, 28) == []
    overwrite(disk, 3 * SIZE - 1, b"!", f"{FOLDER}/{24:020d}.log")
    assert recheck(log, 28) == [28]
