import json
from uuid import UUID

import pytest

from streamlog.errors import CorruptData
from streamlog.metadata.records import (
    MetadataRecord,
    NodeRegistered,
    PartitionChanged,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
    decode_record,
    encode_record,
)
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId

ID = UUID(int=7)
CONFIG = StreamConfig.of(name="s", subjects=("a.>",), metadata={"k": "grüße"})
ONE = NodeId(1)

RECORDS: list[MetadataRecord] = [
    NodeRegistered(node_id=ONE, incarnation=ID, host="::1", port=9092, rack="r"),
    StreamCreated(stream_id=ID, config=CONFIG, created_ms=5),
    StreamUpdated(config=CONFIG),
    StreamDeleted(name="s", stream_id=ID),
    PartitionChanged(
        stream="s", partition=0, replicas=(ONE,), leader=ONE, leader_epoch=3, isr=(ONE,),
        partition_epoch=4,
    ),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_round_trip(record: MetadataRecord) -> None:
    data = encode_record(record)
    assert b"\n" not in data
    assert decode_record(data) == record


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(encode_record(RECORDS[3])), **fields}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b'{"type":"StreamDeleted"}',
        changed(type="StreamForgotten"),
        changed(type=["StreamDeleted"]),
        changed(version=2),
        changed(version="1"),
        changed(extra=1),
        changed(stream_id="x"),
        encode_record(RECORDS[2]).replace(b'"s"', b'"a.b"'),
    ],
)
def test_what_is_not_ours_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_record(data)
