"""What becomes of one batch. No files, no clock."""

from collections.abc import Callable
from typing import Final

from streamlog.log.transactions.transactions import AbortedBatches
from streamlog.record.batch import BatchHeader
from streamlog.record.codec import opened
from streamlog.record.compacted import delete_horizon_ms, emptied, is_gap, left_over
from streamlog.record.compiled.keys import KeyOffsets
from streamlog.record.compression import Buffer

TIME_MS_MAX: Final = 2**62
"""What lies beyond is no time; tombstones of a batch that counts from there stay."""


class BatchFilter:
    """Leaves of each batch what is to stay."""

    def __init__(
        self,
        keys: KeyOffsets,
        *,
        first_dirty_offset: int,
        upper_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        may_drop_tombstones: bool,
        producer_needs: Callable[[BatchHeader], bool],
        aborted: AbortedBatches,
        unended: set[int],
    ) -> None:
        """``keys`` has the last record of each key of ``[first_dirty_offset, upper_offset)``. All transactions there
        have ended. ``unended``: producers of which something stays that the next marker ends; changed by ``keep``,
        which is called for all batches of the log in order.
        """
        self.horizon_ms: int | None = None
        """When the first of the tombstones that stay may go."""
        self._keys = keys
        self._first_dirty_offset = first_dirty_offset
        self._upper_offset = upper_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._may_drop = may_drop_tombstones
        self._producer_needs = producer_needs
        self._aborted = aborted
        self._unended = unended

    def keep(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """The batch as it is to be; None: nothing is left of it. Raises CorruptBatch."""
        if header.base_offset >= self._upper_offset:
            return batch
        if header.is_control:
            return self._marker(header, batch) if header.is_transactional else batch
        kept = self._records(header, batch)
        if header.is_transactional and kept is not None:
            self._unended.add(header.producer_id)
        return kept

    def _marker(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """It stays while anything of its transaction does: without it that would count as open. Then for the time of a
        tombstone: a reader that has read aborted records is to find where they end.
        """
        if header.producer_id in self._unended:
            self._unended.discard(header.producer_id)
            return batch
        horizon_ms = delete_horizon_ms(header)
        if horizon_ms is None:
            horizon_ms = min(self._now_ms + self._delete_retention_ms, TIME_MS_MAX)
            self._note(horizon_ms)
            return left_over(header, opened(header, batch), 1, horizon_ms=horizon_ms)
        if horizon_ms <= self._now_ms and self._may_drop and not self._producer_needs(header):
            return None
        if horizon_ms > self._now_ms:
            self._note(horizon_ms)
        return batch

    def _records(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        base, upper, count = header.base_offset, self._upper_offset, header.record_count
        if count and self._aborted.has_batch(header):
            return emptied(header) if self._producer_needs(header) else None
        if not count:
            needed = not is_gap(header) and self._producer_needs(header)
            return batch if needed else None
        horizon_ms = delete_horizon_ms(header)
        drop = self._may_drop and horizon_ms is not None and horizon_ms <= self._now_ms
        body = opened(header, batch)
        left = self._keys.sift(body, count, base, upper, drop_tombstones=drop)
        if not left.kept:
            return emptied(header) if self._producer_needs(header) else None
        kept = body if left.body is None else left.body
        if left.tombstones:
            if horizon_ms is not None:
                self._note(horizon_ms)
            elif self._passes(header):
                return self._passed(header, kept, left.kept)
        return batch if left.body is None else left_over(header, kept, left.kept)

    def _passes(self, header: BatchHeader) -> bool:
        """Of what is not dirty, older records might be there that ``keys`` does not know."""
        is_dirty = self._first_dirty_offset < header.next_offset <= self._upper_offset
        return is_dirty and abs(header.base_timestamp_ms) <= TIME_MS_MAX

    def _passed(self, header: BatchHeader, body: Buffer, count: int) -> bytes:
        """The first time there is a tombstone in it: from now on the time runs."""
        horizon_ms = min(self._now_ms + self._delete_retention_ms, TIME_MS_MAX)
        self._note(horizon_ms)
        if not header.is_log_append_time:  # else the deltas count for nothing
            shift_ms = header.base_timestamp_ms - horizon_ms
            shifted = self._keys.sift(body, count, header.base_offset, 0, shift_ms=shift_ms)
            body = body if shifted.body is None else shifted.body
        return left_over(header, body, count, horizon_ms=horizon_ms)

    def _note(self, horizon_ms: int) -> None:
        known = self.horizon_ms
        self.horizon_ms = horizon_ms if known is None else min(known, horizon_ms)
