"""Markers in the place of a subject's last message, where that goes by its age or its lifetime (ADR-43). Pure.

A marker is an ordinary message of the log, and it is a rollup of its subject: the erasure of what was before it
follows right behind it. So a crash between the two leaves what a crash leaves of any rollup, and the next leader
appends that erasure before anything else.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from streamlog.record.published import ASKING, TTL_HEADER

REASON_HEADER: Final = ASKING + "Marker-Reason"
MAX_AGE: Final = b"MaxAge"
ROLLUP_HEADER: Final = ASKING + "Rollup"
KV_OPERATION: Final = "KV-Operation"
PURGED: Final = b"PURGE"
"""A key-value store's own marker of a key that was purged."""

Headers = Iterable[tuple[str, bytes | None]]


def is_marker(headers: Headers) -> bool:
    """It stands for a message that has gone: none takes its place when it goes itself."""
    for name, value in headers:
        if name == REASON_HEADER and value:
            return True
        if name == KV_OPERATION and value is not None and value.lstrip(b" ") == PURGED:
            return True
    return False


def marker_headers(subject: bytes, ttl_s: int) -> list[tuple[bytes, bytes | None]]:
    """Of the record, in JetStream's order."""
    return [
        (b"subject", subject),
        (REASON_HEADER.encode(), MAX_AGE),
        (TTL_HEADER.encode(), duration_text(ttl_s).encode()),
        (ROLLUP_HEADER.encode(), b"sub"),
    ]


def duration_text(seconds: int) -> str:
    """As Go writes it: ``1h0m0s``, ``1m30s``, ``5s``."""
    minutes, left = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"


class DueMessage(NamedTuple):
    """A message that goes."""

    offset: int
    is_marker: bool


def ended_subjects(
    due: Iterable[DueMessage],
    subject_at: Callable[[int], bytes | None],
    count: Callable[[bytes], int],
) -> list[bytes]:
    """Those that have no message left without these, and get a marker; ``due`` in the order of the log. Where a
    subject's last message is a marker itself, it gets none.
    """
    left: dict[bytes, int] = {}
    ended: list[bytes] = []
    for offset, is_own_marker in due:
        subject = subject_at(offset)
        if subject is None:
            continue
        left[subject] = left.get(subject, count(subject)) - 1
        if not left[subject] and not is_own_marker:
            ended.append(subject)
    return ended


class AgeQueue:
    """Which messages at the beginning of a log are too old when: of those that were read so far.

    A message is not due before those ahead of it are: retention goes from the log's beginning on.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        """What is below has gone."""
        self.until = start
        """What is below has been read."""
        self._runs: deque[tuple[int, int]] = deque()
        """When messages are due, and the offset behind them; both rise."""
        self._markers: set[int] = set()

    def __len__(self) -> int:
        return len(self._runs) + len(self._markers)

    def add(self, due_ms: int, until: int, markers: Iterable[int] = ()) -> None:
        """Messages from the last ``until`` on to this one."""
        if self._runs and due_ms <= self._runs[-1][0]:
            due_ms, _ = self._runs.pop()
        self._runs.append((due_ms, until))
        self._markers.update(markers)
        self.until = until

    @property
    def next_ms(self) -> int | None:
        """When the first of them is due."""
        return self._runs[0][0] if self._runs else None

    @property
    def last_ms(self) -> int | None:
        return self._runs[-1][0] if self._runs else None

    def due(self, now_ms: int, limit: int) -> list[DueMessage]:
        """The first that are, in order."""
        end = self.start
        for due_ms, until in self._runs:
            if due_ms > now_ms or end >= self.start + limit:
                break
            end = until
        end = min(end, self.start + limit)
        return [DueMessage(it, it in self._markers) for it in range(self.start, end)]

    def begin_at(self, offset: int) -> None:
        """What is below has gone."""
        if offset <= self.start:
            return
        self.start, self.until = offset, max(offset, self.until)
        while self._runs and self._runs[0][1] <= offset:
            self._runs.popleft()
        self._markers = {it for it in self._markers if it >= offset}
