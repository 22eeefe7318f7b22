"""What we listen to. Outlives the connection: after a reconnect all of it is said again. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from streamlog.ingest.frames import FrameParser, Partitioner, RecordCollector


class SubjectFilter(NamedTuple):
    """What is listened to."""

    subject: str
    queue: str | None = None
    """Members of a queue group share the messages."""


class Subscription(NamedTuple):
    """A subject and where its messages go."""

    subject: str
    target: RecordCollector | Partitioner
    queue: str | None = None


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

    def remove(self, sid: int) -> None:
        del self._by_sid[sid]

    def source(self, sid: int) -> SubjectFilter:
        subject, _, queue = self._by_sid[sid]
        return SubjectFilter(subject, queue)

    def sids(self) -> list[int]:
        return list(self._by_sid)

    def bind(self, parser: FrameParser, sids: Iterable[int]) -> None:
        for sid in sids:
            parser.bind(sid, self._by_sid[sid].target)

    def commands(self, sids: Iterable[int]) -> bytes:
        """The SUB lines."""
        lines = []
        for sid in sids:
            subject, _, queue = self._by_sid[sid]
            lines.append(f"SUB {subject} {queue} {sid}" if queue else f"SUB {subject} {sid}")
        return "".join(f"{line}\r\n" for line in lines).encode()


def unsubscribe_commands(sids: Iterable[int]) -> bytes:
    """The UNSUB lines."""
    return "".join(f"UNSUB {sid}\r\n" for sid in sids).encode()
