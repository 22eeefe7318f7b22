import pytest

from streamlog.ingest.liftbridge.protobuf import Field, bytes_field, fields, integer_field, varint


def test_fields_as_the_format_has_them() -> None:
    """The examples of protobuf's own description of its wire format."""
    assert list(fields(bytes.fromhex("089601"))) == [Field(1, 0, integer=150)]
    assert list(fields(bytes.fromhex("120774657374696e67"))) == [Field(2, 2, data=b"testing")]
    assert integer_field(1, 150) == bytes.fromhex("089601")
    assert bytes_field(2, b"testing") == bytes.fromhex("120774657374696e67")
    assert (integer_field(1, 0), bytes_field(2, b"")) == (b"", b"")


def test_numbers_below_zero_take_ten_bytes() -> None:
    assert varint(-1) == b"\xff" * 9 + b"\x01"
    assert list(fields(b"\x08" + varint(-2))) == [Field(1, 0, integer=2**64 - 2)]


def test_what_is_not_looked_at_is_passed_over() -> None:
    fixed = b"\x0d" + b"4444" + b"\x11" + b"88888888"
    group = b"\x1b" + b"\x08\x01" + b"\x23\x24" + b"\x1c"
    assert list(fields(fixed + group + b"\x08\x05")) == [
        Field(1, 5),
        Field(2, 1),
        Field(1, 0, integer=5),
    ]


@pytest.mark.parametrize(
    "broken",
    [
        b"\x08",
        b"\x80",
        b"\x08" + b"\x80" * 10 + b"\x01",
        b"\x08" + b"\xff" * 9 + b"\x02",
        b"\x12\x05abcd",
        b"\x0d123",
        b"\x11" + b"1" * 7,
        b"\x00\x01",
        b"\x0e",
        b"\x0f",
        b"\x1b",
        b"\x1c",
        b"\x1b\x24",
        b"\x1b" * 100 + b"\x1c" * 100,
        varint(2**29 << 3) + b"\x01",
    ],
    ids=bytes.hex,
)
def test_broken(broken: bytes) -> None:
    with pytest.raises(ValueError):
        list(fields(broken))
