"""Copies of messages without an id that come to a node when it leads, and which the leader before it has stored: on
three nodes, with what NATS or a link has for one of them held back.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import nats
import pytest
from nats.aio.client import Client

from tests.integration.conftest import read_stream
from tests.integration.cut_line import CutLine
from tests.integration.test_mirrors import hub_in
from tests.integration.test_mirrors_failures import LeafHub
from tests.integration.test_partitioning import kafkas
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.server_process import NatsServer

PARTITIONS: Final = [("o", number) for number in range(3)]
COUNT: Final = 20
LATE: Final = 2
"""The node whose copies are held back."""

World = tuple[Cluster, str, CutLine]
"""Where to publish, and the way to that node."""


def clients_of_nats(folder: Path) -> World:
    server = NatsServer(folder)
    line = CutLine(int(server.url.rpartition(":")[2]))
    cluster = Cluster(folder, nats=server)
    cluster[LATE].add_settings(nats={"servers": [f"nats://127.0.0.1:{line.port}"]})
    return cluster, server.url, line


def leafnodes(folder: Path) -> World:
    hub = hub_in(folder / "hub")
    line = CutLine(hub.leaf_port)
    cluster = Cluster(folder, nats=LeafHub(hub), settings={"nats_listen": {}})
    cluster[LATE].add_settings(nats={"servers": [f"nats-leaf://127.0.0.1:{line.port}"]})
    return cluster, hub.url, line


def ports_alone(folder: Path) -> World:
    cluster = Cluster(folder, nats=NoNats(), settings={"nats_listen": {}})
    line = CutLine(int(cluster[LATE].port_url.rpartition(":")[2]))
    cluster[LATE].add_settings(nats_listen={"advertised_port": line.port})
    return cluster, cluster[3].port_url, line


def elect(cluster: Cluster, partition: int, leader: int) -> None:
    place = ("o", str(partition))
    cluster.command("cluster", "elect-leader", *place, "--leader", str(leader))
    cluster.wait_settled(PARTITIONS)
    assert cluster.leader(("o", partition)) == leader


async def published(client: Client, subject: str, payload: bytes, message_id: str = "") -> int:
    """With an id again and again, without one once. How often it was published again."""
    headers = {"Nats-Msg-Id": message_id} if message_id else None
    async with asyncio.timeout(20):
        for repeats in count():
            try:
                answer = await client.request(subject, payload, timeout=5, headers=headers)
            except (nats.errors.Error, TimeoutError):
                if not message_id:
                    raise
                continue
            if "seq" in json.loads(answer.data):
                return repeats
            assert message_id, answer.data
            await asyncio.sleep(0.05)
    raise AssertionError("the time has run out")


@pytest.mark.parametrize("make", [clients_of_nats, leafnodes, ports_alone])
async def test_new_leader_stores_no_copy_of_what_the_former_one_has_stored(
    tmp_path: Path, make: Callable[[Path], World]
) -> None:
    cluster, url, line = make(tmp_path)
    subject = next(f"o.{it}" for it in range(99) if kafkas(b"%d" % it, 3) == 0)
    with cluster:
        await asyncio.to_thread(
            cluster.command, "stream", "add", "o", "--subject", "o.*", "--partitions", "3",
            "--replicas", "3", "--partition-by", "tokens:2",
        )  # fmt: skip
        await asyncio.to_thread(cluster.wait_settled, PARTITIONS)
        for partition in range(3):
            await asyncio.to_thread(elect, cluster, partition, partition + 1)
        client = await nats.connect(url)
        try:
            await published(client, subject, b"first", "first")
            line.hold()
            for number in range(COUNT):
                await published(client, subject, b"%d" % number)
            repeats = await published(client, subject, b"with an id", "held")
            await asyncio.to_thread(elect, cluster, 0, LATE)
            line.flow()
            repeats += await published(client, subject, b"last", "last")
        finally:
            await client.close()
            line.flow()
        records = await asyncio.to_thread(read_stream, cluster.servers, "o")
        found = Counter(it.value for it in records)
        expected = [b"first", b"with an id", b"last", *(b"%d" % it for it in range(COUNT))]
        assert found == dict.fromkeys(expected, 1)
        assert cluster[LATE].metric("streamlog_publish_late_copies_total") == COUNT
        duplicates = cluster[LATE].metric("streamlog_publish_duplicates_total")
        assert 1 <= duplicates <= 1 + repeats, "one came late, and what was published again"
    line.close()
