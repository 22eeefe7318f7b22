"""The streaming reader driven as Spark drives it, without Spark; over files and over sockets."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from pyspark_streamlog.options.read_options import SourceOptions
from pyspark_streamlog.source import stream_reader
from pyspark_streamlog.source.stream_reader import StreamlogStreamReader
from streamlog.arrow.data_loss import DataLoss
from streamlog.errors import ConfigError, NodeUnreachable, StreamNotFound
from streamlog.log.encryption.key_ring import KeyRing
from tests.kafka_node import ThreadedNode
from tests.spark.data_folder import DataFolder

Json = dict[str, Any]
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("value", BinaryType()),
    ]
)


class Log(Protocol):
    """Streams of records that are their own stream's name, partition and offset."""

    options: dict[str, str]

    def create(self, stream: str, partitions: int = 1) -> None: ...
    def delete(self, stream: str) -> None: ...
    def add(self, stream: str, count: int, partition: int = 0) -> None:
        """One batch of so many records."""

    def forget(self, stream: str, offset: int) -> None:
        """As retention does, at a batch's end."""


class FileLog:
    """A node's folder, each batch a segment; with a key it is encrypted."""

    def __init__(self, path: Path, key: KeyRing | None = None) -> None:
        self.options = {"path": str(path)} | ({"encryption.keys": "k1=env:A_KEY"} if key else {})
        self._folder = DataFolder(path)
        self._folder.keys = key
        self._ends: dict[tuple[str, int], int] = {}
        self._count = 0

    def create(self, stream: str, partitions: int = 1) -> None:
        self._count += 1
        for number in range(partitions):
            self._folder.segment([], stream=stream, partition=number)
            mark = f"{self._count:032x}"
            self._folder.mark(_uuid(mark), stream=stream, partition=number)
            self._ends[stream, number] = 0

    def delete(self, stream: str) -> None:
        parent = self._folder.partition(stream).parent
        parent.rename(parent.parent.parent / f"{stream}.{self._count}.deleted")
        for name in [name for name in self._ends if name[0] == stream]:
            del self._ends[name], self._folder.high_watermarks[name]

    def add(self, stream: str, count: int, partition: int = 0) -> None:
        start = self._ends[stream, partition]
        batch = [b"%d" % i for i in range(start, start + count)]
        self._folder.segment([batch], start, stream=stream, partition=partition)
        self._ends[stream, partition] = start + count

    def forget(self, stream: str, offset: int) -> None:
        for path in self._folder.partition(stream).glob("*.log"):
            if int(path.stem) < offset:
                path.unlink()


class NodeLog:
    """A node in another thread."""

    def __init__(self, node: ThreadedNode) -> None:
        self.options = {"servers": node.address, "fetchTimeoutMs": "10000"}
        self._node = node

    def create(self, stream: str, partitions: int = 1) -> None:
        self._node.add_stream(stream, partitions)

    def delete(self, stream: str) -> None:
        self._node.delete_stream(stream)

    def add(self, stream: str, count: int, partition: int = 0) -> None:
        start = self._node.partition(stream, partition).log_end_offset
        values = [b"%d" % i for i in range(start, start + count)]
        self._node.append(stream, values, partition)

    def forget(self, stream: str, offset: int) -> None:
        self._node.wait(self._node.partition(stream).purge(offset))


def _uuid(text: str) -> Any:
    from uuid import UUID

    return UUID(text)


@pytest.fixture(params=["files", "encrypted files", "sockets"])
def log(request: pytest.FixtureRequest, tmp_path: Path, a_key: KeyRing) -> Iterator[Log]:
    if request.param == "files":
        yield FileLog(tmp_path)
    elif request.param == "encrypted files":
        yield FileLog(tmp_path, a_key)
    else:
        with ThreadedNode() as node:
            yield NodeLog(node)


def reader(log: Log, **given: str) -> StreamlogStreamReader:
    asked = {**log.options, "startingOffsets": "earliest", "subscribe": "orders", **given}
    asked = {name: value for name, value in asked.items() if value}
    return StreamlogStreamReader(SourceOptions.parse(asked, streaming=True), SCHEMA)


def stored(offset: Mapping[str, Any]) -> Json:
    """As a checkpoint gives it back."""
    found: Json = json.loads(json.dumps(offset))
    return found


def rows(reading: StreamlogStreamReader, start: Json, end: Json) -> list[tuple[str, int, int]]:
    found = []
    for task in reading.partitions(start, end):
        for batch in reading.read(task):
            for row in batch.to_pylist():
                assert row["value"] == b"%d" % row["offset"]
                found.append((row["topic"], row["partition"], row["offset"]))
    return sorted(found)


def next_batch(
    reading: StreamlogStreamReader, start: Json, limit: Any = None
) -> tuple[list[tuple[str, int, int]], Json]:
    end = stored(reading.latestOffset(start, limit or reading.getDefaultReadLimit()))
    found = rows(reading, start, end)
    reading.commit(end)
    return found, end


def orders(first: int, end: int, partition: int = 0) -> list[tuple[str, int, int]]:
    return [("orders", partition, i) for i in range(first, end)]


def test_a_query_goes_on_where_it_has_got_to(log: Log) -> None:
    log.create("orders", 2)
    log.add("orders", 5)
    reading = reader(log)
    start = stored(reading.initialOffset())
    found, end = next_batch(reading, start)
    assert found == orders(0, 5)
    assert next_batch(reading, end) == ([], end)
    log.add("orders", 3)
    log.add("orders", 2, 1)
    again, last = next_batch(reader(log), end)  # after a restart
    assert again == orders(5, 8) + orders(0, 2, 1)
    log.add("orders", 7)
    assert rows(reader(log), end, last) == again  # a batch that is carried out once more
    progress = reading.reportLatestOffset()
    assert progress is not None
    reading.stop()


def test_a_query_starts_at_the_end_unless_it_is_told_otherwise(log: Log) -> None:
    log.create("orders")
    log.add("orders", 5)
    reading = reader(log, startingOffsets="")
    start = stored(reading.initialOffset())
    assert next_batch(reading, start) == ([], start)
    log.add("orders", 2)
    assert next_batch(reading, start)[0] == orders(5, 7)
    inside = reader(log, startingOffsets='{"orders": {"0": 3}}')
    assert next_batch(inside, stored(inside.initialOffset()))[0] == orders(3, 7)


def test_limits_are_kept(log: Log) -> None:
    log.create("orders", 2)
    for _ in range(3):
        log.add("orders", 10)
        log.add("orders", 5, 1)
    reading = reader(log, maxOffsetsPerTrigger="15")
    assert reading.getDefaultReadLimit() == ReadMaxRows(15)
    start = stored(reading.initialOffset())
    first, middle = next_batch(reading, start)
    assert first == orders(0, 10) + orders(0, 5, 1)
    everything, _ = next_batch(reading, middle, ReadAllAvailable())  # as Trigger.Once has it
    assert everything == orders(10, 30) + orders(5, 15, 1)


def test_bytes_are_limited_too(log: Log) -> None:
    log.create("orders")
    for _ in range(10):
        log.add("orders", 10)
    reading = reader(log, maxBytesPerTrigger="600")
    assert reading.getDefaultReadLimit() == ReadMaxBytes(600)
    start, batches = stored(reading.initialOffset()), 0
    found: list[Any] = []
    while True:
        got, end = next_batch(reading, start)
        if end == start:
            break
        assert len(got) < 70
        found, start, batches = found + got, end, batches + 1
    assert found == orders(0, 100)
    assert batches > 2
    tiny = reader(log, maxBytesPerTrigger="1")
    assert next_batch(tiny, stored(tiny.initialOffset()))[0] == orders(0, 1)


def test_few_records_are_waited_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1_000.0
    monkeypatch.setattr(stream_reader.time, "monotonic", lambda: clock)  # type: ignore[attr-defined]
    log.create("orders")
    log.add("orders", 5)
    reading = reader(log, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    assert reading.getDefaultReadLimit() == ReadMinRows(10)
    start = stored(reading.initialOffset())
    end = stored(reading.latestOffset(start, ReadMinRows(10)))
    assert end == start
    clock += 61
    assert stored(reading.latestOffset(start, ReadMinRows(10))) != start
    log.add("orders", 5)
    assert stored(reading.latestOffset(start, ReadMinRows(10))) != start


def test_available_now_ends(log: Log) -> None:
    log.create("orders")
    log.add("orders", 5)
    log.add("orders", 5)
    reading = reader(log, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="6")
    start = stored(reading.initialOffset())
    reading.prepareForTriggerAvailableNow()
    log.add("orders", 5)
    log.create("payments")
    first, middle = next_batch(reading, start)
    rest, end = next_batch(reading, middle)
    assert first + rest == orders(0, 10)
    assert next_batch(reading, end) == ([], end)


def test_new_partitions_and_streams_are_read_from_their_start(log: Log) -> None:
    log.create("orders")
    log.add("orders", 2)
    reading = reader(log, subscribe="", subscribePattern="or.*")
    start = stored(reading.initialOffset())
    _, end = next_batch(reading, start)
    log.create("orbit")
    log.add("orbit", 4)
    log.forget("orbit", 0)
    found, last = next_batch(reading, end)
    assert found == [("orbit", 0, i) for i in range(4)]
    log.add("orbit", 1)
    assert rows(reader(log, subscribe="", subscribePattern="or.*"), end, last) == found
    assert next_batch(reading, last)[0] == [("orbit", 0, 4)]


def test_where_a_new_stream_began_is_remembered(log: Log) -> None:
    """Else a batch that is carried out again, after retention, would silently read less."""
    log.create("orders")
    reading = reader(log, subscribe="", subscribePattern="or.*")
    start = stored(reading.initialOffset())
    log.create("orbit")
    log.add("orbit", 4)
    log.add("orbit", 4)
    end = stored(reading.latestOffset(start, ReadAllAvailable()))
    log.forget("orbit", 4)
    with pytest.raises(DataLoss, match=r"orbit-0: offsets \[0, 4\)"):
        rows(reading, start, end)


def test_retention_that_was_faster_is_loss(log: Log) -> None:
    log.create("orders")
    log.add("orders", 5)
    log.add("orders", 5)
    strict, lax = reader(log), reader(log, failOnDataLoss="false")
    start = stored(strict.initialOffset())
    end = stored(strict.latestOffset(start, ReadAllAvailable()))
    log.forget("orders", 5)
    with pytest.raises(DataLoss, match=r"orders-0: offsets \[0, 5\) .*log starts at 5"):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLoss, match=r"orders-0: offsets \[0, 5\) .*log starts at 5"):
        strict.partitions(start, end)
    assert rows(lax, start, end) == orders(5, 10)
    assert next_batch(lax, start)[0] == orders(5, 10)


def test_a_stream_that_was_created_anew_is_loss(log: Log) -> None:
    log.create("orders")
    log.add("orders", 5)
    strict, lax = reader(log), reader(log, failOnDataLoss="false")
    start = stored(strict.initialOffset())
    end = stored(strict.latestOffset(start, ReadAllAvailable()))
    log.delete("orders")
    with pytest.raises(StreamNotFound, match="no stream 'orders'"):
        strict.latestOffset(end, ReadAllAvailable())
    log.create("orders")
    log.add("orders", 3)
    with pytest.raises(DataLoss, match=r"orders-0: .*deleted and created again; .*failOnDataLoss"):
        strict.latestOffset(end, ReadAllAvailable())
    with pytest.raises(DataLoss, match="deleted, and perhaps created again"):
        strict.partitions(start, end)
    assert rows(lax, start, end) == []
    found, last = next_batch(lax, end)
    assert found == orders(0, 3)
    assert next_batch(lax, last) == ([], last)


def test_a_stream_that_is_gone_stays_in_the_offsets(log: Log) -> None:
    """What cannot be seen for a moment must not be read anew from its start."""
    log.create("orders")
    log.create("orbit")
    log.add("orders", 5)
    log.add("orbit", 5)
    lax = reader(log, subscribe="orders,orbit", failOnDataLoss="false")
    _, end = next_batch(lax, stored(lax.initialOffset()))
    log.delete("orders")
    assert next_batch(lax, end) == ([], end)
    with pytest.raises(StreamNotFound, match="no stream 'orders'"):
        reader(log, subscribe="orders,orbit").prepareForTriggerAvailableNow()
    log.add("orbit", 1)
    lax.prepareForTriggerAvailableNow()
    found, last = next_batch(lax, end)
    assert found == [("orbit", 0, 5)]
    assert last["topics"]["orders"] == end["topics"]["orders"]


def test_a_log_that_was_cut_back_is_loss(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    log.create("orders")
    log.add("orders", 5)
    log.add("orders", 5)
    strict, lax = reader(log), reader(log, failOnDataLoss="false")
    _, end = next_batch(strict, stored(strict.initialOffset()))
    (tmp_path / "streams" / "orders" / "0" / f"{5:020d}.log").unlink()
    with pytest.raises(DataLoss, match=r"offsets \[5, 10\) .*the log ends at 5 now"):
        strict.latestOffset(end, ReadAllAvailable())
    assert next_batch(lax, end) == ([], end)


def test_no_node_is_no_reason_to_think_that_streams_are_gone() -> None:
    with ThreadedNode() as node:
        log = NodeLog(node)
        log.create("orders")
        log.add("orders", 5)
        reading = reader(log, failOnDataLoss="false")
        start = stored(reading.initialOffset())
    with pytest.raises(NodeUnreachable):
        reading.latestOffset(start, ReadAllAvailable())


def test_offsets_of_another_version_are_refused(log: Log) -> None:
    log.create("orders")
    with pytest.raises(ConfigError, match=r"^checkpointLocation: .*version 2, not 1"):
        reader(log).latestOffset({"v": 2, "topics": {}}, ReadAllAvailable())


def test_a_batch_that_is_carried_out_again_has_the_same_tasks(log: Log) -> None:
    """Else a sink that knows tasks by their numbers would take other rows for these."""
    log.create("orders", 2)
    for _ in range(6):
        log.add("orders", 5)
        log.add("orders", 5, 1)
    reading = reader(log, minPartitions="5")
    start = stored(reading.initialOffset())
    end = stored(reading.latestOffset(start, ReadAllAvailable()))
    tasks = [task.value for task in reading.partitions(start, end)]
    assert len(tasks) >= 5
    assert [task.start_offset % 5 for task in tasks] == [0] * len(tasks)
    for _ in range(9):
        log.add("orders", 50)
    assert [task.value for task in reader(log).partitions(start, end)] == tasks
    found, _ = next_batch(reading, start)
    assert found[:30] == orders(0, 30)
    cut = tasks[1].end_offset
    log.forget("orders", cut)
    lax = reader(log, failOnDataLoss="false")
    kept = [task.value for task in lax.partitions(start, end)]
    assert [task.end_offset for task in kept] == [task.end_offset for task in tasks]
    assert rows(lax, start, end) == orders(cut, 30) + orders(0, 30, 1)
