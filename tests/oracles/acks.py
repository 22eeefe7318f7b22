"""Acks in plain Python, which the router is held to, as far as they are not for the router itself."""

import struct
from collections.abc import Iterator
from typing import Final

_ENTRY: Final = struct.Struct("<IH")
OFFSET_MAX: Final = 2**63 - 1


def build_acks(replies: bytes, head: bytes, base_offset: int) -> bytes:
    """A publication of a positive ack for each packed reply; its ``seq`` is the offset + 1.

    ``head`` is what stands before it, of ``acks.ack_head``.
    """
    if not 0 <= base_offset < OFFSET_MAX - 2**32:
        raise ValueError(f"offset {base_offset} has no sequence")
    return b"".join(
        _publication(reply, b"%b%d}" % (head, base_offset + delta + 1))
        for delta, reply in _entries(replies)
    )


def build_refusals(replies: bytes, payload: bytes) -> bytes:
    """A publication of the same ``payload`` for each packed reply."""
    return b"".join(_publication(reply, payload) for _, reply in _entries(replies))


def _publication(reply: bytes, payload: bytes) -> bytes:
    return b"PUB %b %d\r\n%b\r\n" % (reply, len(payload), payload)


def _entries(replies: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(replies):
        if len(replies) - position < _ENTRY.size:
            raise ValueError("packed replies are cut")
        delta, length = _ENTRY.unpack_from(replies, position)
        start = position + _ENTRY.size
        position = start + length
        if position > len(replies):
            raise ValueError("packed replies are cut")
        reply = replies[start:position]
        if not reply.startswith(b"\0"):
            yield delta, reply
