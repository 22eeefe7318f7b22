"""Planning and reading over the socket API, without Spark: against a node in another thread."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.data_loss import DataLoss
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location
from streamlog.arrow.servers import fetch_reader, replica_choice
from streamlog.arrow.servers.fetch_reader import FetchReader
from streamlog.client.blocking import CLIENT_ID
from streamlog.errors import (
    ConfigError,
    CorruptBatch,
    NodeUnreachable,
    PartitionNotFound,
    RequestTimedOut,
    StreamNotFound,
)
from streamlog.metadata.commands import AlterQuota
from streamlog.model import NodeId
from streamlog.record.columns import arrow_schema
from tests.kafka_node import ThreadedNode
from tests.record_batches import HandRecord, hand_batch
from tools.nodes.ports import free_port

COLUMNS = ("topic", "partition", "offset", "value")
CONTROL = 0x20
ELSEWHERE = NodeId(8)
"""A node that is registered; nobody listens there."""


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedNode]:
    """60 records in 12 batches."""
    monkeypatch.setattr(fetch_reader, "WAIT_MS", 20)
    monkeypatch.setattr(fetch_reader, "BACKOFF_MS", 5)
    with ThreadedNode() as node:
        node.add_stream("orders")
        for i in range(12):
            node.append("orders", [b"value %d" % j for j in range(5 * i, 5 * i + 5)])
        yield node


def options(node: ThreadedNode, **given: str) -> SourceOptions:
    wanted = {"servers": node.address, "subscribe": "orders", "fetchTimeoutMs": "10000"}
    return SourceOptions.parse({**wanted, **given})


def plan(node: ThreadedNode, **given: str) -> tuple[SourceOptions, list[PartitionRange]]:
    asked = options(node, **given)
    with open_location(asked) as place:
        ranges = plan_offset_ranges(place, asked)
        return asked, place.cut(ranges, asked.task_bytes_max, asked.tasks_min)


def read(task: PartitionRange, asked: SourceOptions) -> list[dict[str, Any]]:
    reader = FetchReader(task, asked, arrow_schema(COLUMNS))
    return [row for batch in reader.read() for row in batch.to_pylist()]


def read_all(node: ThreadedNode, **given: str) -> list[dict[str, Any]]:
    asked, tasks = plan(node, **given)
    return [row for task in tasks for row in read(task, asked)]


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


def test_all_is_read_in_order(node: ThreadedNode) -> None:
    assert read_all(node) == expected(0, 60)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 58), (19, 21), (20, 40), (33, 34), (7, 7)])
def test_a_range_begins_and_ends_where_it_was_asked_to(
    node: ThreadedNode, start: int, end: int
) -> None:
    assert read_all(node, **offsets(start, end)) == expected(start, end)


@pytest.mark.parametrize("minimum", [1, 2, 3, 7, 12, 500])
def test_tasks_are_cut_at_batches(node: ThreadedNode, minimum: int) -> None:
    asked, tasks = plan(node, minPartitions=str(minimum))
    assert min(minimum, 12) >= len(tasks) >= min(minimum, 12) - 1
    assert all(task.start_offset % 5 == 0 for task in tasks)
    assert [row for task in tasks for row in read(task, asked)] == expected(0, 60)


@pytest.mark.parametrize("fetch_bytes", [1, 150, 400, 1 << 20])
def test_fetches_of_any_size_give_the_same_rows(node: ThreadedNode, fetch_bytes: int) -> None:
    assert read_all(node, fetchMaxBytes=str(fetch_bytes)) == expected(0, 60)


def test_records_that_arrive_later_or_are_not_committed_are_not_read(node: ThreadedNode) -> None:
    node.append("orders", [b"value 60"], commit=False)
    asked, tasks = plan(node)
    node.append("orders", [b"value 61"])
    assert [row for task in tasks for row in read(task, asked)] == expected(0, 60)


def test_times_become_offsets(node: ThreadedNode) -> None:
    node.append("orders", [b"value 60"], timestamp_ms=5_000)
    node.append("orders", [b"value 61"], timestamp_ms=6_000)
    assert read_all(node, startingTimestamp="2000", endingTimestamp="5500") == expected(60, 61)
    with pytest.raises(ConfigError, match="startingTimestamp: orders-0 has no record"):
        plan(node, startingTimestamp="7000")
    times = {"startingOffsetsByTimestamp": '{"orders": {"0": 6000}}'}
    assert read_all(node, **times) == expected(61, 62)
    with pytest.raises(ConfigError, match=r"startingOffsetsByTimestamp: .*no such partition"):
        plan(node, startingOffsetsByTimestamp='{"orders": {"0": 1, "3": 1}}')


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"subscribe": "nix"}, StreamNotFound, "no stream 'nix'; it has orders"),
        ({"subscribe": "", "subscribePattern": "x.*"}, StreamNotFound, "no stream .* matches"),
        ({"subscribe": "", "assign": '{"orders": [7]}'}, PartitionNotFound, "partition orders-7"),
        (offsets(5, 99), ConfigError, r"endingOffsets: .*offset 99 is outside .*\[0, 60\)"),
    ],
)
def test_what_is_not_there_is_named(
    node: ThreadedNode, given: dict[str, str], error: type[Exception], text: str
) -> None:
    wanted = {"servers": node.address, "subscribe": "orders", **given}
    asked = SourceOptions.parse({name: value for name, value in wanted.items() if value})
    with pytest.raises(error, match=text), open_location(asked) as place:
        plan_offset_ranges(place, asked)


def test_control_batches_and_gaps_are_no_loss(node: ThreadedNode) -> None:
    """As compaction leaves them, and as foreign logs do."""
    partition = node.partition("orders")

    def append() -> None:
        control = hand_batch([HandRecord(b"commit")], 60, attributes=CONTROL)
        partition.append_bytes(control)
        partition.log_end_offset = 70  # nothing is left between
        partition.append_bytes(hand_batch([HandRecord(b"value 70")], 70))

    node.call(append)
    assert read_all(node) == expected(0, 60) + expected(70, 71)
    assert read_all(node, **offsets(58, 65)) == expected(58, 60)


@pytest.mark.parametrize("first", [0, 1])
def test_the_leader_is_asked_where_a_follower_is_gone(
    node: ThreadedNode, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the replicas has its turn first."""
    monkeypatch.setattr(replica_choice.zlib, "crc32", lambda _: first)  # type: ignore[attr-defined]
    metadata = node.node.metadata
    node.call(lambda: metadata.register(free_port(), ELSEWHERE))
    isr = (NodeId(7), ELSEWHERE)
    node.call(lambda: metadata.change("orders", 0, replicas=isr, isr=isr))
    assert read_all(node) == expected(0, 60)


def test_a_leader_that_moves_in_the_middle_is_followed(node: ThreadedNode) -> None:
    asked, tasks = plan(node, fetchMaxBytes="1", batchRows="5")
    rows = FetchReader(tasks[0], asked, arrow_schema(COLUMNS)).read()
    found = next(rows).to_pylist()
    partition, metadata = node.partition("orders"), node.node.metadata

    def lose() -> None:
        partition.is_leader = False

    def lead_again() -> None:
        partition.is_leader = True
        partition.leader_epoch = 1
        metadata.change("orders", 0, leader_epoch=1)

    node.call(lose)
    later = threading.Timer(0.1, lambda: node.call(lead_again))
    later.start()
    found += [row for batch in rows for row in batch.to_pylist()]
    later.join()
    assert found == expected(0, 60)


def test_a_broken_connection_is_opened_anew(node: ThreadedNode) -> None:
    asked, tasks = plan(node, fetchMaxBytes="1", batchRows="5")
    reader = FetchReader(tasks[0], asked, arrow_schema(COLUMNS))
    found = []
    for batch in reader.read():
        found += batch.to_pylist()
        connection = reader._replicas._connection
        if connection is not None and len(found) % 10 == 0:
            connection._sock.shutdown(2)
    assert found == expected(0, 60)


def test_a_quota_slows_a_read_down_and_loses_nothing(node: ThreadedNode) -> None:
    """Ten seconds' worth is saved up at first."""
    quota = AlterQuota(client_id=CLIENT_ID, values={"consumer_byte_rate": 200})
    node.wait(node.node.metadata.request(quota))
    assert read_all(node, fetchMaxBytes="1") == expected(0, 60)
    assert node.node.metric("streamlog_throttled_requests_total", quota="fetch") > 0


def test_a_partition_that_nobody_serves_is_named_with_the_remedy(node: ThreadedNode) -> None:
    asked, tasks = plan(node, fetchTimeoutMs="300")
    node.call(lambda: node.node.metadata.register(free_port()))  # nobody listens there
    with pytest.raises(
        RequestTimedOut, match=r"orders-0: 127.0.0.1:\d+: .*for 300 ms; .*kafka\.advertised_host"
    ):
        read(tasks[0], asked)


def test_no_server_answers_the_driver() -> None:
    asked = SourceOptions.parse({"servers": "127.0.0.1:1", "subscribe": "orders"})
    with pytest.raises(NodeUnreachable, match=r"127.0.0.1:1: "), open_location(asked) as place:
        plan_offset_ranges(place, asked)


def test_retention_between_plan_and_read_is_loss(
    node: ThreadedNode, caplog: pytest.LogCaptureFixture
) -> None:
    strict, tasks = plan(node, **offsets(5, 55))
    lax, _ = plan(node, failOnDataLoss="false")
    node.wait(node.partition("orders").purge(23))
    with pytest.raises(
        DataLoss, match=r"orders-0: offsets \[5, 23\) .*log starts at 23 .*failOnDataLoss=false"
    ):
        read(tasks[0], strict)
    with caplog.at_level(logging.WARNING):
        assert read(tasks[0], lax) == expected(23, 55)
    assert "records lost" in caplog.text
    node.wait(node.partition("orders").purge(60))
    with pytest.raises(DataLoss, match=r"offsets \[5, 55\)"):
        read(tasks[0], strict)
    assert read(tasks[0], lax) == []


def test_a_stream_that_was_created_anew_is_not_mistaken_for_the_old_one(
    node: ThreadedNode,
) -> None:
    strict, tasks = plan(node)
    lax, _ = plan(node, failOnDataLoss="false")
    node.delete_stream("orders")
    with pytest.raises(DataLoss, match=r"offsets \[0, 60\) .*the stream was deleted;"):
        read(tasks[0], strict)
    node.add_stream("orders")
    node.append("orders", [b"another"] * 60)
    with pytest.raises(DataLoss, match=r"offsets \[0, 60\) .*deleted and created again"):
        read(tasks[0], strict)
    assert read(tasks[0], lax) == []


def damage(node: ThreadedNode, batch: int) -> None:
    """Flips the last bit of a batch in its file."""
    place = node.partition("orders").batches[batch]
    at = place.position + place.length - 1
    place.file.seek(at)
    flipped = bytes([place.file.read(1)[0] ^ 1])
    place.file.seek(at)
    place.file.write(flipped)
    place.file.flush()


def test_a_damaged_batch_is_asked_for_again_and_then_named(node: ThreadedNode) -> None:
    node.call(lambda: damage(node, 4))
    asked, tasks = plan(node, fetchRetries="2")
    before = node.partition("orders").reads
    reader = FetchReader(tasks[0], asked, arrow_schema(COLUMNS))
    with pytest.raises(
        CorruptBatch, match=rf"orders-0, from {node.address}: .*offset 20: .*checksum.*log verify"
    ):
        list(reader.read())
    assert node.partition("orders").reads == before + 3


def test_a_batch_that_is_whole_the_second_time_is_read_once(node: ThreadedNode) -> None:
    node.call(lambda: damage(node, 4))
    partition = node.partition("orders")
    asked, tasks = plan(node)

    def mend() -> None:
        if partition.reads == 2:
            damage(node, 4)

    partition.reads = 0
    partition.on_read = mend
    assert read(tasks[0], asked) == expected(0, 60)
