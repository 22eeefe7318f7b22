"""Backups in both directions between a node and releases of nats-server: each reads what the other wrote."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import nats
import pytest

from tests.integration.jetstream_pair import JetStreamServer
from tests.integration.test_port import PortNode, port_node
from tests.integration.test_snapshots import Stand, moved
from tests.peers.test_leaf_releases import RELEASES, binary

pytestmark = [pytest.mark.peers, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("releases")


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[PortNode]:
    node = port_node(folder / "node")
    node.start()
    yield node
    node.kill()
    assert "Traceback" not in node.log_text()


@pytest.fixture(params=RELEASES)
async def stands(
    request: pytest.FixtureRequest, folder: Path, tmp_path: Path, node: PortNode
) -> AsyncIterator[tuple[Stand, Stand]]:
    server = JetStreamServer(tmp_path)
    server.command[0] = str(binary(folder, request.param))
    server.start()
    try:
        async with AsyncExitStack() as stack:
            clients = [await nats.connect(it.url) for it in (server, node)]
            for it in clients:
                stack.push_async_callback(it.close)
            yield (
                Stand("nats-server", clients[0], "$JS.API"),
                Stand("streamlog", clients[1], "$JS.streamlog.API"),
            )
    finally:
        server.kill()


async def fill(stand: Stand, name: str) -> None:
    await stand.create(name)
    await stand.publish(name, 40, A="b")
    await stand.durable(name, "w", filter_subject=f"{name}.*")
    got = await stand.fetch(name, "w", 10)
    for message in [*got[:4], got[6]]:
        await message.ack_sync()
    for sequence in (5, 17):
        await stand.api(f"STREAM.MSG.DELETE.{name}", {"seq": sequence})
    await stand.api(f"STREAM.PURGE.{name}", {"seq": 3})


@pytest.mark.parametrize("to_node", [False, True], ids=["to nats-server", "to streamlog"])
async def test_stream_and_its_consumer_are_the_same(
    stands: tuple[Stand, Stand], to_node: bool, request: pytest.FixtureRequest
) -> None:
    source, target = stands if to_node else reversed(stands)
    name = f"s{abs(hash(request.node.name)) % 10**9}"
    await fill(source, name)
    before, consumer = await source.messages(name), await source.consumer(name, "w")
    await moved(source, target, name)
    assert await target.messages(name) == before
    assert await target.consumer(name, "w") == consumer
