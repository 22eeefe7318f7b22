"""Streams, buckets and object stores in memory, on a JetStream server and on a node."""

from pathlib import Path

import nats
import pytest
from nats.js.api import KeyValueConfig, ObjectStoreConfig, PersistMode, StorageType

from tests.integration.jetstream_pair import Pair, Side
from tests.integration.test_port import PortNode, port_node


@pytest.mark.parametrize("number", [0, 1], ids=["nats-server", "streamlog"])
async def test_what_is_in_memory_is_served_as_on_disk(pair: Pair, number: int) -> None:
    side: Side = pair.sides[number]
    name = pair.new_name()
    await side.create(name, storage="memory")
    assert (await side.api(f"STREAM.INFO.{name}"))["config"]["storage"] == "memory"
    bucket = await side.publisher.client.jetstream().create_key_value(
        KeyValueConfig(bucket=name, storage=StorageType.MEMORY)
    )
    await bucket.put("a", b"1")
    assert (await bucket.get("a")).value == b"1"


async def test_storage_is_not_changed(pair: Pair) -> None:
    name = await pair.create(storage="memory")
    body = {"name": name, "subjects": [name, f"{name}.>"], "storage": "file"}
    theirs, ours = [(await it.api(f"STREAM.UPDATE.{name}", **body))["error"] for it in pair.sides]
    assert ours == theirs


async def test_persist_mode_is_told_and_not_changed(pair: Pair) -> None:
    name = await pair.create(persist_mode="async")
    for it in pair.sides:
        assert (await it.api(f"STREAM.INFO.{name}"))["config"]["persist_mode"] == "async"
    body = {"name": name, "subjects": [name, f"{name}.>"]}
    for change in ({}, {"persist_mode": ""}, {"persist_mode": "async", "allow_atomic": True}):
        answers = [await it.api(f"STREAM.UPDATE.{name}", **body, **change) for it in pair.sides]
        theirs, ours = [it["error"] for it in answers]
        assert ours == theirs


async def test_node_that_is_killed_has_it_all_the_same(tmp_path: Path) -> None:
    node = port_node(tmp_path / "node")
    node.start()
    try:
        await assert_it_is_kept(node)
    finally:
        node.kill()


async def assert_it_is_kept(node: PortNode) -> None:
    client = await nats.connect(node.url)
    js = client.jetstream(domain="streamlog")
    await js.add_stream(name="m", subjects=["m"], storage=StorageType.MEMORY)
    await js.add_stream(name="a", subjects=["a"], persist_mode=PersistMode.ASYNC)
    for _ in range(20):
        await js.publish("m", b"x")
        await js.publish("a", b"x")
    store = await js.create_object_store("o", ObjectStoreConfig(storage=StorageType.MEMORY))
    await store.put("o", bytes(300_000))
    await client.close()
    node.kill()
    node.start()
    client = await nats.connect(node.url)
    js = client.jetstream(domain="streamlog")
    info = await js.stream_info("m")
    assert info.state.messages == 20
    assert info.config.storage == StorageType.MEMORY
    assert (await js.stream_info("a")).state.messages == 20
    assert (await (await js.object_store("o")).get("o")).data == bytes(300_000)
    await client.close()
