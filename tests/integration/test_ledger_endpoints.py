"""The endpoints of a ledger over a real nats-server: flow, parts, limits, readers that go away."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from nats.aio.client import Client

from streamlog.config import NatsSection
from streamlog.errors import NodeUnreachable, Overloaded, RequestTimedOut
from streamlog.ledger import api, endpoints
from streamlog.ledger.api import LedgerClient
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.encoding import decode_block, decode_records
from streamlog.ledger.core.signing import Keyring, Signer
from streamlog.ledger.core.verifier import ChainVerifier
from streamlog.ledger.endpoints import NatsEndpoints
from streamlog.metadata.commands import Granted
from tests.kafka_node import KafkaNode, until
from tests.ledger_channel import ServedChannel, config_of, limits
from tools.nodes.server_process import NatsServer

SIGNER = Signer("node-1", b"n" * 32)
MIB = 1 << 20


class World(NamedTuple):
    """A channel of blocks of three records, served at one nats-server, and a client of its own."""

    served: ServedChannel
    endpoints: NatsEndpoints
    client: LedgerClient
    url: str


@pytest.fixture
def genesis() -> ChannelConfig:
    return config_of("c", limits=limits(preferred_max_bytes=8 * MIB, absolute_max_bytes=8 * MIB))


@pytest.fixture
async def world(
    tmp_path: Path, nats_server: NatsServer, genesis: ChannelConfig
) -> AsyncIterator[World]:
    async with KafkaNode() as node, asyncio.TaskGroup() as tasks:
        node.metadata.result = Granted(1, {"first": 7, "end": 1_007})
        opened = NatsEndpoints(
            NatsSection(servers=(nats_server.url,)), node="node-1", signer=SIGNER
        )
        opened.begin(tasks)
        await opened.connect()
        async with (
            ServedChannel(tmp_path, node.address, genesis=genesis) as served,
            LedgerClient(nats_server.url) as client,
        ):
            await served.ready()
            await opened.open(served.channel)
            yield World(served, opened, client, nats_server.url)
        await opened.close()


async def fill(world: World, count: int, size: int = 10) -> None:
    """Until all are in blocks. What the channel itself says meanwhile has offsets, too."""
    last = 0
    for start in range(0, count, 50):
        numbers = range(start, min(start + 50, count))
        acks = await asyncio.gather(
            *(world.client.broadcast("c", b"%d " % n + b"x" * size) for n in numbers)
        )
        last = max(last, *(ack.offset for ack in acks))
    await world.served.until(
        lambda: (
            world.served.channel.info()["pending"] == 0
            and (world.served.channel.tip or 0)
            and world.served.channel.tip.next_offset > last
        )
    )


async def test_a_plain_client_broadcasts_and_has_blocks_delivered(world: World, nc: Client) -> None:
    headers = {"Streamlog-Key": "k", "h": "v"}
    answer = await nc.request("ledger.c.broadcast", b"one", headers=headers)
    assert json.loads(answer.data)["channel"] == "c"
    answer = await nc.request("ledger.c.broadcast.node-1", b"two")
    assert json.loads(answer.data)["node"] == "node-1"
    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox)
    await nc.publish("ledger.c.deliver", b'{"start": 0, "stop": 2}', reply=inbox)
    found, ended = [], None
    while ended is None:
        message = await subscription.next_msg(timeout=10)
        headers = message.headers or {}
        if "Streamlog-Ledger-Block" in headers:
            found.append(decode_block(message.data))
        ended = headers.get("Streamlog-Ledger-End")
        if message.reply:
            await message.respond(b"")
    assert ended == "2"
    assert [block.number for block in found] == [0, 1]
    first = next(decode_records(found[1].data))
    assert (first.key, first.value, first.headers) == (b"k", b"one", (("h", b"v"),))


@pytest.mark.parametrize(
    ("subject", "payload", "kind"),
    [
        ("ledger.c.deliver", b'{"start": "first"}', "InvalidRequest"),
        ("ledger.c.deliver", b'{"start": 9, "stop": 9999, "behavior": "fail_if_not_ready"}',
         "BlockNotReady"),
    ],
)  # fmt: skip
async def test_a_delivery_that_cannot_be_is_refused_with_a_reason(
    world: World, nc: Client, subject: str, payload: bytes, kind: str
) -> None:
    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox)
    await nc.publish(subject, payload, reply=inbox)
    while True:
        message = await subscription.next_msg(timeout=10)
        if "Streamlog-Ledger-End" in (message.headers or {}):
            assert json.loads(message.data)["error"]["kind"] == kind
            return


async def test_blocks_are_delivered_to_no_door(world: World, nc: Client) -> None:
    """They would be records again, in blocks that are delivered in turn: the ledger would grow for
    ever of one request.
    """
    await fill(world, 3)
    for subject in ("ledger.c.broadcast", "ledger.c.broadcast.node-1", "$JS.API.STREAM.NAMES"):
        await nc.publish("ledger.c.deliver", b'{"start": 0}', reply=subject)
        await nc.publish("ledger.c.info", b"", reply=subject)
        await nc.publish("ledger.c.broadcast", b"not taken", reply=subject)
    await nc.flush()
    await world.client.info("c")
    await world.client.broadcast("c", b"4")
    await world.client.broadcast("c", b"5")
    await world.client.broadcast("c", b"6")
    await world.served.height(3)
    values = [value for block in await world.served.values() for value in block]
    assert values[-3:] == [b"4", b"5", b"6"], values


async def test_a_block_that_is_larger_than_a_message_comes_in_parts(world: World) -> None:
    await fill(world, 6, 900_000)
    verifier, ring = ChainVerifier(channel="c"), Keyring([SIGNER.identity])
    async for block in world.client.deliver("c", stop="newest"):
        verifier.take(block.encoded)
        assert block.signature is not None
        assert ring.is_block_signed(block.signature, block.block.hash)
    report = verifier.report()
    assert report.records == 6
    assert report.height == world.served.channel.ledger.height
    largest = max(len(block.encoded) for block in await world.served.blocks())
    assert largest > 2 * MIB


async def test_a_reader_that_goes_away_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "ALIVE_S", 0.05)
    blocks = world.client.deliver("c")
    assert (await anext(blocks)).number == 0
    assert len(world.endpoints._deliveries) == 1
    await blocks.aclose()
    await until(lambda: not world.endpoints._deliveries)


async def test_a_reader_that_answers_no_more_is_let_go(
    world: World, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent no more than a window, however much there is."""
    monkeypatch.setattr(endpoints, "SILENCE_S", 0.3)
    await fill(world, 60, 200_000)
    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox)
    await nc.publish("ledger.c.deliver", b"", reply=inbox)
    size_bytes = 0
    while True:
        message = await subscription.next_msg(timeout=10)
        size_bytes += len(message.data)
        if "Streamlog-Ledger-End" in (message.headers or {}):
            break
    assert json.loads(message.data)["error"]["kind"] == "RequestTimedOut"
    assert size_bytes < 6 * MIB
    await until(lambda: not world.endpoints._deliveries)


async def test_a_node_that_falls_silent_is_asked_again_for_what_follows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "SILENCE_S", 0.3)
    monkeypatch.setattr(endpoints, "ALIVE_S", 1.0)
    await fill(world, 9)
    blocks = world.client.deliver("c")
    assert (await anext(blocks)).number == 0
    await asyncio.sleep(0.5)  # longer than it may be silent; it has nothing to deliver meanwhile
    await fill_more(world)
    numbers = [(await anext(blocks)).number for _ in range(world.served.channel.ledger.height - 1)]
    assert numbers == list(range(1, world.served.channel.ledger.height))
    await blocks.aclose()
    with pytest.raises(RequestTimedOut):
        async for _ in world.client.deliver("c", "newest", node="node-1"):
            pass


async def fill_more(world: World) -> None:
    height = world.served.channel.ledger.height
    await world.client.broadcast("c", b"more")
    await world.served.height(height + 1)


async def test_too_much_at_once_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BROADCASTS_MAX", 0)
    with pytest.raises(Overloaded, match="broadcasts are under way"):
        await world.client.broadcast("c", b"")
    monkeypatch.setattr(endpoints, "DELIVERIES_MAX", 0)
    with pytest.raises(Overloaded, match="deliveries are under way"):
        await anext(world.client.deliver("c"))


async def test_blocks_are_cut_while_nats_is_away(
    world: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(world, 3)
    height = world.served.channel.ledger.height
    nats_server.kill()
    await world.served.broadcast(b"in this process")
    await world.served.height(height + 1)
    with pytest.raises(NodeUnreachable):
        async with asyncio.timeout(10):
            await world.client.broadcast("c", b"")
    nats_server.start()
    async with LedgerClient(world.url) as again:
        for _ in range(100):
            try:
                info: dict[str, Any] = await again.info("c", node="node-1")
                break
            except NodeUnreachable:
                await asyncio.sleep(0.1)
        assert info["height"] == height + 1
