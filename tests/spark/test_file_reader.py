import logging
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pyspark_streamlog import file_reader
from pyspark_streamlog.file_reader import FileReader
from pyspark_streamlog.loss import DataLoss
from pyspark_streamlog.options import ReadOptions
from pyspark_streamlog.place import PartitionRange, open_place
from pyspark_streamlog.snapshot import take_snapshot
from streamlog.errors import CorruptBatch, CorruptFile
from streamlog.log.mark import encode_mark
from streamlog.record.columns import arrow_schema
from tests.record_batches import HandRecord, hand_batch
from tests.spark.data_folder import HandFolder

COLUMNS = ("topic", "partition", "offset", "value")


def values(first: int, count: int) -> list[bytes]:
    return [b"value %d" % i for i in range(first, first + count)]


@pytest.fixture
def log(folder: HandFolder) -> HandFolder:
    """60 records: three segments of four batches of five records."""
    for base in (0, 20, 40):
        folder.segment([values(base + 5 * i, 5) for i in range(4)], base)
    return folder


def plan(path: Path, **given: str) -> tuple[ReadOptions, list[PartitionRange]]:
    options = ReadOptions.parse({"path": str(path), "subscribe": "orders", **given})
    place = open_place(options)
    ranges = take_snapshot(place, options)
    return options, place.cut(ranges, options.task_bytes_max, options.tasks_min)


def read(task: PartitionRange, options: ReadOptions) -> list[dict[str, Any]]:
    reader = FileReader(task, options, arrow_schema(COLUMNS))
    return [row for batch in reader.read() for row in batch.to_pylist()]


def read_all(path: Path, **given: str) -> list[dict[str, Any]]:
    options, tasks = plan(path, **given)
    return [row for task in tasks for row in read(task, options)]


def expected(start: int, end: int) -> list[dict[str, Any]]:
    return [
        {"topic": "orders", "partition": 0, "offset": i, "value": b"value %d" % i}
        for i in range(start, end)
    ]


def offsets(start: int, end: int) -> dict[str, str]:
    return {
        "startingOffsets": f'{{"orders": {{"0": {start}}}}}',
        "endingOffsets": f'{{"orders": {{"0": {end}}}}}',
    }


def test_all_segments_are_read_in_order(log: HandFolder) -> None:
    assert read_all(log.path) == expected(0, 60)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 58), (19, 21), (20, 40), (33, 34), (7, 7)])
@pytest.mark.parametrize("index", [True, False])
def test_a_range_begins_and_ends_where_it_was_asked_to(
    log: HandFolder, start: int, end: int, index: bool
) -> None:
    if not index:
        for path in log.partition().glob("*.index"):
            path.unlink()
    assert read_all(log.path, **offsets(start, end)) == expected(start, end)


@pytest.mark.parametrize("minimum", [1, 2, 3, 7, 12, 500])
@pytest.mark.parametrize("index", [True, False])
def test_tasks_cut_at_batches_give_the_same_rows(
    log: HandFolder, minimum: int, index: bool
) -> None:
    if not index:
        for path in log.partition().glob("*.index"):
            path.unlink()
    options, tasks = plan(log.path, minPartitions=str(minimum))
    assert len(tasks) == min(minimum, 12)
    assert all(task.start_offset % 5 == 0 for task in tasks)
    assert [row for task in tasks for row in read(task, options)] == expected(0, 60)


def test_tasks_are_cut_by_bytes_inside_the_range(log: HandFolder) -> None:
    bytes_of_batch = log.partition().joinpath(f"{20:020d}.log").stat().st_size // 4
    options, tasks = plan(log.path, maxBytesPerPartition=str(2 * bytes_of_batch), **offsets(17, 44))
    assert 2 <= len(tasks) <= 4
    assert [row for task in tasks for row in read(task, options)] == expected(17, 44)


def test_minimum_tasks_are_shared_by_bytes(folder: HandFolder) -> None:
    folder.segment([values(0, 5)] * 1, partition=0)
    folder.segment([values(5 * i, 5) for i in range(30)], partition=1)
    _, tasks = plan(folder.path, minPartitions="10")
    assert [task.name.partition for task in tasks].count(0) == 1
    assert len(tasks) >= 10


def test_an_empty_partition_is_no_task(folder: HandFolder) -> None:
    folder.segment([])
    assert plan(folder.path)[1] == []


def test_batches_larger_than_a_read_are_read(
    log: HandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 61, 100, 333):
        monkeypatch.setattr(file_reader, "CHUNK_BYTES", size)
        assert read_all(log.path) == expected(0, 60)


def test_outputs_are_cut_as_asked(log: HandFolder) -> None:
    options, tasks = plan(log.path, batchRows="7")
    reader = FileReader(tasks[0], options, arrow_schema(COLUMNS))
    assert [batch.num_rows for batch in reader.read()] == [7] * 8 + [4]


def test_damaged_indexes_do_not_matter(log: HandFolder) -> None:
    for path in log.partition().glob("*.index"):
        path.write_bytes(b"\0\0\0\1\0\0\0\x0d" * 3 + b"odd")
    assert read_all(log.path, **offsets(11, 55)) == expected(11, 55)
    for path in log.partition().glob("*.index"):
        path.write_bytes(b"\0\0\0\1\0\0\0\x0d")
    assert read_all(log.path, minPartitions="5", **offsets(11, 55)) == expected(11, 55)


def test_a_torn_batch_at_the_active_end_is_no_error(folder: HandFolder) -> None:
    folder.segment([values(0, 5)], torn=hand_batch([HandRecord(b"torn")], 5)[:-1])
    folder.commit(6)
    assert read_all(folder.path) == expected(0, 5)


def test_a_torn_batch_inside_a_sealed_range_names_file_and_position(folder: HandFolder) -> None:
    whole = folder.segment([values(0, 5)])
    size = whole.stat().st_size
    torn = hand_batch([HandRecord(b"torn")] * 5, 5)[:-1]
    folder.segment([values(0, 5)], torn=torn)
    folder.segment([values(10, 5)], 10)
    with pytest.raises(CorruptBatch, match=rf"0{{20}}\.log at byte {size}: .*ends inside a batch"):
        read_all(folder.path)


def test_a_flipped_bit_names_file_and_position(log: HandFolder) -> None:
    path = log.partition() / f"{20:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    last = len(data) * 3 // 4
    with pytest.raises(CorruptBatch, match=rf"{path} at byte {last}: .*offset 35.*checksum"):
        read_all(log.path)
    assert read_all(log.path, **offsets(0, 35)) == expected(0, 35)
    assert len(read_all(log.path, checkCrc="false")) == 60


def test_a_missing_segment_in_the_middle_is_loss(log: HandFolder) -> None:
    (log.partition() / f"{20:020d}.log").unlink()
    with pytest.raises(DataLoss, match=r"orders-0: offsets \[20, 40\)"):
        read_all(log.path)
    assert read_all(log.path, failOnDataLoss="false") == expected(0, 20) + expected(40, 60)


@pytest.mark.parametrize("gone", [[0], [0, 20], [0, 20, 40]])
def test_retention_between_plan_and_read_is_loss(
    log: HandFolder, gone: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    strict, tasks = plan(log.path, **offsets(5, 55))
    lax, _ = plan(log.path, failOnDataLoss="false")
    for base in gone:
        (log.partition() / f"{base:020d}.log").unlink()
    end = gone[-1] + 20
    with pytest.raises(DataLoss, match=rf"offsets \[5, {min(end, 55)}\) .*failOnDataLoss=false"):
        read(tasks[0], strict)
    with caplog.at_level(logging.WARNING):
        assert read(tasks[0], lax) == expected(end, 55)
    assert "records lost" in caplog.text


def test_a_segment_that_vanishes_after_the_listing_is_loss(log: HandFolder) -> None:
    options, tasks = plan(log.path, batchRows="20")
    rows = FileReader(tasks[0], options, arrow_schema(COLUMNS)).read()
    next(rows)
    (log.partition() / f"{40:020d}.log").unlink()
    with pytest.raises(DataLoss, match=r"offsets \[40, 60\)"):
        list(rows)


def test_a_log_that_was_cut_back_is_loss(log: HandFolder) -> None:
    options, tasks = plan(log.path)
    path = log.partition() / f"{40:020d}.log"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataLoss, match=r"offsets \[55, 60\) .*the log ends there"):
        read(tasks[0], options)


def test_records_that_arrive_later_are_not_read(log: HandFolder) -> None:
    options, tasks = plan(log.path)
    log.segment([values(60, 5)], 60)
    assert read(tasks[0], options) == expected(0, 60)


@pytest.mark.parametrize("batch_rows", ["7", "20", "64"])
def test_a_segment_that_compaction_made_one_with_its_neighbour_is_found_again(
    log: HandFolder, batch_rows: str
) -> None:
    options, tasks = plan(log.path, batchRows=batch_rows)
    for base in (0, 20):
        log.segment([values(base + 5 * i, 5) for i in range(4)], base)
    rows = FileReader(tasks[0], options, arrow_schema(COLUMNS)).read()
    found = [] if batch_rows == "64" else next(rows).to_pylist()
    (log.partition() / f"{40:020d}.log").unlink()
    log.segment([values(20 + 5 * i, 5) for i in range(8)], 20)
    found += [row for batch in rows for row in batch.to_pylist()]
    assert found == expected(0, 60)


def test_a_stream_that_was_created_anew_is_not_mistaken_for_the_old_one(log: HandFolder) -> None:
    mark = log.partition() / "partition.metadata"
    mark.write_bytes(encode_mark(UUID(int=1)))
    strict, tasks = plan(log.path)
    lax, _ = plan(log.path, failOnDataLoss="false")
    assert read(tasks[0], strict) == expected(0, 60)
    mark.write_bytes(encode_mark(UUID(int=2)))
    with pytest.raises(DataLoss, match=r"offsets \[0, 60\) .*deleted, and perhaps created anew"):
        read(tasks[0], strict)
    assert read(tasks[0], lax) == []
    mark.write_bytes(b"nonsense")
    with pytest.raises(CorruptFile, match=r"partition\.metadata: does not name a stream id"):
        plan(log.path)
