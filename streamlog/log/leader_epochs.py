"""At which offset each leader epoch began: what decides where a follower's log parts from its
leader's.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from streamlog.errors import BrokenInvariant, CorruptFile
from streamlog.log.checkpoint import checkpoint_lines, encode_checkpoint
from streamlog.log.compiled.log_end import EpochsEnd
from streamlog.model import NO_EPOCH, EpochEnd

UNKNOWN_END: Final = EpochEnd(NO_EPOCH, -1)


class EpochStart(NamedTuple):
    """The first offset that was written in an epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs(EpochsEnd):
    """The epochs of one log, oldest first. Both fields grow from entry to entry."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self._entries = entries or []
        self._note_latest()

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` has a batch at ``start_offset``; whether that was news."""
        if epoch <= self.latest:
            return False
        if self._entries and start_offset < self._entries[-1].start_offset:
            raise BrokenInvariant(
                f"epoch {epoch} begins at {start_offset}, before the epoch below it"
            )
        if self._entries and self._entries[-1].start_offset == start_offset:
            self._entries.pop()  # nothing was written in it
        self._entries.append(EpochStart(epoch, start_offset))
        self._note_latest()
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at ``offset`` was written; -1 if that is not known."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[at].epoch if at >= 0 else NO_EPOCH

    def between(self, start: int, stop: int) -> list[EpochStart]:
        """In which epochs the records from ``start`` up to ``stop`` were written, as far as that is known; the
        first one begins at ``start`` or later.
        """
        if start >= stop:
            return []
        low = bisect_right(self._entries, start, key=lambda entry: entry.start_offset) - 1
        high = bisect_left(self._entries, stop, key=lambda entry: entry.start_offset)
        found = self._entries[max(low, 0) : high]
        if low >= 0:
            found[0] = EpochStart(found[0].epoch, start)
        return found

    def end_offset_for(self, epoch: int, log_end: int) -> EpochEnd:
        """The largest known epoch up to ``epoch``, and the offset at which the next one begins.

        ``EpochEnd(-1, -1)`` for an epoch newer than all known, or when none is known.
        """
        if epoch == NO_EPOCH or epoch > self.latest:
            return UNKNOWN_END
        if epoch == self.latest:
            return EpochEnd(epoch, log_end)
        at = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        known = self._entries[at - 1].epoch if at else epoch
        return EpochEnd(known, self._entries[at].start_offset)

    def shared_end(self, read: Sequence[EpochStart], end: int, log_end: int) -> int:
        """How far a reader that came to ``end`` has read this log: below ``end`` where it has read records that were
        lost with their leader (KIP-320). ``read``: in which epochs they were written, oldest first, as far as known;
        what is below the first one counts as read.

        Two logs that have records of one epoch are the same up to the end of that epoch in the shorter one.
        """
        if not read:
            return end
        for epoch, start_offset in reversed(read):
            at = bisect_left(self._entries, epoch, key=lambda entry: entry.epoch)
            if at < len(self._entries) and self._entries[at].epoch == epoch:
                is_last = at + 1 == len(self._entries)
                return min(end, log_end if is_last else self._entries[at + 1].start_offset)
            end = start_offset
        return min(end, log_end)

    def truncate(self, end_offset: int) -> bool:
        """Forget the epochs that began at ``end_offset`` or later; whether there were any."""
        count = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        self._note_latest()
        return len(self._entries) < count

    def keep_last(self, count: int) -> None:
        """Forget the older ones."""
        del self._entries[:-count]

    def advance_start(self, log_start_offset: int) -> bool:
        """Forget the epochs that ended at ``log_start_offset`` or before; whether that was news."""
        at = bisect_right(self._entries, log_start_offset, key=lambda entry: entry.start_offset) - 1
        del self._entries[: max(at, 0)]
        return at > 0

    def _note_latest(self) -> None:
        self.latest = self._entries[-1].epoch if self._entries else NO_EPOCH
        """The epoch of the last batch; -1 if there is none."""

    def encode(self) -> bytes:
        """An epoch and its start offset a line."""
        return encode_checkpoint(f"{epoch} {start}" for epoch, start in self._entries)

    @classmethod
    def decode(cls, data: bytes, path: str) -> "LeaderEpochs":
        """Raises CorruptFile if the text cannot be what was written."""
        entries = []
        for line in checkpoint_lines(data, path):
            fields = line.split(" ")
            if len(fields) != 2 or not all(field.isdigit() for field in fields):
                raise CorruptFile(f"{path}: {line!r} is not an epoch and an offset")
            entries.append(EpochStart(int(fields[0]), int(fields[1])))
        for before, after in pairwise(entries):
            if before.epoch >= after.epoch or before.start_offset >= after.start_offset:
                raise CorruptFile(f"{path}: the epochs are out of order")
        return cls(entries)
