"""Messages with headers that ask for something, or in an envelope, as protocol lines.

Each is its own, for a message id may come once and an expected sequence fits once.
"""

from collections.abc import Iterator
from typing import Final

INBOX: Final = b"_INBOX.b"

ENVELOPE_MAGIC: Final = b"\xb9\x0e\x43\xb4"
_ENVELOPE: Final = ENVELOPE_MAGIC + b"\0\x08\0\0"
_ALL: Final = b"\x60\x01"
"""Of an envelope: acknowledge when all replicas have it."""

KINDS: Final = ("plain", "header", "id", "expectation", "envelope")


def lines(kind: str, subject: bytes, body: bytes, count: int) -> Iterator[bytes]:
    """So many messages, each asking for an ack, for a stream that is empty."""
    for number in range(count):
        reply = b"%b.%07d" % (INBOX, number)
        if kind == "plain":
            yield b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body)
        elif kind == "envelope":
            data = _ENVELOPE + _field(3, body) + _field(10, reply) + _ALL
            yield b"PUB %b %d\r\n%b\r\n" % (subject, len(data), data)
        else:
            block = b"NATS/1.0\r\n%b\r\n\r\n" % _header(kind, number)
            sizes = len(block), len(block) + len(body)
            yield b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, *sizes, block, body)


def _header(kind: str, number: int) -> bytes:
    if kind == "id":
        return b"Nats-Msg-Id: benchmark-%07d" % number
    if kind == "expectation":
        return b"Nats-Expected-Last-Sequence: %d" % number
    return b"Trace-Parameter: benchmark-%07d" % number


def _field(number: int, data: bytes) -> bytes:
    """Of protobuf; of less than 128 bytes."""
    assert len(data) < 128, "its length is one byte"
    return bytes((number << 3 | 2, len(data))) + data
