"""The compiled reading of a consumer's Fetch, held to the one in Python."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import MalformedFrame
from streamlog.model import TopicPartition
from streamlog.wire import fetch
from streamlog.wire.compiled.plain_fetch import read_plain_fetch
from streamlog.wire.cursor import Cursor, finished
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchTopic, TopicIdPartition
from streamlog.wire.registry import APIS, FETCH

VERSIONS = range(12, APIS[FETCH].version_max + 1)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.lists(
    st.tuples(I32, I64, I32, I32, I32, I64).map(lambda it: FetchPartition(*it)), max_size=4
)
NAMES = st.text(max_size=30).filter(lambda it: len(it.encode()) <= 249)
TOPICS = st.lists(
    st.builds(FetchTopic, NAMES, PARTITIONS, st.binary(min_size=16, max_size=16)), max_size=3
)


def request_of(version: int, topics: list[FetchTopic], **more: int | str) -> FetchRequest:
    """Topics as the version names them."""
    if version >= fetch.TOPIC_IDS_FROM:
        topics = [it._replace(name="") for it in topics]
    else:
        topics = [it._replace(topic_id=b"") for it in topics]
    values = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1_000_000, **more}
    return FetchRequest(topics, **values)  # type: ignore[arg-type]


def by_hand(data: bytes, version: int) -> FetchRequest | None:
    """As Python reads it to the end; None where that refuses it."""
    cursor = Cursor(data)
    try:
        found = finished(fetch.read_request_in_steps(cursor, version))
    except MalformedFrame:
        return None
    return None if cursor.remaining else found


@given(
    version=st.sampled_from(VERSIONS),
    topics=TOPICS,
    numbers=st.lists(I32, min_size=5, max_size=5),
    isolation_level=st.integers(-128, 127),
    rack_id=st.text(max_size=10),
)
def test_it_reads_what_python_reads(
    version: int,
    topics: list[FetchTopic],
    numbers: list[int],
    isolation_level: int,
    rack_id: str,
) -> None:
    wait_ms, min_bytes, max_bytes, session_id, session_epoch = numbers
    request = request_of(
        version,
        topics,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        rack_id=rack_id,
    )
    data = fetch.encode_request(request, version)
    assert read_plain_fetch(b"head" + data, 4, version) is not None
    cursor = Cursor(data)
    assert fetch.read_request(cursor, version) == by_hand(data, version) == request
    assert cursor.remaining == 0


PLAIN = FetchPartition(3, 77, 1_000)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_else_is_left_to_python(version: int) -> None:
    topic = FetchTopic("flights", [PLAIN], UUID(int=5).bytes)
    whole = fetch.encode_request(request_of(version, [topic]), version)
    assert read_plain_fetch(whole, 0, version) is not None
    assert read_plain_fetch(whole, 0, 11) is None
    assert read_plain_fetch(whole, len(whole) + 1, version) is None
    for end in range(len(whole)):
        assert read_plain_fetch(whole[:end], 0, version) is None
    assert read_plain_fetch(whole + b"\0", 0, version) is None
    by_id = version >= fetch.TOPIC_IDS_FROM
    gone = TopicIdPartition(topic.topic_id, 1) if by_id else TopicPartition("flights", 1)
    tagged = PLAIN._replace(high_watermark=9)
    for other in (
        request_of(version, [topic])._replace(forgotten=(gone,)),
        request_of(version, [topic])._replace(replica_id=2, replica_epoch=3),
        request_of(version, [topic._replace(partitions=[tagged])]),
    ):
        data = fetch.encode_request(other, version)
        assert read_plain_fetch(data, 0, version) is None
        assert fetch.read_request(Cursor(data), version) == other


@given(
    version=st.sampled_from(VERSIONS),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_what_is_damaged_is_read_as_python_does_or_not_at_all(
    version: int, changes: list[tuple[int, int]]
) -> None:
    topics = [FetchTopic("flights", [PLAIN, PLAIN], UUID(int=5).bytes)]
    damaged = bytearray(fetch.encode_request(request_of(version, topics), version))
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    data = bytes(damaged)
    if read_plain_fetch(data, 0, version) is not None:
        assert fetch.read_request(Cursor(data), version) == by_hand(data, version)


def test_no_more_elements_are_read_than_are_allowed() -> None:
    topics = [FetchTopic("flights", [PLAIN] * 20)]
    data = fetch.encode_request(request_of(12, topics), 12)
    assert len(fetch.read_request(Cursor(data, 0, 10_000), 12).topics[0].partitions) == 20
    with pytest.raises(MalformedFrame):
        fetch.read_request(Cursor(data, 0, 20), 12)
