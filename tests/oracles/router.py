"""NATS's matching in plain Python, which the compiled router is held to: a list, and a look at each.

Rules, which are nats-server's: ``*`` in a subscription is one token, ``>`` as its last token is one or
more; what is published has no wildcards, but may have such tokens; an empty token matches nothing.
"""

import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tests.oracles import acks

_ENTRY = struct.Struct("<IH")
ROUTED = b"\0"
ACK_DOTS_MIN = 8
"""Before the ``@`` in the reply of a message that a consumer delivers."""


class Subscriber(NamedTuple):
    """A subscription; ``number`` tells it from others that are equal."""

    number: int
    owner: int
    subject: bytes
    queue: bytes = b""


def is_subscribable(subject: bytes) -> bool:
    tokens = subject.split(b".")
    return b"" not in tokens and b">" not in tokens[:-1]


def matches(pattern: bytes, subject: bytes) -> bool:
    wanted, tokens = pattern.split(b"."), subject.split(b".")
    if b"" in tokens:
        return False
    if wanted[-1] == b">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(
        each in (b"*", token) for each, token in zip(wanted, tokens, strict=True)
    )


class Subscriptions:
    """All of a node."""

    def __init__(self) -> None:
        self.subscribers: list[Subscriber] = []

    def add(self, subscriber: Subscriber) -> None:
        self.subscribers.append(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        self.subscribers.remove(subscriber)

    def plain(self, subject: bytes) -> set[Subscriber]:
        """Each of them gets the message."""
        return {it for it in self.subscribers if not it.queue and matches(it.subject, subject)}

    def groups(self, subject: bytes) -> dict[bytes, set[Subscriber]]:
        """By name of the queue group: one of each gets the message."""
        found: dict[bytes, set[Subscriber]] = {}
        for it in self.subscribers:
            if it.queue and matches(it.subject, subject):
                found.setdefault(it.queue, set()).add(it)
        return found

    def is_right(self, got: list[Subscriber], subject: bytes, *, source: int | None = None) -> bool:
        """Whether these may be who has got a message; ``source``: an owner that gets none."""
        plain = {it for it in self.plain(subject) if it.owner != source}
        groups = {
            name: left
            for name, members in self.groups(subject).items()
            if (left := {it for it in members if it.owner != source})
        }
        chosen = [it for it in got if it.queue]
        return (
            len(set(got)) == len(got)
            and {it for it in got if not it.queue} == plain
            and sorted(it.queue for it in chosen) == sorted(groups)
            and all(it in groups[it.queue] for it in chosen)
        )

    def interest(self, subject: bytes, queue: bytes, links: Collection[int]) -> int:
        """How many wait for a message; ``links``: owners that are links, which have one each."""
        plain = {it.owner if it.owner in links else it for it in self.plain(subject)}
        groups = self.groups(subject)
        if queue:
            return len(groups.get(queue, ()))
        return len(plain) + sum(map(len, groups.values()))


def shown(subject: bytes, reply: bytes) -> tuple[bytes, bytes]:
    """As which subject and reply clients see a message that comes over a link."""
    if reply.startswith(b"$JS.ACK."):
        for at in range(len(reply) - 1):
            if reply[at : at + 1] == b"@" and reply.count(b".", 0, at) >= ACK_DOTS_MIN:
                return reply[at + 1 :], reply[:at]
    return subject, reply


def answered(packed: bytes) -> Iterator[tuple[int, bytes]]:
    """Position and subject of the packed replies that the router itself answers."""
    position = 0
    while position < len(packed):
        delta, length = _ENTRY.unpack_from(packed, position)
        position += _ENTRY.size + length
        reply = packed[position - length : position]
        if reply.startswith(ROUTED):
            yield delta, reply[len(ROUTED) :]


def packed(replies: list[tuple[int, bytes]]) -> bytes:
    return b"".join(_ENTRY.pack(delta, len(reply)) + reply for delta, reply in replies)


def acknowledged(replies: bytes, head: bytes, base_offset: int) -> list[tuple[bytes, bytes]]:
    """Subject and payload of the acks that go through the router; ``acks`` has all the others."""
    acks.build_acks(replies, head, base_offset)  # raises what there is to raise
    return [
        (reply, b"%b%d}" % (head, base_offset + delta + 1)) for delta, reply in answered(replies)
    ]
