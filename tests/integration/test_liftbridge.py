"""Liftbridge's envelope through a real nats-server, by hand and as a client of its encodes it.

``gufo-liftbridge`` leaves the envelope's header to the server; what it has is the protobuf.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.aio.client import Client

from streamlog.ingest.liftbridge import envelope
from tests import enveloped
from tests.enveloped import message, read_ack
from tests.local_node import LocalNode
from tools.nodes.server_process import NatsServer


@pytest.fixture
def api() -> Any:
    reason = "gufo-liftbridge is not installed: pip install gufo-liftbridge"
    return pytest.importorskip("gufo.liftbridge.api_pb2", reason=reason)


@pytest.fixture
async def node(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[LocalNode]:
    async with LocalNode(tmp_path / "data", nats_server.url) as it:
        await it.create("orders", subjects=("orders.*",))
        yield it


async def test_envelopes_and_plain_messages_side_by_side(node: LocalNode, nc: Client) -> None:
    acks = await nc.subscribe("acks")
    await nc.flush()
    bodies = [message(b"%d" % i, inbox=b"acks", correlation_id=b"%d" % i) for i in range(10)]
    for body in bodies:
        await nc.publish("orders.1", enveloped.envelope(body, checked=True))
        await nc.publish("orders.1", enveloped.envelope(body)[:-1] + b"\xff", reply="acks")
    told = [(await acks.next_msg(5)).data for _ in range(20)]
    json_acks = [json.loads(data)["seq"] for data in told if data[:1] == b"{"]
    enveloped_acks = [read_ack(data) for data in told if data[:1] != b"{"]
    assert json_acks == list(range(2, 21, 2))
    assert [ack.get("offset", 0) for ack in enveloped_acks] == list(range(0, 20, 2))
    assert [ack["correlation_id"] for ack in enveloped_acks] == [b"%d" % i for i in range(10)]
    values = [record.value for record in await node.records("orders")]
    assert values[::2] == [b"%d" % i for i in range(10)]
    assert values[1::2] == [enveloped.envelope(body)[:-1] + b"\xff" for body in bodies]


async def test_refused_and_repeated(node: LocalNode, nc: Client) -> None:
    acks = await nc.subscribe("acks")
    await nc.flush()

    async def published(**parts: Any) -> dict[str, Any]:
        body = message(inbox=b"acks", policy=enveloped.ALL, **parts)
        await nc.publish("orders.1", enveloped.envelope(body))
        return read_ack((await acks.next_msg(5)).data)

    first = await published(value=b"a", headers={b"Nats-Msg-Id": b"1"})
    again = await published(value=b"a", headers={b"Nats-Msg-Id": b"1"})
    assert (first.get("offset", 0), again.get("offset", 0)) == (0, 0)
    wrong = await published(value=b"b", headers={b"Nats-Expected-Last-Sequence": b"7"})
    assert wrong["error"] == 2
    right = await published(value=b"b", headers={b"Nats-Expected-Last-Sequence": b"1"})
    assert (right["offset"], right.get("error")) == (1, None)
    assert [record.value for record in await node.records("orders")] == [b"a", b"b"]


async def test_an_inbox_cannot_smuggle_a_command(node: LocalNode, nc: Client) -> None:
    """It would be written into the connection that all acks go over."""
    spied = await nc.subscribe("smuggled")
    body = message(b"v", inbox=b"acks 0\r\n\r\nPUB smuggled 1\r\nx\r\nPUB acks")
    await nc.publish("orders.1", enveloped.envelope(body))
    assert json.loads((await nc.request("orders.1", b"next")).data)["seq"] == 2
    assert spied.pending_msgs == 0
    assert (await node.records("orders"))[0].value == enveloped.envelope(body)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """What a client can say, by the names of its api."""
    return draw(
        st.fixed_dictionaries(
            {
                "offset": st.integers(-(2**63), 2**63 - 1),
                "key": st.binary(max_size=10),
                "value": st.binary(max_size=200),
                "stream": st.text(max_size=5),
                "headers": st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=4),
                "ackInbox": st.sampled_from(["", "acks", "_INBOX.a.b"]),
                "correlationId": st.text(max_size=10),
                "ackPolicy": st.sampled_from([0, 1, 2]),
            }
        )
    )


@pytest.mark.peers
def test_what_a_client_encodes_we_read(api: Any) -> None:
    @given(bodies(), st.booleans())
    @settings(max_examples=300, deadline=None)
    def check(body: dict[str, Any], checked: bool) -> None:
        encoded = api.Message(**body).SerializeToString()
        found = envelope.decode(enveloped.envelope(encoded, checked=checked))
        assert found is not None
        assert dict(found.headers) == {it.encode(): value for it, value in body["headers"].items()}
        assert found._replace(headers=()) == (
            body["key"] or None,
            body["value"],
            (),
            body["ackInbox"].encode(),
            body["correlationId"].encode(),
            body["ackPolicy"],
        )

    check()


@pytest.mark.peers
def test_what_it_cannot_read_neither_can_we(api: Any) -> None:
    encoded = bodies().map(lambda body: api.Message(**body).SerializeToString())
    cut = st.builds(lambda data, end: data[: end % (len(data) + 1)], encoded, st.integers(0))

    @given(st.binary(max_size=40) | cut)
    @settings(max_examples=1000, deadline=None)
    def check(body: bytes) -> None:
        found = envelope.decode(enveloped.envelope(body))
        try:
            known = api.Message.FromString(body)
        except Exception:  # whichever implementation of protobuf is there
            assert found is None
            return
        if found is None:  # then its inbox is no subject
            assert known.ackInbox
            return
        assert (found.value, found.correlation_id) == (known.value, known.correlationId.encode())
        assert dict(found.headers) == {it.encode(): value for it, value in known.headers.items()}

    check()


@pytest.mark.peers
async def test_a_client_reads_our_ack(node: LocalNode, nc: Client, api: Any) -> None:
    acks = await nc.subscribe("acks")
    await nc.flush()
    body = api.Message(
        key=b"k",
        value=b"hello",
        headers={"colour": b"red"},
        ackInbox="acks",
        correlationId="c-1",
        ackPolicy=api.ALL,
    )
    await nc.publish("orders.1", enveloped.envelope(body.SerializeToString()))
    ack = api.Ack.FromString((await acks.next_msg(5)).data[8:])
    assert (ack.stream, ack.partitionSubject, ack.msgSubject) == ("orders", "orders.*", "orders.1")
    assert (ack.offset, ack.correlationId, ack.ackPolicy) == (0, "c-1", api.ALL)
    assert ack.ackError == api.Ack.OK
    assert ack.commitTimestamp >= ack.receptionTimestamp > 0
    (record,) = await node.records("orders")
    assert (record.key, record.value) == (b"k", b"hello")
    assert record.headers == (("subject", b"orders.1"), ("colour", b"red"))
