"""The stream of what becomes of the metadata, on three nodes that are killed meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import nats
import pytest
from confluent_kafka import KafkaError, Producer
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from tests.history import Lane
from tests.integration.conftest import read_stream
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import wait_until

ACTIVITY = Lane("__activity")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that each test leaves running."""
    settings: dict[str, dict[str, object]] = {"activity": {"enabled": True}}
    with Cluster(tmp_path_factory.mktemp("activity"), settings=settings) as cluster:
        wait_until(lambda: len(replicas(cluster)) == 3, "it is not kept by three")
        cluster.wait_settled([ACTIVITY])
        yield cluster


def replicas(cluster: Cluster) -> tuple[int, ...]:
    found = cluster.view().partitions.get(ACTIVITY)
    return found.replicas if found else ()


@pytest.fixture
async def nc(cluster: Cluster) -> AsyncIterator[Client]:
    client = await nats.connect(cluster.nats.url)
    yield client
    await client.close()


@pytest.fixture
def js(nc: Client) -> JetStreamContext:
    return nc.jetstream(domain="streamlog", timeout=5)


def read_events(cluster: Cluster) -> list[dict[str, Any]]:
    """All events, once what was decided so far is told."""
    end = max(int(node.metric("streamlog_metadata_offset")) for node in cluster.running())

    def all_told() -> bool:
        pages = [node.http("/metrics")[1].splitlines() for node in cluster.running()]
        told = [
            float(line.split()[1])
            for page in pages
            for line in page
            if line.startswith("streamlog_activity_offset ")
        ]
        return bool(told) and max(told) >= end

    wait_until(all_told, f"metadata below {end} is not told")
    return [json.loads(record.value) for record in read_stream(cluster.servers, "__activity")]


def check_nothing_is_missing(events: list[dict[str, Any]]) -> None:
    """Each record of the metadata log from the first on; repetitions go back, and no further."""
    offsets = [event["metadata_offset"] for event in events]
    seen = list(dict.fromkeys(offsets))
    assert seen == list(range(len(seen)))
    assert [event for event in events if event["kind"] == "gap"] == []


async def test_nothing_is_lost_while_its_leader_is_killed(
    cluster: Cluster, js: JetStreamContext
) -> None:
    made: list[str] = []
    enough = asyncio.Event()

    async def make() -> None:
        for number in range(40):
            name = f"made-{number}"
            while name not in made:
                try:
                    await js.add_stream(name=name, subjects=[f"{name}.>"])
                except (APIError, nats.errors.Error):
                    await asyncio.sleep(0.05)
                else:
                    made.append(name)
            if number == 10:
                enough.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(make())
        await enough.wait()
        killed = await asyncio.to_thread(cluster.leader, ACTIVITY)
        await asyncio.to_thread(cluster.kill, killed)
    await asyncio.to_thread(cluster.start, killed)
    events = await asyncio.to_thread(read_events, cluster)
    check_nothing_is_missing(events)
    created = [event["stream"] for event in events if event["kind"] == "stream_created"]
    # ``read_events`` may have it made, by asking for a group's coordinator.
    assert [it for it in dict.fromkeys(created) if it != "__consumer_offsets"] == [
        "__activity",
        *made,
    ]
    leaders = {
        (event["changed"]["leader"]["old"], event["changed"]["leader"]["new"])
        for event in events
        if event["kind"] == "leader_changed" and event["stream"] == "__activity"
        and "leader" in event["changed"]
    }  # fmt: skip
    assert any(old == killed and new != killed for old, new in leaders)
    fenced = [it["node"] for it in events if it["kind"] == "node_fenced" and it["fenced"]]
    assert killed in fenced


async def test_it_goes_on_after_all_were_killed(cluster: Cluster, js: JetStreamContext) -> None:
    await js.add_stream(name="before", subjects=["before"])
    await asyncio.to_thread(cluster.restart)
    await asyncio.to_thread(cluster.wait_settled, [ACTIVITY, Lane("before")])
    await js.add_stream(name="after", subjects=["after"])
    events = await asyncio.to_thread(read_events, cluster)
    check_nothing_is_missing(events)
    created = [event["stream"] for event in events if event["kind"] == "stream_created"]
    assert created[-2:] == ["before", "after"]


async def test_clients_of_nats_may_look_and_not_touch(
    cluster: Cluster, js: JetStreamContext, nc: Client
) -> None:
    await js.add_stream(name="watched", subjects=["watched"], description="one")
    await js.update_stream(name="watched", subjects=["watched"], description="two")
    events = await asyncio.to_thread(read_events, cluster)
    info = await js.stream_info("__activity")
    assert info.state.messages >= len(events)
    assert info.config.subjects in (None, [])
    found = await js.get_last_msg("__activity", "activity.*.watched")
    said = json.loads(found.data or b"")
    assert (said["kind"], said["changed"]) == (
        "stream_updated", {"description": {"old": "one", "new": "two"}}
    )  # fmt: skip
    direct = await js.get_last_msg("__activity", "activity.stream_created.watched", direct=True)
    assert json.loads(direct.data or b"")["config"]["description"] == "one"
    streams = await js.streams_info()
    assert "__activity" not in [it.config.name for it in streams]
    for refused in (
        js.delete_stream("__activity"),
        js.purge_stream("__activity"),
        js.delete_msg("__activity", 1),
        js.add_stream(name="__activity", subjects=["a"]),
        js.update_stream(name="__activity", subjects=["a"]),
    ):
        with pytest.raises(APIError):
            await refused
    with pytest.raises(NotFoundError):
        await js.stream_info("__consumer_offsets")


def test_producers_may_not_write_to_it(cluster: Cluster) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.servers, "message.timeout.ms": 5000})
    producer.produce("__activity", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    (error,) = errors
    assert error is not None
