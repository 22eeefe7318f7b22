"""Which partition, and which stream of a group, a message goes to; through a real nats-server."""

import asyncio
import functools
import importlib
import json
import warnings
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig as JsStreamConfig
from nats.js.errors import APIError, ServiceUnavailableError

from tests import enveloped
from tests.history import Lane
from tests.local_node import LocalNode
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import NatsServer


@pytest.fixture
async def node(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[LocalNode]:
    async with LocalNode(tmp_path / "data", nats_server.url) as it:
        yield it


@functools.cache
def _murmur2() -> Any:
    """kafka-python's, which cannot be imported without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("kafka.partitioner.default").murmur2


def kafkas(key: bytes, partitions: int) -> int:
    """The partition that a Kafka client puts the key into."""
    return int((_murmur2()(key) & 0x7FFFFFFF) % partitions)


async def values(node: LocalNode, stream: str, partitions: int) -> list[list[bytes | None]]:
    return [
        [record.value for record in await node.records(stream, number)]
        for number in range(partitions)
    ]


async def test_by_key_as_kafka_does(node: LocalNode, nc: Client) -> None:
    await node.create("orders", subjects=("orders.>",), partitions=5, partition_by="key")
    js = nc.jetstream()
    expected: list[list[bytes | None]] = [[] for _ in range(5)]
    for i in range(100):
        key = b"key-%d" % (i % 20)
        headers = {"Streamlog-Key": key.decode()}
        ack = await js.publish(f"orders.{i}", b"%d" % i, headers=headers)
        expected[kafkas(key, 5)].append(b"%d" % i)
        assert ack.seq == len(expected[kafkas(key, 5)])
    body = enveloped.message(b"in it", key=b"key-7")
    await nc.publish("orders.x", enveloped.envelope(body))
    await js.publish("orders.y", b"keyless")
    expected[kafkas(b"key-7", 5)].append(b"in it")
    expected[kafkas(b"orders.y", 5)].append(b"keyless")
    assert await values(node, "orders", 5) == expected
    assert sum(map(bool, expected)) > 2


async def test_by_tokens_of_the_subject(node: LocalNode, nc: Client) -> None:
    metadata = {"streamlog.partitions": "3", "streamlog.partition_by": "tokens:2,4"}
    config = JsStreamConfig(name="sensors", subjects=["s.*.*.*"], metadata=metadata)
    info = await nc.jetstream().add_stream(config)
    assert info.config.metadata == metadata
    for i in range(30):
        await nc.request(f"s.{i % 6}.{i}.x", b"%d" % (i % 6))
    found = await values(node, "sensors", 3)
    for number, part in enumerate(found):
        assert {kafkas(b"%d.x" % int(value or b""), 3) for value in part} <= {number}
    assert sum(map(len, found)) == 30


async def test_another_partitioning_and_more_partitions(node: LocalNode, nc: Client) -> None:
    await node.create("orders", subjects=("orders",), partitions=2)
    assert json.loads((await nc.request("orders.1", b"a")).data)["seq"] == 1
    js = nc.jetstream()
    config = (await js.stream_info("orders")).config
    config.metadata = {"streamlog.partitions": "3", "streamlog.partition_by": "key"}
    await js.update_stream(config)
    with pytest.raises(nats.errors.NoRespondersError):
        await nc.request("orders.1", b"b")
    for key in ("a", "b", "c", "d", "e"):
        await js.publish("orders", key.encode(), headers={"Streamlog-Key": key})
    config.metadata = {"streamlog.partitions": "3"}
    await js.update_stream(config)
    assert json.loads((await nc.request("orders.2", b"again")).data)["stream"] == "orders"
    found = await values(node, "orders", 3)
    assert [value for part in found for value in part if value in {b"a", b"again"}]
    for value in (b"b", b"c", b"d", b"e"):
        assert value in found[kafkas(value, 3)]
    assert sum(map(len, found)) == 7


async def test_a_retry_whose_key_has_moved_is_told_of(
    node: LocalNode, nc: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """As docs/publishing.md says: its id is known in the partition that has the first one."""
    await node.create("orders", subjects=("orders",), partitions=2, partition_by="key")
    js = nc.jetstream()
    keys = [f"key-{number}" for number in range(16)]

    async def publish(key: str) -> bool:
        headers = {"Streamlog-Key": key, "Nats-Msg-Id": key}
        return bool((await js.publish("orders", key.encode(), headers=headers)).duplicate)

    assert not any([await publish(key) for key in keys])
    assert all([await publish(key) for key in keys])
    assert "messages go to other partitions now" not in caplog.text
    config = (await js.stream_info("orders")).config
    config.metadata = {"streamlog.partitions": "3", "streamlog.partition_by": "key"}
    await js.update_stream(config)
    assert caplog.text.count("messages go to other partitions now") == 1
    stayed = [kafkas(key.encode(), 2) == kafkas(key.encode(), 3) for key in keys]
    assert [await publish(key) for key in keys] == stayed
    assert all([await publish(key) for key in keys])


@pytest.mark.parametrize(
    "settings",
    [
        {"streamlog.partition_by": "tokens"},
        {"streamlog.partition_by": "tokens:0"},
        {"streamlog.partition_by": "tokens:1,1"},
        {"streamlog.partition_by": "tokens:-1"},
        {"streamlog.partition_by": "hash"},
        {"streamlog.partition_by": ""},
        {"streamlog.group": "two words"},
        {"streamlog.group": "a.*"},
        {"streamlog.group": "x" * 250},
        {"streamlog.group": "g", "streamlog.partitions": "2", "streamlog.partition_by": "key"},
    ],
)
async def test_wrong_settings(node: LocalNode, nc: Client, settings: dict[str, str]) -> None:
    config = JsStreamConfig(name="wrong", subjects=["w"], metadata=settings)
    with pytest.raises(APIError) as caught:
        await nc.jetstream().add_stream(config)
    assert "partition_by" in str(caught.value) or "group" in str(caught.value)
    assert "wrong" not in node.metadata.image.streams


async def test_streams_of_a_group_share_a_subject(node: LocalNode, nc: Client) -> None:
    for name in ("one", "two", "three"):
        await node.create(name, subjects=("shared",), group="workers")
    await node.create("all", subjects=("shared",))
    inbox = nc.new_inbox()
    acks = await nc.subscribe(inbox)
    for i in range(300):
        await nc.publish("shared", b"%d" % i, reply=inbox)
    by_stream = Counter([json.loads((await acks.next_msg(5)).data)["stream"] for _ in range(600)])
    assert by_stream.pop("all") == 300
    assert set(by_stream) == {"one", "two", "three"}
    parts = [(await values(node, name, 1))[0] for name in ("one", "two", "three")]
    assert sorted(int(value or b"") for part in parts for value in part) == list(range(300))
    assert [len(part) for part in parts] == [by_stream[name] for name in ("one", "two", "three")]


async def test_a_stream_joins_a_group_and_leaves_it(node: LocalNode, nc: Client) -> None:
    await node.create("one", subjects=("shared",), group="workers")
    await node.create("two", subjects=("shared",))
    js = nc.jetstream()

    async def streams(count: int) -> set[str]:
        inbox = nc.new_inbox()
        acks = await nc.subscribe(inbox)
        await nc.publish("shared", b"v", reply=inbox)
        found = {json.loads((await acks.next_msg(5)).data)["stream"] for _ in range(count)}
        with pytest.raises(nats.errors.TimeoutError):
            await acks.next_msg(0.05)
        return found

    assert await streams(2) == {"one", "two"}
    config = (await js.stream_info("two")).config
    config.metadata = {"streamlog.group": "workers"}
    await js.update_stream(config)
    assert len(await streams(1)) == 1
    config.metadata = {}
    await js.update_stream(config)
    assert await streams(2) == {"one", "two"}


async def test_a_partition_without_a_leader_is_answered_for_by_another_node(tmp_path: Path) -> None:
    """Each node leads one of three partitions that nobody else keeps; then one of them ends."""
    with Cluster(tmp_path) as cluster:
        client = await nats.connect(cluster.nats.url)
        try:
            js = client.jetstream(domain="streamlog")
            metadata = {"streamlog.partitions": "3", "streamlog.partition_by": "key"}
            await js.add_stream(JsStreamConfig(name="keyed", subjects=["keyed"], metadata=metadata))
            keys = {number: _key(number) for number in range(3)}
            leaders = {number: cluster.leader(Lane("keyed", number)) for number in range(3)}
            assert len(set(leaders.values())) == 3

            async def publish(number: int) -> Any:
                headers = {"Streamlog-Key": keys[number].decode()}
                return await js.publish("keyed", b"v", headers=headers, timeout=5)

            for number in range(3):
                assert (await publish(number)).seq == 1
            controller = cluster.controller()
            gone = next(number for number in range(3) if leaders[number] != controller)
            cluster.kill(leaders[gone])
            async with asyncio.timeout(30):
                while True:
                    try:
                        await publish(gone)
                    except ServiceUnavailableError:
                        break
                    except nats.errors.TimeoutError:  # its death was not noticed yet
                        continue
            async with asyncio.timeout(4):  # a time-out takes five
                for _ in range(20):
                    with pytest.raises(ServiceUnavailableError):
                        await publish(gone)
            for number in set(range(3)) - {gone}:
                assert (await publish(number)).seq == 2
            cluster.restart(leaders[gone])
            async with asyncio.timeout(30):
                while True:
                    try:
                        assert (await publish(gone)).seq == 2
                        break
                    except ServiceUnavailableError:
                        await asyncio.sleep(0.05)
        finally:
            await client.close()


def _key(number: int) -> bytes:
    return next(key for key in map(b"%d".__mod__, range(100)) if kafkas(key, 3) == number)
