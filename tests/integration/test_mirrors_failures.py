"""Mirrors and sources of three nodes while leaders, origins and the NATS between them die or stand still: no gap and no
double.
"""

import asyncio
import base64
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import nats.errors
import nats.js.errors
import pytest

from tests.integration.conftest import Read, read_stream
from tests.integration.test_mirrors import (
    HUB,
    OURS,
    Api,
    api_of,
    are_same,
    has_all,
    has_sourced,
    hub_in,
)
from tests.leaf_hub import Hub
from tools.nodes.cluster import Cluster

PAUSE_S: Final = 4.0
"""Longer than a leader may stand still."""

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
"""nats-py leaves them behind where a server is killed in the midst of a handshake."""


class LeafHub:
    """A nats-server whose leafnodes the nodes are."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.url = f"nats-leaf://127.0.0.1:{hub.leaf_port}"

    def start(self) -> None:
        self.hub.start()

    def kill(self) -> None:
        self.hub.kill()


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    settings = {
        "nats_listen": {},
        "nats": {"reconnect_backoff_ms": 50},
        "consumers": {"state_partitions": 3},
    }
    hub = LeafHub(hub_in(tmp_path / "hub"))
    with Cluster(tmp_path, nats=hub, settings=settings) as cluster:
        yield cluster
        for node in cluster.nodes.values():
            assert "Traceback" not in node.log_text(), f"node {node.number}"


def hub_of(cluster: Cluster) -> Hub:
    assert isinstance(cluster.nats, LeafHub)
    return cluster.nats.hub


class Publisher:
    """Publishes numbers one after the other, each until it is acknowledged, with the same id."""

    def __init__(self, api: Api, subject: str) -> None:
        self._api = api
        self._subject = subject
        self._is_ending = False
        self.count = 0

    async def run(self) -> None:
        js = self._api.client.jetstream()
        while not self._is_ending:
            headers = {"Nats-Msg-Id": uuid.uuid4().hex}
            while True:
                with contextlib.suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError):
                    payload = b"%d" % self.count
                    await js.publish(self._subject, payload, timeout=1, headers=headers)
                    break
                await asyncio.sleep(0.05)
            self.count += 1
            await asyncio.sleep(0.002)

    def end(self) -> None:
        self._is_ending = True


async def in_thread(call: Callable[..., object], *arguments: object) -> None:
    await asyncio.to_thread(call, *arguments)


async def strike(cluster: Cluster, number: int) -> None:
    """kill -9, and start again."""
    await in_thread(cluster.kill, number)
    await asyncio.sleep(0.5)
    await in_thread(cluster.restart, number)


async def stand_still(cluster: Cluster, number: int) -> None:
    cluster[number].pause()
    try:
        await asyncio.sleep(PAUSE_S)
    finally:
        cluster[number].resume()


async def leader_of(cluster: Cluster, stream: str) -> int:
    return await asyncio.to_thread(cluster.leader, (stream, 0))


async def elect_another(cluster: Cluster, stream: str) -> None:
    leader = await leader_of(cluster, stream)
    await in_thread(
        cluster.command, "cluster", "elect-leader", stream, "0", "--leader", str(leader % 3 + 1)
    )


async def strike_hub(cluster: Cluster) -> None:
    await in_thread(cluster.nats.kill)
    await asyncio.sleep(0.3)
    await in_thread(cluster.nats.start)


def of_source(records: list[Read], name: str) -> list[tuple[int, int]]:
    """Sequence at the origin, and number."""
    found = []
    for it in records:
        place, sequence, *_ = dict(it.headers)["Nats-Stream-Source"].decode().split(" ")
        if place.partition(":")[0] == name:
            found.append((int(sequence), int(it.value)))
    return found


Fault = Callable[[Cluster], Awaitable[None]]


async def kill_leader_of_mirror(cluster: Cluster) -> None:
    await strike(cluster, await leader_of(cluster, "m"))


async def kill_leader_of_sources(cluster: Cluster) -> None:
    await strike(cluster, await leader_of(cluster, "s"))


async def kill_leader_of_origin(cluster: Cluster) -> None:
    await strike(cluster, await leader_of(cluster, "c"))


async def pause_leaders(cluster: Cluster) -> None:
    for stream in ("m", "s"):
        await stand_still(cluster, await leader_of(cluster, stream))


async def elect_others(cluster: Cluster) -> None:
    for _ in range(3):
        for stream in ("m", "s", "c", "cm"):
            await elect_another(cluster, stream)
        await asyncio.sleep(0.5)


async def kill_all_nodes(cluster: Cluster) -> None:
    await in_thread(cluster.kill, 1, 2, 3)
    await in_thread(cluster.restart, 1, 2, 3)


async def pause_hub(cluster: Cluster) -> None:
    hub_of(cluster).pause()
    await asyncio.sleep(PAUSE_S + 2)
    hub_of(cluster).resume()


async def test_stream_tells_of_its_mirrors(trio: Cluster) -> None:
    ports = [trio[number].port_url for number in (1, 2, 3)]
    async with api_of(ports[0], OURS, *ports[1:]) as ours:

        async def alternates() -> list[str]:
            info = await ours.ask("STREAM.INFO.c")
            assert all(it["domain"] == "streamlog" for it in info.get("alternates", ()))
            return [it["name"] for it in info.get("alternates", ())]

        await ours.create("c", subjects=["c"])
        assert await alternates() == []
        for name in ("m2", "m1"):
            await ours.create(name, mirror={"name": "c"})
        assert await alternates() == ["c", "m1", "m2"]
        await ours.ask("STREAM.DELETE.m1")
        assert await alternates() == ["c", "m2"]
        await ours.ask("STREAM.DELETE.m2")
        assert await alternates() == []


@pytest.mark.parametrize(
    "fault",
    [
        kill_leader_of_mirror, kill_leader_of_sources, kill_leader_of_origin, pause_leaders,
        elect_others, strike_hub, kill_all_nodes, pause_hub,
    ],
)  # fmt: skip
async def test_no_gap_and_no_double(trio: Cluster, fault: Fault) -> None:
    hub = hub_of(trio)
    ports = [trio[number].port_url for number in (1, 2, 3)]
    async with (
        api_of(hub.url, "$JS.API") as theirs,
        api_of(ports[0], OURS, *ports[1:]) as ours,
    ):
        await theirs.create("o", subjects=["o"])
        await ours.create("c", subjects=["c"], num_replicas=3)
        external = {"api": HUB, "deliver": ""}
        await ours.create("m", mirror={"name": "o", "external": external}, num_replicas=3)
        await ours.create("cm", mirror={"name": "c"}, num_replicas=3)
        sources = [{"name": "o", "external": external}, {"name": "c"}]
        await ours.create("s", sources=sources, num_replicas=3)
        back = {"api": OURS, "deliver": ""}
        await theirs.create("js", mirror={"name": "c", "external": back})
        publishers = [Publisher(theirs, "o"), Publisher(ours, "c")]
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for it in publishers:
                group.create_task(it.run())
            await asyncio.sleep(1)
            await fault(trio)
            await asyncio.sleep(1.5)
            for it in publishers:
                it.end()
        await has_all(ours, "m", (await theirs.state("o"))["last_seq"])
        await has_all(ours, "cm", (await ours.state("c"))["last_seq"])
        await has_all(theirs, "js", (await ours.state("c"))["last_seq"])
        await has_sourced(ours, "s", sum(it.count for it in publishers))
        await are_same(theirs, "o", ours, "m")
        await are_same(ours, "c", ours, "cm")
        await are_same(ours, "c", theirs, "js")
        records = await asyncio.to_thread(read_stream, trio.servers, "s")
        for name, publisher in zip(("o", "c"), publishers, strict=True):
            found = of_source(records, name)
            assert [number for _, number in found] == list(range(publisher.count)), name
            assert [it for it, _ in found] == sorted({it for it, _ in found}), name


async def test_what_was_purged_does_not_come_back(trio: Cluster) -> None:
    """All nodes are killed in the moment in which a purge is answered: where the sources are, outlives it."""
    hub = hub_of(trio)
    ports = [trio[number].port_url for number in (1, 2, 3)]
    async with (
        api_of(hub.url, "$JS.API") as theirs,
        api_of(ports[0], OURS, *ports[1:]) as ours,
    ):
        await theirs.create("o", subjects=["o"])
        await ours.create("c", subjects=["c"], num_replicas=3)
        sources = [{"name": "o", "external": {"api": HUB, "deliver": ""}}, {"name": "c"}]
        await ours.create("s", subjects=["s"], sources=sources, num_replicas=3)
        purges: tuple[dict[str, Any], ...] = ({}, {"keep": 1}, {"filter": ">"})
        for purge in purges:
            for api, subject in ((theirs, "o"), (ours, "c")):
                await api.publish(subject, *(b"%d" % it for it in range(20)))
            await ours.publish("s", b"0")
            left = purge.get("keep", 0)
            await has_sourced(ours, "s", 41)
            reply = await ours.ask("STREAM.PURGE.s", purge)
            assert reply["success"], reply
            await kill_all_nodes(trio)
            for api, subject in ((theirs, "o"), (ours, "c")):
                await api.publish(subject, b"100")
            await has_sourced(ours, "s", left + 2)
            await asyncio.sleep(1)
            assert (await ours.state("s"))["messages"] == left + 2
            assert (await ours.ask("STREAM.PURGE.s"))["success"]


async def values_of(api: Api, stream: str) -> list[bytes]:
    """What the stream holds, as JetStream's API gives it: records that only keep places are no messages there."""
    found: list[bytes] = []
    sequence = 1
    while True:
        body = {"seq": sequence, "next_by_subj": ">"}
        reply = await api.ask(f"STREAM.MSG.GET.{stream}", body)
        if "error" in reply:
            assert reply["error"]["err_code"] == 10037, reply
            return found
        found.append(base64.b64decode(reply["message"].get("data", "")))
        sequence = reply["message"]["seq"] + 1


async def test_what_has_aged_or_was_consumed_does_not_come_back(tmp_path: Path) -> None:
    """Streams that have lost all they had, and rest, when all nodes are killed: places are left."""
    settings = {
        "nats_listen": {},
        "consumers": {"state_partitions": 3},
        "log": {"retention_check_ms": 100},
    }
    with Cluster(tmp_path, settings=settings) as trio:
        ports = [trio[number].port_url for number in (1, 2, 3)]
        async with api_of(ports[0], OURS, *ports[1:]) as ours:
            await ours.create("c", subjects=["c"], num_replicas=3)
            await ours.publish("c", *(b"%d" % it for it in range(20)))
            shared: dict[str, Any] = {"sources": [{"name": "c"}], "num_replicas": 3}
            await ours.create("aged", subjects=["aged"], max_age=2_000_000_000, **shared)
            await ours.create("queue", retention="workqueue", **shared)
            await ours.publish("aged", b"own")
            consumer = {"durable_name": "w", "ack_policy": "explicit"}
            body = {"stream_name": "queue", "config": consumer}
            reply = await ours.ask("CONSUMER.DURABLE.CREATE.queue.w", body)
            assert "error" not in reply, reply
            await has_sourced(ours, "queue", 20)
            js = ours.client.jetstream(domain="streamlog")
            worker = await js.pull_subscribe_bind("w", "queue")
            for message in await worker.fetch(20, timeout=10):
                await message.ack_sync()
            async with asyncio.timeout(20):
                for name in ("aged", "queue"):
                    while (await ours.state(name))["messages"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            await kill_all_nodes(trio)
            await ours.publish("c", b"100")
            await has_sourced(ours, "queue", 1)
            await asyncio.sleep(1)
            assert (await ours.state("queue"))["messages"] == 1
            assert await values_of(ours, "aged") in ([b"100"], [])  # it may be too old by now
