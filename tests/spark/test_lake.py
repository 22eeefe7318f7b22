"""Streams as Iceberg tables: every record of the log once, whatever is killed."""

import os
import random
import signal
import time
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka.admin import AdminClient

pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")

from streamlog.errors import ConfigError
from streamlog.lake.position import OffsetRange, TablePosition
from streamlog.lake.table import TakenOver
from tests.lake_table import StreamTable, sql_catalog
from tests.spark.live_node import LiveNode
from tools.nodes.server_process import http_get, wait_until

VALUE_BYTES = 400


def publish(node: LiveNode, stream: str, first: int, count: int) -> None:
    node.produce_keyed(
        stream,
        [(b"%d" % (i % 97), b"%0*d" % (VALUE_BYTES, i)) for i in range(first, first + count)],
    )


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> StreamTable:
    stream = request.node.name.replace("test_", "")[:40].split("[")[0]
    return StreamTable(tmp_path, stream, sql_catalog(tmp_path))


def test_a_table_has_each_record_as_it_is(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream, 3)
    publish(node, table.stream, 0, 5_000)
    node.produce_keyed(table.stream, [(b"tombstone", None)])
    assert "5001 records" in table.run_once(node, "--partition-by", "day")
    assert table.check(node, 3) == 5_001
    assert "0 records" in table.run_once(node)
    publish(node, table.stream, 5_000, 1_000)
    table.run_once(node, "--commit-size", "100k", "--source-option", "maxBytesPerPartition=50000")
    assert table.check(node, 3) == 6_001
    (field,) = table.table.load().spec().fields
    assert str(field.transform) == "day"


def test_killed_jobs_leave_nothing_out_and_nothing_twice(
    node: LiveNode, table: StreamTable
) -> None:
    """Each is killed at some moment, while more is published."""
    node.create(table.stream, 2)
    publish(node, table.stream, 0, 2_000)
    done = Event()
    published = [2_000]

    def go_on() -> None:
        while not done.is_set():
            publish(node, table.stream, published[0], 500)
            published[0] += 500
            done.wait(0.1)

    publisher = Thread(target=go_on)
    publisher.start()
    chance = random.Random(7)
    options = ["--engine", "local", "--interval", "0", "--commit-size", "200k"]
    options += ["--source-option", "maxBytesPerPartition=60000"]
    kills = 0
    try:
        for attempt in range(6):
            job = table.job(node, *options, log=f"job-{attempt}.log")
            job.spawn()
            try:
                wait_until(lambda: "committed" in job.log_text(), "a commit", 60)  # noqa: B023
                time.sleep(chance.random())
                assert job.is_running(), job.log_text()[-2_000:]
            finally:
                job.kill()
            kills += 1
    finally:
        done.set()
        publisher.join()
    table.run_once(node)
    assert kills == 6
    assert table.check(node, 2) == published[0]


def test_of_two_jobs_at_once_one_gives_way(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream, 2)
    publish(node, table.stream, 0, 2_000)
    options = ("--engine", "local", "--interval", "0.05")
    jobs = [table.job(node, *options, log=f"job-{i}.log") for i in range(2)]
    for job in jobs:
        job.spawn()
    try:
        count = 2_000
        deadline = time.monotonic() + 60
        while all(it.is_running() for it in jobs):
            assert time.monotonic() < deadline, "both went on"
            publish(node, table.stream, count, 100)
            count += 100
        (loser,) = [it for it in jobs if not it.is_running()]
        assert "another job" in loser.log_text(), loser.log_text()
        (winner,) = [it for it in jobs if it.is_running()]
        winner.ask_to_stop()
        assert winner.wait() == 0, winner.log_text()
    finally:
        for job in jobs:
            job.kill()
    table.run_once(node)
    assert table.check(node, 2) == count


def test_a_commit_that_was_overtaken_is_not_repeated(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream)
    publish(node, table.stream, 0, 100)
    table.run_once(node)
    position = table.table.position()
    assert position is not None and position.ends == {0: 100}
    with pytest.raises(TakenOver):
        empty = TablePosition(position.stream, position.stream_id)
        table.table.commit(empty, [OffsetRange(0, 0, 100)], ())
    with pytest.raises(TakenOver):
        stale = TablePosition(position.stream, position.stream_id, {0: 50})
        table.table.commit(stale, [OffsetRange(0, 50, 100)], ())
    assert table.check(node) == 100


def test_a_stream_that_was_created_again_is_not_mixed_in(
    node: LiveNode, table: StreamTable
) -> None:
    node.create(table.stream)
    publish(node, table.stream, 0, 50)
    table.run_once(node)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.delete_topics([table.stream])[table.stream].result(30)
    wait_until(lambda: not node.folder(table.stream).exists(), "the stream is gone")
    node.create(table.stream)
    publish(node, table.stream, 0, 80)
    job = table.job(node, "--engine", "local", "--once")
    job.spawn()
    assert job.wait(60) == 1
    assert "created again" in job.log_text()
    assert len(table.rows()) == 50


def test_a_table_that_is_set_back_is_filled_again(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream)
    for first in range(0, 300, 100):
        publish(node, table.stream, first, 100)
        table.run_once(node)
    loaded = table.table.load()
    first_snapshot = loaded.history()[0].snapshot_id
    loaded.manage_snapshots().set_current_snapshot(first_snapshot).commit()
    assert len(table.rows()) == 100
    table.run_once(node)
    assert table.check(node) == 300


def test_metrics_say_how_far_the_table_is_behind(node: LiveNode, table: StreamTable) -> None:
    from tools.nodes.ports import free_port

    node.create(table.stream)
    publish(node, table.stream, 0, 100)
    port = free_port()
    options = ("--engine", "local", "--interval", "0.1", "--metrics-port", str(port))
    job = table.job(node, *options)
    job.spawn()
    try:
        labels = f'{{stream="{table.stream}",table="{table.name.table}"}}'

        def says(name: str, value: float) -> bool:
            assert job.is_running(), job.log_text()[-2_000:]
            wanted = f"streamlog_lake_{name}{labels} {value}"
            return wanted in http_get(f"http://127.0.0.1:{port}/metrics")[1].splitlines()

        wait_until(lambda: says("rows_total", 100.0), "rows are counted", 60)
        wait_until(lambda: says("records_behind", 0.0), "it has caught up", 60)
        publish(node, table.stream, 100, 11)
        wait_until(lambda: says("rows_total", 111.0), "more rows are counted", 60)
        os.kill(job.pid, signal.SIGTERM)
        assert job.wait() == 0
    finally:
        job.kill()


def test_no_table_is_named_by_one_word(node: LiveNode, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NAMESPACE"):
        StreamTable(tmp_path, "s", {}).name.__class__("orders")
