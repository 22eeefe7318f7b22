"""The schedules of one log, by the time at which they are due. Pure.

All comes from the log: a schedule, and what it has fired last, which says when it fires next. Of a message
that was erased nothing may be left in the files. So a schedule that was due while the last message before it
is there, and something behind that one is gone, may have fired: see ``may_have_fired``.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

_MS: Final = 1_000_000


class PendingSchedule(NamedTuple):
    """One of them."""

    due_ns: int
    offset: int
    """Of its message."""
    subject: bytes
    said_at: int
    """The offset of the message that says when it is due: its own, or one that it has fired."""


class PendingSchedules:
    """Tell it of messages in the order of the log."""

    def __init__(self) -> None:
        self._known: dict[bytes, PendingSchedule] = {}
        self._heap: list[PendingSchedule] = []
        """All of the known ones, and some that are not any more."""
        self._gap_offset = -1
        self._gap_ms = 0
        self._looked_at: Iterator[PendingSchedule] = iter(())

    def __len__(self) -> int:
        return len(self._known)

    def stored(self, subject: bytes, offset: int, due_ns: int) -> None:
        """A schedule, which takes the place of an older one of its subject."""
        self._known.pop(subject, None)
        self._add(PendingSchedule(due_ns, offset, subject, offset))

    def fired(self, subject: bytes, at_offset: int, next_ns: int | None) -> None:
        """A message of that schedule; None: its last one."""
        known = self._known.get(subject)
        if known is None or known.said_at >= at_offset:
            return
        del self._known[subject]
        if next_ns is not None:
            self._add(PendingSchedule(next_ns, known.offset, subject, at_offset))

    def put_off(self, pending: PendingSchedule, due_ns: int | None) -> None:
        """It is due then; None: never again. Nothing, if it is another one by now."""
        if self._known.get(pending.subject) == pending:
            del self._known[pending.subject]
            if due_ns is not None:
                self._add(pending._replace(due_ns=due_ns))

    def gap(self, offset: int, latest_ms: int) -> None:
        """Messages at that offset or before it are not in the files any more; none of them was younger."""
        self._gap_offset, self._gap_ms = offset, max(latest_ms, self._gap_ms)

    def may_have_fired(self, pending: PendingSchedule) -> bool:
        """What it has fired when it was due may be gone."""
        return pending.said_at < self._gap_offset and pending.due_ns // _MS <= self._gap_ms

    def due(self, now_ns: int, count_max: int) -> list[PendingSchedule]:
        """Some of those that are due, in the order of the log. They stay."""
        found = list[PendingSchedule]()
        while self._heap and self._heap[0].due_ns <= now_ns and len(found) < count_max:
            first = heapq.heappop(self._heap)
            if self._known.get(first.subject) == first:
                found.append(first)
        for it in found:
            heapq.heappush(self._heap, it)
        return sorted(found, key=lambda it: it.offset)

    def some(self, count: int) -> list[PendingSchedule]:
        """So many of them, and others the next time, so that in the end each has been among them."""
        found = list(islice(self._looked_at, count))
        if len(found) < count:
            self._looked_at = iter(list(self._known.values()))
        return [it for it in found if self._known.get(it.subject) == it]

    def _add(self, pending: PendingSchedule) -> None:
        self._known[pending.subject] = pending
        heapq.heappush(self._heap, pending)
        if len(self._heap) > 2 * len(self._known) + 1_000:
            self._heap = list(self._known.values())
            heapq.heapify(self._heap)
