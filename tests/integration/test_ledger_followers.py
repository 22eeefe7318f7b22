"""A node that follows: catches up, takes nobody's word, cuts when it is named, and follows on."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from streamlog.ledger.api import LedgerClient
from streamlog.ledger.core.channel_config import OrderingNode
from streamlog.ledger.core.encoding import decode_block
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.protocol import END_HEADER, NUMBER_HEADER
from tools.nodes.ordering_process import OrderingProcess
from tools.nodes.server_process import wait_until

LIMITS = {"batch_size": 5, "batch_timeout_ms": 200}
NewNode = Callable[..., OrderingProcess]


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """One for each test, over a stream of its own."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:80].strip("-")


@pytest.fixture
def new_node(tmp_path: Path, dev: Any, channel: str) -> Iterator[NewNode]:
    """Makes nodes of the channel, of which ``a`` alone is a consenter in the beginning."""
    genesis = tmp_path / "genesis.json"
    genesis.write_text(json.dumps({"limits": LIMITS, "consenters": [{"name": "a"}]}))
    nodes: list[OrderingProcess] = []

    def create(name: str, *options: str) -> OrderingProcess:
        options = ("--genesis", str(genesis), *options)
        made = OrderingProcess(
            name, tmp_path / name, channel, *options, servers=lambda: dev.kafka, nats=dev.nats
        )
        nodes.append(made)
        return made

    yield create
    for node in nodes:
        node.kill()


@pytest.fixture
async def ledger(dev: Any) -> AsyncIterator[LedgerClient]:
    async with LedgerClient(dev.nats) as client:
        yield client


async def broadcast(ledger: LedgerClient, channel: str, count: int, node: str = "a") -> None:
    for number in range(count):
        await ledger.broadcast(channel, f"{number}".encode(), node=node)


def wait_height(height: int, *nodes: OrderingProcess) -> None:
    def reached() -> bool:
        return all(node.height == height for node in nodes)

    try:
        wait_until(reached, f"height {height}")
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {[node.metrics() for node in nodes]}") from None


async def consenters(ledger: LedgerClient, channel: str, *names: str, node: str = "a") -> None:
    config = await ledger.config(channel, node=node)
    named = tuple(OrderingNode(name=name) for name in names)
    update = {"sequence": config.sequence + 1, "consenters": named}
    ack = await ledger.configure(config.model_copy(update=update), node=node)
    assert ack.block is not None


async def test_a_follower_cuts_when_it_is_named_and_follows_again(
    new_node: NewNode, ledger: LedgerClient, channel: str
) -> None:
    a, f = new_node("a"), new_node("f")
    a.start()
    await broadcast(ledger, channel, 20)
    f.start()
    wait_height(5, a, f)
    assert f.metrics()["consenter"] == 0
    assert f.metrics()["follower_lag_blocks"] == 0
    assert (await ledger.info(channel, node="f"))["role"] == "follower"

    await consenters(ledger, channel, "a", "f")
    wait_until(lambda: f.metrics()["consenter"] == 1, "f is a consenter")
    a.kill()
    await broadcast(ledger, channel, 7, node="f")
    wait_height(8, f)
    assert f.metrics()['cuts_total{reason="time"}'] == 1

    a.start()
    wait_height(8, a)
    await consenters(ledger, channel, "a")
    wait_until(lambda: f.metrics()["consenter"] == 0, "f is a follower again")
    await broadcast(ledger, channel, 5)
    wait_height(10, a, f)
    assert a.segments() == f.segments()


async def test_a_follower_that_was_away_and_damaged_pulls_what_it_lacks(
    new_node: NewNode, ledger: LedgerClient, channel: str
) -> None:
    a, f = new_node("a"), new_node("f")
    a.start()
    f.start()
    await broadcast(ledger, channel, 20)
    wait_height(5, a, f)
    f.kill()
    (file,) = f.directory.glob("*/blocks/*.log")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    await broadcast(ledger, channel, 100)
    wait_height(25, a)
    f.start()
    wait_height(25, f)
    assert a.stop() == f.stop() == 0
    assert a.segments() == f.segments()


async def test_broadcast_to_block_is_timed(
    new_node: NewNode, ledger: LedgerClient, channel: str
) -> None:
    a = new_node("a")
    a.start()
    await broadcast(ledger, channel, 5)
    wait_height(2, a)
    found = a.metrics()
    assert found["records_total"] == found["broadcast_to_block_seconds_count"] == 5
    assert found["commit_seconds_count"] == found['broadcasts_total{outcome="ok"}'] == 5
    assert 0 < found["commit_seconds_sum"] < found["broadcast_to_block_seconds_sum"]
    assert found['cuts_total{reason="records"}'] == 1


async def test_a_node_joins_at_a_block_or_not_at_all(
    new_node: NewNode, ledger: LedgerClient, channel: str
) -> None:
    a = new_node("a")
    a.start()
    await broadcast(ledger, channel, 20)
    wait_height(5, a)
    join = decode_block(a.blocks()[3])
    right = new_node("r", "--join", f"3:{join.hash.hex()}")
    wrong = new_node("w", "--join", f"3:{bytes(32).hex()}")
    right.start()
    wrong.start()
    wait_height(5, right)

    def told() -> bool:
        return wrong.metrics().get('rejected_total{reason="join-block"}', 0) > 0

    wait_until(told, "the peer is refused")
    info = await ledger.info(channel, node="w")
    assert (info["height"], "diverged" in info["problem"]) == (1, True), info


@pytest.mark.parametrize("whose", ["its own", "another's"])
async def test_a_block_is_taken_with_a_consenter_s_signature_alone(
    new_node: NewNode, ledger: LedgerClient, tmp_path: Path, whose: str
) -> None:
    seeds = {name: tmp_path / f"{name}.key" for name in ("its own", "another's")}
    for number, path in enumerate(seeds.values()):
        path.write_text(bytes([number] * 32).hex())
    key = Signer("a", bytes(32)).identity.public_key
    a, f = (new_node(name, "--key", str(seeds[whose])) for name in "af")
    genesis = {"limits": LIMITS, "consenters": [{"name": "a", "public_key": key}]}
    (tmp_path / "genesis.json").write_text(json.dumps(genesis))
    a.start()
    await broadcast(ledger, a.channel, 20)
    f.start()
    if whose == "its own":
        wait_height(5, a, f)
        return

    def refused() -> bool:
        return f.metrics().get('rejected_total{reason="signature"}', 0) > 0

    wait_until(refused, "the signature is refused")
    assert f.height == 1


class Liar:
    """Claims a great height, and gives a block whose data are others."""

    def __init__(self, client: Client, block: bytes) -> None:
        self._client = client
        self._block = block[:-1] + bytes([block[-1] ^ 1])

    async def info(self, message: Msg) -> None:
        await message.respond(json.dumps({"height": 1_000}).encode())

    async def deliver(self, message: Msg) -> None:
        start = json.loads(message.data)["start"]
        headers = {NUMBER_HEADER: str(start)}
        await self._client.publish(message.reply, self._block, headers=headers)
        await self._client.publish(message.reply, b"", headers={END_HEADER: str(start + 1)})


async def test_a_liar_is_refused_and_another_asked(
    new_node: NewNode, ledger: LedgerClient, channel: str, dev: Any
) -> None:
    import nats

    a = new_node("a")
    a.start()
    await broadcast(ledger, channel, 20)
    wait_height(5, a)
    client = await nats.connect(dev.nats)
    try:
        liar = Liar(client, a.blocks()[1])
        await client.subscribe(f"ledger.{channel}.info.liar", cb=liar.info)
        await client.subscribe(f"ledger.{channel}.deliver.liar", cb=liar.deliver)
        await client.flush()
        f = new_node("f", "--peer", "liar")
        await asyncio.to_thread(f.start)  # the liar is in this loop
        await asyncio.to_thread(wait_height, 5, f)
        assert f.metrics()['rejected_total{reason="corrupt"}'] == 1
        assert f.stop() == a.stop() == 0
        assert f.blocks() == a.blocks()
    finally:
        await client.close()
