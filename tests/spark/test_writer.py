"""The sink inside Spark, against a real node: what a frame says is what the log has, once."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlog.record.compiled.keys import murmur2
from tests.spark.live_node import LiveNode
from tools.nodes.server_process import wait_until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

ROWS = 400
VALUE_BYTES = 4_000
"""Much more in all than waits in the pipes between Spark and its workers."""
SMALL = {"batchBytes": 5 * VALUE_BYTES}
TIMEOUT_S = 180


def write(frame: "DataFrame", node: LiveNode, **options: Any) -> None:
    options = {"servers": node.kafka, **options}
    frame.write.format("streamlog").mode("append").options(**options).save()


def numbers(spark: "SparkSession", count: int = ROWS, tasks: int = 3) -> "DataFrame":
    return spark.range(0, count, 1, tasks).selectExpr(
        f"lpad(cast(id AS STRING), {VALUE_BYTES}, '0') AS value"
    )


def value(number: int) -> bytes:
    return b"%0*d" % (VALUE_BYTES, number)


def texts(count: int = ROWS) -> Counter[bytes | None]:
    return Counter(value(i) for i in range(count))


@pytest.fixture
def small_batches(spark: "SparkSession") -> Iterator[None]:
    """Rows come to the sink while the rest is still being made."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "20")
    yield
    spark.conf.set(name, before or "10000")


def test_each_column_is_what_kafka_s_sink_makes_of_it(
    spark: "SparkSession", node: LiveNode
) -> None:
    node.create("columns", 3)
    node.create("columns-too")
    headers = """array(named_struct('key', 'trace', 'value', X'00FF'),
                       named_struct('key', 'none', 'value', CAST(NULL AS BINARY)))"""
    frame = spark.sql(
        f"""
        SELECT X'6B' AS key, 'v' AS value, NULL AS headers, 'columns' AS topic,
               CAST(2 AS INT) AS partition, TIMESTAMP '2024-05-06 07:08:09.123456' AS timestamp
        UNION ALL SELECT X'666F6F626172', NULL, {headers}, 'columns', NULL,
               TIMESTAMP '1971-01-01 00:00:00.0019'
        UNION ALL SELECT NULL, '', NULL, 'columns-too', NULL, TIMESTAMP '2024-05-06 07:08:09'
        """
    )
    write(frame.coalesce(1), node)
    (given,) = node.records("columns", 2)
    assert (given.key, given.value, given.headers) == (b"k", b"v", ())
    assert given.timestamp_ms == 1_714_979_289_123
    (hashed,) = node.records("columns", (murmur2(b"foobar") & 0x7FFFFFFF) % 3)
    assert (hashed.key, hashed.value) == (b"foobar", None)
    assert hashed.headers == (("trace", b"\x00\xff"), ("none", None))
    assert hashed.timestamp_ms == 31_536_000_001
    (other,) = node.records("columns-too")
    assert (other.key, other.value) == (None, b"")


def test_batches_are_compressed_and_small(spark: "SparkSession", node: LiveNode) -> None:
    node.create("packed", 2)
    write(numbers(spark), node, topic="packed", compression="zstd", **SMALL)
    assert Counter(node.values("packed", 2)) == texts()
    headers = node.headers("packed")
    assert {it.compression.name for it in headers} == {"ZSTD"}
    assert len(headers) > 3


@pytest.mark.parametrize(
    ("select", "options", "text"),
    [
        ("1 AS value", {}, "schema: value is int; cast it to binary or string"),
        (
            "'a' AS value",
            {"topic": "nowhere"},
            "topic: there is no stream 'nowhere'; create the stream",
        ),
        ("'a' AS value", {"topics": "bad"}, "no such option; did you mean topic?"),
    ],
)
def test_a_mistake_is_one_clear_message(
    spark: "SparkSession", node: LiveNode, select: str, options: dict[str, str], text: str
) -> None:
    from pyspark.errors import AnalysisException

    if "bad" not in node.created:
        node.create("bad")
    frame = spark.sql(f"SELECT {select}")
    with pytest.raises(AnalysisException) as problem:
        write(frame, node, **{"topic": "bad", **options})
    assert text in str(problem.value)
    assert node.values("bad") == []


def test_a_row_that_cannot_be_written_ends_the_write(spark: "SparkSession", node: LiveNode) -> None:
    frame = spark.sql("SELECT 'a' AS value, 'gone' AS topic")
    with pytest.raises(Exception, match="there is no stream 'gone'; create it first"):
        write(frame, node)


def test_a_log_is_not_overwritten(spark: "SparkSession", node: LiveNode) -> None:
    frame = spark.sql("SELECT 'a' AS value").write.format("streamlog").mode("overwrite")
    with pytest.raises(Exception, match="mode: a log is not overwritten; set mode append"):
        frame.options(servers=node.kafka, topic="bad").save()


Batches = Iterator["pa.RecordBatch"]


def log_bytes(stream: Path) -> int:
    """Of all partitions."""
    return sum(segment.stat().st_size for segment in stream.glob("*/*.log"))


def fail(flag: Path, stream: Path) -> None:
    before = int(flag.read_text())
    wait_until(lambda: log_bytes(stream) > before, "the sink writes", TIMEOUT_S)
    flag.unlink(missing_ok=True)
    raise RuntimeError("killed by the test")


def failing_once(flag: Path, stream: Path) -> Callable[[Batches], Batches]:
    """Passes rows on; while ``flag`` is there, the first task that comes to row 100 fails, when
    some of the rows before it are in the log.
    """

    def pass_on(batches: Batches) -> Batches:
        seen = 0
        for batch in batches:
            for at in range(0, batch.num_rows, 20):
                yield batch.slice(at, 20)
                seen += 20
                if seen == 100 and flag.exists():
                    fail(flag, stream)

    return pass_on


@pytest.mark.usefixtures("small_batches")
def test_a_write_that_failed_is_completed_by_its_repetition(
    spark: "SparkSession", node: LiveNode, tmp_path: Path
) -> None:
    """The rows come in another order the second time, as after a shuffle."""
    node.create("repeated", 2)
    flag = tmp_path / "flag"
    flag.write_text("0")
    stream = node.folder("repeated").parent
    frame = numbers(spark, tasks=2).mapInArrow(failing_once(flag, stream), "value STRING")
    options = {"topic": "repeated", "writeId": "w", **SMALL}
    with pytest.raises(Exception, match="killed by the test"):
        write(frame, node, **options)
    written = len(node.values("repeated", 2))
    assert 0 < written < ROWS
    backwards = numbers(spark, tasks=2).sortWithinPartitions("value", ascending=False)
    write(backwards, node, **options)
    assert Counter(node.values("repeated", 2)) == texts()
    write(backwards, node, **options)
    assert len(node.values("repeated", 2)) == ROWS
    write(backwards, node, **(options | {"writeId": "another"}))
    assert len(node.values("repeated", 2)) == 2 * ROWS


class Pipeline:
    """Text files to a stream, by a query with a checkpoint."""

    def __init__(self, spark: "SparkSession", node: LiveNode, folder: Path, stream: str) -> None:
        self._spark = spark
        self._node = node
        self._stream = stream
        self._files = folder / "files"
        self._files.mkdir()
        self.checkpoint = folder / "checkpoint"
        self._flag = folder / "flag"
        self._log = node.folder(stream).parent

    def add(self, first: int, count: int) -> None:
        lines = b"".join(value(i) + b"\n" for i in range(first, first + count))
        (self._files / f"{first:06}.txt").write_bytes(lines)

    def start(self) -> "StreamingQuery":
        rows = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._files))
        writer = (
            rows.mapInArrow(failing_once(self._flag, self._log), "value STRING")
            .writeStream.format("streamlog")
            .option("checkpointLocation", str(self.checkpoint))
            .options(**SMALL)
            .trigger(availableNow=True)
        )
        return writer.options(servers=self._node.kafka, topic=self._stream).start()

    def run(self) -> None:
        query = self.start()
        assert query.awaitTermination(TIMEOUT_S)

    def fail_once(self) -> None:
        self._flag.write_text(str(log_bytes(self._log)))

    def forget_commit(self, epoch: int) -> None:
        """As if Spark had died after the sink wrote and before it noted so."""
        commits = self.checkpoint / "commits"
        (commits / str(epoch)).unlink()
        (commits / f".{epoch}.crc").unlink(missing_ok=True)


@pytest.mark.usefixtures("small_batches")
def test_a_query_that_comes_back_repeats_nothing(
    spark: "SparkSession", node: LiveNode, tmp_path: Path
) -> None:
    node.create("pipeline")
    pipeline = Pipeline(spark, node, tmp_path, "pipeline")
    pipeline.add(0, 200)
    pipeline.run()
    assert node.values("pipeline") == [value(i) for i in range(200)]
    pipeline.forget_commit(0)
    pipeline.run()
    assert len(node.values("pipeline")) == 200
    pipeline.add(200, 200)
    pipeline.fail_once()
    query = pipeline.start()
    with pytest.raises(Exception, match="killed by the test"):
        query.awaitTermination(TIMEOUT_S)
    assert 200 < len(node.values("pipeline")) < 400
    pipeline.run()
    assert node.values("pipeline") == [value(i) for i in range(400)]


def test_a_streaming_query_is_named_by_its_checkpoint_alone(
    spark: "SparkSession", node: LiveNode, tmp_path: Path
) -> None:
    (tmp_path / "file.txt").write_text("a")
    rows = spark.readStream.text(str(tmp_path / "*.txt"))
    query = rows.writeStream.format("streamlog").options(
        servers=node.kafka, topic="bad", writeId="w", checkpointLocation=str(tmp_path / "c")
    )
    with pytest.raises(Exception, match="writeId: a streaming query is known by its checkpoint"):
        query.start().processAllAvailable()
