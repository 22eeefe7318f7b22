"""Liftbridge's envelope: what its clients put around a message, and around its ack. Pure.

::

    0  magic: B9 0E 43 B4
    4  version: 0
    5  length of this header: where the rest begins
    6  flags; bit 0: there is a checksum
    7  type: 0 a message, 1 an ack; others are between Liftbridge's servers
    8  with that flag, CRC-32C of the rest, big-endian; the header's length is then 12

The rest is a ``Message`` or an ``Ack`` of liftbridge-api's ``api.proto``. What is not an envelope
in every respect is a message like any other, and stored as it came.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.ingest.liftbridge.protobuf import (
    BYTES,
    VARINT,
    Field,
    bytes_field,
    fields,
    integer_field,
)

MAGIC: Final = bytes.fromhex("b90e43b4")
HEADER_BYTES: Final = 8
ACK_INBOX_BYTES_MAX: Final = 1024
CORRELATION_ID_BYTES_MAX: Final = 4096
"""An Ack must be one line and one payload that any nats-server takes."""

LEADER: Final = 0
ALL: Final = 1
NONE: Final = 2

UNKNOWN: Final = 1
INCORRECT_OFFSET: Final = 2
TOO_LARGE: Final = 3

_CHECKSUM_BYTES: Final = 4
_TYPE_MESSAGE: Final = 0
_TYPE_ACK: Final = 1
_KEY, _VALUE, _HEADERS, _ACK_INBOX, _CORRELATION_ID, _ACK_POLICY = 2, 3, 9, 10, 11, 12
_TEXTS: Final = frozenset({5, 7, 8, _ACK_INBOX, _CORRELATION_ID})
"""Fields that have to be UTF-8: beside those used, stream, subject and reply."""
_SUBJECT: Final = re.compile(
    rb"(?!(?:.*\.)?[*>](?:\.|$))[^\x00-\x20\x7f.]+(?:\.[^\x00-\x20\x7f.]+)*", re.DOTALL
)
"""No empty token, white space or control character, and no wildcard for a token."""
_ACK_HEADER: Final = MAGIC + bytes((0, HEADER_BYTES, 0, _TYPE_ACK))


class Envelope(NamedTuple):
    """A message as its publisher meant it."""

    key: bytes | None = None
    value: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    ack_inbox: bytes = b""
    correlation_id: bytes = b""
    ack_policy: int = LEADER


def decode(data: bytes) -> Envelope | None:
    """None: it is none. Also where no Ack could be sent that it asks for."""
    body = _body(data)
    if body is None:
        return None
    try:
        envelope = _message(fields(body))
    except ValueError:
        return None
    if envelope.ack_inbox and not _is_subject(envelope.ack_inbox):
        return None
    return envelope if len(envelope.correlation_id) <= CORRELATION_ID_BYTES_MAX else None


def _body(data: bytes) -> bytes | None:
    """What follows a header that is right."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        return None
    version, length, flags, kind = data[4:HEADER_BYTES]
    if version != 0 or kind != _TYPE_MESSAGE or not HEADER_BYTES <= length <= len(data):
        return None
    body = data[length:]
    if flags & 1:
        checksum = data[HEADER_BYTES:length]
        if len(checksum) != _CHECKSUM_BYTES or crc32c(body) != int.from_bytes(checksum):
            return None
    return body


def _message(found: Iterable[Field]) -> Envelope:
    """Of a field that comes twice the last counts. Raises ValueError."""
    parts: dict[int, bytes] = {}
    headers: dict[bytes, bytes] = {}
    policy = LEADER
    for number, kind, integer, data in found:
        if kind == BYTES:
            if number in _TEXTS:
                data.decode()
            if number == _HEADERS:
                name, value = _entry(data)
                headers[name] = value
            else:
                parts[number] = data
        elif kind == VARINT and number == _ACK_POLICY:
            policy = (integer + 2**31) % 2**32 - 2**31  # it is an int32
    return Envelope(
        key=parts.get(_KEY) or None,
        value=parts.get(_VALUE, b""),
        headers=tuple(headers.items()),
        ack_inbox=parts.get(_ACK_INBOX, b""),
        correlation_id=parts.get(_CORRELATION_ID, b""),
        ack_policy=policy,
    )


def _entry(data: bytes) -> tuple[bytes, bytes]:
    """Name and value of a header."""
    name = value = b""
    for number, kind, _, part in fields(data):
        if kind == BYTES and number == 1:
            part.decode()
            name = part
        elif kind == BYTES and number == 2:
            value = part
    return name, value


def _is_subject(inbox: bytes) -> bool:
    """It can be published to, in one line, without a second one in it."""
    return len(inbox) <= ACK_INBOX_BYTES_MAX and _SUBJECT.fullmatch(inbox) is not None


def ack_begun(
    envelope: Envelope, *, stream: bytes, partition_subject: bytes, subject: bytes, received_ns: int
) -> bytes:
    """All of an Ack that is known when its message comes."""
    return b"".join(
        (
            _ACK_HEADER,
            bytes_field(1, stream),
            bytes_field(2, partition_subject),
            bytes_field(3, subject),
            bytes_field(5, envelope.ack_inbox),
            bytes_field(6, envelope.correlation_id),
            integer_field(7, envelope.ack_policy),
            integer_field(8, received_ns),
        )
    )


def stored(offset: int, committed_ns: int) -> bytes:
    """The end of an Ack that says yes."""
    return integer_field(4, offset) + integer_field(9, committed_ns)


def refused(error: int) -> bytes:
    """The end of one that says no."""
    return integer_field(10, error)
