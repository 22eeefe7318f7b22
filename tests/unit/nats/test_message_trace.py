"""What a trace says, and in whose name it is published."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamlog.config import NatsListenSection
from streamlog.metrics import NodeMetrics
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.links import LinkState
from streamlog.nats.message_trace import (
    LINK_PASSED_OVER,
    LINK_WITHOUT_TRACES,
    rfc3339,
    trace_request,
)
from streamlog.nats.port import Port
from streamlog.nats.port_session import PortSession
from streamlog.nats.router import Callback, Endpoint, Router, Subscription
from streamlog.nats.sockets import Sockets

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


class World:
    """A port, a client of it, and what is published as a trace."""

    def __init__(self) -> None:
        self.router = Router()
        settings = NatsListenSection(host="127.0.0.1", port=0)
        self.sockets = Sockets(self.router, write_timeout_ms=1_000)
        self.port = Port(
            settings,
            self.router,
            self.sockets,
            node_id=1,
            cluster_id="c",
            domain="d",
            metrics=NodeMetrics(),
        )
        self.port.open()
        self.connection = ClientConnection(self.router)
        self.session = PortSession(
            self.connection, self.port, client_id=7, host="127.0.0.1", subscriptions_max=10
        )
        self.connection.feed(CONNECT)
        self.taken: list[tuple[bytes, bytes, Endpoint | None]] = []
        """Subjects and payloads, and in whose name they were published."""
        self.endpoint = Callback(self.router, failed=_raise)

    def take(self, subject: bytes) -> None:
        self.router.add(Subscription(self.endpoint, subject, target=self._taken))

    def _taken(self, subject: bytes, _: bytes, __: bytes, payload: bytes) -> None:
        self.taken.append((subject, payload, self.router.source))

    def publish(self, subject: bytes, head: bytes) -> None:
        block = b"NATS/1.0\r\n" + head + b"\r\n"
        sizes = b"%d %d" % (len(block), len(block))
        self.connection.feed(b"HPUB %b %b\r\n%b\r\n" % (subject, sizes, block))


def _raise(error: Exception) -> None:
    raise error


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.port.stop()
    made.sockets.close()


async def test_trace_is_published_in_the_name_of_its_publisher(world: World) -> None:
    """Its destination may be the management API, which does what its client may do."""
    world.take(b"$JS.API.>")
    world.publish(b"a", b"Nats-Trace-Dest: $JS.API.STREAM.DELETE.orders\r\n")
    ((subject, _, source),) = world.taken
    assert subject == b"$JS.API.STREAM.DELETE.orders"
    assert source is world.connection


@pytest.mark.parametrize("is_only", [False, True])
async def test_link_gets_no_message_that_is_traced_only(world: World, is_only: bool) -> None:
    link = LeafConnection(world.router)
    state = LinkState(
        link,
        ended=lambda *_: None,
        refused=lambda _: None,
    )
    state.info = {"server_name": "hub"}
    link.open()
    link.feed(b"LS+ a\r\nLS+ b q 1\r\n")
    world.take(b"traces")
    link.take_output()
    only = b"Nats-Trace-Only: true\r\n" if is_only else b""
    for subject in (b"a", b"b"):
        world.publish(subject, b"Nats-Trace-Dest: traces\r\n" + only)
        assert bool(link.take_output()) != is_only
        event = json.loads(world.taken.pop()[1])["events"][1]
        del event["ts"]
        error = LINK_PASSED_OVER if is_only else LINK_WITHOUT_TRACES
        assert event == {"type": "eg", "kind": 4, "cid": 0, "name": "hub", "error": error}


async def test_trace_tells_of_a_subscription_that_may_not_have_the_subject(world: World) -> None:
    world.connection.subscribe(b"secret.>", b"", b"1", lambda it: it == b"secret.x")
    world.take(b"traces")
    world.publish(b"secret.x", b"Nats-Trace-Dest: traces\r\n")
    assert world.connection.take_output() == b""
    event = json.loads(world.taken.pop()[1])["events"][1]
    assert event["error"] == "Not delivered because subscription denies this subject"


@pytest.mark.parametrize(
    ("head", "request_"),
    [
        (b"", None),
        (b"Nats-Trace-Dest:\r\n", None),
        (b"Nats-Trace-Dest: \t\r\n", None),
        (b"nats-trace-dest: t\r\n", None),
        (b"Nats-Trace-Dest: t\r\nNats-Trace-Dest: trace disabled\r\n", None),
        (b"Nats-Trace-Dest:\tt \r\n", ("t", False, {"Nats-Trace-Dest": ["t"]})),
        (
            b"Nats-Trace-Dest: t\r\nNats-Trace-Dest: u\r\nX: \xff\r\n",
            ("t", False, {"Nats-Trace-Dest": ["t", "u"], "X": ["\ufffd"]}),
        ),
        (
            b"Nats-Trace-Only: On\r\nNats-Trace-Dest: t\r\n",
            ("t", True, {"Nats-Trace-Only": ["On"], "Nats-Trace-Dest": ["t"]}),
        ),
    ],
)
def test_headers_ask_for_a_trace(head: bytes, request_: Any) -> None:
    assert trace_request(b"NATS/1.0\r\n" + head + b"\r\n") == request_


def test_times_have_nanoseconds() -> None:
    assert rfc3339(1_700_000_000_000_000_007) == "2023-11-14T22:13:20.000000007Z"
