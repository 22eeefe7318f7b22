"""Messages that are published again until they are acknowledged, and what their acks say. Pure.

Every time is in seconds, on whatever clock the caller has.
"""

import heapq
from array import array
from itertools import pairwise
from typing import Final, NamedTuple

from streamlog.nats_tools.publisher import Published

ANSWER_TIMEOUT_S: Final = 2.0
"""Without an answer, publish it again; its id sees to it that it is stored once."""
REFUSED_PAUSE_S: Final = 0.25


class Gap(NamedTuple):
    """A time in which nothing was acknowledged."""

    began_s: float
    """Since the start."""
    seconds: float
    stalled_s: float
    """Of it, at most, the publisher itself did not run."""


class RetryVerdict(NamedTuple):
    """What the acks of all messages say."""

    published: int
    acknowledged: int
    unanswered: int
    retries: int
    duplicates: int
    """Acks that said so: a retry of what was there already. Nothing is wrong with that."""
    lost: int
    """Acknowledged with a sequence that another message was acknowledged with as well."""
    stored_twice: int
    """Acknowledged again with another sequence."""
    longest_gap_s: float


class UnackedMessages:
    """Which messages are under way, when to publish them again, and the gaps between acks."""

    def __init__(self, start_s: float, *, gap_s: float) -> None:
        self.retries = 0
        self.duplicates = 0
        self.stored_twice = 0
        self.longest_gap_s = 0.0
        self._start_s = start_s
        self._gap_s = gap_s
        self._sequences = array("q")
        """By number; 0: not acknowledged yet."""
        self._due: dict[int, float] = {}
        """By number, of those under way: when to publish it again."""
        self._order: list[tuple[float, int]] = []
        """A heap of what was ever due; only what ``_due`` says as well counts."""
        self._acked_s = self._ticked_s = start_s
        self._stalled_s = 0.0

    @property
    def under_way(self) -> int:
        return len(self._due)

    def tick(self, now: float) -> None:
        """The publisher runs."""
        self._stalled_s = max(self._stalled_s, now - self._ticked_s)
        self._ticked_s = now

    def publish(self, now: float) -> int:
        """The number of a new message."""
        number = len(self._sequences)
        self._sequences.append(0)
        self._wait(number, now + ANSWER_TIMEOUT_S)
        return number

    def due(self, now: float, most: int) -> list[int]:
        """Messages to be published again now."""
        found: list[int] = []
        while self._order and self._order[0][0] <= now and len(found) < most:
            due, number = heapq.heappop(self._order)
            if self._due.get(number) == due:
                self._wait(number, now + ANSWER_TIMEOUT_S)
                found.append(number)
        self.retries += len(found)
        return found

    def refused(self, number: int, now: float) -> None:
        """Asking again later may help."""
        if number in self._due:
            self._wait(number, now + REFUSED_PAUSE_S)

    def acked(self, number: int, ack: Published, now: float) -> Gap | None:
        """The gap that this ends, if it is a long one."""
        self.duplicates += ack.duplicate
        known = self._sequences[number]
        if known:
            self.stored_twice += known != ack.sequence
        else:
            self._sequences[number] = ack.sequence
            self._due.pop(number, None)
        return self._end_gap(now)

    def end(self, now: float) -> Gap | None:
        """No more is asked for; the gap that is open, if it is a long one."""
        return self._end_gap(now) if self._due else None

    def verdict(self) -> RetryVerdict:
        sequences = sorted(it for it in self._sequences if it)
        shared = sum(a == b for a, b in pairwise(sequences))
        return RetryVerdict(
            published=len(self._sequences),
            acknowledged=len(sequences),
            unanswered=self.under_way,
            retries=self.retries,
            duplicates=self.duplicates,
            lost=shared,
            stored_twice=self.stored_twice,
            longest_gap_s=self.longest_gap_s,
        )

    def _wait(self, number: int, until: float) -> None:
        self._due[number] = until
        heapq.heappush(self._order, (until, number))

    def _end_gap(self, now: float) -> Gap | None:
        stalled = max(self._stalled_s, now - self._ticked_s)
        gap = Gap(self._acked_s - self._start_s, now - self._acked_s, stalled)
        self._acked_s, self._stalled_s = now, 0.0
        self.longest_gap_s = max(self.longest_gap_s, gap.seconds)
        return gap if gap.seconds > self._gap_s else None
