"""A node is cut off from the two others, in silence, and clients stay connected to the ports of all three."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from benchmarks.network import Network, unavailable
from tests.integration.conftest import read_stream
from tests.integration.test_cluster_partition import QUICK
from tests.local_node import until
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import NodeProcess, Settings

SETTINGS: Final[Settings] = {
    **QUICK,
    "nats_listen": {},
    "nats": {"default_api_prefix": True},
}
NODES: Final = (1, 2, 3)
ANSWER_S: Final = 1.0
"""How long a publisher waits."""
SILENT_S: Final = 13.0
"""After so long the cut-off node knows that its links bring nothing, and its clients get an answer at once."""
SPREAD: Final = 6
"""Partitions of the stream that is spread."""

NO_RESPONDERS: Final = "no responders"
SILENCE: Final = "silence"

World = tuple[Cluster, Network]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if reason := unavailable():
        pytest.skip(reason)

    with Network(NODES) as network:

        def make_node(number: int, folder: Path) -> NodeProcess:
            address, prefix = network.address(number), network.inside(number)
            return NodeProcess(number, folder, host=address, prefix=prefix)

        with Cluster(tmp_path, settings=SETTINGS, nats=NoNats(), make_node=make_node) as cluster:
            yield cluster, network


@pytest.fixture
async def clients(world: World) -> AsyncIterator[dict[int, Client]]:
    async with AsyncExitStack() as stack:
        made = {}
        for number, node in world[0].nodes.items():
            made[number] = await nats.connect(node.port_url, allow_reconnect=False)
            stack.push_async_callback(made[number].close)
        yield made


class Listeners:
    """One subscription at each node; what each has heard."""

    def __init__(self, clients: dict[int, Client]) -> None:
        self._clients = clients
        self.heard: dict[int, Counter[bytes]] = {number: Counter() for number in clients}
        self._said = 0

    async def begin(self) -> None:
        for number, client in self._clients.items():

            async def take(message: Msg, number: int = number) -> None:
                self.heard[number][message.data] += 1

            await client.subscribe("news.*", cb=take)
            await client.flush()

    async def say(self, number: int) -> bytes:
        self._said += 1
        what = b"%d:%d" % (number, self._said)
        await self._clients[number].publish("news.x", what)
        return what

    async def hear_each_other(self, *numbers: int) -> None:
        """Return when each of these hears each other one."""
        async with asyncio.timeout(30):
            while True:
                said = [await self.say(number) for number in numbers]
                await asyncio.sleep(0.1)
                if all(self.heard[number][what] for number in numbers for what in said):
                    return


async def published(client: Client, subject: str, message_id: str) -> str | int:
    """The sequence, or why there is none."""
    headers = {"Nats-Msg-Id": message_id}
    try:
        answer = await client.request(
            subject, message_id.encode(), headers=headers, timeout=ANSWER_S
        )
    except NoRespondersError:
        return NO_RESPONDERS
    except (NatsTimeoutError, TimeoutError):
        return SILENCE
    told: dict[str, Any] = json.loads(answer.data)
    return str(told["error"]["description"]) if "error" in told else int(told["seq"])


async def stored(client: Client, subject: str, message_id: str) -> int:
    """Published until it is acknowledged."""
    async with asyncio.timeout(30):
        while True:
            told = await published(client, subject, message_id)
            if isinstance(told, int):
                return told
            await asyncio.sleep(0.05)


async def create(client: Client, name: str, **settings: str) -> None:
    metadata = {f"streamlog.{key}": value for key, value in settings.items()}
    subjects = [f"{name}.*"] if settings else [name]
    await client.jetstream().add_stream(
        name=name, subjects=subjects, num_replicas=3, metadata=metadata
    )


async def test_node_that_is_cut_off_answers_without_an_ack_and_is_heard_again(
    world: World, clients: dict[int, Client]
) -> None:
    cluster, network = world
    listeners = Listeners(clients)
    await listeners.begin()
    await listeners.hear_each_other(*NODES)
    for name in ("a", "b", "c"):
        await create(clients[1], name)
    await create(clients[1], "spread", partitions=str(SPREAD), partition_by="tokens:2")
    places = [("a", 0), ("b", 0), ("c", 0), *(("spread", number) for number in range(SPREAD))]
    await asyncio.to_thread(cluster.wait_settled, places)
    leaders = {name: cluster.leader((name, 0)) for name in ("a", "b", "c")}
    assert len(set(leaders.values())) == 3
    own, there = "a", "b"
    cut_off = leaders[own]
    others = [number for number in NODES if number != cut_off]
    acked: dict[str, int] = {}
    for number in NODES:
        for name in (own, there):
            message_id = f"{name}-before-{number}"
            acked[message_id] = await stored(clients[number], name, message_id)

    network.split([cut_off], others)
    since_s = time.monotonic()

    async def ask(number: int, subject: str, message_id: str) -> str | int:
        told = await published(clients[number], subject, message_id)
        if isinstance(told, int):
            acked[message_id] = told
        return told

    # The side with a majority goes on.
    for number in others:
        for name in (own, there):
            message_id = f"{name}-during-{number}"
            acked[message_id] = await stored(clients[number], name, message_id)
    await listeners.hear_each_other(*others)
    await listeners.hear_each_other(cut_off)

    # The other side says no, at once, as soon as it can know.
    await asyncio.sleep(max(0.0, since_s + SILENT_S - time.monotonic()))
    refused: dict[str, str | int] = {}
    for turn in range(10):
        for name in (own, there):
            refused[f"{name}-{turn}"] = await ask(cut_off, name, f"{name}-cut-off-{turn}")
    answers = await asyncio.gather(
        *(ask(cut_off, f"spread.{turn}", f"spread-cut-off-{turn}") for turn in range(30))
    )
    refused |= {f"spread-{turn}": answer for turn, answer in enumerate(answers)}
    assert not [key for key, told in refused.items() if isinstance(told, int)], "a false ack"
    assert not [key for key, told in refused.items() if told == SILENCE], refused

    network.heal()
    await asyncio.to_thread(cluster.wait_settled, places)
    await listeners.hear_each_other(*NODES)
    for number in NODES:
        for name in (own, there):
            for when in ("cut-off-0", f"after-{number}"):
                message_id = f"{name}-{when}"
                acked[message_id] = await stored(clients[number], name, message_id)
    said = [await listeners.say(number) for number in NODES for _ in range(50)]
    await until(lambda: all(listeners.heard[n][what] for n in NODES for what in said))
    assert {count for heard in listeners.heard.values() for count in heard.values()} == {1}
    for name in (own, there):
        records = await asyncio.to_thread(read_stream, cluster.servers, name)
        values = [record.value.decode() for record in records]
        assert len(set(values)) == len(values)
        wanted = {key: seq for key, seq in acked.items() if key.startswith(f"{name}-")}
        assert {key: values[seq - 1] for key, seq in wanted.items()} == {it: it for it in wanted}
