"""Decisions on their way: decided, then in the log, then committed, then answered. Pure.

Invariant: what waits for its commit is in this replica's log, at the offsets it was decided for.
A decision that did not get there is refused at once: later records take its offsets, and their
commit says nothing about it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streamlog.errors import RequestTimedOut, StreamlogError
from streamlog.metadata.forwarding import Granted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decided(Generic[T]):
    """Records from ``offset`` up to ``end_offset``; none where both are the same."""

    offset: int
    end_offset: int
    result: dict[str, Any]
    asker: T


class PendingDecisions(Generic[T]):
    """Of one replica, in the order of their offsets; each asker is answered once."""

    def __init__(
        self, granted: Callable[[T, Granted], None], failed: Callable[[T, StreamlogError], None]
    ) -> None:
        self._granted = granted
        self._failed = failed
        self._unwritten: deque[Decided[T]] = deque()
        self._written: deque[Decided[T]] = deque()

    def decided(self, decisions: Iterable[Decided[T]], end_offset: int) -> None:
        """They are about to be written; the log ends at ``end_offset``."""
        self._unwritten.extend(decisions)
        self.written(end_offset)

    def written(self, end_offset: int) -> None:
        """The log has all below."""
        while self._unwritten and self._unwritten[0].end_offset <= end_offset:
            self._written.append(self._unwritten.popleft())

    def committed(self, high_watermark: int) -> None:
        """All below is committed: it is granted."""
        while self._written and self._written[0].end_offset <= high_watermark:
            done = self._written.popleft()
            self._granted(done.asker, Granted(done.end_offset, done.result))

    def refuse_unwritten(self, error: StreamlogError, end_offset: int) -> None:
        """What is not in the log, which ends at ``end_offset``, is not written any more."""
        unwritten, self._unwritten = self._unwritten, deque()
        for decision in unwritten:
            is_torn = decision.offset < end_offset
            text = f"a part of it was written: {error}"
            self._failed(decision.asker, RequestTimedOut(text) if is_torn else error)

    def give_up(self, error: StreamlogError) -> None:
        """Whether what is in the log will be committed is not known here any more."""
        written, self._written = self._written, deque()
        for decision in written:
            self._failed(decision.asker, error)
