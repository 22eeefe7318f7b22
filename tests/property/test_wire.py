"""Whatever comes from the network is a request or a ProtocolViolation, and costs what it is."""

import contextlib
import tracemalloc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import ProtocolViolation
from streamlog.model import EpochEnd, TopicPartition
from streamlog.wire import api_messages, fetch
from streamlog.wire.cursor import Cursor
from streamlog.wire.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchSnapshot,
    FetchTopic,
    TopicIdPartition,
)
from streamlog.wire.framing import LARGE_BYTES, LENGTH_BYTES, FrameSplitter, frame
from streamlog.wire.header import encode_request_header, read_request_header
from streamlog.wire.leaders import CurrentLeader, NodeEndpoint
from streamlog.wire.registry import APIS, FETCH, Api

EXAMPLES = 400

SPOKEN = [
    (api, version)
    for api in APIS.values()
    for version in range(api.version_min, api.version_max + 1)
]

# Small and extreme bytes: they are what lengths and counts are made of.
hostile = st.lists(
    st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255), max_size=80
).map(bytes)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=30)
topic_ids = st.binary(min_size=16, max_size=16)


def read_body(cursor: Cursor, api: Api, version: int) -> object:
    if api.key == FETCH:
        return fetch.read_request(cursor, version)
    return api_messages.read_request(cursor, api, version)


@settings(max_examples=EXAMPLES, deadline=None)
@given(spoken=st.sampled_from(SPOKEN), body=hostile)
def test_a_hostile_body_is_refused_or_read(spoken: tuple[Api, int], body: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):
        read_body(Cursor(body), *spoken)


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=hostile)
def test_a_hostile_frame_is_refused_or_read(data: bytes) -> None:
    cursor = Cursor(data)
    with contextlib.suppress(ProtocolViolation):
        header = read_request_header(cursor)
        if header.version <= header.api.version_max:
            read_body(cursor, header.api, header.version)


@settings(max_examples=100, deadline=None)
@given(spoken=st.sampled_from(SPOKEN), head=hostile)
def test_a_lie_about_a_length_allocates_nothing(spoken: tuple[Api, int], head: bytes) -> None:
    body = head + b"\x7f\xff\xff\xff" + b"\xff\xff\xff\xff\x07" * 3
    with contextlib.suppress(ProtocolViolation):
        read_body(Cursor(body), *spoken)  # builds the schema's codec
    tracemalloc.start()
    with contextlib.suppress(ProtocolViolation):
        read_body(Cursor(body), *spoken)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    frames=st.lists(st.binary(max_size=40), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=10),
)
def test_frames_survive_any_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(body) for body in frames)
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
    splitter, found = FrameSplitter(1_000), []
    start = 0
    for end in ends:
        splitter.feed(stream[start:end])
        start = end
        while (body := splitter.next_frame()) is not None:
            found.append(body)
    assert found == frames


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 40), st.integers(0, 5 * LARGE_BYTES)), max_size=5),
    pieces=st.lists(st.tuples(st.integers(1, 2 * LARGE_BYTES), st.booleans()), min_size=1),
)
def test_large_frames_survive_any_cut_and_either_way_in(
    sizes: list[int], pieces: list[tuple[int, bool]]
) -> None:
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = memoryview(b"".join(frame(body) for body in frames))
    splitter, found = FrameSplitter(1_000_000), []
    start, turn = 0, 0
    while start < len(stream):
        piece, in_place = pieces[turn % len(pieces)]
        turn += 1
        if in_place and splitter.partial is not None:
            with memoryview(splitter.partial) as room:
                count = min(len(room), piece)
                room[:count] = stream[start : start + count]
            splitter.filled(count)
        else:
            count = min(len(stream) - start, piece)
            splitter.feed(stream[start : start + count])
        start += count
        while (body := splitter.next_frame()) is not None:
            found.append(body)
        assert splitter.buffered == start - sum(LENGTH_BYTES + len(body) for body in found)
    assert found == frames


partitions = st.builds(
    FetchPartition,
    int32,
    int64,
    int32,
    int32,
    int32,
    int64,
    st.none() | st.uuids(),
    int64,
    int64,
    int64,
)
by_name = st.builds(FetchTopic, names, st.lists(partitions, max_size=3), st.just(b""))
by_id = st.builds(FetchTopic, st.just(""), st.lists(partitions, max_size=3), topic_ids)


def requests(version: int) -> st.SearchStrategy[FetchRequest]:
    """Of all that the version can say."""
    has_ids = version >= fetch.TOPIC_IDS_FROM
    gone = (
        st.builds(TopicIdPartition, topic_ids, int32)
        if has_ids
        else st.builds(TopicPartition, names, int32)
    )
    return st.builds(
        FetchRequest,
        st.lists(by_id if has_ids else by_name, max_size=3),
        max_wait_ms=int32,
        min_bytes=int32,
        max_bytes=int32,
        replica_id=int32,
        isolation_level=st.integers(-128, 127),
        session_id=int32,
        session_epoch=int32,
        rack_id=names,
        replica_epoch=st.integers(-1, 2**63 - 1),
        cluster_id=st.none() | names,
        forgotten=st.lists(gone, max_size=3).map(tuple),
    )


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), version=st.integers(12, 18))
def test_any_fetch_request_comes_back(data: st.DataObject, version: int) -> None:
    request = data.draw(requests(version))
    head = encode_request_header(APIS[FETCH], version, 1, "c")
    cursor = Cursor(head + fetch.encode_request(request, version))
    read_request_header(cursor)
    assert fetch.read_request(cursor, version) == request
    assert cursor.remaining == 0


fetched = st.tuples(int32, st.integers(-1, 100), int64, int64, st.binary(max_size=200))
tags = st.fixed_dictionaries(
    {},
    optional={
        "diverging": st.builds(EpochEnd, int32, int64),
        "preferred_read_replica": int32,
        "current_leader": st.builds(CurrentLeader, int32, int32),
        "snapshot": st.builds(FetchSnapshot, int64, int32),
    },
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(told=st.lists(st.tuples(int32, st.integers(-1, 100), int64, int64, tags), max_size=3))
def test_whatever_an_answer_tells_beside_records_comes_back(
    told: list[tuple[Any, ...]],
) -> None:
    partitions = [FetchedPartition(*fields, **more) for *fields, more in told]
    (piece,) = fetch.encode_response(b"head", [("a", partitions)], 12)
    read = fetch.read_response(Cursor(piece, 8), 12)
    assert [it.fetched for it in read.partitions] == partitions


nodes = st.builds(NodeEndpoint, int32, names, int32, st.none() | names)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    answer=st.lists(st.tuples(names, topic_ids, st.lists(fetched, max_size=4)), max_size=4),
    version=st.integers(5, 18),
    throttle_ms=st.integers(0, 2**31 - 1),
    nodes=st.lists(nodes, max_size=3).map(tuple),
)
def test_any_fetch_answer_comes_back_with_its_holes_filled(
    answer: list[tuple[str, bytes, list[tuple[Any, ...]]]],
    version: int,
    throttle_ms: int,
    nodes: tuple[NodeEndpoint, ...],
) -> None:
    by_id = version >= fetch.TOPIC_IDS_FROM
    told = [
        (
            topic_id if by_id else name,
            [FetchedPartition(*numbers, len(records)) for *numbers, records in group],  # type: ignore[call-arg]
        )
        for name, topic_id, group in answer
    ]
    runs = [records for *_, group in answer for *_, records in group if records]
    pieces = fetch.encode_response(
        b"head", told, version, session_id=3, throttle_ms=throttle_ms, nodes=nodes
    )
    assert len(pieces) == len(runs) + 1
    whole = b"".join(part for pair in zip(pieces, runs, strict=False) for part in pair) + pieces[-1]
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    read = fetch.read_response(Cursor(whole, 8), version)
    assert read.throttle_ms == throttle_ms
    assert read.nodes == (nodes if version >= fetch.NODES_FROM else ())
    found = [
        (it.topic_id if by_id else it.topic, it.fetched, bytes(it.records))
        for it in read.partitions
    ]
    assert found == [
        (topic, partition, group[index][-1])
        for (topic, ours), (*_, group) in zip(told, answer, strict=True)
        for index, partition in enumerate(ours)
    ]
