"""Streams that begin at a sequence of their own. What JetStream does is looked at beside a real nats-server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from nats.aio.client import Client

from tests.integration.test_consumer_retention import Stand, servers, stand
from tests.integration.test_consumers_cluster import FAILED, SETTINGS, connected
from tools.nodes.cluster import Cluster, NoNats

__all__ = ["servers", "stand"]

FIRST = 1_000_000_000_000


async def ends(stand: Stand, stream: str) -> tuple[int, int, int]:
    state = (await stand.request(f"STREAM.INFO.{stream}"))["state"]
    return state["messages"], state["first_seq"], state["last_seq"]


@pytest.mark.parametrize("first", [0, 1, 2, 100, FIRST])
async def test_messages_have_sequences_from_the_first_on(stand: Stand, first: int) -> None:
    stream = await stand.stream("limits", first_seq=first)
    begin = max(1, first)
    assert await ends(stand, stream) == (0, first, begin - 1 if first else 0)
    acks = [await stand.js.publish(f"{stream}.a", b"%d" % i) for i in range(3)]
    assert [ack.seq for ack in acks] == [begin, begin + 1, begin + 2]
    assert await ends(stand, stream) == (3, begin, begin + 2)
    message = await stand.js.get_msg(stream, begin)
    assert (message.seq, message.data) == (begin, b"0")
    listed = (await stand.request("STREAM.LIST"))["streams"]
    configs = {it["config"]["name"]: it for it in listed}
    assert configs[stream]["config"].get("first_seq", 0) == first
    assert configs[stream]["state"]["first_seq"] == begin


async def test_purges_go_on_behind_the_first(stand: Stand) -> None:
    stream = await stand.stream("limits", first_seq=100)
    assert (await stand.request(f"STREAM.PURGE.{stream}"))["purged"] == 0
    assert await ends(stand, stream) == (0, 100, 99)
    for _ in range(3):
        await stand.js.publish(f"{stream}.a", b"")
    assert (await stand.request(f"STREAM.PURGE.{stream}", seq=50))["purged"] == 0
    assert (await stand.request(f"STREAM.PURGE.{stream}", seq=101))["purged"] == 1
    assert await ends(stand, stream) == (2, 101, 102)
    assert (await stand.request(f"STREAM.PURGE.{stream}"))["purged"] == 2
    assert await ends(stand, stream) == (0, 103, 102)


@pytest.mark.parametrize("start", [1, 99, 100, 101])
async def test_consumers_begin_where_the_stream_does(stand: Stand, start: int) -> None:
    stream = await stand.stream("limits", first_seq=100)
    config = {"deliver_policy": "by_start_sequence", "opt_start_seq": start, "mem_storage": True}
    assert not await stand.consumer(stream, "c", **config)
    assert not await stand.consumer(stream, "all")
    for i in range(3):
        await stand.js.publish(f"{stream}.a", b"%d" % i)
    for consumer, begin in (("c", max(start, 100)), ("all", 100)):
        found = await stand.pull(stream, consumer, 103 - begin)
        assert [it.metadata.sequence.stream for it in found] == list(range(begin, 103))


async def test_it_is_not_changed_by_an_update(stand: Stand) -> None:
    stream = await stand.stream("limits", first_seq=100)
    assert not await stand.update(stream, "limits", first_seq=7)
    assert not await stand.update(stream, "limits")
    assert (await stand.js.publish(f"{stream}.a", b"")).seq == 100


async def test_a_mirror_has_none_of_its_own_and_copies_that_of_its_origin(stand: Stand) -> None:
    origin = await stand.stream("limits", first_seq=FIRST)
    await stand.js.publish(f"{origin}.a", b"")
    reply = await stand.request("STREAM.CREATE.m", name="m", mirror={"name": origin}, first_seq=5)
    assert reply["error"]["err_code"] == 10143
    name = f"m{origin}"
    reply = await stand.request(f"STREAM.CREATE.{name}", name=name, mirror={"name": origin})
    assert "error" not in reply
    for _ in range(100):
        found = await ends(stand, name)
        if found[1:] == (FIRST, FIRST):
            break
        await asyncio.sleep(0.05)
    assert found == (1, FIRST, FIRST)


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster


async def info(client: Client, stream: str) -> dict[str, Any]:
    return vars((await client.jetstream().stream_info(stream)).state)


async def test_replicas_agree_on_it_through_failures(trio: Cluster) -> None:
    """The leader is killed while the stream is empty, and again with messages in it."""
    async with connected(trio, 1, 2, 3) as client:
        js = client.jetstream()
        request = (
            b'{"name":"s","subjects":["s.>"],"num_replicas":3,"first_seq":1000,"storage":"file"}'
        )
        reply = await client.request("$JS.API.STREAM.CREATE.s", request, timeout=10)
        assert b'"error"' not in reply.data
        sequence = 1000
        for _ in range(3):
            leader = await asyncio.to_thread(trio.leader, ("s", 0))
            trio[leader].kill()
            while True:
                try:
                    ack = await js.publish("s.a", b"x", headers={"Nats-Msg-Id": str(sequence)})
                    break
                except FAILED:
                    await asyncio.sleep(0.1)
            assert ack.seq == sequence
            sequence += 1
            trio[leader].start()
        state = await info(client, "s")
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (3, 1000, 1002)
    reader = Consumer({"bootstrap.servers": trio.servers, "group.id": "g", "log_level": 0})
    try:
        assert reader.get_watermark_offsets(TopicPartition("s", 0), timeout=20) == (999, 1002)
    finally:
        reader.close()
