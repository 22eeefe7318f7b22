from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import MalformedFrame
from streamlog.wire.cursor import (
    WEIGHED_AT_ONCE,
    Cursor,
    encode_array_length,
    encode_bytes,
    encode_string,
    encode_uvarint,
)


def test_numbers_are_big_endian_and_signed() -> None:
    cursor = Cursor(b"\xff\xff\xfe\x00\x00\x01\x00\xff\xff\xff\xff\xff\xff\xff\xfd\x01")
    assert (cursor.i8(), cursor.i16(), cursor.i32(), cursor.i64()) == (-1, -2, 256, -3)
    assert cursor.boolean()
    assert cursor.remaining == 0


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31 - 1, 2**35 - 1])
def test_a_varint_comes_back(value: int) -> None:
    assert Cursor(encode_uvarint(value)).uvarint() == value


def test_an_endless_varint_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="more than 5 bytes"):
        Cursor(b"\xff" * 6).uvarint()


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("value", [None, "", "flights", "žluťoučký", "x" * 20_000])
def test_text_comes_back(value: str | None, flexible: bool) -> None:
    cursor = Cursor(encode_string(value, flexible))
    assert cursor.nullable_string(flexible) == value
    assert cursor.remaining == 0


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("value", [None, b"", b"\x00\xff", b"x" * 300])
def test_bytes_come_back_as_a_view(value: bytes | None, flexible: bool) -> None:
    cursor = Cursor(encode_bytes(value, flexible))
    assert cursor.nullable_bytes(flexible) == value
    assert cursor.remaining == 0


@pytest.mark.parametrize("flexible", [False, True])
def test_a_null_is_refused_where_a_value_must_be(flexible: bool) -> None:
    with pytest.raises(MalformedFrame, match="null"):
        Cursor(encode_string(None, flexible)).string(flexible)
    with pytest.raises(MalformedFrame, match="null"):
        Cursor(encode_array_length(None, flexible)).array_length(flexible)


@pytest.mark.parametrize("flexible", [False, True])
def test_an_array_longer_than_the_frame_is_refused_before_it_is_built(flexible: bool) -> None:
    lie = encode_array_length(2**31 - 1, flexible)
    with pytest.raises(MalformedFrame, match="array of 2147483647"):
        Cursor(lie + bytes(10)).array_length(flexible)
    assert Cursor(encode_array_length(3, flexible) + bytes(3)).array_length(flexible) == 3


def test_negative_lengths_are_refused() -> None:
    for read in (Cursor.nullable_array_length, Cursor.nullable_bytes):
        with pytest.raises(MalformedFrame):
            read(Cursor(b"\xff\xff\xff\xfe" + bytes(8)), False)
    with pytest.raises(MalformedFrame):
        Cursor(b"\xff\xfe" + bytes(8)).nullable_string(flexible=False)


@pytest.mark.parametrize(
    "read",
    [Cursor.i8, Cursor.i16, Cursor.i32, Cursor.i64, Cursor.uvarint, Cursor.uuid, Cursor.skip_tags],
)
def test_the_end_inside_a_field_is_malformed(read: Callable[[Cursor], object]) -> None:
    with pytest.raises(MalformedFrame):
        read(Cursor(b""))


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="UTF-8"):
        Cursor(b"\x00\x02\xff\xfe").string(flexible=False)


def test_the_zero_uuid_stands_for_none() -> None:
    assert Cursor(bytes(16)).uuid() is None
    assert Cursor(bytes(15) + b"\x01").uuid() == UUID(int=1)


def test_unknown_tags_are_passed_over() -> None:
    cursor = Cursor(b"\x02" + b"\x05\x01a" + b"\x07\x00" + b"z")
    cursor.skip_tags()
    assert cursor.take(1) == b"z"


def test_tagged_fields_are_counted_though_nobody_knows_them() -> None:
    tagged = encode_uvarint(1000) + b"\x63\x00" * 1000
    cursor = Cursor(tagged, elements_max=1000)
    cursor.skip_tags()
    assert cursor.remaining == cursor.elements_left == 0
    with pytest.raises(MalformedFrame, match="more elements than are allowed"):
        Cursor(tagged, elements_max=999).skip_tags()


def test_more_tagged_fields_than_there_are_bytes_are_refused_before_any_is_read() -> None:
    with pytest.raises(MalformedFrame, match="2147483647 tagged fields"):
        Cursor(encode_uvarint(2**31 - 1) + bytes(100)).skip_tags()


def test_a_tag_longer_than_the_frame_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        Cursor(b"\x01\x05\x7fa").skip_tags()


def test_the_elements_of_a_request_are_bounded() -> None:
    cursor = Cursor(b"\x03\x01\x01" * 3, elements_max=5)
    assert cursor.array_length(flexible=True) == 2
    cursor.take(2)
    assert cursor.array_length(flexible=True) == 2
    cursor.take(2)
    with pytest.raises(MalformedFrame, match="more elements"):
        cursor.array_length(flexible=True)
    with pytest.raises(MalformedFrame, match="more elements"):
        Cursor(b"\x02\x00\x00\x01\x00", elements_max=1).tags()
    with pytest.raises(MalformedFrame, match="tagged fields"):
        Cursor(b"\x09\x00\x00\x01\x00").tags()


@given(st.lists(st.integers(0, 3_000), max_size=30))
def test_whoever_weighs_hears_before_there_are_many_more(lengths: list[int]) -> None:
    data = b"".join(length.to_bytes(4, "big") for length in lengths) + bytes(100_000)
    heard = [0]
    cursor = Cursor(data, elements_max=1_000_000, weigh=heard.append)
    cursor.limit(500_000)
    read = 0
    for length in lengths:
        assert cursor.array_length(flexible=False) == length
        read += length
        assert read - WEIGHED_AT_ONCE <= heard[-1] <= read
    assert heard == sorted(set(heard))


def test_elements_in_a_tagged_field_are_weighed_too() -> None:
    heard: list[int] = []
    one = (1_024).to_bytes(4, "big") + bytes(1_024)
    cursor = Cursor(one * 2, elements_max=9_000, weigh=heard.append)
    for expected in ([], [2_048]):
        inner = cursor.within(len(one))
        inner.array_length(flexible=False)
        cursor.passed(inner)
        assert heard == expected
    assert cursor.elements_left == 9_000 - 2_048
