"""What may be asked of a write, what may be in its frame, and where its rows go. No Spark runs."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_streamlog.options.write_options import SinkOptions
from pyspark_streamlog.sink.schema import check_schema
from pyspark_streamlog.source.schema import source_schema
from streamlog.arrow.sink.rows import NO_PARTITION, Row, Rows
from streamlog.arrow.sink.task_attempt import TaskAttempt
from streamlog.arrow.sink.task_writer import TaskWriter
from streamlog.errors import ConfigError, InvalidRecord, PartitionNotFound, StreamNotFound
from streamlog.record.compression import Compression
from tests.spark.scripted_leaders import ScriptedLeaders

GIVEN = {"servers": "a:1,b:2", "topic": "orders"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMES = pa.timestamp("us", tz="UTC")
TEXT = StringType()
HASHES = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
"""Of Kafka's own tests."""


def test_what_is_not_asked_for_is_as_documented() -> None:
    options = SinkOptions.parse({"SERVERS": "a:1", "Topic": "t"}, streaming=False)
    assert (options.servers, options.topic) == ("a:1", "t")
    assert (options.compression, options.write_id) == (Compression.NONE, None)
    assert (options.batch_bytes, options.delivery_timeout_ms) == (1_000_000, 120_000)
    assert not options.security.tls


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"servers": None}, "servers: is missing; name nodes as host:port,host:port"),
        ({"servers": "nowhere"}, "servers: 'nowhere' is no address"),
        ({"topics": "x"}, "no such option; did you mean topic?"),
        ({"kafka.bootstrap.servers": "x"}, "did you mean servers?"),
        ({"subscribe": "x"}, "no such option; there are servers, topic, compression"),
        ({"sasl.password": "hush"}, "no secret may be one"),
        ({"path": "x"}, "path: streams are written to over the socket API, not to files"),
        ({"compression": "zip"}, "compression: 'zip' is wrong; set none or gzip or snappy"),
        ({"batchBytes": "0"}, "batchBytes: '0' is wrong; set a whole number from 1"),
        ({"deliveryTimeoutMs": "1s"}, "deliveryTimeoutMs: '1s' is wrong"),
        ({"checkpointLocation": "x"}, "checkpointlocation: the source streamlog has no such"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], text: str) -> None:
    given = {key: it for key, it in {**GIVEN, **options}.items() if it is not None}
    with pytest.raises(ConfigError) as problem:
        SinkOptions.parse(given, streaming=False)
    assert text in str(problem.value)


def test_a_streaming_query_has_spark_s_own_options_too() -> None:
    SinkOptions.parse({**GIVEN, "checkpointLocation": "x", "queryName": "q"}, streaming=True)
    with pytest.raises(ConfigError, match="a streaming query is known by its checkpoint"):
        SinkOptions.parse({**GIVEN, "writeId": "w"}, streaming=True)


def frame(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (frame(value=IntegerType()), "schema: value is int; cast it to binary or string"),
        (frame(value=TEXT, price=TEXT), "no column price to write to; select some of value, key"),
        (frame(key=TEXT), "schema: there is no column value"),
        (frame(value=TEXT, partition=LongType()), "partition is bigint; cast it to int"),
        (frame(value=TEXT, headers=MapType(TEXT, TEXT)), "headers is map<string,string>; cast it"),
        (frame(value=TEXT, topic=BinaryType()), "topic is binary; cast it to string"),
    ],
)
def test_a_wrong_column_is_named(schema: StructType, text: str) -> None:
    with pytest.raises(ConfigError) as problem:
        check_schema(schema, "orders")
    assert text in str(problem.value)


def test_a_frame_that_was_read_may_be_written() -> None:
    check_schema(source_schema(include_headers=True), None)
    with pytest.raises(ConfigError, match="topic: is missing; set it, or add a column topic"):
        check_schema(frame(value=TEXT), None)


def rows_of(**columns: pa.Array) -> list[Row]:
    return list(
        Rows(columns, None if "topic" in columns else "o").of(pa.RecordBatch.from_pydict(columns))
    )


def test_columns_become_records() -> None:
    rows = rows_of(
        key=pa.array(["k", None]),
        value=pa.array([b"v", None], pa.binary()),
        headers=pa.array([[{"key": "é", "value": None}], None], HEADERS),
        topic=pa.array(["a", "b"]),
        partition=pa.array([3, None], pa.int32()),
        timestamp=pa.array([1_999, -1], TIMES),
    )
    assert rows == [
        ("a", 3, (b"k", b"v", (("é".encode(), None),), 1)),
        ("b", NO_PARTITION, (None, None, (), -1)),
    ]
    assert rows_of(value=pa.array(["v"])) == [("o", NO_PARTITION, (None, b"v", (), None))]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"topic": pa.array([None], pa.string())}, "a row's topic is null; set the option topic"),
        ({"partition": pa.array([-1], pa.int32())}, "a row's partition is negative"),
        ({"timestamp": pa.array([None], TIMES)}, "a row's timestamp is null"),
        ({"headers": pa.array([[{"key": None, "value": b""}]], HEADERS)}, "a header has no key"),
    ],
)
def test_a_wrong_row_is_refused(column: dict[str, pa.Array], text: str) -> None:
    with pytest.raises(InvalidRecord, match=text):
        rows_of(**{"topic": pa.array(["t"]), "value": pa.array([b"v"]), **column})


def write(leaders: ScriptedLeaders, task: int = 0, **columns: pa.Array) -> int:
    options = SinkOptions.parse(GIVEN, streaming=False)
    topic = None if "topic" in columns else "orders"
    writer = TaskWriter(leaders, TaskAttempt.of_batch("w", task), Rows(columns, topic), options)
    return writer.write([pa.RecordBatch.from_pydict(columns)])


def test_rows_go_where_kafka_s_clients_put_them() -> None:
    """By the hash of the key, which the row's own choice goes before; without both, the partitions
    take turns, task by task.
    """
    leaders = ScriptedLeaders(partitions=3)
    keys = [b"21", b"foobar", None, b"abc"]
    write(leaders, 4, key=pa.array(keys, pa.binary()), value=pa.array([b"v"] * len(keys)))
    expected = {key: (hashed & 0x7FFFFFFF) % 3 for key, hashed in HASHES.items()} | {None: 4 % 3}
    found = {it.key: number for number in range(3) for it in leaders.records(number)}
    assert found == expected
    write(
        leaders,
        key=pa.array([b"21"]),
        value=pa.array([b"own"]),
        partition=pa.array([2], pa.int32()),
    )
    assert [it.value for it in leaders.records(2)][-1] == b"own"


def test_what_is_not_there_is_named() -> None:
    value = pa.array([b"v"])
    with pytest.raises(PartitionNotFound, match="stream 'orders' has 2 partitions, no 2"):
        write(ScriptedLeaders(partitions=2), value=value, partition=pa.array([2], pa.int32()))
    with pytest.raises(StreamNotFound):
        write(ScriptedLeaders(), value=value, topic=pa.array(["other"]))


def test_batches_end_before_they_are_too_large() -> None:
    leaders = ScriptedLeaders()
    sizes = [10, 600_000, 400_000, 2_000_000, 5]
    write(leaders, value=pa.array([bytes(size) for size in sizes]))
    assert leaders.counts() == [2, 1, 1, 1]
