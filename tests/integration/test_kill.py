"""kill -9 at random moments under load: what was acknowledged is there, once, in order."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import nats
import pytest
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

STREAM = "kill"
SEQUENTIAL = 12
"""Publishers that wait for each ack: their order must be kept."""
PIPELINED = 4
"""Publishers with many messages in flight, whose retries may overtake each other."""
WINDOW = 32
ACK_TIMEOUT_S = 1.0
RETRY_S = 0.02


@dataclass
class Published:
    """What the publishers know. ``acked``: id -> the sequence in its ack, once that has arrived."""

    acked: dict[str, int] = field(default_factory=dict)
    sent: dict[str, bytes] = field(default_factory=dict)
    stopping: bool = False


def payload(identity: str) -> bytes:
    """Content that says whose it is and has a length of its own."""
    seed = random.Random(identity)
    return f"{identity} ".encode() + seed.randbytes(seed.randrange(2000))


async def publish_until_acked(
    context: JetStreamContext, published: Published, identity: str
) -> None:
    """Publish with one ``Nats-Msg-Id`` until the ack comes, across any number of crashes."""
    published.sent[identity] = payload(identity)
    subject = f"kill.{identity.partition(':')[0]}"
    while True:
        try:
            ack = await context.publish(
                subject,
                published.sent[identity],
                timeout=ACK_TIMEOUT_S,
                headers={"Nats-Msg-Id": identity},
            )
        except NatsError:
            await asyncio.sleep(RETRY_S)
            continue
        published.acked[identity] = ack.seq
        return


async def sequential(context: JetStreamContext, published: Published, name: str) -> None:
    number = 0
    while not published.stopping:
        await publish_until_acked(context, published, f"{name}:{number}")
        number += 1


async def pipelined(context: JetStreamContext, published: Published, name: str) -> None:
    number = 0
    while not published.stopping:
        window = range(number, number + WINDOW)
        async with asyncio.TaskGroup() as tasks:
            for i in window:
                tasks.create_task(publish_until_acked(context, published, f"{name}:{i}"))
        number += WINDOW


async def cycles(node: Any, context: JetStreamContext, count: int, seed: int) -> Published:
    """``count`` times: publish for a while, kill, start again."""
    published, choose = Published(), random.Random(seed)
    async with asyncio.TaskGroup() as tasks:
        for i in range(SEQUENTIAL):
            tasks.create_task(sequential(context, published, f"s{i}"))
        for i in range(PIPELINED):
            tasks.create_task(pipelined(context, published, f"p{i}"))
        for _ in range(count):
            await asyncio.sleep(choose.uniform(0.05, 1.5))
            node.kill()
            if choose.random() < 0.3:  # and once more while it recovers
                node.spawn()
                await asyncio.sleep(choose.uniform(0.0, 1.0))
                node.kill()
            await asyncio.to_thread(node.start)
        await asyncio.sleep(0.5)
        published.stopping = True
    return published


def check(published: Published, records: list[Any]) -> None:
    """Nothing acknowledged is missing, doubled, changed or out of order."""
    assert [record.offset for record in records] == list(range(len(records)))
    identities = [dict(record.headers)["Nats-Msg-Id"].decode() for record in records]
    assert len(set(identities)) == len(identities), "a message is stored twice"
    assert set(identities) == set(published.sent) == set(published.acked)
    for identity, record in zip(identities, records, strict=True):
        assert record.value == published.sent[identity]
        assert published.acked[identity] == record.offset + 1, "the ack named another sequence"
        subject = dict(record.headers)["subject"].decode()
        assert subject == f"kill.{identity.partition(':')[0]}"
    for i in range(SEQUENTIAL):
        mine = [int(name.split(":")[1]) for name in identities if name.startswith(f"s{i}:")]
        assert mine == list(range(len(mine))), "a publisher's order is broken"


async def run(
    nats_server: Any,
    node: Any,
    read_all: Callable[..., list[Any]],
    *,
    sync: str,
    count: int,
    seed: int,
) -> None:
    node.start()
    client = await nats.connect(nats_server.url)
    try:
        context = client.jetstream(domain="streamlog")
        config = StreamConfig(name=STREAM, subjects=["kill.>"], metadata={"streamlog.sync": sync})
        await context.add_stream(config)
        published = await cycles(node, context, count, seed)
    finally:
        await client.close()
    assert len(published.acked) > 20 * count
    check(published, await asyncio.to_thread(read_all, node.kafka, STREAM))
    assert node.stop() == 0
    await asyncio.to_thread(node.start)
    check(published, await asyncio.to_thread(read_all, node.kafka, STREAM))


@pytest.mark.parametrize("sync", ["commit", "interval", "os"])
async def test_nothing_acknowledged_is_lost_by_three_kills(
    nats_server: Any, new_node: Callable[..., Any], read_all: Callable[..., list[Any]], sync: str
) -> None:
    node = new_node(segment_bytes=256 * 1024)
    await run(nats_server, node, read_all, sync=sync, count=3, seed=20261121)


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["commit", "os"])
async def test_nothing_acknowledged_is_lost_by_twenty_kills(
    nats_server: Any, new_node: Callable[..., Any], read_all: Callable[..., list[Any]], sync: str
) -> None:
    node = new_node(segment_bytes=1024 * 1024)
    await run(nats_server, node, read_all, sync=sync, count=20, seed=7)
