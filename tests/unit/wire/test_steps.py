"""Fetch and Produce requests that are read in steps are read as they are at once."""

import struct
from uuid import uuid4

import pytest

from streamlog.model import TopicPartition
from streamlog.wire import fetch, produce
from streamlog.wire.cursor import Cursor, encode_array_length, encode_bytes, encode_string, finished
from streamlog.wire.fetch import FetchPartition, FetchTopic, TopicIdPartition

PARTITIONS = 100


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch(version: int) -> None:
    by_id = version >= 13
    ids = [uuid4().bytes for _ in range(3)]
    wanted = [FetchPartition(it, 7 * it, 1_000 + it) for it in range(PARTITIONS)]
    request = fetch.FetchRequest(
        [FetchTopic("" if by_id else f"t{n}", wanted, ids[n] if by_id else b"") for n in range(3)],
        100,
        1,
        2**20,
        session_id=5 if version >= 7 else 0,
        session_epoch=3 if version >= 7 else -1,
        rack_id="r" if version >= 11 else "",
        forgotten=[
            TopicIdPartition(ids[0], it) if by_id else TopicPartition("t0", it) for it in range(50)
        ]
        if version >= 7
        else (),
    )
    data = fetch.encode_request(request, version)
    at_once = fetch.read_request(Cursor(data), version)
    assert finished(fetch.read_request_in_steps(Cursor(data), version)) == at_once
    assert [len(topic.partitions) for topic in at_once.topics] == 3 * [PARTITIONS]
    assert sum(1 for _ in fetch.read_request_in_steps(Cursor(data), version)) >= 3 * 3


@pytest.mark.parametrize("version", [3, 9, 13])
def test_produce(version: int) -> None:
    flexible = version >= 9
    tags = b"\x00" if flexible else b""
    data = encode_string(None, flexible) + struct.pack(">hi", -1, 1_000)
    data += encode_array_length(1, flexible)
    data += uuid4().bytes if version >= 13 else encode_string("t", flexible)
    data += encode_array_length(PARTITIONS, flexible)
    for number in range(PARTITIONS):
        data += struct.pack(">i", number) + encode_bytes(b"records", flexible) + tags
    data += tags + tags
    at_once = produce.read_request(Cursor(data), version)
    assert finished(produce.read_request_in_steps(Cursor(data), version)) == at_once
    assert sum(1 for _ in produce.read_request_in_steps(Cursor(data), version)) >= 3
