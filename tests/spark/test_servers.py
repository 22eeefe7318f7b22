"""Batch and streaming reads over the socket API, inside Spark."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka_node import ThreadedNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

QUERY_TIMEOUT_S = 120


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    with ThreadedNode() as node:
        node.add_stream("orders", 2)
        add(node, 0, 60)
        node.append("orders", [b"other"], 1)
        yield node


def add(node: ThreadedNode, first: int, end: int) -> None:
    for at in range(first, end, 5):
        values = [b"v%d" % i for i in range(at, min(at + 5, end))]
        node.append("orders", values, timestamp_ms=1_700_000_000_000 + at)


def load(spark: "SparkSession", node: ThreadedNode, **options: Any) -> "DataFrame":
    wanted = {"servers": node.address, "subscribe": "orders", **options}
    return spark.read.format("streamlog").options(**wanted).load()


def run(
    spark: "SparkSession", folder: Path, options: dict[str, Any], *, name: str = "out"
) -> tuple[list["Row"], list[dict[str, Any]]]:
    """One AvailableNow run into Parquet; all rows so far, and the run's progress."""
    stream = spark.readStream.format("streamlog").options(**options).load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / name))
    )
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        progress = [json.loads(it.json) for it in query.recentProgress]
    finally:
        query.stop()
    return spark.read.parquet(str(folder / name)).orderBy("partition", "offset").collect(), progress


def test_committed_rows_are_read_from_the_nodes(spark: "SparkSession", node: ThreadedNode) -> None:
    frame = load(spark, node, minPartitions=4, includeHeaders=True)
    assert frame.rdd.getNumPartitions() >= 4
    rows = frame.orderBy("partition", "offset").collect()
    assert [row.value for row in rows] == [b"v%d" % i for i in range(60)] + [b"other"]
    assert rows[0].headers[0].value == b"s"


def test_filters_are_pushed_down_where_that_was_asked_for(
    spark: "SparkSession", node: ThreadedNode
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, node, filterPushdown=True)
        found = frame.where(
            "offset >= 12 and offset < 31 and partition = 0"
            " and timestamp >= timestamp_millis(1700000000020)"
        )
        before = node.partition("orders").reads, node.partition("orders", 1).reads
        assert [row.offset for row in found.orderBy("offset").collect()] == list(range(20, 31))
        assert node.partition("orders", 1).reads == before[1]
        assert found.where("offset = 25 or value = 'v3'").count() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_goes_on_from_its_checkpoint(
    spark: "SparkSession", node: ThreadedNode, tmp_path: Path
) -> None:
    options = {
        "servers": node.address,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 25,
    }
    rows, progress = run(spark, tmp_path, options)
    assert [row.value for row in rows] == [b"v%d" % i for i in range(60)] + [b"other"]
    batches = [it["numInputRows"] for it in progress if it["numInputRows"]]
    assert batches == [25, 25, 11]
    add(node, 60, 73)
    rows, progress = run(spark, tmp_path, options)
    assert [row.value for row in rows] == [b"v%d" % i for i in range(73)] + [b"other"]
    assert [it["numInputRows"] for it in progress if it["numInputRows"]] == [13]


def test_what_is_lost_ends_a_stream_with_the_remedy(
    spark: "SparkSession", node: ThreadedNode, tmp_path: Path
) -> None:
    options = {"servers": node.address, "subscribe": "orders", "startingOffsets": "earliest"}
    run(spark, tmp_path, options)
    add(node, 60, 80)
    node.wait(node.partition("orders").purge(70))
    with pytest.raises(Exception, match=r"orders-0: offsets \[60, 70\) .*failOnDataLoss=false"):
        run(spark, tmp_path, options)
    rows, _ = run(spark, tmp_path, {**options, "failOnDataLoss": "false"})
    kept = [*range(60), *range(70, 80)]
    assert [row.value for row in rows] == [b"v%d" % i for i in kept] + [b"other"]
