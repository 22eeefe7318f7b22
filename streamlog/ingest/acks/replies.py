"""Packed reply subjects, as an inflow gives them: u32 position, u16 length, subject. Pure."""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from streamlog.ingest.admission.verdict import AckPolicy

_ENTRY = struct.Struct("<IH")


class Replies(NamedTuple):
    """Packed reply subjects, and how many they are."""

    packed: bytes = b""
    reply_count: int = 0
    enveloped: bool = False
    """There may be ``addresses`` among them."""


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


def select_replies(
    replies: Replies, ack: AckPolicy, *, default: AckPolicy, wishes: Mapping[int, AckPolicy]
) -> Replies:
    """Those to be answered at ``ack``: what the message at that position wishes, or the default."""
    if not wishes:
        return replies if ack is default else Replies()
    selected = [
        pack_reply(position, reply)
        for position, reply in iter_replies(replies.packed)
        if wishes.get(position, default) is ack
    ]
    return Replies(b"".join(selected), len(selected), replies.enveloped)
