"""Batches that another node wrote are checked, and appended as they are."""

import pytest

from streamlog.errors import CorruptBatch, StorageFailed, StorageFull
from streamlog.log.log import PartitionLog
from streamlog.log.segment import append_validation
from streamlog.log.settings import LogSettings
from tests.log_folder import FOLDER, append, make_batch, open_log, read_batches, sync
from tests.simulation.disk import Fault, SimDisk


def run_of(*counts: int, start: int = 0, epoch: int = 0, step_ms: int = 0) -> bytes:
    """Batches of so many records each, back to back."""
    data = b""
    for i, count in enumerate(counts):
        data += make_batch(start, count, epoch=epoch, timestamp_ms=1_000 + i * step_ms)
        start += count
    return data


def append_all(log: PartitionLog, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[log.append_fetched(view) :]


def test_many_batches_are_one_system_call(disk: SimDisk, log: PartitionLog) -> None:
    data = run_of(2, 1, 3)
    disk.calls.clear()
    assert log.append_fetched(memoryview(data)) == len(data)
    assert disk.calls["pwrite"] == 1
    assert log.log_end_offset == 6
    assert [header.base_offset for header, _ in read_batches(log)] == [0, 2, 3]
    assert disk.content(f"{FOLDER}/{0:020d}.log") == data
    assert log.recovery_point == 0
    assert sync(log) == 6


def test_what_came_so_is_there_after_a_power_cut(disk: SimDisk, log: PartitionLog) -> None:
    append_all(log, run_of(2, 1))
    append_all(log, run_of(4, start=3, epoch=2))
    sync(log)
    entries = log.epochs.entries
    assert [tuple(it) for it in entries] == [(0, 0), (2, 3)]
    disk.crash()
    again = open_log(disk)
    assert (again.log_end_offset, again.epochs.entries) == (7, entries)


@pytest.mark.parametrize("position", [0, 8, 16, 20, 40, 61, 70])
def test_damage_is_found_before_anything_is_written(log: PartitionLog, position: int) -> None:
    good, bad = run_of(2), bytearray(run_of(2, start=2))
    bad[position] ^= 1
    with pytest.raises(CorruptBatch):
        append_all(log, good + bytes(bad))
    assert log.log_end_offset in (0, 2)
    log.append_fetched(memoryview(run_of(3, start=log.log_end_offset)))


@pytest.mark.parametrize("start", [0, 1, 4])
def test_a_gap_or_a_repetition_is_refused(log: PartitionLog, start: int) -> None:
    append(log, 3)
    with pytest.raises(CorruptBatch):
        log.append_fetched(memoryview(run_of(1, start=start)))


def test_an_older_epoch_is_refused(log: PartitionLog) -> None:
    append(log, epoch=5)
    with pytest.raises(CorruptBatch):
        log.append_fetched(memoryview(run_of(1, start=1, epoch=4)))
    with pytest.raises(CorruptBatch):
        log.append_fetched(memoryview(run_of(1, start=1, epoch=7) + run_of(1, start=2, epoch=6)))
    assert log.log_end_offset == 1


@pytest.mark.parametrize("left", [1, 11, 30, 60, 62, -1])
def test_a_cut_last_batch_is_left(log: PartitionLog, left: int) -> None:
    whole, cut = run_of(2), run_of(2, start=2)[:left]
    assert log.append_fetched(memoryview(whole + cut)) == len(whole)
    with pytest.raises(CorruptBatch):
        log.append_fetched(memoryview(cut))


def test_one_go_is_bounded(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_validation, "RUN_BATCHES", 3)
    data = run_of(*[1] * 8)
    size = len(data) // 8
    assert log.append_fetched(memoryview(data)) == 3 * size
    monkeypatch.setattr(append_validation, "RUN_BYTES", 2 * size)
    assert log.append_fetched(memoryview(data)[3 * size :]) == 2 * size
    monkeypatch.setattr(append_validation, "RUN_BYTES", 1)
    assert log.append_fetched(memoryview(data)[5 * size :]) == size, "the first one, however large"
    assert log.log_end_offset == 6


def test_segments_are_those_of_the_leader(disk: SimDisk) -> None:
    settings = LogSettings(segment_bytes=400, segment_age_ms=250, index_interval_bytes=100)
    leader_disk = SimDisk()
    leader, follower = open_log(leader_disk, settings), open_log(disk, settings)
    for i, count in enumerate([1, 3, 1, 1, 20, 1, 2, 1, 1, 1]):
        append(leader, count, timestamp_ms=1_000 + 100 * i)
    append_all(follower, b"".join(batch for _, batch in read_batches(leader)))
    names = [name for name in disk.sizes(str(FOLDER)) if name.endswith(".log")]
    assert len(names) > 3
    for name in names:
        assert disk.content(f"{FOLDER}/{name}") == leader_disk.content(f"{FOLDER}/{name}")


def test_an_empty_log_begins_with_the_batch_that_holds_its_start(disk: SimDisk) -> None:
    """A leader whose records were purged serves the batch in whose midst its log starts."""
    log = open_log(disk, log_start_offset=5)
    append_all(log, run_of(4, 2, start=3))
    assert (log.log_start_offset, log.log_end_offset) == (5, 9)
    with log.read(5, 1, 9) as piece:
        assert piece.read() == run_of(4, start=3)
    sync(log)
    disk.crash()
    assert open_log(disk, log_start_offset=5).log_end_offset == 9


def test_a_log_with_records_begins_where_it_does(log: PartitionLog) -> None:
    append(log, 3)
    log.advance_log_start(2)
    with pytest.raises(CorruptBatch):
        log.append_fetched(memoryview(run_of(3, start=2)))


def test_a_full_disk_keeps_nothing_of_it(disk: SimDisk, log: PartitionLog) -> None:
    append(log, 2)
    disk.capacity_bytes = disk.used_bytes() + 100
    with pytest.raises(StorageFull):
        log.append_fetched(memoryview(run_of(1, 1, start=2)))
    assert log.log_end_offset == 2
    disk.capacity_bytes = None
    append_all(log, run_of(1, 1, start=2))
    assert log.log_end_offset == 4


def test_a_failing_write_takes_the_log_offline(disk: SimDisk, log: PartitionLog) -> None:
    disk.faults.append(Fault("pwrite", 5))
    with pytest.raises(StorageFailed):
        log.append_fetched(memoryview(run_of(1)))
    with pytest.raises(StorageFailed):
        log.append_fetched(memoryview(run_of(1)))
