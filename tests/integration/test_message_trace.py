"""Traces of messages: a node's NATS port makes the same of them as nats-server does."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError

from tests.integration.jetstream_pair import JetStreamServer
from tests.integration.test_port import PortNode, port_node

SERVER_FIELDS: Final = {"name", "host", "id", "ver", "jetstream", "seq", "time"}
TRACE: Final = {"Nats-Trace-Dest": "traces"}
ONLY: Final = TRACE | {"Nats-Trace-Only": "true"}


class Sides(NamedTuple):
    """The same clients at nats-server and at a node."""

    theirs: "Side"
    ours: "Side"


class Side:
    """Clients of one server."""

    def __init__(self, url: str, domain: str | None) -> None:
        self.url = url
        self.domain = domain
        self._clients: list[Client] = []

    async def client(self, name: str, **options: Any) -> Client:
        client = await nats.connect(self.url, name=name, **options)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    def comparable(self, text: bytes) -> Any:
        """Without what is another number or another time in each server."""
        trace = json.loads(text)
        assert set(trace.pop("server")) >= SERVER_FIELDS
        for event in trace["events"]:
            assert event.pop("ts").endswith("Z")
            assert event.pop("cid", 1) > 0
        trace["events"].sort(key=lambda it: (it["type"] == "eg", json.dumps(it)))
        return trace


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[JetStreamServer, PortNode]]:
    folder = tmp_path_factory.mktemp("traces")
    server, node = JetStreamServer(folder), port_node(folder / "node")
    try:
        server.start()
        node.start()
        yield server, node
        assert "Traceback" not in node.log_text()
    finally:
        node.kill()
        server.kill()


@pytest.fixture
async def sides(servers: tuple[JetStreamServer, PortNode]) -> AsyncIterator[Sides]:
    server, node = servers
    made = Sides(Side(server.url, None), Side(node.url, "streamlog"))
    yield made
    for side in made:
        await side.close()


END: Final = {"End": "1"}


def is_end(trace: bytes) -> bool:
    headers: dict[str, Any] = json.loads(trace)["request"]["header"]
    return END.keys() <= headers.keys()


async def outcome(
    side: Side,
    headers: dict[str, str],
    *,
    subject: str = "a",
    reply: str = "",
    no_echo: bool = False,
) -> tuple[list[Any], list[str]]:
    """The traces, and who got the message."""
    got: list[str] = []
    publisher = await side.client("publisher", no_echo=no_echo)
    taker = await side.client("taker")
    watcher = await side.client("")
    traces = await watcher.subscribe("traces")

    async def subscribe(client: Client, name: str, subject: str, queue: str = "") -> None:
        async def take(_: object) -> None:
            got.append(name)

        await client.subscribe(subject, queue, cb=take)

    await subscribe(publisher, "own", "a")
    await subscribe(taker, "other", "*")
    await subscribe(taker, "member", "a", "group")
    for client in (taker, watcher, publisher):
        await client.flush()
    await publisher.publish(subject, b"text", reply, headers=headers)
    for client in (publisher, taker, watcher):
        await client.flush()
    # nats-server publishes traces in order, but not in the turn of their messages: one more tells the end
    await publisher.publish("end", b"", headers=TRACE | END)
    found = []
    while not is_end(data := (await traces.next_msg(timeout=10)).data):
        found.append(side.comparable(data))
    await publisher.drain()
    await taker.drain()
    return found, sorted(got)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        TRACE,
        TRACE | {"Other": " two words "},
        ONLY,
        TRACE | {"Nats-Trace-Only": "1"},
        TRACE | {"Nats-Trace-Only": "ON"},
        TRACE | {"Nats-Trace-Only": "yes"},
        {"Nats-Trace-Only": "true"},
        {"nats-trace-dest": "traces", "Nats-Trace-Only": "true"},
        {"Nats-Trace-Dest": "", "Nats-Trace-Only": "true"},
        {"Nats-Trace-Dest": "trace disabled", "Nats-Trace-Only": "true"},
        {"Nats-Trace-Dest": "a..b"},
        {"Nats-Trace-Dest": "a.*", "Nats-Trace-Only": "true"},
        {"Nats-Trace-Dest": "a b", "Nats-Trace-Only": "true"},
        {"X-Nats-Trace-Dest": "traces", "Nats-Trace-Only": "true"},
    ],
    ids=str,
)
@pytest.mark.parametrize("no_echo", [False, True])
@pytest.mark.parametrize("subject", ["a", "nobody.is.there"])
async def test_message_is_traced_as_by_nats_server(
    sides: Sides, headers: dict[str, str], no_echo: bool, subject: str
) -> None:
    theirs, ours = [
        await outcome(side, headers, subject=subject, no_echo=no_echo) for side in sides
    ]
    assert ours == theirs


async def test_request_that_is_traced_only_is_answered_as_by_nats_server(sides: Sides) -> None:
    for side in sides:
        client = await side.client("asks")
        with pytest.raises(NoRespondersError):
            await client.request("nobody", b"", timeout=5, headers=ONLY)
        await client.subscribe("somebody")
        with pytest.raises(asyncio.TimeoutError):
            await client.request("somebody", b"", timeout=0.2, headers=ONLY)


@pytest.mark.parametrize("headers", [TRACE, ONLY], ids=["stored", "only"])
async def test_stream_takes_a_message_unless_it_is_traced_only(
    sides: Sides, headers: dict[str, str]
) -> None:
    found = []
    for side in sides:
        client = await side.client("publisher")
        context = client.jetstream(domain=side.domain) if side.domain else client.jetstream()
        name = "only" if headers is ONLY else "stored"
        await context.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
        traces = await client.subscribe("traces")
        if headers is ONLY:
            await client.publish(f"{name}.x", b"text", "inbox", headers=headers)
            await client.flush()
            assert (await context.stream_info(name)).state.messages == 0
            with pytest.raises(NotFoundError):
                await context.get_last_msg(name, f"{name}.x")
        else:
            ack = await context.publish(f"{name}.x", b"text", headers=headers)
            assert (ack.stream, ack.seq) == (name, 1)
        found.append(side.comparable((await traces.next_msg(timeout=5)).data))
    assert found[1] == found[0]
    assert found[1]["events"][1]["type"] == "js"
