"""Every API of the socket, by a table: nothing is read, written or told without right.

A new API without a gate, or whose handler forgets to look, fails here.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import pytest

from streamlog.errors import ProtocolViolation
from streamlog.kafka.auth.authorization import GATES
from streamlog.kafka.fetch.session_cache import SessionCache
from streamlog.metadata.commands import (
    AwaitApplied,
    Command,
    DescribeCluster,
    DrainNode,
    Granted,
    encode_command,
)
from streamlog.metadata.image.feature_level import TRANSACTIONS_LEVEL
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum import raft_codec as form
from streamlog.model import TopicPartition
from streamlog.wire import api_messages, fetch
from streamlog.wire.cursor import Cursor
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.header import encode_request_header, read_response_header
from streamlog.wire.operation_request import encode_operation
from streamlog.wire.produce import ACKS_AS_STORED
from streamlog.wire.registry import (
    APIS,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    ENVELOPE,
    FETCH,
    FETCH_SNAPSHOT,
    PRODUCE,
    VOTE,
    WRITE_TXN_MARKERS,
    Api,
)
from tests import random_requests
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode
from tests.log_folder import make_batch
from tests.random_requests import SPOKEN, RandomRequests
from tests.raw_client import at, wanted
from tests.restricted import Asker

RANDOM_REQUESTS = 12
"""For each API and version."""


NAMES = ("flights", "flights", "flights", "ships", "nowhere", "group", "member", "subject")
"""Most requests are about the stream that matters."""


@pytest.fixture(autouse=True)
def _to_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_requests, "NAMES", NAMES)


def name_of(spoken: tuple[Api, int]) -> str:
    return f"{spoken[0].name}-{spoken[1]}"


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    made = KafkaNode()
    made.listener.open()
    yield made
    await made.listener.stop()
    made.close()


async def fill(node: KafkaNode, *names: str) -> None:
    """Streams whose ids depend on nothing but their names."""
    node.metadata.image = MetadataImage(CLUSTER_ID)
    node.metadata.register(9092)
    for name in names:
        partition = await node.add_stream(name, 2)
        partition.append([name.encode()] * 10)


def request(api: Api, version: int, seed: int, ids: tuple[UUID, ...]) -> bytes | None:
    body = RandomRequests(Random(seed), ids).body(api, version)
    return None if body is None else encode_request_header(api, version, 7, "raw") + body


def test_every_api_has_a_gate() -> None:
    assert APIS.keys() <= GATES.keys(), "say in server.gates what it needs"


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
async def test_who_may_do_nothing_does_nothing(node: KafkaNode, spoken: tuple[Api, int]) -> None:
    await fill(node, "flights", "ships")
    alice = Asker(node.context)
    ids = tuple(it.stream_id for it in node.metadata.image.streams.values())
    before = node.metadata.image
    for seed in range(RANDOM_REQUESTS):
        data = request(*spoken, seed, ids)
        if data is None:
            continue
        try:
            answer = await alice.ask(data)
        except ProtocolViolation:
            continue
        assert node.metadata.image is before, f"seed {seed}: the metadata changed"
        assert answer is None or not any(it.bytes in answer for it in ids) or _echoes(data, ids)
    assert node.metadata.asked == []
    asked = {type(command) for command, _ in node.metadata.taken}
    assert asked <= {DescribeCluster, AwaitApplied}
    for partition in node.local.values():
        assert not partition.slices, "records were read"
        assert partition.log_start_offset == 0
        assert partition.log_end_offset in (0, 10)
    alice.close()


def _echoes(data: bytes, ids: tuple[UUID, ...]) -> bool:
    return any(it.bytes in data for it in ids)


RIGHTS = (
    "read topic ships", "write topic ships", "alter_configs topic ships", "read group group",
    "delete group group", "describe group member",
)  # fmt: skip


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
async def test_what_may_not_be_known_of_answers_as_what_is_not_there(
    spoken: tuple[Api, int],
) -> None:
    """Two nodes, one of which has a stream more, answer in the same bytes."""
    nodes, ids = (KafkaNode(), KafkaNode()), {"flights": UUID(int=70), "ships": UUID(int=83)}
    askers = []
    try:
        for node, names in zip(nodes, (("flights", "ships"), ("ships",)), strict=True):
            node.listener.open()
            await fill(node, *names)
            node.metadata.take = partial(take, node)  # type: ignore[method-assign]
            for name in names:
                identify(node, name, ids[name])
            context = replace(
                node.context,
                address=lambda: ("here", 9092),
                fetch_sessions=SessionCache(random_id=count(1).__next__),  # alike, for once
            )
            askers.append(Asker(context, *RIGHTS))
        for seed in range(RANDOM_REQUESTS):
            data = request(*spoken, seed, tuple(ids.values()))
            if data is not None:
                answers = [await answer_of(asker, data) for asker in askers]
                assert answers[0] == answers[1], f"seed {seed}"
    finally:
        for asker in askers:
            asker.close()
        for node in nodes:
            await node.listener.stop()
            node.close()


def identify(node: KafkaNode, name: str, stream_id: UUID) -> None:
    """It has this id, as if it had been made with it."""
    image = node.metadata.image
    stream = image.streams[name]
    node.metadata.image = replace(
        image,
        streams=image.streams.set(name, replace(stream, stream_id=stream_id)),
        names=image.names.delete(stream.stream_id.bytes).set(stream_id.bytes, name),
    )
    for tp, partition in node.local.items():
        if tp.stream == name:
            partition.topic_id = stream_id.bytes


async def take(node: KafkaNode, command: Command, *, forwarded: bool) -> Granted:
    return await node.metadata.request(command)


async def answer_of(asker: Asker, data: bytes) -> Any:
    try:
        return await asker.ask(data)
    except ProtocolViolation as error:
        return str(error)


NODES_ONLY = (VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH_SNAPSHOT)


@pytest.mark.parametrize("key", NODES_ONLY)
async def test_nobody_but_a_node_speaks_as_one(node: KafkaNode, key: int) -> None:
    """Not even a super user."""
    root = Asker(node.context, super_users=("User:alice",))
    api = APIS[key]
    for seed in range(RANDOM_REQUESTS):
        data = request(api, api.version_max, seed, ())
        assert data is not None
        answer = await root.ask(data)
        assert answer is not None
        assert told(api, api.version_max, answer)["error_code"] == 31
    assert {it.name for it in root.audit.refusals} == {api.name}
    root.close()


async def test_only_a_node_ends_transactions(node: KafkaNode) -> None:
    """Not even a super user; each partition that was named is told."""
    await fill(node, "flights")
    root, api = Asker(node.context, super_users=("User:alice",)), APIS[WRITE_TXN_MARKERS]
    end = node.local[TopicPartition("flights", 0)].log_end_offset
    topics = [{"name": "flights", "partition_indexes": [0, 1]}]
    marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": True, "topics": topics}
    asked = {"markers": [{**marker, "coordinator_epoch": 1}]}
    body = api_messages.encode_request(api, 2, asked)
    answer = await root.ask(encode_request_header(api, 2, 7, "raw") + body)
    assert answer is not None
    (found,) = told(api, 2, answer)["markers"]
    assert [it["error_code"] for it in found["topics"][0]["partitions"]] == [31, 31]
    assert node.local[TopicPartition("flights", 0)].log_end_offset == end
    assert {it.name for it in root.audit.refusals} == {api.name}
    root.close()


async def test_a_replica_is_a_node(node: KafkaNode) -> None:
    await fill(node, "flights")
    root = Asker(node.context, super_users=("User:alice",))
    for topic, version in (("flights", 12), ("__cluster_metadata", 12)):
        asked = wanted(at(0), topic=topic, replica_id=1, session_epoch=-1)
        body = fetch.encode_request(asked, version)
        head = encode_request_header(APIS[FETCH], version, 7, "raw")
        cursor = Cursor((await root.ask(head + body) or b"")[4:])
        read_response_header(cursor, APIS[FETCH], version)
        answer = fetch.read_response(cursor, version)
        assert (answer.error_code, list(answer.partitions)) == (31, [])
    assert not node.local[TopicPartition("flights", 0)].fetches
    root.close()


async def test_an_envelope_is_looked_into(node: KafkaNode) -> None:
    await fill(node, "flights")
    drain = encode_command(DrainNode(node_id=NODE))
    described = encode_command(DescribeCluster())
    export = encode_operation("cluster.export", {})
    node.metadata.result = Granted(0, {"snapshot": "all of it"})
    forwarded = form.encode_principal(CLUSTER_ID)
    everything = ("all cluster kafka-cluster", "all topic *")
    for rules, data, principal, granted in (
        (everything, drain, None, False),
        (everything, drain, forwarded, False),
        (everything, described, None, False),
        ((), export, None, False),
        (("describe cluster kafka-cluster",), export, None, False),
        (("alter cluster kafka-cluster",), export, None, True),
    ):
        asker = Asker(node.context, *rules)
        node.metadata.taken.clear()
        values = {"request_data": data, "request_principal": principal, "client_host_address": b""}
        body = api_messages.encode_request(APIS[ENVELOPE], 0, values)
        answer = await asker.ask(encode_request_header(APIS[ENVELOPE], 0, 7, "raw") + body)
        result = told(APIS[ENVELOPE], 0, answer or b"")["response_data"]
        assert bool(node.metadata.taken) == granted
        assert (b"ClusterForbidden" in bytes(result)) == (not granted)
        asker.close()


@pytest.mark.parametrize(
    ("rules", "error_code"),
    [
        (("write topic flights",), ErrorCode.topic_authorization_failed),
        (("alter topic flights", "describe topic flights"), ErrorCode.topic_authorization_failed),
        (("write topic flights", "alter topic flights"), ErrorCode.invalid_request),
    ],
)
async def test_records_as_they_were_stored_are_for_who_may_alter_the_stream(
    node: KafkaNode, rules: tuple[str, ...], error_code: ErrorCode
) -> None:
    await fill(node, "flights")
    asker = Asker(node.context, *rules)
    batch = {"index": 0, "records": make_batch(0, [b"as it was"])}
    values = {
        "transactional_id": None,
        "acks": ACKS_AS_STORED,
        "timeout": 1_000,
        "topic_data": [{"name": "flights", "partition_data": [batch]}],
    }
    body = api_messages.encode_request(APIS[PRODUCE], 9, values)
    answer = await asker.ask(encode_request_header(APIS[PRODUCE], 9, 7, "raw") + body)
    (topic,) = told(APIS[PRODUCE], 9, answer or b"")["responses"]
    assert topic["partition_responses"][0]["error_code"] == error_code  # it is not read-only
    asker.close()


@pytest.mark.parametrize(
    ("rules", "error_code"),
    [
        (("write topic flights",), ErrorCode.transactional_id_authorization_failed),
        (
            ("write topic flights", "describe transactional_id t"),
            ErrorCode.transactional_id_authorization_failed,
        ),
        (("write topic flights", "write transactional_id t"), ErrorCode.none),
        (("write transactional_id t", "read topic flights"), ErrorCode.topic_authorization_failed),
    ],
)
async def test_transactions_are_for_who_may_write_by_the_id(
    node: KafkaNode, rules: tuple[str, ...], error_code: ErrorCode
) -> None:
    await fill(node, "flights")
    node.metadata.image = replace(node.metadata.image, level=TRANSACTIONS_LEVEL)
    asker = Asker(node.context, *rules)
    batch = {"index": 0, "records": make_batch(0, [b"x"])}
    values = {
        "transactional_id": "t",
        "acks": -1,
        "timeout": 1_000,
        "topic_data": [{"name": "flights", "partition_data": [batch]}],
    }
    body = api_messages.encode_request(APIS[PRODUCE], 9, values)
    answer = await asker.ask(encode_request_header(APIS[PRODUCE], 9, 7, "raw") + body)
    (topic,) = told(APIS[PRODUCE], 9, answer or b"")["responses"]
    code = ErrorCode(topic["partition_responses"][0]["error_code"])
    if error_code is ErrorCode.none:
        assert code not in (
            ErrorCode.transactional_id_authorization_failed,
            ErrorCode.topic_authorization_failed,
        )
    else:
        assert code is error_code
    asker.close()


def told(api: Api, version: int, answer: bytes) -> dict[str, Any]:
    """The fields of an answer's frame."""
    cursor = Cursor(answer[4:])
    assert read_response_header(cursor, api, version) == 7
    return api_messages.read_response(cursor, api, version)
