"""Liftbridge's envelope and its Ack by hand, as the protocol is published: none of our code."""

import struct
from collections.abc import Mapping
from typing import Any, Final

MAGIC: Final = b"\xb9\x0e\x43\xb4"
LEADER, ALL, NONE = range(3)

ACK_FIELDS: Final = {
    1: "stream",
    2: "partition_subject",
    3: "subject",
    4: "offset",
    5: "inbox",
    6: "correlation_id",
    7: "policy",
    8: "received_ns",
    9: "committed_ns",
    10: "error",
}


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value % 128 + 128]), value // 128
    return out + bytes([value])


def text(number: int, value: bytes) -> bytes:
    return bytes([number * 8 + 2]) + varint(len(value)) + value


def number(field: int, value: int) -> bytes:
    return bytes([field * 8]) + varint(value % 2**64)


def message(
    value: bytes = b"",
    *,
    key: bytes = b"",
    headers: Mapping[bytes, bytes] | None = None,
    inbox: bytes = b"",
    correlation_id: bytes = b"",
    policy: int = LEADER,
) -> bytes:
    """A ``Message`` of api.proto."""
    entries = [text(9, text(1, name) + text(2, it)) for name, it in (headers or {}).items()]
    parts = [text(2, key), text(3, value), *entries, text(10, inbox), text(11, correlation_id)]
    return b"".join((*parts, number(12, policy)))


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def envelope(body: bytes, *, checked: bool = False, kind: int = 0) -> bytes:
    if checked:
        return MAGIC + bytes((0, 12, 1, kind)) + struct.pack(">I", crc32c(body)) + body
    return MAGIC + bytes((0, 8, 0, kind)) + body


def read_ack(data: bytes) -> dict[str, Any]:
    """The fields of an enveloped ``Ack``, by the names of ``ACK_FIELDS``."""
    assert data[:8] == MAGIC + bytes((0, 8, 0, 1)), data
    found: dict[str, Any] = {}
    at = 8
    while at < len(data):
        field, kind = divmod(data[at], 8)
        value = shift = 0
        at += 1
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
        if kind == 2:
            found[ACK_FIELDS[field]] = data[at : at + value]
            at += value
        else:
            assert kind == 0, kind
            found[ACK_FIELDS[field]] = value
    return found
