"""The compiled reading of a Produce for one partition, and its answer, held to those in Python."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import StreamlogError
from streamlog.wire import api_messages, produce
from streamlog.wire.compiled.single_produce import SingleProduce, read_single_produce
from streamlog.wire.cursor import Cursor
from streamlog.wire.header import (
    encode_request_header,
    encode_response_header,
    read_request_header,
)
from streamlog.wire.produce import ProducePartition, ProduceResult
from streamlog.wire.registry import APIS, PRODUCE

API = APIS[PRODUCE]
VERSIONS = range(produce.VERSION_MIN, API.version_max + 1)
NAMES = st.text(min_size=1, max_size=60).filter(lambda it: len(it.encode()) <= 249)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)


def request_of(
    version: int,
    partitions: Sequence[tuple[int, bytes | None]],
    *,
    name: str = "flights",
    acks: int = -1,
    timeout_ms: int = 1_500,
    transactional_id: str | None = None,
    client_id: str = "c",
    correlation_id: int = 7,
) -> bytes:
    data = [{"index": number, "records": records} for number, records in partitions]
    values = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": timeout_ms,
        "topic_data": [{"name": name, "topic_id": UUID(int=5), "partition_data": data}],
    }
    header = encode_request_header(API, version, correlation_id, client_id)
    return header + api_messages.encode_request(API, version, values)


def by_hand(request: bytes) -> produce.ProduceRequest | None:
    """As Python reads it to the end; None where that refuses it."""
    cursor = Cursor(request)
    try:
        header = read_request_header(cursor)
        found = produce.read_request(cursor, header.version)
    except StreamlogError:
        return None
    return None if cursor.remaining else found


def check(request: bytes, found: SingleProduce) -> None:
    """It is what Python reads."""
    cursor = Cursor(request)
    header = read_request_header(cursor)
    assert (header.api.key, header.version) == (PRODUCE, found.version)
    assert header.correlation_id == found.correlation_id
    assert (header.client_id or "") == found.client_id
    whole = by_hand(request)
    assert whole is not None
    assert whole.transactional_id is None
    assert (whole.acks, whole.timeout_ms) == (found.acks, found.timeout_ms)
    partitions = [ProducePartition(found.partition, found.records)]
    assert whole.topics == [(found.topic, partitions)]


@given(
    version=st.sampled_from(VERSIONS),
    name=NAMES,
    client_id=st.text(max_size=20),
    correlation_id=I32,
    acks=st.sampled_from((1, -1)),
    timeout_ms=I32,
    partition=I32,
    records=st.binary(min_size=1, max_size=300),
)
def test_it_reads_what_python_reads(
    version: int,
    name: str,
    client_id: str,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
    partition: int,
    records: bytes,
) -> None:
    request = request_of(
        version,
        [(partition, records)],
        name=name,
        acks=acks,
        timeout_ms=timeout_ms,
        client_id=client_id,
        correlation_id=correlation_id,
    )
    found = read_single_produce(request)
    assert found is not None
    assert bytes(found.records) == records
    check(request, found)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_else_is_left_to_python(version: int) -> None:
    one = [(0, b"xyz")]
    whole = request_of(version, one)
    assert read_single_produce(whole) is not None
    assert read_single_produce(b"") is None
    for end in range(len(whole)):
        assert read_single_produce(whole[:end]) is None
    assert read_single_produce(whole + b"\0") is None
    for other in (
        request_of(version, [*one, (1, b"x")]),
        request_of(version, []),
        request_of(version, [(0, None)]),
        request_of(version, [(0, b"")]),
        request_of(version, one, acks=0),
        request_of(version, one, acks=-2),
        request_of(version, one, transactional_id="t"),
        request_of(version, one, client_id="c" * 1_001),
        b"\0\1" + whole[2:],
        whole[:2] + b"\0\2" + whole[4:],
        whole[:2] + b"\0\x0e" + whole[4:],
    ):
        assert read_single_produce(other) is None
    if version < produce.TOPIC_IDS_FROM:
        assert read_single_produce(request_of(version, one, name="n" * 250)) is None
        at = whole.index(b"flights")
        assert read_single_produce(whole[:at] + b"\xff" + whole[at + 1 :]) is None


@given(
    version=st.sampled_from(VERSIONS),
    records=st.binary(min_size=1, max_size=40),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_what_is_damaged_is_read_as_python_does_or_not_at_all(
    version: int, records: bytes, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(request_of(version, [(0, records)]))
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    request = bytes(damaged)
    found = read_single_produce(request)
    if found is not None:
        check(request, found)


@given(
    version=st.sampled_from(VERSIONS),
    name=NAMES,
    partition=I32,
    base_offset=I64,
    log_start_offset=I64,
    append_time_ms=I64,
)
def test_it_answers_as_python_does(
    version: int,
    name: str,
    partition: int,
    base_offset: int,
    log_start_offset: int,
    append_time_ms: int,
) -> None:
    found = read_single_produce(request_of(version, [(partition, b"x")], name=name))
    assert found is not None
    result = ProduceResult(
        partition, 0, base_offset, log_start_offset, append_time_ms=append_time_ms
    )
    header = encode_response_header(API, version, found.correlation_id)
    wanted = produce.encode_response(header, [(found.topic, [result])], version)
    found.release_records()
    assert not found.records
    assert found.encode_answer(base_offset, log_start_offset, append_time_ms) == wanted
