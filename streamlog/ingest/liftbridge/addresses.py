"""Where the answers to an enveloped message go, in one piece of bytes. Pure.

It travels where the reply subject of other messages does. The space at its beginning tells them
apart: NATS ends a subject there.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.ingest.liftbridge.envelope import NONE
from streamlog.ingest.pub_ack_format import iter_replies, pack_reply

_MARK: Final = b" "
_HEAD: Final = struct.Struct("<cBII")


class ReplyAddress(NamedTuple):
    """``ack`` is the Ack as far as it was known when the message came."""

    reply: bytes
    """Which wants JetStream's answer; empty: none does."""
    inbox: bytes
    """Which wants the Ack; empty: none does."""
    policy: int
    """``LEADER``, ``ALL`` or ``NONE``."""
    ack: bytes

    def packed(self) -> bytes:
        sizes = len(self.reply), len(self.inbox)
        return _HEAD.pack(_MARK, self.policy, *sizes) + self.reply + self.inbox + self.ack

    def answers(self, json: bytes, rest: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The answers, each with its reply: ``json`` is JetStream's, ``rest`` the end of the Ack."""
        if self.reply:
            yield self.reply, json
        if self.inbox and self.policy != NONE:
            yield self.inbox, self.ack + rest


def is_address(reply: bytes) -> bool:
    """Or else a reply subject."""
    return reply.startswith(_MARK)


def unpack(packed: bytes) -> ReplyAddress:
    _, policy, reply, inbox = _HEAD.unpack_from(packed)
    start, middle = _HEAD.size, _HEAD.size + reply
    end = middle + inbox
    return ReplyAddress(packed[start:middle], packed[middle:end], policy, packed[end:])


def parted(replies: bytes) -> tuple[bytes, list[tuple[int, ReplyAddress]]]:
    """Packed replies: the subjects among them, packed again, and the addresses by position."""
    subjects: list[bytes] = []
    addresses: list[tuple[int, ReplyAddress]] = []
    for position, reply in iter_replies(replies):
        if is_address(reply):
            addresses.append((position, unpack(reply)))
        else:
            subjects.append(pack_reply(position, reply))
    return b"".join(subjects), addresses
