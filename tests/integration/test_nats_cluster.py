"""nats-servers in a cluster: nodes move between them, and nothing acknowledged is lost."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import nats
import pytest
from nats import errors
from nats.aio.client import Client as NatsClient
from nats.errors import NoRespondersError

from tests.history import Lane
from tests.integration.campaign import campaign
from tests.local_node import LocalNode
from tests.secured_nats import ConfiguredNats, NatsCluster
from tools.nodes.cluster import Cluster
from tools.nodes.ports import free_port


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
async def test_servers_that_are_killed_one_after_the_other(tmp_path: Path, rounds: int) -> None:
    """The nodes are told of one of them only; they know the others from its greeting."""
    lanes = [Lane("first"), Lane("second")]
    servers = NatsCluster(tmp_path / "nats")
    with Cluster(tmp_path, nats=servers) as cluster:

        def faults() -> None:
            for _ in range(rounds):
                for server in servers.servers:
                    server.kill()
                    threading.Event().wait(0.3)
                    for node in cluster.nodes.values():
                        node.wait_ready()
                    server.start()

        await campaign(cluster, lanes, faults)
        reconnects = [node.metric("streamlog_nats_reconnects_total") for node in cluster.running()]
        assert sum(reconnects) >= len(cluster.nodes) * rounds
        assert all("has cut this node off" not in node.log_text() for node in cluster.running())


class Route:
    """The one way between two nats-servers, which can be closed."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._is_open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._ways: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Route"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        try:
            yield self
        finally:
            server.close()
            self.cut()
            if self._ways:
                await asyncio.wait(self._ways)

    def cut(self) -> None:
        self._is_open = False
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_open = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.transport.abort()
            return
        way = asyncio.current_task()
        assert way is not None
        self._ways.add(way)
        self._writers.add(writer)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(far_writer)
        if not self._is_open:  # since a moment ago
            writer.transport.abort()
            far_writer.transport.abort()
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


async def test_a_publisher_on_the_other_side_of_a_partition_of_nats(tmp_path: Path) -> None:
    """Nobody listens on its side: it hears so at once, and goes on when the route is back.

    What was on its way when the route broke is never answered.
    """
    listening = free_port()
    head = 'cluster {{ name: "c", no_advertise: true, listen: "127.0.0.1:{}"'
    near = ConfiguredNats(tmp_path, f"{head.format(listening)} }}\n", name="near")
    route = Route(listening)
    routes = f', routes: ["nats://127.0.0.1:{route.port}"]'
    far = ConfiguredNats(tmp_path, f"{head.format(free_port())}{routes} }}\n", name="far")
    try:
        async with route.running():
            near.start()
            far.start()
            async with LocalNode(tmp_path / "data", near.url) as node:
                await node.create("orders")
                client = await nats.connect(far.url)
                await _until_stored(client)
                route.cut()
                with pytest.raises(NoRespondersError):
                    async with asyncio.timeout(20):
                        while True:
                            with suppress(errors.TimeoutError):
                                await client.request("orders", b"x", timeout=0.5)
                assert node.source.is_connected
                route.mend()
                await _until_stored(client)
                await client.close()
    finally:
        near.kill()
        far.kill()


async def _until_stored(client: NatsClient) -> None:
    """A publisher that tries again until somebody listens."""
    async with asyncio.timeout(20):
        while True:
            try:
                answer = await client.request("orders", b"x", timeout=5)
            except (NoRespondersError, errors.TimeoutError):
                await asyncio.sleep(0.02)
            else:
                assert json.loads(answer.data)["stream"] == "orders"
                return
