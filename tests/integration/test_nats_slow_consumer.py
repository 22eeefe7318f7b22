"""A nats-server cuts off whoever does not take what it has for them: seen, counted, told."""

import json
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from tests.secured_nats import ConfiguredNats
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

CUTS = 'streamlog_nats_slow_consumer_disconnects_total{connection="ingest"}'
PAYLOAD = b"x" * 500_000
PAYLOADS = 160
"""80 MB: more than the buffers of two sockets hold."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ConfiguredNats]:
    server = ConfiguredNats(tmp_path, 'max_pending: 1MB\nwrite_deadline: "500ms"\n')
    server.start()
    yield server
    server.kill()


@pytest.fixture
def node(tmp_path: Path, server: ConfiguredNats) -> Iterator[NodeProcess]:
    node = NodeProcess(1, tmp_path / "node")
    node.configure({"nats": {"servers": [server.url], "reconnect_backoff_ms": 50}})
    node.spawn()
    node.wait_ready()
    yield node
    node.kill()


def told(node: NodeProcess) -> list[dict[str, str]]:
    lines = (json.loads(line) for line in node.log_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line.get("event") == "NATS has cut this node off"]


async def test_a_node_that_stands_still_is_cut_off_and_comes_back(
    server: ConfiguredNats, node: NodeProcess
) -> None:
    client: Client = await nats.connect(server.url)
    js = client.jetstream(domain="streamlog")
    await js.add_stream(name="orders", subjects=["orders"])
    node.pause()
    for _ in range(PAYLOADS):
        await client.publish("orders", PAYLOAD)
        await client.flush(timeout=30)
    wait_until(lambda: "Slow Consumer" in server.log_text(), "nats-server cuts the node off")
    node.resume()
    wait_until(lambda: bool(told(node)), "the node tells of it")
    node.wait_ready()
    (line,) = told(node)
    assert "max_pending" in line["remedy"]
    assert node.metric(CUTS) == 1
    assert (await js.publish("orders", b"again", timeout=10)).stream == "orders"
    await client.close()


def test_a_server_that_was_restarted_has_cut_nobody_off(
    server: ConfiguredNats, node: NodeProcess
) -> None:
    name = "streamlog_nats_reconnects_total"
    for count in (1, 2):
        server.kill()
        server.start()
        wait_until(lambda n=count: node.metric(name) == n, "reconnected")  # type: ignore[misc]
    node.wait_ready()
    assert told(node) == []
    assert node.metric(CUTS) == 0
