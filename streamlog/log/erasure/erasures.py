"""What one log's erasures come to. Pure."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from streamlog.errors import BrokenInvariant
from streamlog.model import NO_EPOCH
from streamlog.record.batch import OFFSET_MAX
from streamlog.record.offset_set import OffsetSet


class Erasure(NamedTuple):
    """A batch that erases."""

    offset: int
    """Its own; it is no message, so it counts as erased, too."""
    epoch: int
    erased: OffsetSet
    is_placeholder: bool = False
    """It stands for a message that another log had at this offset."""
    is_abort: bool = False
    """It is the marker of an aborted transaction. Its records stay in the files until retention or compaction takes
    them: the marker does not name them, and who reads the log from its start is to find the same as others.
    """


class Erasures:
    """``note`` each erasure as it comes into the log, ``commit`` with the high watermark, ``cut``
    with the log. Single owner.
    """

    def __init__(self) -> None:
        self.erased = OffsetSet()
        """By what is committed; and the erasures' own offsets."""
        self.unremoved = OffsetSet()
        """Of these: not known to be gone from the files."""
        self.last = Erasure(-1, NO_EPOCH, OffsetSet())
        """The last one that is committed."""
        self.version = 0
        """Grows with each change that is worth being kept in the file."""
        self.unkept_offset: int | None = None
        """Of the first erasure that the file may not know; None: it knows them all."""
        self.kept_end = 0
        """The file knows an erasure right below it; 0: none."""
        self.committed_tail_start = 0
        """Of the erasures that follow one another without a message up to ``last``, the first's offset."""
        self._pending: deque[tuple[Erasure, int]] = deque()
        """Not committed as far as is known, in order; and the same of each."""

    @property
    def pending(self) -> tuple[Erasure, ...]:
        return tuple(erasure for erasure, _ in self._pending)

    def pending_at(self, offset: int) -> OffsetSet | None:
        """What the erasure at that offset erases; None: it is committed, or there is none. From any thread."""
        return next((it.erased for it, _ in tuple(self._pending) if it.offset == offset), None)

    @property
    def latest_offset(self) -> int:
        """Of the last one, committed or not; -1: there is none."""
        return self._pending[-1][0].offset if self._pending else self.last.offset

    @property
    def tail_start(self) -> int:
        """Of the erasures that follow one another without a message up to the last one, the first's offset."""
        return self._pending[-1][1] if self._pending else self.committed_tail_start

    def messages_end(self, log_end_offset: int) -> int:
        """Between that and the log's end there are erasures alone."""
        return self.tail_start if self.latest_offset == log_end_offset - 1 else log_end_offset

    def committed_messages_end(self, high_watermark: int) -> int:
        """Between that and the high watermark there are erasures alone."""
        is_tail = self.last.offset == high_watermark - 1
        return self.committed_tail_start if is_tail else high_watermark

    def note(self, erasure: Erasure) -> None:
        """It is in the log. One that is known already does nothing."""
        if erasure.offset > self.latest_offset:
            follows = erasure.offset == self.latest_offset + 1
            tail_start = self.tail_start if follows else erasure.offset
            if erasure.is_placeholder:
                tail_start = erasure.offset + 1
            self._pending.append((erasure, tail_start))
            self.version += 1
            if self.unkept_offset is None:
                self.unkept_offset = erasure.offset

    def commit(self, high_watermark: int) -> bool:
        """All below is committed; whether that erases anything."""
        before = self.last
        while self._pending and self._pending[0][0].offset < high_watermark:
            self.last, self.committed_tail_start = self._pending.popleft()
            fresh = self.last.erased.copy()
            fresh.remove_all(self.erased)
            self.erased.update(fresh)
            self.erased.add(self.last.offset)
            if not self.last.is_abort:
                self.unremoved.update(fresh)
        return self.last is not before

    def cut(self, end_offset: int) -> None:
        """The log ends there now.

        Where that takes back what was committed, which only an unclean election does, what a lost
        erasure has erased here stays erased.
        """
        if self.latest_offset < end_offset:
            return
        while self._pending and self._pending[-1][0].offset >= end_offset:
            self._pending.pop()
        if self.unkept_offset is not None and self.unkept_offset >= end_offset:
            self.unkept_offset = None
        if self.last.offset >= end_offset:
            self.erased.keep_between(0, end_offset)
            self.unremoved.keep_between(0, end_offset)
            self.last, self.committed_tail_start = Erasure(-1, NO_EPOCH, OffsetSet()), 0
        self.version += 1

    def forget_below(self, log_start_offset: int) -> None:
        """What was there is gone with all else."""
        for offsets in (self.erased, self.unremoved):
            offsets.keep_between(log_start_offset, OFFSET_MAX)

    def removed(self, offsets: OffsetSet) -> None:
        """They are gone from the files."""
        self.unremoved.remove_all(offsets)
        self.version += 1

    def restore(
        self,
        erased: OffsetSet,
        unremoved: OffsetSet,
        last: Erasure,
        pending: Iterable[Erasure],
        *,
        tail_start: int,
        committed_tail_start: int,
    ) -> None:
        """What was kept; nothing was known before."""
        if self.latest_offset >= 0:
            raise BrokenInvariant("erasures are restored into an empty set")
        self.erased, self.unremoved, self.last = erased, unremoved, last
        self.committed_tail_start = max(0, min(committed_tail_start, last.offset + 1))
        for it in pending:
            follows = it.offset == self.latest_offset + 1
            self._pending.append((it, self.tail_start if follows else it.offset))
        if self._pending:
            latest, _ = self._pending.pop()
            self._pending.append((latest, max(0, min(tail_start, latest.offset + 1))))

    def snapshot(self) -> "Erasures":
        """As it is now, for another thread."""
        other = Erasures()
        other.restore(
            self.erased.copy(),
            self.unremoved.copy(),
            self.last,
            self.pending,
            tail_start=self.tail_start,
            committed_tail_start=self.committed_tail_start,
        )
        return other
