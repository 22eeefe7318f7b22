"""Streams that nobody writes to: at rest, and awake with the next message, with nothing lost."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from confluent_kafka import Producer

from streamlog.client.cluster import Cluster as Client
from tests.history import Lane
from tests.integration.conftest import read_stream
from tests.local_node import LocalNode, until
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer, wait_until

STREAMS = 10


def open_logs(node: NodeProcess) -> set[str]:
    """The streams of which the process has files open."""
    found = set()
    for entry in Path(f"/proc/{node.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            folders = entry.readlink().parts
            if "streams" in folders:
                found.add(folders[folders.index("streams") + 1])
    return found


def is_auto_paused(description: dict[str, Any]) -> bool:
    return all(it["is_auto_paused"] for it in description["partitions"])


async def rests(client: Client, stream: str) -> bool:
    return is_auto_paused(await client.operate("streams.describe", {"name": stream}))


async def test_it_is_seen_and_costs_no_message(
    new_node: Callable[..., NodeProcess], nats_server: NatsServer
) -> None:
    node = new_node(idle_close_ms=300, retention_check_ms=50)
    node.start()
    async with Client.at(node.kafka) as management:
        for number in range(STREAMS):
            await management.operate("streams.create", {"config": {"name": f"s{number}"}})
        client = await nats.connect(nats_server.url)
        js = client.jetstream()
        for sequence in (1, 2):
            for number in range(STREAMS):
                assert (await js.publish(f"s{number}", b"%d" % sequence)).seq == sequence
            await until(lambda: not open_logs(node))
            details = await management.operate("streams.describe", {"name": "s0"})
            assert is_auto_paused(details) and not details["config"]["paused"]
        # From now on the next message wakes these two for good.
        for name in ("s0", "s1"):
            changes = [{"setting": "auto_pause_ms", "text": "0"}]
            await management.operate("streams.alter", {"name": name, "changes": changes})
            assert await rests(management, name)
        for number in range(100):  # nobody waits for an answer, and none is lost
            await client.publish("s1", b"more %d" % number)
        await js.publish("s1", b"last")
        assert not await rests(management, "s1")
        await client.close()
        assert [it.value for it in read_stream(node.kafka, "s0")] == [b"1", b"2"]
        assert await rests(management, "s0"), "readers do not end it"
        producer = Producer({"bootstrap.servers": node.kafka})
        producer.produce("s0", b"kafka")
        producer.flush(10)
        assert not await rests(management, "s0")
        node.kill()
        node.start()
        await until(lambda: open_logs(node) <= {"s0", "s1"})
        assert [it.value for it in read_stream(node.kafka, "s0")][2:] == [b"kafka"]
        assert len(read_stream(node.kafka, "s1")) == 103


async def test_each_replica_rests_and_the_next_leader_takes_the_next_message(
    tmp_path: Path,
) -> None:
    lane = Lane("rare")
    settings: dict[str, dict[str, object]] = {
        "log": {"idle_close_ms": 300, "retention_check_ms": 50}
    }
    with Cluster(tmp_path, settings=settings) as cluster:

        def all_rest() -> bool:
            return all(
                it.metric("streamlog_partitions_auto_paused") == 1 for it in cluster.running()
            )

        client = await nats.connect(cluster.nats.url)
        js = client.jetstream(domain="streamlog", timeout=5)
        await js.add_stream(name="rare", subjects=["rare"], num_replicas=3)
        assert (await client.jetstream().publish("rare", b"1")).seq == 1
        await asyncio.to_thread(wait_until, all_rest, "not all replicas rest")
        leader = await asyncio.to_thread(cluster.leader, lane)
        await asyncio.to_thread(cluster.kill, leader)
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(nats.errors.Error):
                    ack = await client.jetstream().publish(
                        "rare", b"2", timeout=1, headers={"Nats-Msg-Id": "two"}
                    )
                    break
                await asyncio.sleep(0.05)
        assert ack.seq == 2
        await client.close()
        await asyncio.to_thread(cluster.start, leader)
        await asyncio.to_thread(cluster.wait_settled, [lane])
        await asyncio.to_thread(wait_until, all_rest, "not all replicas rest again")
        assert await asyncio.to_thread(cluster.wait_replicated, lane) == 2
        assert [it.value for it in read_stream(cluster.servers, "rare")] == [b"1", b"2"]


async def test_ids_that_are_too_old_are_let_go_without_a_message(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlog.ingest.service.IDS_LOOK_S", 0.02)
    async with LocalNode(tmp_path, nats_server.url) as node:
        await node.create("s", duplicate_window_ms=200)
        client = await nats.connect(nats_server.url)
        for number in range(50):
            await client.jetstream().publish("s", b"x", headers={"Nats-Msg-Id": str(number)})
        await client.close()
        (ingest,) = node.source._ingests.values()
        assert len(ingest.deduplicator) > 0
        await until(lambda: len(ingest.deduplicator) == 0)
