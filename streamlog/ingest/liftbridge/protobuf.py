"""Protobuf's wire format, as far as flat messages need it. Pure.

A field is its number and wire type, then a varint, or bytes with their length before them, or four
or eight bytes. What a reader does not know it passes over.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

VARINT: Final = 0
BYTES: Final = 2

_FIXED: Final = {1: 8, 5: 4}
_GROUP: Final = 3
_GROUP_END: Final = 4
_VARINT_BYTES_MAX: Final = 10
_NUMBER_MAX: Final = 2**29 - 1
_GROUPS_MAX: Final = 64
"""Within each other; they have long been out of use."""
_64_BITS: Final = 2**64


class Field(NamedTuple):
    """One field as it came; several of one number may."""

    number: int
    kind: int
    """``VARINT``, ``BYTES``, or another wire type, whose value is left out."""
    integer: int = 0
    """Of a varint: 64 bits, without a sign."""
    data: bytes = b""


def fields(data: bytes) -> Iterator[Field]:
    """All of a message's fields, in order. Raises ValueError where it is broken."""
    at, groups = 0, list[int]()
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= _NUMBER_MAX:
            raise ValueError(f"field number {number}")
        field, at = _value(data, at, Field(number, kind))
        if kind == _GROUP:
            groups.append(number)
            if len(groups) > _GROUPS_MAX:
                raise ValueError("too many groups")
        elif kind == _GROUP_END:
            if not groups or groups.pop() != number:
                raise ValueError("a group ends that has not begun")
        elif not groups:
            yield field
    if groups:
        raise ValueError("a group without an end")


def _value(data: bytes, at: int, field: Field) -> tuple[Field, int]:
    """The field with its value, and where the next one begins."""
    if field.kind == VARINT:
        integer, at = _varint(data, at)
        return field._replace(integer=integer), at
    if field.kind in (_GROUP, _GROUP_END):
        return field, at
    if field.kind == BYTES:
        size, at = _varint(data, at)
    elif field.kind in _FIXED:
        size = _FIXED[field.kind]
    else:
        raise ValueError(f"wire type {field.kind}")
    end = at + size
    if end > len(data):
        raise ValueError("a field is cut")
    return (field._replace(data=data[at:end]) if field.kind == BYTES else field), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(_VARINT_BYTES_MAX):
        if at + i >= len(data):
            raise ValueError("a number is cut")
        byte = data[at + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if value >= _64_BITS:
                raise ValueError("a number of more than 64 bits")
            return value, at + i + 1
    raise ValueError("a number of more than ten bytes")


def varint(value: int) -> bytes:
    """Of at most 64 bits; below zero in two's complement."""
    value %= _64_BITS
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer_field(number: int, value: int) -> bytes:
    """Nothing for 0, which stands for itself."""
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Nothing for no bytes."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value if value else b""
