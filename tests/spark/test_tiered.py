"""Queries over a tiered stream: history from the object store, the tail from nodes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_streamlog.options.read_options import SourceOptions
from pyspark_streamlog.source.schema import source_schema
from pyspark_streamlog.source.stream_reader import StreamlogStreamReader
from streamlog.arrow.servers.cluster_location import ClusterLocation
from tests.spark.test_clusters import Job
from tests.tiered_node import (
    COUNT,
    TOPIC,
    create,
    produce,
    settings_of,
    until_front_is_gone,
    value,
)
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import NodeProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

MORE = 500


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    settings = settings_of(tmp_path)
    with Cluster(tmp_path, nodes=1, settings=settings, nats=NoNats()) as cluster:
        create(cluster.servers)
        produce(cluster.servers, 0, COUNT)
        until_front_is_gone(cluster[1], COUNT // 2)
        yield cluster[1]


def options_of(node: NodeProcess, tmp_path: Path, **more: Any) -> dict[str, Any]:
    store = (tmp_path / "bucket").as_uri()
    return {"servers": node.kafka, "store": store, "subscribe": TOPIC, **more}


def fetches(node: NodeProcess) -> int:
    found = re.search(r'streamlog_requests_total\{api="Fetch"\} (\d+)', node.http("/metrics")[1])
    return int(found[1]) if found else 0


def test_a_batch_query_reads_history_from_the_store_alone(
    spark: "SparkSession", node: NodeProcess, tmp_path: Path
) -> None:
    options = options_of(node, tmp_path, maxBytesPerPartition=100_000)
    frame = spark.read.format("streamlog").options(**options).load()
    assert frame.rdd.getNumPartitions() > 4
    rows = frame.select("offset", "value").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(it, value(it)) for it in range(COUNT)]
    before = fetches(node)
    until = {TOPIC: {"0": COUNT // 2}}

    frame = (
        spark.read.format("streamlog").options(**options, endingOffsets=json.dumps(until)).load()
    )
    assert frame.count() == COUNT // 2
    assert fetches(node) == before


def test_a_stream_query_goes_from_the_store_over_to_servers(
    spark: "SparkSession", node: NodeProcess, tmp_path: Path
) -> None:
    options = options_of(node, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=700)
    checkpoint = str(tmp_path / "checkpoint")
    found: list[tuple[int, bytes]] = []
    asked: list[int] = []

    def take(frame: "DataFrame", _number: int) -> None:
        found.extend(tuple(row) for row in frame.select("offset", "value").collect())
        asked.append(fetches(node))

    def run() -> None:
        query = (
            spark.readStream.format("streamlog")
            .options(**options)
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    before = fetches(node)
    run()
    assert sorted(found) == [(it, value(it)) for it in range(COUNT)]
    assert len(asked) == -(-COUNT // 700)
    assert asked[1] == before  # of history
    assert asked[-1] > before  # of the tail
    found.clear()
    produce(node.kafka, COUNT, COUNT + MORE)
    node.kill()
    node.start()
    run()
    assert sorted(found) == [(it, value(it)) for it in range(COUNT, COUNT + MORE)]


def test_a_micro_batch_asks_once_where_the_old_part_is(
    node: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(node, tmp_path, startingOffsets="earliest", maxBytesPerTrigger="100000",
                         maxBytesPerPartition="30000")  # fmt: skip
    asked = 0
    manifests = ClusterLocation.manifests

    def counted(self: ClusterLocation, stream: str) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return manifests(self, stream)

    monkeypatch.setattr(ClusterLocation, "manifests", counted)

    def reader() -> StreamlogStreamReader:
        schema = source_schema(include_headers=False)
        return StreamlogStreamReader(SourceOptions.parse(options, streaming=True), schema)

    query = reader()
    start = query.initialOffset()
    for _ in range(2):
        asked = 0
        end = json.loads(json.dumps(query.latestOffset(start, query.getDefaultReadLimit())))
        tasks = [it.value for it in query.partitions(start, end)]
        assert asked == 1
        assert len(tasks) > 2
        assert all(it.stored is not None for it in tasks)
        again = [it.value for it in reader().partitions(start, end)]
        assert again == tasks, "as a query does that is started again"
        start = end


@pytest.mark.slow
def test_a_killed_node_is_not_missed_by_a_query_over_history(
    node: NodeProcess, tmp_path: Path
) -> None:
    options = options_of(
        node,
        tmp_path,
        endingOffsets=f'{{"{TOPIC}": {{"0": {COUNT // 2}}}}}',
        maxBytesPerPartition="100000",
        batchRows="50",
    )
    job = Job(tmp_path / "job", master="local-cluster[2,1,1024]", options=options, stops=True)
    job.start()
    try:
        job.wait_reading()
        node.kill()
        job.go()
        assert job.wait() == [(0, it, value(it)) for it in range(COUNT // 2)]
    finally:
        job.kill()
