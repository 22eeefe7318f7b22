"""What is erased is taken out of the files. Blocking calls, but where it says otherwise.

Done by each replica for itself, in sealed segments below the high watermark, by the same means as
compaction: offsets stay, batches stay dense, erasures themselves stay until retention takes them,
since a follower that fetches the log from its start learns from them what is erased.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from streamlog.log.compaction.cleaner import Terms
from streamlog.log.compaction.segment_rewrite import Rewriting
from streamlog.log.compaction.segment_swap import Swap
from streamlog.log.log import PartitionLog
from streamlog.log.segment.segment import Segment
from streamlog.log.segment.time_search import latest_time
from streamlog.log.storage.disk import Disk
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import BatchHeader
from streamlog.record.codec import opened
from streamlog.record.compacted import emptied, is_gap, left_over
from streamlog.record.compiled.keys import without
from streamlog.record.offset_set import OffsetSet

SHARE_MIN: Final = 0.5
"""A segment of which so much is erased is written again at once; others wait for a while."""


def removable_end(log: PartitionLog, *, upper_offset: int, is_whole: bool) -> int:
    """From there on nothing that is erased may leave the files; ``upper_offset``: what is committed
    and synced; ``is_whole``: every replica has that.

    In a log that is compacted by key an erased record still takes the place of older ones of its
    key. So each replica compacts first: without the erased record it would keep an older one, for
    good, which another replica has removed. Who lacks the erased record must get it before.
    """
    if log.settings.compaction is None:
        return upper_offset
    return min(upper_offset, log.first_dirty_offset) if is_whole else log.log_start_offset


def due_segments(
    sealed: Sequence[Segment],
    unremoved: OffsetSet,
    overdue: OffsetSet,
    *,
    upper_offset: int,
    before_ms: int,
) -> list[Segment]:
    """Those to be written again: with a record that is ``overdue``, or of which half is erased.

    ``upper_offset``: what is committed and synced; ``before_ms``: younger records stay. Raises
    OSError.
    """
    found = []
    for segment in sealed:
        if segment.next_offset > upper_offset:
            break
        start, end = segment.base_offset, segment.next_offset
        least = max(1, (end - start) * SHARE_MIN)
        if unremoved.count(start, end) < least and not overdue.count(start, end):
            continue
        time_ms = latest_time(segment)
        if time_ms is not None and time_ms < before_ms:
            found.append(segment)
    return found


class Expunging:
    """``clean`` while there is anything ``left``, then ``finish``. Made, and finished, by the log's
    owner; ``clean`` is a worker thread's.
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
        self.read_bytes = 0
        self.removed_bytes = 0
        self._log = log
        self._terms = terms
        self._left = deque(segments)
        self._passed = OffsetSet()
        """The erased records of ``segments``."""
        for segment in segments:
            erased = log.erasures.unremoved.between(segment.base_offset, segment.next_offset)
            self._passed.update(erased)
        self._rewriting = Rewriting(log, self._pause, disk=disk, pool=pool)

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
        return self._rewriting.group(self._left, self._keep)

    def swapped(self, swap: Swap) -> None:
        self.removed_bytes += swap.removed_bytes

    def finish(self) -> None:
        """All groups are swapped in. The log's owner's."""
        self._log.erasures.removed(self._passed)

    def _keep(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """Control batches have no offset that is erased in this sense. Raises CorruptBatch."""
        if is_gap(header):
            return None
        bits = self._passed.bits(header.base_offset, header.next_offset)
        count = header.record_count
        if not bits or not count or header.is_control:
            return batch
        erased = bits.to_bytes((header.last_offset_delta >> 3) + 1, "little")
        left = without(opened(header, batch), count, erased)
        if left.body is None:
            return batch
        if left.kept:
            return left_over(header, left.body, left.kept)
        return emptied(header) if self._may_go_on(header) else None

    def _may_go_on(self, header: BatchHeader) -> bool:
        """It is of a producer whose next batch is held to it."""
        expired_ms = self._terms.now_ms - self._terms.producer_expiration_ms
        return header.producer_id >= 0 and header.max_timestamp_ms >= expired_ms

    def _pause(self, size: int) -> None:
        self.read_bytes += size
        self._terms.pause(size)
