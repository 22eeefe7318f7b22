"""NATS clients beside a producer with transactions, on one node: what they see, and for how long they are held up."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from confluent_kafka import Producer
from nats.js.api import ConsumerConfig, DeliverPolicy, StreamSource
from nats.js.errors import NotFoundError

from tests.in_process import streamlog
from tools.nodes.node_process import NodeProcess

TIMEOUT_MS = 3_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    settings: Any = {"nats": {"servers": [], "default_api_prefix": True}, "nats_listen": {}}
    node = NodeProcess(1, tmp_path, settings=settings)
    node.start()
    yield node
    node.stop()


class Transactions:
    """Of librdkafka."""

    def __init__(self, node: NodeProcess, name: str, timeout_ms: int = 60_000) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": node.kafka,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
            }
        )
        self._producer.init_transactions(30)

    def write(self, *values: str) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce("orders", value, headers={"subject": f"orders.{value}"})
        assert self._producer.flush(30) == 0

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(30)
        else:
            self._producer.abort_transaction(30)


async def fetched(js: Any, count: int, name: str) -> list[str]:
    """What a new consumer gets, as far as it comes within a moment."""
    config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, name=name)
    subscription = await js.pull_subscribe("", stream="orders", config=config)
    found: list[str] = []
    try:
        while len(found) < count:
            for message in await subscription.fetch(count - len(found), timeout=1):
                found.append(message.data.decode())
                await message.ack()
    except TimeoutError:
        pass
    return found


async def read_by_client(node: NodeProcess) -> list[str]:
    words = ("consume", "orders", "--bootstrap-server", node.kafka)
    told = await asyncio.to_thread(streamlog, words)
    assert not told.returncode, told.stderr
    return told.stdout.decode().splitlines()


async def test_nats_readers_see_whole_transactions(node: NodeProcess) -> None:
    client = await nats.connect(node.port_url)
    js = client.jetstream()
    await js.add_stream(name="orders", subjects=["orders.>"], allow_direct=True)
    first, second = (Transactions(node, name) for name in ("first", "second"))
    await js.publish("orders.a", b"a")
    first.write("aborted")
    first.end(commit=False)
    first.write("b", "c")
    second.write("open")
    first.end(commit=True)
    ends = time.monotonic() + 30
    while await read_by_client(node) != ["a", "b", "c"]:  # the marker comes after the answer
        assert time.monotonic() < ends
    ack = await js.publish("orders.d", b"d")  # at once
    assert ack.seq == 8
    assert await fetched(js, 6, "early") == ["a", "b", "c"]
    assert await read_by_client(node) == ["a", "b", "c"]
    for sequence in (2, 3, 6, 8):
        with pytest.raises(NotFoundError):
            await js.get_msg("orders", sequence)
    assert (await js.get_last_msg("orders", "orders.>")).data == b"c"
    assert (await js.stream_info("orders")).state.last_seq == 8
    await client.close()
    node.kill()
    node.start()
    client = await nats.connect(node.port_url)
    js = client.jetstream()
    assert await fetched(js, 6, "killed") == ["a", "b", "c"]
    second.end(commit=True)
    assert await fetched(js, 6, "late") == ["a", "b", "c", "open", "d"]
    assert await read_by_client(node) == ["a", "b", "c", "open", "d"]
    assert (await js.get_last_msg("orders", "orders.>")).data == b"d"
    state = (await js.stream_info("orders")).state
    assert state.messages == 5
    await client.close()


async def test_a_mirror_has_what_is_committed(node: NodeProcess) -> None:
    """With the sequences of its origin; a stream with sources has the messages in their order."""
    client = await nats.connect(node.port_url)
    js = client.jetstream()
    await js.add_stream(name="orders", subjects=["orders.>"])
    await js.add_stream(name="copy", mirror=StreamSource(name="orders"))
    await js.add_stream(name="taken", sources=[StreamSource(name="orders")])
    first, second = (Transactions(node, name) for name in ("first", "second"))
    await js.publish("orders.a", b"a")
    first.write("aborted")
    second.write("open")
    first.end(commit=False)
    first.write("b")
    first.end(commit=True)
    await js.publish("orders.c", b"c")

    async def kept(stream: str) -> list[tuple[int, bytes]]:
        found = []
        for sequence in range(1, (await js.stream_info(stream)).state.last_seq + 1):
            with contextlib.suppress(NotFoundError):
                found.append((sequence, (await js.get_msg(stream, sequence)).data or b""))
        return found

    async def until(wanted: list[bytes]) -> None:
        """Markers come after the answers to their producers, and may be behind what is published next."""
        ends = time.monotonic() + 30
        while True:
            orders, copy, taken = [await kept(it) for it in ("orders", "copy", "taken")]
            values = [[data for _, data in it] for it in (orders, taken)]
            if copy == orders and values == [wanted, wanted]:
                return
            assert time.monotonic() < ends, (orders, copy, taken)
            await asyncio.sleep(0.1)

    await until([b"a"])
    second.end(commit=True)
    await until([b"a", b"open", b"b", b"c"])
    await client.close()


async def test_nobody_is_held_up_for_longer_than_the_time_out(node: NodeProcess) -> None:
    client = await nats.connect(node.port_url)
    js = client.jetstream()
    await js.add_stream(name="orders", subjects=["orders.>"])
    slow = Transactions(node, "slow", TIMEOUT_MS)
    slow.write("never")
    began = time.monotonic()
    await js.publish("orders.a", b"a")
    found: list[str] = []
    while not found and time.monotonic() - began < 30:
        found = await fetched(js, 1, f"at{time.monotonic_ns()}")
    assert found == ["a"]
    assert time.monotonic() - began > TIMEOUT_MS / 1000 - 1
    await client.close()
