"""Fetch by hand against kio, which reads and writes it from Kafka's own schemas."""

import io
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.fetch.v18 import request as kio_fetch_v18
from kio.schema.types import BrokerId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i64

from streamlog.errors import MalformedFrame
from streamlog.model import EpochEnd, TopicPartition
from streamlog.wire.cursor import Cursor
from streamlog.wire.fetch import (
    NEW_SESSION,
    NODES_FROM,
    NOT_TOLD,
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchSnapshot,
    FetchTopic,
    TopicIdPartition,
    encode_request,
    encode_response,
    next_session_epoch,
    read_request,
    read_response,
)
from streamlog.wire.leaders import CurrentLeader, NodeEndpoint
from streamlog.wire.registry import FETCH

VERSIONS = range(4, 19)
BY_NAME = range(4, 13)
HEADER = b"\x00\x00\x00\x2a"
RECORDS = b"not looked at"

FOLDER = UUID("0cdef59f-2d4e-4d3e-8e1c-5d2cb28a3a11")
ID_A, ID_B = UUID(int=2**127 + 1), UUID(int=3)

REQUEST = FetchRequest(
    [
        FetchTopic(
            "a",
            [
                FetchPartition(0, 2**40, 1_000, 3, 2, 17, FOLDER, 2**33),
                FetchPartition(5, 0, 7, directory_id=FOLDER),
                FetchPartition(6, 0, 7, high_watermark=-1),
            ],
        ),
        FetchTopic("b" * 200, [FetchPartition(1, 1, 1)]),
    ],
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=2**20,
    replica_id=4,
    isolation_level=1,
    session_id=9,
    session_epoch=2,
    rack_id="r1",
    replica_epoch=2**35,
    cluster_id="c1",
    forgotten=(TopicPartition("c", 4), TopicPartition("a", 1)),
)
IDS = {"a": b"a" * 16, "b" * 200: bytes(16), "c": b"\xff" * 16}


def said_in(version: int) -> FetchRequest:
    """REQUEST, its topics named as the version does."""
    if version < TOPIC_IDS_FROM:
        return REQUEST
    return REQUEST._replace(
        topics=[FetchTopic("", it.partitions, IDS[it.name]) for it in REQUEST.topics],
        forgotten=(TopicIdPartition(IDS["c"], 4), TopicIdPartition(IDS["a"], 1)),
    )


def as_of(version: int) -> FetchRequest:
    """REQUEST without what the version cannot say."""
    blank = FetchRequest([], 0, 0, 0)
    whole = said_in(version)
    topics = [
        topic._replace(
            partitions=[
                FetchPartition(
                    it.partition,
                    it.fetch_offset,
                    it.max_bytes,
                    it.current_leader_epoch if version >= 9 else -1,
                    it.last_fetched_epoch if version >= 12 else -1,
                    it.log_start_offset if version >= 5 else -1,
                    it.directory_id if version >= 12 else None,
                    it.high_watermark if version >= 12 else NOT_TOLD,
                )
                for it in topic.partitions
            ],
        )
        for topic in whole.topics
    ]
    return whole._replace(
        topics=topics,
        session_id=REQUEST.session_id if version >= 7 else blank.session_id,
        session_epoch=REQUEST.session_epoch if version >= 7 else blank.session_epoch,
        rack_id=REQUEST.rack_id if version >= 11 else blank.rack_id,
        replica_epoch=REQUEST.replica_epoch if version >= 12 else -1,
        cluster_id=REQUEST.cluster_id if version >= 12 else None,
        forgotten=whole.forgotten if version >= 7 else (),
    )


def as_kio_knows(version: int) -> FetchRequest:
    """Without the tagged fields that Kafka has in later versions only: kio does not read them."""
    request = as_of(version)
    unknown: dict[str, Any] = {} if version >= 17 else {"directory_id": None}
    if version < 18:
        unknown["high_watermark"] = NOT_TOLD
    topics = [
        topic._replace(partitions=[it._replace(**unknown) for it in topic.partitions])
        for topic in request.topics
    ]
    epoch = request.replica_epoch if version >= 15 else -1
    return request._replace(topics=topics, replica_epoch=epoch)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_comes_back(version: int) -> None:
    cursor = Cursor(encode_request(said_in(version), version))
    assert read_request(cursor, version) == as_of(version)
    assert cursor.remaining == 0


def test_a_replica_that_tells_no_epoch_is_still_one() -> None:
    for version in VERSIONS:
        request = said_in(version)._replace(replica_epoch=-1)
        found = read_request(Cursor(encode_request(request, version)), version)
        assert (found.replica_id, found.replica_epoch) == (4, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_our_request_and_we_read_its_own(version: int) -> None:
    ours = encode_request(as_kio_knows(version), version)
    theirs, size = entity_reader(load_request_schema(FETCH, version))(ours, 0)
    assert size == len(ours)
    again = io.BytesIO()
    entity_writer(load_request_schema(FETCH, version))(again, theirs)
    assert read_request(Cursor(again.getvalue()), version) == as_kio_knows(version)


def test_what_a_replica_tells_is_encoded_as_in_the_versions_that_have_it() -> None:
    state = kio_fetch_v18.ReplicaState(
        replica_id=BrokerId(REQUEST.replica_id), replica_epoch=i64(REQUEST.replica_epoch)
    )
    tagged = io.BytesIO()
    entity_writer(kio_fetch_v18.ReplicaState)(tagged, state)
    whole = encode_request(REQUEST, 12)
    assert b"\x01" + bytes([len(tagged.getvalue())]) + tagged.getvalue() in whole
    partition = kio_fetch_v18.FetchPartition(
        partition=i32(0), fetch_offset=i64(2**40), partition_max_bytes=i32(1_000),
        current_leader_epoch=i32(3), last_fetched_epoch=i32(2), log_start_offset=i64(17),
        replica_directory_id=FOLDER, high_watermark=i64(2**33),
    )  # fmt: skip
    theirs = io.BytesIO()
    entity_writer(kio_fetch_v18.FetchPartition)(theirs, partition)
    assert theirs.getvalue() in whole


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_of_a_request_is_malformed(version: int) -> None:
    whole = encode_request(said_in(version), version)
    for size in range(len(whole)):
        with pytest.raises(MalformedFrame):
            read_request(Cursor(whole[:size]), version)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_what_kio_forgets_is_forgotten(version: int) -> None:
    schema = load_request_schema(FETCH, version)
    theirs, _ = entity_reader(schema)(encode_request(as_kio_knows(version), version), 0)
    forgotten: Any = schema.__dataclass_fields__["forgotten_topics_data"].type.__args__[0]  # type: ignore[union-attr]
    by_id = version >= TOPIC_IDS_FROM
    named = {"topic_id": FOLDER} if by_id else {"topic": "gone"}
    gone = (forgotten(**named, partitions=(1, 2)),) * 2
    out = io.BytesIO()
    entity_writer(schema)(out, replace(theirs, forgotten_topics_data=gone))
    cursor = Cursor(out.getvalue())
    names = tuple(
        TopicIdPartition(FOLDER.bytes, number) if by_id else TopicPartition("gone", number)
        for number in (1, 2, 1, 2)
    )
    assert read_request(cursor, version) == as_kio_knows(version)._replace(forgotten=names)
    assert cursor.remaining == 0


def test_session_epochs_go_round_without_the_first() -> None:
    assert next_session_epoch(NEW_SESSION) == 1
    assert next_session_epoch(1) == 2
    assert next_session_epoch(2**31 - 1) == 1


def response(version: int, *, diverging: EpochEnd | None = None) -> bytes:
    """A whole frame, its holes filled."""
    a, b = ("a", "b") if version < TOPIC_IDS_FROM else (ID_A.bytes, ID_B.bytes)
    topics: list[tuple[str | bytes, list[FetchedPartition]]] = [
        (
            a,
            [
                FetchedPartition(0, 0, 100, 5, len(RECORDS)),
                FetchedPartition(1, 3, -1, -1, 0),
                FetchedPartition(2, 0, 7, 0, 0, diverging),
            ],
        ),
        (b, [FetchedPartition(0, 0, 9, 1, 300)]),
    ]
    pieces = encode_response(HEADER, topics, version, session_id=77)
    assert len(pieces) == 3
    return pieces[0] + RECORDS + pieces[1] + bytes(300) + pieces[2]


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_our_response(version: int) -> None:
    whole = response(version)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert whole[4:8] == HEADER
    theirs: Any
    theirs, size = entity_reader(load_response_schema(FETCH, version))(whole[8:], 0)
    assert size == len(whole) - 8
    first, last = theirs.responses
    if version < TOPIC_IDS_FROM:
        assert [topic.topic for topic in theirs.responses] == ["a", "b"]
    else:
        assert [topic.topic_id for topic in theirs.responses] == [ID_A, ID_B]
    told = [(it.partition_index, it.error_code, it.high_watermark) for it in first.partitions]
    assert told == [(0, 0, 100), (1, 3, -1), (2, 0, 7)]
    assert [bytes(it.records or b"") for it in first.partitions] == [RECORDS, b"", b""]
    assert len(last.partitions[0].records) == 300
    for it in (*first.partitions, *last.partitions):
        assert it.last_stable_offset == it.high_watermark
        assert it.aborted_transactions is None
        if version >= 11:
            assert it.preferred_read_replica == -1
    if version >= 5:
        assert [it.log_start_offset for it in first.partitions] == [5, -1, 0]
    if version >= 7:
        assert theirs.session_id == 77


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_comes_back_with_views_into_the_frame(version: int) -> None:
    frame = response(version)
    cursor = Cursor(frame, 8)
    answer = read_response(cursor, version)
    assert cursor.remaining == 0
    assert answer.error_code == 0
    assert answer.session_id == (77 if version >= 7 else 0)
    a, b = ("a", "b") if version < TOPIC_IDS_FROM else (ID_A.bytes, ID_B.bytes)
    assert [(it.topic or it.topic_id, it.fetched.partition) for it in answer.partitions] == [
        (a, 0), (a, 1), (a, 2), (b, 0),
    ]  # fmt: skip
    assert [bytes(it.records) for it in answer.partitions] == [RECORDS, b"", b"", bytes(300)]
    assert answer.partitions[0].records.obj is frame
    assert answer.partitions[1].fetched.error_code == 3


def test_what_is_told_to_replicas_comes_back_and_kio_reads_it() -> None:
    told = FetchedPartition(
        0, 6, 1, 2, 0, None, 5, CurrentLeader(7, 2**20), FetchSnapshot(2**40, 3)
    )
    (piece,) = encode_response(HEADER, [("a", [told])], 12)
    (found,) = read_response(Cursor(piece, 8), 12).partitions
    assert found.fetched == told
    theirs: Any
    theirs, size = entity_reader(load_response_schema(FETCH, 12))(piece[8:], 0)
    assert size == len(piece) - 8
    it = theirs.responses[0].partitions[0]
    assert it.preferred_read_replica == 5
    assert (it.current_leader.leader_id, it.current_leader.leader_epoch) == (7, 2**20)
    assert (it.snapshot_id.end_offset, it.snapshot_id.epoch) == (2**40, 3)


@pytest.mark.parametrize("version", range(12, 19))
def test_where_leaders_are_is_told_from_version_16_on(version: int) -> None:
    told = FetchedPartition(0, 6, -1, -1, 0, current_leader=CurrentLeader(7, 2))
    nodes = (NodeEndpoint(7, "host-7", 9092, "r1"), NodeEndpoint(8, "h" * 200, 1, None))
    topic = "a" if version < TOPIC_IDS_FROM else ID_A.bytes
    (piece,) = encode_response(HEADER, [(topic, [told])], version, nodes=nodes, throttle_ms=77)
    answer = read_response(Cursor(piece, 8), version)
    assert answer.nodes == (nodes if version >= NODES_FROM else ())
    assert answer.throttle_ms == 77
    theirs: Any
    theirs, size = entity_reader(load_response_schema(FETCH, version))(piece[8:], 0)
    assert size == len(piece) - 8
    assert theirs.throttle_time.total_seconds() == 0.077
    if version >= NODES_FROM:
        found = [(it.node_id, it.host, it.port, it.rack) for it in theirs.node_endpoints]
        assert found == list(nodes)


@pytest.mark.parametrize("version", BY_NAME)
def test_a_preferred_replica_is_told_from_version_11_on(version: int) -> None:
    told = FetchedPartition(0, 0, 1, 0, preferred_read_replica=5)
    (piece,) = encode_response(HEADER, [("a", [told])], version)
    (found,) = read_response(Cursor(piece, 8), version).partitions
    assert found.fetched.preferred_read_replica == (5 if version >= 11 else -1)


def test_a_diverging_epoch_comes_back_and_kio_reads_it() -> None:
    whole = response(12, diverging=EpochEnd(4, 99))
    assert read_response(Cursor(whole, 8), 12).partitions[2].fetched.diverging == EpochEnd(4, 99)
    theirs: Any
    theirs, size = entity_reader(load_response_schema(FETCH, 12))(whole[8:], 0)
    assert size == len(whole) - 8
    end = theirs.responses[0].partitions[2].diverging_epoch
    assert (end.epoch, end.end_offset) == (4, 99)


@pytest.mark.parametrize("version", BY_NAME)
def test_an_answer_without_records_is_one_piece(version: int) -> None:
    pieces = encode_response(HEADER, [("a", [FetchedPartition(0, 0, 1, 0)])], version)
    assert len(pieces) == 1
    assert int.from_bytes(pieces[0][:4], "big") == len(pieces[0]) - 4


@pytest.mark.parametrize("version", [7, 12])
def test_an_error_of_the_whole_comes_back(version: int) -> None:
    (piece,) = encode_response(HEADER, [], version, error_code=70)
    assert read_response(Cursor(piece, 8), version) == FetchResponse(70, [])


@pytest.mark.parametrize("version", [4, 11])
def test_aborted_transactions_of_another_broker_are_passed_over(version: int) -> None:
    theirs: Any
    theirs, _ = entity_reader(load_response_schema(FETCH, version))(response(version)[8:], 0)
    topic = theirs.responses[0]
    partition = topic.partitions[0]
    declared: Any = type(partition).__dataclass_fields__["aborted_transactions"].type
    aborted = declared.__args__[0].__args__[0](producer_id=1, first_offset=2)
    partition = replace(partition, aborted_transactions=(aborted,) * 3)
    out = io.BytesIO()
    changed = replace(theirs, responses=(replace(topic, partitions=(partition,)),))
    entity_writer(type(theirs))(out, changed)
    (found,) = read_response(Cursor(out.getvalue()), version).partitions
    assert bytes(found.records) == RECORDS


@pytest.mark.parametrize("version", BY_NAME)
def test_every_cut_of_a_response_is_malformed(version: int) -> None:
    whole = response(version)[:200]
    for size in range(8, len(whole)):
        with pytest.raises(MalformedFrame):
            read_response(Cursor(whole[:size], 8), version)
