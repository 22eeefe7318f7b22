"""Rows into a stream in tasks: interrupted anywhere and repeated, each is there once, in order."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamlog.arrow
from streamlog.arrow import stream_write
from streamlog.arrow.sink.write_options import WriteOptions
from streamlog.arrow.stream_write import WriteResult, write_by
from streamlog.errors import ConfigError, InvalidRecord, NodeUnreachable
from streamlog.model import TopicPartition
from streamlog.record.columns import arrow_schema
from tests.spark.scripted_leaders import Killed, ScriptedLeaders
from tools.nodes.ports import free_port


def options(write_id: str = "monday", batch_bytes: int = 200) -> WriteOptions:
    return WriteOptions(servers="a:1", topic="orders", write_id=write_id, batch_bytes=batch_bytes)


def batches_of(values: list[bytes], rows: int, partitions: int = 2) -> list[pa.RecordBatch]:
    schema = arrow_schema(["partition", "value"])
    return [
        pa.RecordBatch.from_pylist(
            [{"partition": i % partitions, "value": values[i]} for i in range(at, min(at + rows, len(values)))],
            schema=schema,
        )
        for at in range(0, len(values), rows)
    ]  # fmt: skip


@given(
    count=st.integers(0, 60),
    rows=st.integers(1, 9),
    task_rows=st.integers(1, 25),
    kills=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=3),
)
def test_each_row_is_there_once_and_in_order(
    count: int, rows: int, task_rows: int, kills: list[tuple[int, bool]]
) -> None:
    """``kills``: at which request, and whether the leader has taken the batch."""
    leaders = ScriptedLeaders(partitions=2)
    values = [b"value %d" % (i // 3) for i in range(count)]  # some are equal
    left = 0

    def count_down(_: TopicPartition) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    def attempt() -> WriteResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream_write, "TASK_ROWS", task_rows)
            return write_by(leaders, batches_of(values, rows), options(), keep_partitions=True)

    done = None
    for at, is_taken in kills:
        left = at
        leaders.before, leaders.after = (
            (lambda _: None, count_down) if is_taken else (count_down, lambda _: None)
        )
        try:
            done = attempt()
        except Killed:
            continue
    leaders.before = leaders.after = lambda _: None
    last = attempt()
    assert last.written + last.found == count
    assert done is None or last == (0, count)
    for number in range(2):
        expected = values[number::2]
        assert [it.value for it in leaders.records(number)] == expected


def test_another_id_writes_all_again() -> None:
    leaders = ScriptedLeaders(partitions=2)
    batches = batches_of([b"a", b"b"], 2)
    assert write_by(leaders, batches, options(), keep_partitions=True) == (2, 0)
    assert write_by(leaders, batches, options("tuesday"), keep_partitions=True) == (2, 0)
    assert leaders.values() == Counter({b"a": 2, b"b": 2})


@pytest.mark.parametrize(("limit", "value"), [("TASK_BYTES", 100), ("TASK_ROWS", 4)])
def test_a_task_ends_by_bytes_and_by_rows(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """What a repetition holds in memory is bounded; each task has a producer id of its own."""
    monkeypatch.setattr(stream_write, limit, value)
    leaders = ScriptedLeaders()
    batches = batches_of([b"x" * 30] * 12, 2, partitions=1)
    write_by(leaders, batches, options(), keep_partitions=True)
    batches_of_log = leaders.committed(TopicPartition("orders", 0), 0)
    assert len({header.producer_id for header, _ in batches_of_log}) == 3


def test_a_subject_becomes_a_header() -> None:
    leaders = ScriptedLeaders()
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], "subject": ["x.y", None]})
    write_by(leaders, [batch], options(), keep_partitions=True)
    assert [list(it.headers) for it in leaders.records()] == [[("subject", b"x.y")], []]


def test_the_key_may_decide_the_partition() -> None:
    leaders = ScriptedLeaders(partitions=2)
    keys = [b"key %d" % i for i in range(20)]
    columns: dict[str, Any] = {"key": keys, "value": keys, "partition": [0] * 20}
    batch = pa.RecordBatch.from_pydict(columns)
    write_by(leaders, [batch], options(), keep_partitions=False)
    assert {len(leaders.records(number)) for number in range(2)} != {0, 20}


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"value": ["a"], "walue": ["b"]}, "no record has a column 'walue'"),
        ({"key": ["a"]}, "there is no column value"),
        ({"value": ["a"], "partition": [-1]}, "a row's partition is negative"),
    ],
)
def test_rows_that_are_no_records_are_refused(columns: dict[str, Any], problem: str) -> None:
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(InvalidRecord, match=problem):
        write_by(ScriptedLeaders(), [batch], options(), keep_partitions=True)


def test_arguments_are_checked() -> None:
    table = pa.table({"value": ["a"]})
    with pytest.raises(ConfigError, match=r"^compression: there is no 'zip'"):
        streamlog.arrow.write(table, "orders", servers="a:1", compression="zip")
    with pytest.raises(ConfigError, match=r"^batch_bytes: 0 is wrong"):
        streamlog.arrow.write(table, "orders", servers="a:1", batch_bytes=0)
    with pytest.raises(ConfigError, match=r"^servers: 'a' is no address"):
        streamlog.arrow.write(table, "orders", servers="a")
    with pytest.raises(NodeUnreachable):
        streamlog.arrow.write(table, "orders", servers=f"127.0.0.1:{free_port()}")
