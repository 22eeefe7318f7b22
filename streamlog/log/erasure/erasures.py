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
        self.tail_start = 0
        """Of the erasures that follow one another without a message up to the last one, the first's
        offset."""
        self._pending: deque[Erasure] = deque()
        """Not committed as far as is known, in order."""

    @property
    def pending(self) -> tuple[Erasure, ...]:
        return tuple(self._pending)

    @property
    def latest_offset(self) -> int:
        """Of the last one, committed or not; -1: there is none."""
        return self._pending[-1].offset if self._pending else self.last.offset

    def messages_end(self, log_end_offset: int) -> int:
        """Between that and the log's end there are erasures alone."""
        return self.tail_start if self.latest_offset == log_end_offset - 1 else log_end_offset

    def note(self, erasure: Erasure) -> None:
        """It is in the log. One that is known already does nothing."""
        if erasure.offset > self.latest_offset:
            if erasure.offset > self.latest_offset + 1:
                self.tail_start = erasure.offset
            self._pending.append(erasure)
            self.version += 1
            if self.unkept_offset is None:
                self.unkept_offset = erasure.offset

    def commit(self, high_watermark: int) -> bool:
        """All below is committed; whether that erases anything."""
        before = self.last
        while self._pending and self._pending[0].offset < high_watermark:
            self.last = self._pending.popleft()
            fresh = self.last.erased.copy()
            fresh.remove_all(self.erased)
            self.erased.update(fresh)
            self.erased.add(self.last.offset)
            self.unremoved.update(fresh)
        return self.last is not before

    def cut(self, end_offset: int) -> None:
        """The log ends there now.

        Where that takes back what was committed, which only an unclean election does, what a lost
        erasure has erased here stays erased.
        """
        if self.latest_offset < end_offset:
            return
        while self._pending and self._pending[-1].offset >= end_offset:
            self._pending.pop()
        if self.unkept_offset is not None and self.unkept_offset >= end_offset:
            self.unkept_offset = None
        if self.last.offset >= end_offset:
            self.erased.keep_between(0, end_offset)
            self.unremoved.keep_between(0, end_offset)
            self.last = Erasure(-1, NO_EPOCH, OffsetSet())
        self.tail_start = max(0, self.latest_offset)
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
    ) -> None:
        """What was kept; nothing was known before."""
        if self.latest_offset >= 0:
            raise BrokenInvariant("erasures are restored into an empty set")
        self.erased, self.unremoved, self.last = erased, unremoved, last
        self._pending.extend(pending)
        self.tail_start = max(0, min(tail_start, self.latest_offset))

    def snapshot(self) -> "Erasures":
        """As it is now, for another thread."""
        other = Erasures()
        other.restore(
            self.erased.copy(),
            self.unremoved.copy(),
            self.last,
            self._pending,
            tail_start=self.tail_start,
        )
        return other
