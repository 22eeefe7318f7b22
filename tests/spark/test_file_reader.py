import logging
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.data_loss import DataLoss
from streamlog.arrow.files import segment_rows
from streamlog.arrow.files.file_reader import FileReader
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location
from streamlog.errors import ConfigError, CorruptBatch, CorruptFile, EncryptionKeyMissing
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.record.columns import arrow_schema
from tests.record_batches import HandRecord, hand_batch
from tests.spark.conftest import A_KEY
from tests.spark.data_folder import DataFolder

COLUMNS = ("topic", "partition", "offset", "value")


def values(first: int, count: int) -> list[bytes]:
    return [b"value %d" % i for i in range(first, first + count)]


@pytest.fixture(params=["clear", "encrypted", "mixed"], autouse=True)
def folder(tmp_path: Path, request: pytest.FixtureRequest, a_key: KeyRing) -> DataFolder:
    """Whatever holds of files does so whether they are encrypted, here and there or not at all."""
    folder = DataFolder(tmp_path)
    folder.keys = None if request.param == "clear" else a_key
    folder.encrypts_each = 2 if request.param == "mixed" else 1
    return folder


@pytest.fixture
def log(folder: DataFolder) -> DataFolder:
    """60 records: three segments of four batches of five records."""
    for base in (0, 20, 40):
        folder.segment([values(base + 5 * i, 5) for i in range(4)], base)
    return folder


def plan(path: Path, **given: str) -> tuple[SourceOptions, list[PartitionRange]]:
    base = {"path": str(path), "subscribe": "orders", "encryption.keys": "k1=env:A_KEY"}
    options = SourceOptions.parse({**base, **given})
    place = open_location(options)
    ranges = plan_offset_ranges(place, options)
    return options, place.cut(ranges, options.task_bytes_max, options.tasks_min)


def read(task: PartitionRange, options: SourceOptions) -> list[dict[str, Any]]:
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


def test_all_segments_are_read_in_order(log: DataFolder) -> None:
    assert read_all(log.path) == expected(0, 60)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 58), (19, 21), (20, 40), (33, 34), (7, 7)])
@pytest.mark.parametrize("index", [True, False])
def test_a_range_begins_and_ends_where_it_was_asked_to(
    log: DataFolder, start: int, end: int, index: bool
) -> None:
    if not index:
        for path in log.partition().glob("*.index"):
            path.unlink()
    assert read_all(log.path, **offsets(start, end)) == expected(start, end)


@pytest.mark.parametrize("minimum", [1, 2, 3, 7, 12, 500])
@pytest.mark.parametrize("index", [True, False])
def test_tasks_cut_at_batches_give_the_same_rows(
    log: DataFolder, minimum: int, index: bool
) -> None:
    if not index:
        for path in log.partition().glob("*.index"):
            path.unlink()
    options, tasks = plan(log.path, minPartitions=str(minimum))
    assert len(tasks) == min(minimum, 12)
    assert all(task.start_offset % 5 == 0 for task in tasks)
    assert [row for task in tasks for row in read(task, options)] == expected(0, 60)


def test_tasks_are_cut_by_bytes_inside_the_range(log: DataFolder) -> None:
    bytes_of_batch = log.partition().joinpath(f"{20:020d}.log").stat().st_size // 4
    options, tasks = plan(log.path, maxBytesPerPartition=str(2 * bytes_of_batch), **offsets(17, 44))
    assert 2 <= len(tasks) <= 4
    assert [row for task in tasks for row in read(task, options)] == expected(17, 44)


def test_minimum_tasks_are_shared_by_bytes(folder: DataFolder) -> None:
    folder.segment([values(0, 5)] * 1, partition=0)
    folder.segment([values(5 * i, 5) for i in range(30)], partition=1)
    _, tasks = plan(folder.path, minPartitions="10")
    assert [task.name.partition for task in tasks].count(0) == 1
    assert len(tasks) >= 10


def test_an_empty_partition_is_no_task(folder: DataFolder) -> None:
    folder.segment([])
    assert plan(folder.path)[1] == []


def test_batches_larger_than_a_read_are_read(
    log: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 61, 100, 333):
        monkeypatch.setattr(segment_rows, "CHUNK_BYTES", size)
        assert read_all(log.path) == expected(0, 60)


def test_outputs_are_cut_as_asked(log: DataFolder) -> None:
    options, tasks = plan(log.path, batchRows="7")
    reader = FileReader(tasks[0], options, arrow_schema(COLUMNS))
    assert [batch.num_rows for batch in reader.read()] == [7] * 8 + [4]


def test_damaged_indexes_do_not_matter(log: DataFolder) -> None:
    for path in log.partition().glob("*.index"):
        path.write_bytes(b"\0\0\0\1\0\0\0\x0d" * 3 + b"odd")
    assert read_all(log.path, **offsets(11, 55)) == expected(11, 55)
    for path in log.partition().glob("*.index"):
        path.write_bytes(b"\0\0\0\1\0\0\0\x0d")
    assert read_all(log.path, minPartitions="5", **offsets(11, 55)) == expected(11, 55)


def test_a_torn_batch_at_the_active_end_is_no_error(folder: DataFolder) -> None:
    folder.segment([values(0, 5)], torn=hand_batch([HandRecord(b"torn")], 5)[:-1])
    folder.commit(6)
    assert read_all(folder.path) == expected(0, 5)


def test_a_torn_batch_inside_a_sealed_range_names_file_and_position(folder: DataFolder) -> None:
    whole = folder.segment([values(0, 5)])
    size = whole.stat().st_size
    torn = hand_batch([HandRecord(b"torn")] * 5, 5)[:-1]
    folder.segment([values(0, 5)], torn=torn)
    folder.segment([values(10, 5)], 10)
    with pytest.raises(CorruptBatch, match=rf"0{{20}}\.log at byte {size}: .*ends inside a batch"):
        read_all(folder.path)


def test_a_flipped_bit_names_file_and_position(log: DataFolder) -> None:
    path = log.partition() / f"{20:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    last = data.index((35).to_bytes(8, "big"))
    with pytest.raises(CorruptBatch, match=rf"{path} at byte {last}: .*offset 35.*checksum"):
        read_all(log.path)
    assert read_all(log.path, **offsets(0, 35)) == expected(0, 35)
    if log.keys is None:
        assert len(read_all(log.path, checkCrc="false")) == 60
        return
    with pytest.raises(CorruptBatch, match=rf"{path} at byte {last}: .*35 does not decrypt"):
        read_all(log.path, checkCrc="false")
    assert read_all(log.path, checkCrc="false", **offsets(0, 35)) == expected(0, 35)


def test_a_missing_segment_in_the_middle_is_loss(log: DataFolder) -> None:
    (log.partition() / f"{20:020d}.log").unlink()
    with pytest.raises(DataLoss, match=r"orders-0: offsets \[20, 40\)"):
        read_all(log.path)
    assert read_all(log.path, failOnDataLoss="false") == expected(0, 20) + expected(40, 60)


@pytest.mark.parametrize("gone", [[0], [0, 20], [0, 20, 40]])
def test_retention_between_plan_and_read_is_loss(
    log: DataFolder, gone: list[int], caplog: pytest.LogCaptureFixture
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


def test_a_segment_that_vanishes_after_the_listing_is_loss(log: DataFolder) -> None:
    options, tasks = plan(log.path, batchRows="20")
    rows = FileReader(tasks[0], options, arrow_schema(COLUMNS)).read()
    next(rows)
    (log.partition() / f"{40:020d}.log").unlink()
    with pytest.raises(DataLoss, match=r"offsets \[40, 60\)"):
        list(rows)


def test_a_log_that_was_cut_back_is_loss(log: DataFolder) -> None:
    options, tasks = plan(log.path)
    path = log.partition() / f"{40:020d}.log"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataLoss, match=r"offsets \[55, 60\) .*the log ends there"):
        read(tasks[0], options)


def test_records_that_arrive_later_are_not_read(log: DataFolder) -> None:
    options, tasks = plan(log.path)
    log.segment([values(60, 5)], 60)
    assert read(tasks[0], options) == expected(0, 60)


@pytest.mark.parametrize("batch_rows", ["7", "20", "64"])
def test_a_segment_that_compaction_made_one_with_its_neighbour_is_found_again(
    log: DataFolder, batch_rows: str
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


def test_a_stream_that_was_created_anew_is_not_mistaken_for_the_old_one(log: DataFolder) -> None:
    log.mark(UUID(int=1))
    strict, tasks = plan(log.path)
    lax, _ = plan(log.path, failOnDataLoss="false")
    assert read(tasks[0], strict) == expected(0, 60)
    log.mark(UUID(int=2))
    with pytest.raises(DataLoss, match=r"offsets \[0, 60\) .*deleted, and perhaps created again"):
        read(tasks[0], strict)
    assert read(tasks[0], lax) == []
    (log.partition() / "partition.metadata").write_bytes(b"nonsense")
    with pytest.raises(CorruptFile, match=r"partition\.metadata: does not name a stream id"):
        plan(log.path)


def test_without_the_key_nothing_is_read_and_the_remedy_is_told(
    log: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, tasks = plan(log.path, **{"encryption.keys": "k2=env:A_KEY"})
    if log.keys is None:
        assert read(tasks[0], options) == expected(0, 60)  # and nobody has looked for the key
        return
    with pytest.raises(
        EncryptionKeyMissing,
        match=r"0{20}\.key needs the key 'k1', .*encryption\.keys \(k2\); set the option"
        r" encryption\.keys to NAME=SOURCE",
    ):
        read(tasks[0], options)
    monkeypatch.delenv("A_KEY")
    with pytest.raises(ConfigError, match=r"encryption\.keys\.k2: .* A_KEY is not set"):
        read(tasks[0], options)


@pytest.mark.parametrize("columns", [COLUMNS, ("offset",)])
def test_without_any_key_not_even_offsets_come_of_what_is_encrypted(
    log: DataFolder, columns: tuple[str, ...]
) -> None:
    options = SourceOptions.parse({"path": str(log.path), "subscribe": "orders"})
    place = open_location(options)
    (task,) = place.cut(plan_offset_ranges(place, options), options.task_bytes_max, 1)
    found = FileReader(task, options, arrow_schema(columns)).read()
    if log.keys is None:
        assert sum(batch.num_rows for batch in found) == 60
        return
    with pytest.raises(EncryptionKeyMissing, match=r"'k1', .*\(there are none\)"):
        list(found)


def test_a_segment_without_its_key_names_both_files(log: DataFolder) -> None:
    if log.keys is None:
        pytest.skip("there are no keys")
    options, tasks = plan(log.path, batchRows="20")
    rows = FileReader(tasks[0], options, arrow_schema(COLUMNS)).read()
    next(rows)
    (log.partition() / f"{40:020d}.key").unlink()
    with pytest.raises(CorruptFile, match=r"40\.key is missing: what is encrypted in .*40\.log"):
        list(rows)


def test_another_segments_key_opens_nothing(log: DataFolder) -> None:
    if log.keys is None:
        pytest.skip("there are no keys")
    first, second = log.partition() / f"{0:020d}.key", log.partition() / f"{20:020d}.key"
    second.write_bytes(first.read_bytes())
    at = 0 if log.encrypts_each == 1 else r"\d+"
    with pytest.raises(CorruptBatch, match=rf"20\.log at byte {at}: .* does not decrypt"):
        read_all(log.path)


def test_a_batch_that_only_claims_to_be_encrypted_is_no_batch(folder: DataFolder) -> None:
    """Its bit was set by a flip: the checksum tells, and nobody looks for a key."""
    folder.keys = None
    path = folder.segment([values(0, 5)])
    data = bytearray(path.read_bytes())
    data[21] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(CorruptBatch, match=r"at byte 0: .*offset 0: its checksum is wrong"):
        read_all(folder.path)


def test_a_segment_that_becomes_encrypted_while_it_is_read(folder: DataFolder) -> None:
    """Compaction does that, once a stream is to be encrypted."""
    log, folder.keys = folder, None
    for base in (0, 20, 40):
        folder.segment([values(base + 5 * i, 5) for i in range(4)], base)
    options, tasks = plan(log.path, batchRows="20")
    rows = FileReader(tasks[0], options, arrow_schema(COLUMNS)).read()
    found = next(rows).to_pylist()
    log.keys, log.encrypts_each = KeyRing({"k1": A_KEY}, "k1"), 1
    for base in (20, 40):
        (log.partition() / f"{base:020d}.log").unlink()
        log.segment([values(base + 5 * i, 5) for i in range(4)], base)
    assert found + [row for batch in rows for row in batch.to_pylist()] == expected(0, 60)


def test_times_of_single_records_are_looked_at(folder: DataFolder) -> None:
    """The batch starts at 1,000 ms and says that its latest is of 2,000 ms."""
    folder.segment([[HandRecord(timestamp_delta=i * 250) for i in range(5)]])
    found = read_all(folder.path, startingTimestamp="1500")
    assert [row["offset"] for row in found] == [2, 3, 4]
    folder.encrypts_each = 1
    path = folder.segment([[HandRecord(timestamp_delta=i * 250) for i in range(5)]])
    if folder.keys is not None:
        path.with_suffix(".key").write_bytes(b"nonsense")
        with pytest.raises(CorruptFile, match=r"\.key: not a file of a data key"):
            read_all(folder.path, startingTimestamp="1500")
