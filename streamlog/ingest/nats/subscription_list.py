"""What is listened to at NATS. It outlives the connection: after a reconnect all of it is said again. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from streamlog.nats.router import Subscription


class SubjectFilter(NamedTuple):
    """What is listened to."""

    subject: str
    queue: str | None = None
    """Members of a queue group share the messages."""


class Subscriptions:
    """By sid. None is used again, so that late messages of an ended one are not another's."""

    def __init__(self) -> None:
        self._by_sid: dict[int, Subscription] = {}
        self._sid = 0

    def __len__(self) -> int:
        return len(self._by_sid)

    def add(self, subscription: Subscription) -> int:
        self._sid += 1
        self._by_sid[self._sid] = subscription
        return self._sid

    def remove(self, sid: int) -> Subscription:
        return self._by_sid.pop(sid)

    def subscription(self, sid: int) -> Subscription:
        return self._by_sid[sid]

    def sids(self) -> list[int]:
        return list(self._by_sid)

    def commands(self, sids: Iterable[int]) -> bytes:
        """The SUB lines."""
        lines = []
        for sid in sids:
            it = self._by_sid[sid]
            source = b"%b %b" % (it.subject, it.queue) if it.queue else it.subject
            lines.append(b"SUB %b %d\r\n" % (source, sid))
        return b"".join(lines)


def unsubscribe_commands(sids: Iterable[int]) -> bytes:
    """The UNSUB lines."""
    return "".join(f"UNSUB {sid}\r\n" for sid in sids).encode()
