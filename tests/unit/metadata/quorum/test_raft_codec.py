"""Raft's messages through Kafka's forms and back; kio reads what we write."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from streamlog.errors import MalformedFrame
from streamlog.metadata.quorum import raft_codec as form
from streamlog.metadata.quorum.store import METADATA_LOG
from streamlog.model import EpochEnd, NodeId
from streamlog.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    Fault,
    FetchAnswer,
    RaftFetchRequest,
    SnapshotId,
    VoteAnswer,
    VoteRequest,
)
from streamlog.raft.voters import ReplicaKey
from streamlog.wire import api_messages, fetch
from streamlog.wire.cursor import Cursor
from streamlog.wire.leaders import CurrentLeader
from streamlog.wire.registry import (
    APIS,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH_SNAPSHOT,
    VOTE,
)

CLUSTER = "c1"

epochs = st.integers(-1, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
node_ids = st.integers(1, 2**31 - 1).map(NodeId)
keys = st.builds(ReplicaKey, node_ids, st.uuids())
leaders = st.none() | node_ids
faults = st.sampled_from(Fault)
snapshots = st.builds(SnapshotId, offsets, epochs)


def through(key: int, values: form.Message, *, response: bool = False) -> form.Message:
    """Over the wire; kio reads the very same bytes to their end."""
    api = APIS[key]
    version = api.version_max
    if response:
        data = api_messages.encode_response(api, version, values)
        schema: Any = load_response_schema(key, version)
        read: Callable[..., Any] = api_messages.read_response
    else:
        data = api_messages.encode_request(api, version, values)
        schema, read = load_request_schema(key, version), api_messages.read_request
    _, size = entity_reader(schema)(data, 0)
    assert size == len(data)
    cursor = Cursor(data)
    found: form.Message = read(cursor, api, version)
    assert cursor.remaining == 0
    return found


@given(st.builds(VoteRequest, epochs, keys, epochs, offsets, st.booleans(), st.uuids()), node_ids)
def test_votes_are_asked_for(request: VoteRequest, peer: NodeId) -> None:
    message = through(VOTE, form.encode_vote(request, CLUSTER, peer))
    assert form.read_vote(message) == request
    assert (message["cluster_id"], message["voter_id"]) == (CLUSTER, peer)


@given(st.builds(VoteAnswer, epochs, leaders, st.booleans(), keys, faults))
def test_votes_are_given(answer: VoteAnswer) -> None:
    message = through(VOTE, form.encode_vote_answer(answer), response=True)
    assert form.read_vote_answer(message) == answer


@given(st.builds(BeginEpochRequest, epochs, node_ids), node_ids)
def test_epochs_begin(request: BeginEpochRequest, peer: NodeId) -> None:
    message = through(BEGIN_QUORUM_EPOCH, form.encode_begin_epoch(request, CLUSTER, peer))
    assert form.read_begin_epoch(message) == request


@given(st.builds(EndEpochRequest, epochs, node_ids, st.lists(node_ids, max_size=5).map(tuple)))
def test_epochs_end(request: EndEpochRequest) -> None:
    message = through(END_QUORUM_EPOCH, form.encode_end_epoch(request, CLUSTER))
    assert form.read_end_epoch(message) == request


@pytest.mark.parametrize("key", [BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH])
@given(answer=st.builds(EpochAnswer, epochs, leaders, faults))
def test_both_are_answered(key: int, answer: EpochAnswer) -> None:
    message = through(key, form.encode_epoch_answer(answer), response=True)
    assert form.read_epoch_answer(message) == answer


@given(st.builds(RaftFetchRequest, epochs, keys, offsets, epochs, st.integers(0, 2**31 - 1)))
def test_the_metadata_log_is_asked_for(request: RaftFetchRequest) -> None:
    data = fetch.encode_request(form.encode_fetch(request, CLUSTER), 12)
    message = fetch.read_request(Cursor(data), 12)
    assert form.read_fetch(message) == request
    assert message.cluster_id == CLUSTER


@given(
    st.builds(
        FetchAnswer,
        epochs,
        leaders,
        faults,
        st.integers(-1, 2**63 - 1),
        st.none() | st.builds(EpochEnd, epochs, offsets),
        st.none() | snapshots,
        st.just(-1),
        st.binary(max_size=200),
    )
)
def test_the_metadata_log_is_given(answer: FetchAnswer) -> None:
    topics = [(METADATA_LOG.stream, [form.encode_fetch_answer(answer)])]
    pieces = fetch.encode_response(b"head", topics, 12)
    data = bytes(answer.records).join(pieces)
    response = fetch.read_response(Cursor(data, 8), 12)
    assert form.read_fetch_answer(response) == answer


@given(snapshots, offsets, st.integers(1, 2**31 - 1))
def test_pieces_of_snapshots_are_asked_for(snapshot: SnapshotId, at: int, most: int) -> None:
    message = through(FETCH_SNAPSHOT, form.encode_fetch_snapshot(snapshot, at, most, CLUSTER))
    assert form.read_fetch_snapshot(message) == (snapshot, at, most)


@given(snapshots, offsets, st.binary(max_size=200), offsets, st.sampled_from([0, 1, 56, 98]))
def test_pieces_of_snapshots_are_given(
    snapshot: SnapshotId, at: int, data: bytes, size: int, code: int
) -> None:
    values = form.encode_snapshot_answer(snapshot, at, data, size, code)
    message = through(FETCH_SNAPSHOT, values, response=True)
    assert form.read_snapshot_answer(message) == (data, size, code)


@given(st.text(max_size=40))
def test_a_node_that_hands_on_tells_its_cluster(cluster_id: str) -> None:
    assert form.read_principal(memoryview(form.encode_principal(cluster_id))) == cluster_id


@pytest.mark.parametrize("principal", [None, b"", b"User:alice", b"streamlog"])
def test_others_do_not_hand_on(principal: bytes | None) -> None:
    assert form.read_principal(principal) is None


def vote_answer(**changes: Any) -> form.Message:
    answer = VoteAnswer(1, None, True, ReplicaKey(NodeId(1), UUID(int=5)))
    return {**form.encode_vote_answer(answer), **changes}


def one_partition(**fields: Any) -> list[form.Message]:
    whole = {"leader_epoch": 1, "leader_id": 1, "vote_granted": True, "error_code": 0, **fields}
    return [{"topic_name": METADATA_LOG.stream, "partitions": [whole]}]


@pytest.mark.parametrize(
    "message",
    [
        vote_answer(topics=[]),
        vote_answer(topics=one_partition() * 2),
        vote_answer(topics=[{"topic_name": METADATA_LOG.stream, "partitions": []}]),
        vote_answer(topics=[{**one_partition()[0], "topic_name": "flights"}]),
        vote_answer(topics=one_partition(error_code=3)),
        vote_answer(topics=one_partition(error_code=30_000)),
        vote_answer(node_endpoints=[]),
        vote_answer(node_endpoints=[{"node_id": 1, "host": "no folder", "port": 0}]),
    ],
)
def test_what_no_voter_says_is_malformed(message: form.Message) -> None:
    with pytest.raises(MalformedFrame):
        form.read_vote_answer(message)


@pytest.mark.parametrize(
    ("name", "code", "leader"),
    [("flights", 0, CurrentLeader(1, 1)), (METADATA_LOG.stream, 0, None),
     (METADATA_LOG.stream, 3, CurrentLeader(1, 1))],
)  # fmt: skip
def test_what_no_leader_says_is_malformed(
    name: str, code: int, leader: CurrentLeader | None
) -> None:
    told = fetch.FetchedPartition(0, code, 1, 0, current_leader=leader)
    response = fetch.FetchResponse(0, [fetch.FetchedRecords(name, told, memoryview(b""))])
    with pytest.raises(MalformedFrame):
        form.read_fetch_answer(response)
    with pytest.raises(MalformedFrame):
        form.read_fetch_answer(fetch.FetchResponse(0, []))
