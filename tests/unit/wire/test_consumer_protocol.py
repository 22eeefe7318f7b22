"""Assignments as Kafka's schema has them."""

import pytest
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment as First
from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment as Newest

from streamlog.errors import MalformedFrame
from streamlog.model import TopicPartition
from streamlog.wire.consumer_protocol import read_assignment
from tests.kio_schemas import codec_of


def encoded(version: int, schema: type) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    topics = [
        {"topic": "orders", "partitions": [0, 2]},
        {"topic": "bills", "partitions": [1]},
        {"topic": "none", "partitions": []},
    ]
    codec_of(schema).write(out, {"assigned_partitions": topics, "user_data": b"sticky"})
    return bytes(out)


@pytest.mark.parametrize(("version", "schema"), [(0, First), (3, Newest)])
def test_partitions(version: int, schema: type) -> None:
    assert read_assignment(encoded(version, schema)) == (
        TopicPartition("orders", 0),
        TopicPartition("orders", 2),
        TopicPartition("bills", 1),
    )


def test_before_the_first_assignment() -> None:
    assert read_assignment(b"") == ()


def test_fields_of_later_versions_are_passed_over() -> None:
    assert len(read_assignment(encoded(9, First) + b"more")) == 3


@pytest.mark.parametrize("cut", range(1, len(encoded(0, First)) - 10))
def test_what_is_cut_short(cut: int) -> None:
    with pytest.raises(MalformedFrame):
        read_assignment(encoded(0, First)[:cut])


def test_what_is_no_assignment() -> None:
    for data in (b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00"):
        with pytest.raises(MalformedFrame):
            read_assignment(data)
