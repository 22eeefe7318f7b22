"""One cleaning of one log, step by step, so that what blocks can be left to a worker thread."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from streamlog.log.compaction.batch_filter import BatchFilter
from streamlog.log.compaction.batch_reader import read_batches
from streamlog.log.compaction.cleaning_plan import first_dirty
from streamlog.log.compaction.segment_rewrite import Rewriting
from streamlog.log.compaction.segment_swap import Swap
from streamlog.log.log import PartitionLog
from streamlog.log.segment.segment import Segment
from streamlog.log.settings import CompactionSettings
from streamlog.log.storage.disk import Disk, storage_errors
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.transactions.transactions import AbortedBatches
from streamlog.record.batch import CONTROL, BatchHeader
from streamlog.record.codec import opened
from streamlog.record.compiled.keys import SEED_BYTES, KeyOffsets

MEMORY_BYTES: Final = 32 * 1024 * 1024
PRODUCERS_MAX: Final = 10_000
"""Whose last batch is looked for; those of others are kept, empty as they may be."""


@dataclass(frozen=True)
class Terms:
    """What one cleaning goes by."""

    now_ms: int
    memory_bytes: int = MEMORY_BYTES
    """For the table of keys."""
    may_drop_tombstones: bool = True
    """Every replica has all that is committed."""
    producer_expiration_ms: int = 86_400_000
    """Of a producer that has not written for so long nothing need be kept."""
    pause: Callable[[int], None] = lambda _: None
    """Called with the bytes that were read or written; may take its time, or raise."""


class Cleaning:
    """``note_keys``, then ``clean`` while there is anything ``left``, and ``finish``.

    The first two block, and are a worker thread's. ``segments`` are what can be cleaned.
    """

    def __init__(
        self,
        log: PartitionLog,
        segments: Sequence[Segment],
        terms: Terms,
        *,
        disk: Disk,
        pool: FilePool,
    ) -> None:
        self.first_dirty_offset = log.first_dirty_offset
        self.upper_offset = log.first_dirty_offset
        """All below is clean once this is done."""
        self.read_bytes = 0
        self.removed_bytes = 0
        self.horizon_ms: int | None = None
        """When the first of the tombstones that stay may go."""
        self._log = log
        self._rules = log.settings.compaction or CompactionSettings()
        self._segments = list(segments)
        self._terms = terms
        self._pool = pool
        self._rewriting = Rewriting(log, self._pause, disk=disk, pool=pool)
        self._keys: KeyOffsets | None = None
        self._left: deque[Segment] = deque()
        """Still to be cleaned."""
        self._aborted = AbortedBatches(log.transactions.aborted)
        self._unended: set[int] = set()
        """Producers of which batches of a transaction stay that are read before its marker."""
        self._last_of: dict[int, int] = {}
        """Of each producer with a dirty batch: the base offset of the last one."""

    def note_keys(self) -> None:
        """Read what is dirty, until the table is full. Raises CorruptBatch, Unavailable."""
        start = first_dirty(self._segments, self.first_dirty_offset)
        dirty = self._segments[self._segments.index(start) :] if start else []
        wanted = dirty[-1].next_offset - self.first_dirty_offset if dirty else 1
        keys_max = min(self._terms.memory_bytes // KeyOffsets.BYTES_FOR_KEY, wanted)
        self._keys = KeyOffsets(max(keys_max, 1), os.urandom(SEED_BYTES))
        full_at = -1
        for segment in dirty:
            full_at = self._note_segment(self._keys, segment)
            if full_at >= 0:
                break
            self.upper_offset = segment.next_offset
        else:
            self.upper_offset = max(self.upper_offset, self._end())
        self.upper_offset = max(self.upper_offset, full_at)
        self._left.extend(it for it in self._segments if it.base_offset < self.upper_offset)

    @property
    def reading_offset(self) -> int:
        """Where the segment begins that is read."""
        return self._rewriting.reading_offset

    @property
    def left(self) -> int:
        """How many segments are still to be cleaned."""
        return len(self._left)

    def clean(self) -> Swap | None:
        """A new segment of as many as fit into one, to be swapped in; None where nothing of them
        would change. Raises CorruptBatch, Unavailable, and then all is as it was.
        """
        assert self._keys is not None
        winnowing = BatchFilter(
            self._keys,
            upper_offset=self.upper_offset,
            now_ms=self._terms.now_ms,
            delete_retention_ms=self._rules.delete_retention_ms,
            first_dirty_offset=self.first_dirty_offset,
            may_drop_tombstones=self._terms.may_drop_tombstones,
            producer_needs=self._producer_needs,
            aborted=self._aborted,
            unended=self._unended,
        )
        swap = self._rewriting.group(self._left, winnowing.keep)
        self._note_horizon(winnowing.horizon_ms)
        return swap

    def swapped(self, swap: Swap) -> None:
        self.removed_bytes += swap.removed_bytes

    def finish(self) -> None:
        """All groups are swapped in. The log's owner's."""
        self._log.first_dirty_offset = max(self._log.first_dirty_offset, self.upper_offset)
        self._log.transactions.cleaned_below(self.upper_offset)

    def _end(self) -> int:
        return self._segments[-1].next_offset if self._segments else 0

    def _note_segment(self, keys: KeyOffsets, segment: Segment) -> int:
        """-1, or the offset at which the table is full."""
        self._rewriting.reading_offset = segment.base_offset
        with storage_errors(segment.path):
            pooled = self._pool.pin(segment.path)
            try:
                start, note = self.first_dirty_offset, keys.note
                for header, batch in read_batches(pooled.file, segment, self._pause):
                    if header.next_offset <= start:
                        continue
                    if header.producer_id >= 0 and len(self._last_of) < PRODUCERS_MAX:
                        self._last_of[header.producer_id] = header.base_offset
                    count = header.record_count
                    if header.attributes & CONTROL or not count or self._aborted.has_batch(header):
                        continue
                    full = note(opened(header, batch), count, header.base_offset, start)
                    if full >= 0:
                        return full
            finally:
                self._pool.unpin(pooled)
        return -1

    def _producer_needs(self, header: BatchHeader) -> bool:
        """It is the last one of a producer that may go on: what comes next is held to it."""
        expired_ms = self._terms.now_ms - self._terms.producer_expiration_ms
        if header.producer_id < 0 or header.max_timestamp_ms < expired_ms:
            return False
        return self._last_of.get(header.producer_id, header.base_offset) <= header.base_offset

    def _note_horizon(self, horizon_ms: int | None) -> None:
        known = [it for it in (self.horizon_ms, horizon_ms) if it is not None]
        self.horizon_ms = min(known, default=None)

    def _pause(self, size: int) -> None:
        self.read_bytes += size
        self._terms.pause(size)
