"""The core of both clients, without a socket: what is sent for what is received."""

from collections.abc import Generator
from typing import Any

import pytest

from streamlog.client.protocol import ClientProtocol
from streamlog.client.retry import BACKOFF_MS, Retries
from streamlog.client.security import ClientLogin
from streamlog.client.topology import Ask, MetadataCache
from streamlog.errors import GroupNotFound, MalformedFrame, NotLeader, RequestTimedOut
from streamlog.model import NodeId, TopicPartition
from streamlog.wire import api_messages, registry
from streamlog.wire.errors import error_of
from streamlog.wire.registry import APIS
from streamlog.wire.special_offsets import LATEST

FLIGHTS = TopicPartition("flights", 0)
EVERYTHING = {
    "error_code": 0,
    "api_keys": [
        {"api_key": it.key, "min_version": it.version_min, "max_version": it.version_max}
        for it in APIS.values()
    ],
}


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def agreed(clock: Clock) -> ClientProtocol:
    protocol = ClientProtocol("n1:9092", clock)
    steps = protocol.open(None)
    assert next(steps) == (registry.API_VERSIONS, {})
    with pytest.raises(StopIteration):
        steps.send(EVERYTHING)
    return protocol


def answered(correlation_id: int) -> memoryview:
    body = api_messages.encode_response(APIS[registry.API_VERSIONS], 0, {"api_keys": []})
    return memoryview(correlation_id.to_bytes(4, "big") + body)


def test_an_answer_belongs_to_its_request() -> None:
    protocol = agreed(Clock())
    hurry = protocol.hurry()
    call = protocol.hurry()._replace(correlation_id=hurry.correlation_id + 2)
    assert protocol.body(call, answered(hurry.correlation_id)) is None
    assert protocol.body(call, answered(call.correlation_id)) is not None
    with pytest.raises(MalformedFrame, match=f"answer {hurry.correlation_id}, not"):
        protocol.body(call, answered(hurry.correlation_id))


@pytest.mark.parametrize(
    ("head", "said"), [(b"INFO", "nats-server"), (b"HTTP", "HTTP"), (b"\x15\x03\x03\x00", "TLS")]
)
def test_what_is_no_node_is_named(head: bytes, said: str) -> None:
    with pytest.raises(MalformedFrame, match=said):
        ClientProtocol("n1:9092", Clock()).response_bytes(head)


def test_a_node_that_closes_without_an_answer_wants_tls_or_a_login() -> None:
    assert "it may want TLS" in str(ClientProtocol("n1:9092", Clock()).closed_by_node())
    assert "it may want a login" in str(agreed(Clock()).closed_by_node())


def test_a_login_is_renewed_before_its_session_ends() -> None:
    clock = Clock()
    protocol = ClientProtocol("n1:9092", clock)
    steps = protocol.open(ClientLogin("PLAIN", "alice", lambda: "secret"))
    next(steps)
    assert steps.send(EVERYTHING)[0] == registry.SASL_HANDSHAKE
    assert steps.send({"error_code": 0, "mechanisms": ["PLAIN"]})[0] == registry.SASL_AUTHENTICATE
    with pytest.raises(StopIteration):
        steps.send({"error_code": 0, "auth_bytes": b"", "session_lifetime": 10_000})
    clock.now_s += 8.4
    assert protocol.renewal() is None
    clock.now_s += 0.2
    assert protocol.renewal() is not None
    assert protocol.renewal() is None  # one request renews it for all


def test_a_leader_that_has_moved_is_asked_for_again() -> None:
    metadata = MetadataCache([("n1", 9092)])
    for leader in (1, 2):
        steps = metadata.list_offsets([FLIGHTS], LATEST)
        ask = next(steps)
        assert (ask.node, ask.key) == (None, registry.METADATA)
        ask = steps.send(topology(leader))
        assert ask.node is not None
        assert ask.node.node_id == NodeId(leader)
        with pytest.raises(NotLeader):
            steps.throw(error_of(6, "flights-0"))
    assert metadata.candidates([("n9", 1)]) == [("n9", 1), ("n1", 9092), ("n2", 9092)]


def test_what_cannot_be_known_just_now_is_left_out() -> None:
    steps: Generator[Ask, dict[str, Any], dict[TopicPartition, int]]
    steps = MetadataCache([("n1", 9092)]).latest_offsets([FLIGHTS])
    next(steps)
    steps.send(topology(1))
    with pytest.raises(StopIteration) as end:
        steps.throw(error_of(6, "flights-0"))
    assert end.value.value == {}


def topology(leader: int) -> dict[str, Any]:
    partition = {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": leader,
        "leader_epoch": 3,
        "replica_nodes": [1, 2],
        "isr_nodes": [1, 2],
    }
    return {
        "controller_id": 1,
        "brokers": [{"node_id": it, "host": f"n{it}", "port": 9092} for it in (1, 2)],
        "topics": [{"error_code": 0, "name": "flights", "partitions": [partition]}],
    }


def test_what_may_pass_is_tried_again_while_there_is_patience() -> None:
    retries = Retries(1_000, 5.0, about="flights-0")
    assert retries.delay_s(NotLeader("moved"), 5.9) == BACKOFF_MS / 1000
    with pytest.raises(GroupNotFound):
        retries.delay_s(GroupNotFound("g"), 5.9)
    with pytest.raises(RequestTimedOut, match="flights-0: moved, for 1000 ms"):
        retries.delay_s(NotLeader("moved"), 6.0)
