"""Packed reply subjects, as an inflow gives them: u32 position, u16 length, subject. Pure."""

import struct
from collections.abc import Iterator, Mapping

from streamlog.ingest.sequencer import Ack

_ENTRY = struct.Struct("<IH")


def iter_replies(replies: bytes) -> Iterator[tuple[int, bytes]]:
    """(position in the run, reply subject) of each."""
    at = 0
    while at < len(replies):
        position, length = _ENTRY.unpack_from(replies, at)
        at += _ENTRY.size
        yield position, replies[at : at + length]
        at += length


def pack_reply(position: int, reply: bytes) -> bytes:
    return _ENTRY.pack(position, len(reply)) + reply


def select_replies(replies: bytes, ack: Ack, *, default: Ack, wishes: Mapping[int, Ack]) -> bytes:
    """Those to be answered at ``ack``: what the message at that position wishes, or the default."""
    if not wishes:
        return replies if ack is default else b""
    return b"".join(
        pack_reply(position, reply)
        for position, reply in iter_replies(replies)
        if wishes.get(position, default) is ack
    )
