"""Ours and kio's reading of the same bytes must agree; kio is generated from Kafka's schemas."""

import io
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from streamlog.errors import MalformedFrame
from streamlog.wire.api_messages import encode_request
from streamlog.wire.cursor import STEP_ITEMS, Cursor
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.registry import (
    APIS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from streamlog.wire.schema_codec import schemas
from tests.kio_schemas import codec_of
from tools import kafka_schemas

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

SCHEMAS = [
    pytest.param((api, load), id=f"{api.name}-{load.__name__.split('_')[1]}")
    for api in APIS.values()
    if api.key not in {PRODUCE, FETCH}
    for load in (load_request_schema, load_response_schema)
]
"""Each API's requests and responses."""
SALTS = range(5)

every_schema = pytest.mark.parametrize("versions", SCHEMAS, indirect=True)


@pytest.fixture
def versions(request: pytest.FixtureRequest) -> list[type[Any]]:
    """All that are spoken. They are loaded for the test, for it takes seconds to load those of all."""
    api, load = request.param
    return [load(api.key, version) for version in range(api.version_min, api.version_max + 1)]


def plain(value: Any) -> Any:
    """kio's dataclasses as our dicts."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value


def example(schema: Any, salt: int) -> dict[str, Any]:
    """A value of every field; another one for another salt."""
    values: dict[str, Any] = {}
    for index, field in enumerate(fields(schema)):
        text = str(field.type)
        kind = field.metadata.get("kafka_type")
        nested = next((arg for arg in _args(field.type) if is_dataclass(arg)), None)
        number = salt * 7 + index
        scalars = {
            "string": f"t{number}",
            "bytes": b"b%d" % number,
            "records": b"r%d" % number,
            "bool": bool(number % 2),
            "uuid": ID,
        }
        scalar: Any = scalars.get(str(kind), number % 100)
        if nested is field.type:
            values[field.name] = example(nested, number)
        elif nested is not None and "tuple" not in text:
            values[field.name] = None if salt % 4 == 3 else example(nested, number)
        elif nested is not None:
            values[field.name] = [example(nested, number + item) for item in range(salt % 3)]
        elif "tuple" in text:
            values[field.name] = [scalar] * (salt % 3)
        elif salt % 4 == 3 and "None" in text:
            values[field.name] = None
        else:
            values[field.name] = scalar
    return values


def _args(annotation: Any) -> list[Any]:
    inner = getattr(annotation, "__args__", ())
    return [annotation, *(arg for part in inner for arg in _args(part))]


def ended(steps: Any) -> tuple[Any, int]:
    """What they come to, and how often they yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@every_schema
def test_in_steps_the_same_is_read_and_written(versions: list[Any]) -> None:
    for schema, salt in product(versions, SALTS):
        _check_steps(schema, salt)


def _check_steps(schema: Any, salt: int) -> None:
    codec, values, data = codec_of(schema), example(schema, salt), bytearray()
    codec.write(data, values)
    if codec.read_steps is None or codec.write_steps is None:
        assert not [
            it for it in fields(schema) if "tuple" in str(it.type) and "tag" not in it.metadata
        ]
        return
    again = bytearray()
    ended(codec.write_steps(again, values))
    assert again == data
    cursor = Cursor(bytes(data))
    assert ended(codec.read_steps(cursor))[0] == codec.read(Cursor(bytes(data)))
    assert cursor.remaining == 0


def test_a_large_request_has_a_step_for_each_few_items() -> None:
    """Also where they are all in one topic."""
    codec = codec_of(load_request_schema(LIST_OFFSETS, 7))
    partitions = [{"partition_index": number, "timestamp": 1} for number in range(3_200)]
    for topics in (
        [{"name": "t", "partitions": partitions}],
        [{"name": f"t{number}", "partitions": partitions[:1]} for number in range(3_200)],
    ):
        data, again = bytearray(), bytearray()
        codec.write(data, {"replica_id": -1, "topics": topics})
        assert codec.read_steps is not None
        assert codec.write_steps is not None
        read, count = ended(codec.read_steps(Cursor(bytes(data))))
        assert count == 3_200 // STEP_ITEMS
        assert ended(codec.write_steps(again, read))[1] == 3_200 // STEP_ITEMS
        assert again == data


@every_schema
def test_kio_reads_what_we_write_and_writes_what_we_read(versions: list[Any]) -> None:
    for schema, salt in product(versions, SALTS):
        _check_against_kio(schema, salt)


def _check_against_kio(schema: Any, salt: int) -> None:
    values = example(schema, salt)
    ours = bytearray()
    codec_of(schema).write(ours, values)
    theirs, size = entity_reader(schema)(bytes(ours), 0)
    assert size == len(ours)
    assert plain(theirs) == values
    again = io.BytesIO()
    entity_writer(schema)(again, theirs)
    assert again.getvalue() == ours
    cursor = Cursor(ours)
    assert codec_of(schema).read(cursor) == values
    assert cursor.remaining == 0


@every_schema
def test_what_is_not_given_has_its_default(versions: list[Any]) -> None:
    for schema in versions:
        ours = bytearray()
        codec_of(schema).write(ours, {})
        theirs, size = entity_reader(schema)(bytes(ours), 0)
        assert size == len(ours), schema
        assert plain(theirs) == codec_of(schema).read(Cursor(ours)), schema


@every_schema
def test_every_cut_is_malformed(versions: list[Any]) -> None:
    for schema in versions:
        whole = bytearray()
        codec_of(schema).write(whole, example(schema, 1))
        for size in range(len(whole)):
            with pytest.raises(MalformedFrame):
                codec_of(schema).read(Cursor(whole[:size]))


def test_unknown_tagged_fields_are_passed_over() -> None:
    schema = load_request_schema(METADATA, 12)
    whole = encode_request(APIS[METADATA], 12, {"topics": None})
    tagged = whole[:-1] + b"\x01\x09\x02??"
    assert codec_of(schema).read(Cursor(tagged)) == codec_of(schema).read(Cursor(whole))


def test_unknown_tagged_fields_are_counted_with_the_elements_of_arrays() -> None:
    schema = load_request_schema(METADATA, 12)
    whole = encode_request(APIS[METADATA], 12, {"topics": None})
    tagged = whole[:-1] + b"\x03" + b"\x09\x00" * 3
    assert codec_of(schema).read(Cursor(tagged, elements_max=3))["topics"] is None
    with pytest.raises(MalformedFrame, match="more elements than are allowed"):
        codec_of(schema).read(Cursor(tagged, elements_max=2))


def test_a_huge_array_length_is_refused_where_kios_own_reader_aborts_the_process() -> None:
    bomb = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(MalformedFrame):
        codec_of(load_request_schema(METADATA, 12)).read(Cursor(bomb))


@pytest.mark.parametrize("mark", [0, 2, 127, 128, 254])
def test_what_may_be_null_is_so_in_one_way(mark: int) -> None:
    schema = load_request_schema(DESCRIBE_TOPIC_PARTITIONS, 0)
    whole = encode_request(APIS[DESCRIBE_TOPIC_PARTITIONS], 0, {"cursor": None})
    assert whole[-2:] == b"\xff\x00"
    with pytest.raises(MalformedFrame, match="1 or -1"):
        codec_of(schema).read(Cursor(whole[:-2] + bytes((mark, 0))))


# What is generated


def test_the_table_and_the_error_codes_are_what_kio_says() -> None:
    """After a new version of kio: ``python -m tools.kafka_schemas``."""
    assert kafka_schemas.SCHEMAS.read_text() == kafka_schemas.schemas_text()
    assert kafka_schemas.ERROR_CODES.read_text() == kafka_schemas.error_codes_text()
    assert [(it.name, int(it), it.retriable) for it in ErrorCode] == [
        (it.name, int(it), it.retriable) for it in KioErrorCode
    ]


def test_every_version_that_is_spoken_has_a_schema() -> None:
    for api in APIS.values():
        if api.key not in {PRODUCE, FETCH}:
            for version in range(api.version_min, api.version_max + 1):
                assert schemas().request(api.key, version) is not None
                assert schemas().response(api.key, version) is not None
