import json
import struct
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from streamlog.ingest.pub_ack_format import ack_head, ack_json, error_json, publication
from streamlog.nats.router import Router
from tests.oracles import acks as oracle

COMPILED = SimpleNamespace(
    build_acks=lambda replies, head, offset: Router().acknowledge(replies, head, offset),
    build_refusals=lambda replies, payload: Router().respond(replies, payload),
)

TWINS: list[Any] = [
    pytest.param(oracle, id="plain"),
    pytest.param(COMPILED, id="compiled"),
]

twins = pytest.mark.parametrize("twin", TWINS)


def packed(*entries: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack("<IH", delta, len(reply)) + reply for delta, reply in entries)


@twins
def test_acks_of_a_commit(twin: ModuleType) -> None:
    replies = packed((0, b"_INBOX.a"), (7, b"_INBOX.b"))
    assert twin.build_acks(replies, ack_head("orders"), 92) == (
        b'PUB _INBOX.a 28\r\n{"stream":"orders","seq":93}\r\n'
        b'PUB _INBOX.b 29\r\n{"stream":"orders","seq":100}\r\n'
    )


@twins
def test_an_ack_is_what_stock_clients_expect(twin: ModuleType) -> None:
    sent = twin.build_acks(packed((3, b"r")), ack_head("s"), 10)
    line, payload, end = sent.split(b"\r\n")
    assert line == b"PUB r %d" % len(payload)
    assert json.loads(payload) == {"stream": "s", "seq": 14}
    assert payload == ack_json("s", 14)
    assert end == b""


@twins
@pytest.mark.parametrize("offset", [0, 8, 9, 98, 10**9, 2**53, 2**62])
def test_sequences_of_every_length(twin: ModuleType, offset: int) -> None:
    for delta in (0, 1, 2**32 - 1):
        expected = publication(b"r" * 300, ack_json("s", offset + delta + 1))
        assert twin.build_acks(packed((delta, b"r" * 300)), ack_head("s"), offset) == expected


@twins
def test_replies_of_every_length(twin: ModuleType) -> None:
    for size in (0, 1, 255, 256, 65_535):
        reply = b"r" * size
        expected = publication(reply, ack_json("s", 1))
        assert twin.build_acks(packed((0, reply)), ack_head("s"), 0) == expected


@twins
def test_a_name_that_json_must_escape(twin: ModuleType) -> None:
    sent = twin.build_acks(packed((0, b"r")), ack_head('a"b\\é'), 0)
    assert json.loads(sent.split(b"\r\n")[1]) == {"stream": 'a"b\\é', "seq": 1}


@twins
def test_refusals(twin: ModuleType) -> None:
    replies = packed((0, b"_INBOX.a"), (5, b"b"))
    assert twin.build_refusals(replies, b"no") == b"PUB _INBOX.a 2\r\nno\r\nPUB b 2\r\nno\r\n"
    assert twin.build_refusals(packed((0, b"a")), b"") == b"PUB a 0\r\n\r\n"


@twins
def test_nobody_asked(twin: ModuleType) -> None:
    assert twin.build_acks(b"", ack_head("s"), 0) == b""
    assert twin.build_refusals(b"", b"no") == b""


@twins
@pytest.mark.parametrize("cut", [1, 5, 6, 9])
def test_cut_replies(twin: ModuleType, cut: int) -> None:
    replies = packed((0, b"whole")) + packed((1, b"reply"))[:cut]
    with pytest.raises(ValueError, match="cut"):
        twin.build_acks(replies, ack_head("s"), 0)
    with pytest.raises(ValueError, match="cut"):
        twin.build_refusals(replies, b"no")


@twins
@pytest.mark.parametrize("offset", [-1, 2**63 - 1, 2**63 - 2**32 - 1])
def test_offsets_without_a_sequence(twin: ModuleType, offset: int) -> None:
    with pytest.raises(ValueError, match="no sequence"):
        twin.build_acks(packed((0, b"r")), ack_head("s"), offset)


def test_an_ack_of_a_duplicate() -> None:
    assert json.loads(ack_json("s", 5, duplicate=True)) == {
        "stream": "s",
        "seq": 5,
        "duplicate": True,
    }


def test_an_error_has_the_fields_that_clients_allow() -> None:
    assert json.loads(error_json(503, 10077, "no room", "s")) == {
        "error": {"code": 503, "err_code": 10077, "description": "no room"},
        "stream": "s",
        "seq": 0,
    }
