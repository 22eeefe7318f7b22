"""Work queues that are moved by durable consumers, from nats-server to three nodes, among these, and to nats-server,
while leaders, coordinators and the NATS between them die: no gap and no double, and the queues are empty in the end.
"""

import asyncio
from typing import Any

import pytest

from tests.integration.conftest import read_stream
from tests.integration.test_durable_sourcing import add_durable, by_durable, numbers_of
from tests.integration.test_mirrors import HUB, OURS, Api, api_of, has_sourced, until
from tests.integration.test_mirrors_failures import (
    Fault,
    Publisher,
    elect_another,
    hub_of,
    kill_all_nodes,
    kill_leader_of_sources,
    of_source,
    strike,
    strike_hub,
    trio,
)
from tools.nodes.cluster import Cluster

__all__ = ["trio"]

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
"""nats-py leaves them behind where a server is killed in the midst of a handshake."""


async def coordinator_of(api: Api, stream: str) -> int:
    info = await api.ask(f"CONSUMER.INFO.{stream}.feed")
    return int(info["cluster"]["leader"].rpartition("-")[2])


async def kill_coordinators(cluster: Cluster) -> None:
    ports = [cluster[number].port_url for number in (1, 2, 3)]
    async with api_of(ports[0], OURS, *ports[1:]) as ours:
        for stream in ("c", "b"):
            await strike(cluster, await coordinator_of(ours, stream))


async def elect_others(cluster: Cluster) -> None:
    for _ in range(2):
        for stream in ("s", "c", "b"):
            await elect_another(cluster, stream)
        await asyncio.sleep(0.5)


@pytest.mark.parametrize(
    "fault",
    [kill_coordinators, kill_leader_of_sources, elect_others, strike_hub, kill_all_nodes],
)
async def test_work_queues_are_moved_without_gap_and_double(trio: Cluster, fault: Fault) -> None:
    hub = hub_of(trio)
    ports = [trio[number].port_url for number in (1, 2, 3)]
    async with (
        api_of(hub.url, "$JS.API") as theirs,
        api_of(ports[0], OURS, *ports[1:]) as ours,
    ):
        queue: dict[str, Any] = {"retention": "workqueue"}
        await theirs.create("o", subjects=["o"], **queue)
        await add_durable(theirs, "o", "feed")
        for name in ("c", "b"):
            await ours.create(name, subjects=[name], num_replicas=3, **queue)
            await add_durable(ours, name, "feed")
        o = {"name": "o", "external": {"api": HUB, "deliver": ""}}
        sources = [by_durable(it, "feed") for it in (o, {"name": "c"})]
        await ours.create("s", sources=sources, num_replicas=3)
        b = by_durable({"name": "b", "external": {"api": OURS, "deliver": ""}}, "feed")
        await theirs.create("js", sources=[b])
        publishers = [Publisher(theirs, "o"), Publisher(ours, "c"), Publisher(ours, "b")]
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for it in publishers:
                group.create_task(it.run())
            await asyncio.sleep(1)
            await fault(trio)
            await asyncio.sleep(1.5)
            for it in publishers:
                it.end()
        await has_sourced(ours, "s", sum(it.count for it in publishers[:2]))
        await has_sourced(theirs, "js", publishers[2].count)
        records = await asyncio.to_thread(read_stream, trio.servers, "s")
        for name, publisher in zip(("o", "c"), publishers, strict=False):
            found = of_source(records, name)
            assert [number for _, number in found] == list(range(publisher.count)), name
        assert await numbers_of(theirs, "js") == list(range(publishers[2].count))

        async def are_empty() -> bool:
            states = [
                await api.state(name) for api, name in ((theirs, "o"), (ours, "c"), (ours, "b"))
            ]
            return not any(it["messages"] for it in states)

        await until(are_empty, "what was stored is let go of")
