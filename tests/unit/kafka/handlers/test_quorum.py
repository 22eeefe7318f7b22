"""What members of the metadata quorum ask each other for, over a socket."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from streamlog.errors import NoController
from streamlog.metadata.commands import (
    DeleteStream,
    DescribeCluster,
    Granted,
    decode_result,
    encode_command,
)
from streamlog.metadata.quorum import raft_codec as form
from streamlog.metadata.quorum.store import METADATA_LOG
from streamlog.model import NodeId
from streamlog.raft.messages import (
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    FetchAnswer,
    RaftFetchRequest,
    Request,
    SnapshotId,
    VoteAnswer,
    VoteRequest,
)
from streamlog.raft.voters import ReplicaKey
from streamlog.wire.registry import (
    BEGIN_QUORUM_EPOCH,
    DESCRIBE_QUORUM,
    END_QUORUM_EPOCH,
    ENVELOPE,
    FETCH_SNAPSHOT,
    VOTE,
)
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient

ME = ReplicaKey(NodeId(3), UUID(int=33))
VOTE_REQUEST = VoteRequest(4, ME, 3, 17, True, UUID(int=9))
FETCH_REQUEST = RaftFetchRequest(4, ME, 17, 3, wait_ms=60_000)
SNAPSHOT = SnapshotId(100, 2)


def answers(node: KafkaNode, answer: Answer) -> list[Request]:
    """What the quorum is asked from now on."""
    asked: list[Request] = []

    async def take(request: Request) -> Answer:
        asked.append(request)
        return answer

    node.metadata.raft_answers = take
    return asked


def epoch_ends(cluster_id: str) -> dict[str, Any]:
    request = EndEpochRequest(4, NodeId(1), (NodeId(2), NodeId(3)))
    return dict(form.encode_end_epoch(request, cluster_id))


def asked_for(key: int, cluster_id: str = CLUSTER_ID) -> form.Message:
    """One request of each kind."""
    begin = BeginEpochRequest(4, NodeId(1))
    return {
        VOTE: form.encode_vote(VOTE_REQUEST, cluster_id, NODE),
        BEGIN_QUORUM_EPOCH: form.encode_begin_epoch(begin, cluster_id, NODE),
        END_QUORUM_EPOCH: epoch_ends(cluster_id),
        FETCH_SNAPSHOT: form.encode_fetch_snapshot(SNAPSHOT, 0, 1_000, cluster_id),
    }[key]


VERSION = {VOTE: 2, BEGIN_QUORUM_EPOCH: 1, END_QUORUM_EPOCH: 1, FETCH_SNAPSHOT: 1}
QUORUM = list(VERSION)


async def test_a_vote_is_asked_for_and_given(node: KafkaNode) -> None:
    given = VoteAnswer(4, NodeId(1), True, ReplicaKey(NODE, UUID(int=77)))
    asked = answers(node, given)
    async with RawClient(node.port) as client:
        message = await client.ask(VOTE, 2, asked_for(VOTE))
    assert form.read_vote_answer(message) == given
    assert asked == [VOTE_REQUEST]


@pytest.mark.parametrize("key", [BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH])
async def test_a_leader_comes_and_goes(node: KafkaNode, key: int) -> None:
    given = EpochAnswer(5, NodeId(2))
    asked = answers(node, given)
    async with RawClient(node.port) as client:
        message = await client.ask(key, 1, asked_for(key))
    assert form.read_epoch_answer(message) == given
    (request,) = asked
    assert isinstance(request, BeginEpochRequest | EndEpochRequest)
    assert (request.epoch, request.leader) == (4, 1)


@pytest.mark.parametrize("key", QUORUM)
async def test_who_is_of_another_cluster_is_told_so(node: KafkaNode, key: int) -> None:
    asked = answers(node, EpochAnswer(5, None))
    async with RawClient(node.port) as client:
        message = await client.ask(key, VERSION[key], asked_for(key, "another"))
    assert message["error_code"] == 104
    assert asked == []


@pytest.mark.parametrize("key", [VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH])
async def test_who_takes_no_part_says_so(node: KafkaNode, key: int) -> None:
    async with RawClient(node.port) as client:
        message = await client.ask(key, VERSION[key], asked_for(key))
    assert message["error_code"] == 41


@pytest.mark.parametrize("key", [VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH])
async def test_what_is_not_about_the_metadata_log_closes_the_connection(
    node: KafkaNode, key: int
) -> None:
    async with RawClient(node.port) as client:
        client.send(key, VERSION[key], {**asked_for(key), "topics": []})
        assert await client.closed()


async def test_the_metadata_log_is_fetched_with_its_records_inline(node: KafkaNode) -> None:
    given = FetchAnswer(4, NodeId(1), high_watermark=20, records=b"batches")
    asked = answers(node, given)
    async with RawClient(node.port) as client:
        response = await client.fetch(form.encode_fetch(FETCH_REQUEST, CLUSTER_ID))
    assert form.read_fetch_answer(response) == given
    assert asked == [FETCH_REQUEST]


async def test_a_fetch_of_the_metadata_log_waits_and_is_given_up_with_its_connection(
    node: KafkaNode,
) -> None:
    waiting: list[Request] = []
    abandoned = asyncio.Event()

    async def wait(request: Request) -> Answer:
        waiting.append(request)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            abandoned.set()
        raise AssertionError

    node.metadata.raft_answers = wait
    async with RawClient(node.port) as client:
        client.send_fetch(form.encode_fetch(FETCH_REQUEST, CLUSTER_ID))
        await until(lambda: bool(waiting))
        client.close()
        async with asyncio.timeout(10):
            await abandoned.wait()


async def test_a_stopping_node_answers_a_fetch_of_the_metadata_log(node: KafkaNode) -> None:
    waiting = asyncio.Event()

    async def wait(_: Request) -> Answer:
        waiting.set()
        never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        return await never

    node.metadata.raft_answers = wait
    async with RawClient(node.port) as client:
        sent = client.send_fetch(form.encode_fetch(FETCH_REQUEST, CLUSTER_ID))
        await waiting.wait()
        await node.listener.stop(timeout_s=30)
        assert (await client.fetched(sent)).error_code == 41


@pytest.mark.parametrize(("cluster_id", "code"), [("another", 104), (CLUSTER_ID, 41)])
async def test_a_fetch_of_the_metadata_log_that_is_refused(
    node: KafkaNode, cluster_id: str, code: int
) -> None:
    async with RawClient(node.port) as client:
        response = await client.fetch(form.encode_fetch(FETCH_REQUEST, cluster_id))
    assert (response.error_code, response.partitions) == (code, [])


async def test_the_metadata_log_is_fetched_alone(node: KafkaNode) -> None:
    request = form.encode_fetch(FETCH_REQUEST, CLUSTER_ID)
    async with RawClient(node.port) as client:
        client.send_fetch(request._replace(topics=[*request.topics, *request.topics]))
        assert await client.closed()


async def test_consumers_do_not_see_the_metadata_log(node: KafkaNode) -> None:
    asked = answers(node, FetchAnswer(4, NodeId(1)))
    request = form.encode_fetch(FETCH_REQUEST, CLUSTER_ID)._replace(replica_id=-1)
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(request)).partitions
    assert found.fetched.error_code == 3
    assert asked == []


async def test_snapshots_come_in_pieces(node: KafkaNode) -> None:
    node.metadata.snapshots[SNAPSHOT] = bytes(range(250))
    found = b""
    async with RawClient(node.port) as client:
        while len(found) < 250:
            wanted = form.encode_fetch_snapshot(SNAPSHOT, len(found), 100, CLUSTER_ID)
            message = await client.ask(FETCH_SNAPSHOT, 1, wanted)
            piece, size, code = form.read_snapshot_answer(message)
            assert (size, code) == (250, 0)
            assert 0 < len(piece) <= 100
            found += piece
    assert found == bytes(range(250))


async def test_a_snapshot_that_is_gone(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        message = await client.ask(FETCH_SNAPSHOT, 1, asked_for(FETCH_SNAPSHOT))
    assert form.read_snapshot_answer(message)[2] == 98


# Commands


def envelope(principal: bytes | None, data: bytes | None = None) -> dict[str, Any]:
    data = encode_command(DeleteStream(name="flights")) if data is None else data
    return {"request_data": data, "request_principal": principal, "client_host_address": b""}


@pytest.mark.parametrize(
    ("principal", "forwarded"),
    [(None, False), (b"User:alice", False), (form.encode_principal(CLUSTER_ID), True)],
)
async def test_a_command_is_taken_from_anybody(
    node: KafkaNode, principal: bytes | None, forwarded: bool
) -> None:
    node.metadata.result = Granted(17, {"created": True})
    async with RawClient(node.port) as client:
        answer = await client.ask(ENVELOPE, 0, envelope(principal))
    assert answer["error_code"] == 0
    assert decode_result(answer["response_data"]) == Granted(17, {"created": True})
    assert node.metadata.taken == [(DeleteStream(name="flights"), forwarded)]


async def test_a_command_from_a_node_of_another_cluster_is_not_looked_at(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        answer = await client.ask(ENVELOPE, 0, envelope(form.encode_principal("another")))
    assert (answer["error_code"], answer["response_data"]) == (104, None)
    assert node.metadata.taken == []


async def test_why_a_command_was_refused_is_in_the_answer(node: KafkaNode) -> None:
    node.metadata.result = NoController("nobody decides")
    async with RawClient(node.port) as client:
        answer = await client.ask(ENVELOPE, 0, envelope(None))
        with pytest.raises(NoController, match="nobody decides"):
            decode_result(answer["response_data"])
        answer = await client.ask(ENVELOPE, 0, envelope(None, b"{}"))
        assert answer["error_code"] == 0
        assert b"not a command" in bytes(answer["response_data"])


# What Kafka's tools are told

DESCRIPTION: dict[str, Any] = {
    "controller": 1,
    "epoch": 6,
    "high_watermark": 90,
    "voters": [
        {"node_id": 1, "host": "a", "port": 1, "directory_id": str(UUID(int=1))},
        {"node_id": 2, "host": "b", "port": 2, "directory_id": None},
    ],
    "replicas": [
        {"node_id": 1, "end_offset": 92, "lag": 0, "last_fetch_ms": None},
        {"node_id": 4, "end_offset": 80, "lag": 12, "last_fetch_ms": 7},
    ],
    "nodes": [],
}


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum_is_described(node: KafkaNode, version: int) -> None:
    node.metadata.result = Granted(0, DESCRIPTION)
    topics = [
        {"topic_name": METADATA_LOG.stream, "partitions": [{"partition_index": 0}]},
        {"topic_name": "flights", "partitions": [{"partition_index": 3}]},
    ]
    async with RawClient(node.port) as client:
        answer = await client.ask(DESCRIBE_QUORUM, version, {"topics": topics})
    assert node.metadata.taken == [(DescribeCluster(), False)]
    (quorum,), (other,) = (topic["partitions"] for topic in answer["topics"])
    assert (quorum["leader_id"], quorum["leader_epoch"], quorum["high_watermark"]) == (1, 6, 90)
    voters = [(it["replica_id"], it["log_end_offset"]) for it in quorum["current_voters"]]
    assert voters == [(1, 92), (2, -1)]
    assert [(it["replica_id"], it["log_end_offset"]) for it in quorum["observers"]] == [(4, 80)]
    assert other["error_code"] == 3
    if version >= 1:
        assert quorum["observers"][0]["last_fetch_timestamp"] > 1_000_000
        assert quorum["current_voters"][0]["last_fetch_timestamp"] == -1
    if version >= 2:
        assert quorum["current_voters"][0]["replica_directory_id"] == UUID(int=1)
        assert [it["node_id"] for it in answer["nodes"]] == [1, 2]


async def test_nobody_can_describe_the_quorum(node: KafkaNode) -> None:
    node.metadata.result = NoController("nobody decides")
    async with RawClient(node.port) as client:
        answer = await client.ask(DESCRIBE_QUORUM, 2, {"topics": []})
    assert (answer["error_code"], answer["error_message"]) == (41, "nobody decides")
