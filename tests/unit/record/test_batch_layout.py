"""The one description of a batch's header, and what compiled code has of it."""

import re
import struct
from pathlib import Path

from streamlog.record import batch
from streamlog.record.batch import CHECKED, FIELDS, HEADER, TO_CRC, BatchHeader, header_fields
from streamlog.record.compression import CODEC_MASK

POSITIONS = {
    "BASE_OFFSET_POSITION": "base_offset",
    "LENGTH_POSITION": "batch_length",
    "LENGTH_PREFIX_BYTES": "leader_epoch",
    "LEADER_EPOCH_POSITION": "leader_epoch",
    "MAGIC_POSITION": "magic",
    "CRC_POSITION": "crc",
    "CRC_START": "attributes",
    "ATTRIBUTES_POSITION": "attributes",
    "LAST_OFFSET_DELTA_POSITION": "last_offset_delta",
    "BASE_TIMESTAMP_POSITION": "base_timestamp_ms",
    "MAX_TIMESTAMP_POSITION": "max_timestamp_ms",
    "PRODUCER_ID_POSITION": "producer_id",
    "PRODUCER_EPOCH_POSITION": "producer_epoch",
    "BASE_SEQUENCE_POSITION": "base_sequence",
    "RECORD_COUNT_POSITION": "record_count",
}


def place_of(field: str) -> int:
    """Where it begins, by the sizes of those before it."""
    before = list(FIELDS)[: list(FIELDS).index(field)]
    return sum(struct.calcsize(">" + FIELDS[name]) for name in before)


def test_the_fields_are_those_of_the_header() -> None:
    assert tuple(FIELDS) == BatchHeader._fields
    assert (HEADER.format, HEADER.size) == (">qiibIhiqqqhii", batch.HEADER_BYTES)
    assert (TO_CRC.size, TO_CRC.size + CHECKED.size) == (batch.CRC_START, batch.HEADER_BYTES)


def test_a_field_is_unpacked_from_where_it_lies() -> None:
    header = BatchHeader(*range(1, 14))
    packed = HEADER.pack(*header)
    for name in FIELDS:
        assert header_fields(name).unpack_from(packed) == (getattr(header, name),)
    assert header_fields("base_offset", "magic", "record_count").unpack(packed) == (1, 4, 13)
    assert header_fields("base_offset", "batch_length", "magic").format == ">qi4xb"


def test_every_position_is_that_of_its_field() -> None:
    for name, field in POSITIONS.items():
        assert getattr(batch, name, place_of(field)) == place_of(field), name


def test_compiled_code_has_the_same_numbers() -> None:
    text = Path(batch.__file__).with_name("compiled").joinpath("batch_header.pxd").read_text()
    declared = {name: int(number, 0) for name, number in re.findall(r"(\w+) = (\w+)\n", text)}
    others = declared.keys() - POSITIONS.keys()
    assert {name: declared[name] for name in POSITIONS} == {
        name: place_of(field) for name, field in POSITIONS.items()
    }
    expected = {name: getattr(batch, name) for name in others - {"CODEC_MASK"}}
    assert {name: declared[name] for name in others} == expected | {"CODEC_MASK": CODEC_MASK}
    assert "HEADER_BYTES" in others
