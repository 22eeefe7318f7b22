"""Tiered storage with node processes and stock Kafka clients: what retention has removed from the disks is still
read.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from nats.js.errors import APIError

from tests.tiered_node import (
    COUNT,
    EARLIEST,
    LATEST,
    TOPIC,
    consume,
    create,
    listed,
    produce,
    settings_of,
    tiered_objects,
    until_front_is_gone,
    value,
)
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import run_streamlog, wait_until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with Cluster(tmp_path, nodes=1, settings=settings_of(tmp_path), nats=NoNats()) as cluster:
        yield cluster[1]


def test_records_are_read_from_the_store_once_they_are_gone_here(
    node: NodeProcess, tmp_path: Path
) -> None:
    create(node.kafka)
    produce(node.kafka, 0, COUNT)
    until_front_is_gone(node, COUNT // 2)
    assert len(tiered_objects(tmp_path)) > 5
    assert listed(node.kafka, EARLIEST) == 0
    expected = [(number, value(number)) for number in range(COUNT)]
    assert consume(node.kafka, 0, COUNT) == expected
    assert consume(node.kafka, 777, 10)[0] == (777, value(777))
    node.stop()
    node.start()
    assert listed(node.kafka, EARLIEST) == 0
    assert consume(node.kafka, 0, COUNT) == expected


def test_aborted_transactions_stay_so_in_the_store(node: NodeProcess) -> None:
    create(node.kafka)
    writer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "t"})
    writer.init_transactions(30)
    for is_commit in (False, True):
        writer.begin_transaction()
        writer.produce(TOPIC, b"committed" if is_commit else b"aborted")
        writer.flush(30)
        (writer.commit_transaction if is_commit else writer.abort_transaction)(30)
    produce(node.kafka, 0, 600)
    until_front_is_gone(node, 300)
    expected = [b"committed", *(value(number) for number in range(600))]
    assert [it for _, it in consume(node.kafka, 0, 601)] == expected
    node.stop()
    node.start()
    assert [it for _, it in consume(node.kafka, 0, 601)] == expected
    uncommitted = consume(node.kafka, 0, 602, **{"isolation.level": "read_uncommitted"})
    assert [it for _, it in uncommitted] == [b"aborted", *expected]


def test_a_kill_in_the_middle_loses_nothing(node: NodeProcess, tmp_path: Path) -> None:
    create(node.kafka)
    sent = 0
    for _ in range(4):
        produce(node.kafka, sent, sent + 800)
        sent += 800
        node.kill()
        node.start()
    until_front_is_gone(node, sent // 2)
    assert consume(node.kafka, 0, sent) == [(number, value(number)) for number in range(sent)]


async def test_jetstream_reads_what_is_in_the_store_alone(
    node: NodeProcess, tmp_path: Path
) -> None:
    create(node.kafka)
    client = await nats.connect(node.port_url)
    try:
        context = client.jetstream(domain="streamlog")
        for number in range(600):
            await context.publish(TOPIC, value(number))
        await asyncio.to_thread(until_front_is_gone, node, 300)
        info = await context.stream_info(TOPIC)
        assert (info.state.first_seq, info.state.last_seq, info.state.messages) == (1, 600, 600)
        assert (await context.get_msg(TOPIC, seq=7)).data == value(6)
        assert (await context.get_msg(TOPIC, subject=TOPIC)).data == value(599)
        for filtered in ("", TOPIC):
            reader = await context.pull_subscribe(filtered, stream=TOPIC)
            found: list[bytes] = []
            while len(found) < 600:
                for message in await reader.fetch(100, timeout=10):
                    found.append(message.data)
                    await message.ack()
            assert found == [value(number) for number in range(600)]
        with pytest.raises(APIError, match="not permitted"):
            await context.delete_msg(TOPIC, 5)
        with pytest.raises(APIError, match="not permitted"):
            await context.purge_stream(TOPIC, subject="flights.x")
        assert await context.purge_stream(TOPIC, seq=101)
        assert (await context.stream_info(TOPIC)).state.first_seq == 101
    finally:
        await client.close()
    command = ("stream", "info", TOPIC, "--bootstrap-server", node.kafka)
    done = await asyncio.to_thread(run_streamlog, command, os.environ, timeout_s=60.0)
    assert "LOCAL START" in done.stdout, done.stderr


def test_streams_come_back_out_of_the_store_alone(node: NodeProcess, tmp_path: Path) -> None:
    create(node.kafka)
    produce(node.kafka, 0, COUNT)
    until_front_is_gone(node, COUNT // 2)
    end = tier_end(node.kafka)
    node.kill()
    (cluster_id,) = [it.name for it in (tmp_path / "bucket").iterdir()]
    backup = str(tmp_path / "backup")
    run(
        "backup",
        "create",
        backup,
        "--store",
        (tmp_path / "bucket").as_uri(),
        "--cluster-id",
        cluster_id,
    )
    with Cluster(
        tmp_path / "new", nodes=1, settings=settings_of(tmp_path / "new"), nats=NoNats()
    ) as new:
        run("backup", "restore", "stream", backup, TOPIC, "--bootstrap-server", new[1].kafka)
        assert consume(new[1].kafka, 0, end) == [(number, value(number)) for number in range(end)]
        assert listed(new[1].kafka, LATEST) == end >= COUNT // 2


def run(*arguments: str) -> None:
    done = run_streamlog(arguments, os.environ, timeout_s=60.0)
    assert done.returncode == 0, done.stdout + done.stderr


def tier_end(kafka: str) -> int:
    """What the store has, once it has all that is closed."""
    command = ("stream", "info", TOPIC, "--json", "--bootstrap-server", kafka)
    while True:
        told = json.loads(run_streamlog(command, os.environ, timeout_s=60.0).stdout)
        tier = told["partitions"][0]["tier"]
        if not tier["lag_bytes"]:
            return int(tier["tiered_end_offset"])


def test_a_deleted_topic_leaves_nothing_in_the_store(node: NodeProcess, tmp_path: Path) -> None:
    create(node.kafka)
    produce(node.kafka, 0, 1_000)
    wait_until(lambda: bool(tiered_objects(tmp_path)), "something is copied", 30)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    wait_until(
        lambda: not [it for it in (tmp_path / "bucket").glob("**/*") if it.is_file()],
        "all is gone",
        60,
    )
