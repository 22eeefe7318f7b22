"""What one log's transactions come to. Pure."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from streamlog.errors import BrokenInvariant
from streamlog.record.batch import BatchHeader
from streamlog.record.offset_set import OffsetSet

NO_OFFSET: Final = -1


class OpenTransaction:
    """A producer's records since its last marker. Changed by ``Transactions`` alone."""

    __slots__ = ("first_offset", "offsets", "producer_epoch", "producer_id", "started_ms")

    def __init__(
        self, producer_id: int, producer_epoch: int, first_offset: int, started_ms: int
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.first_offset = first_offset
        self.started_ms = started_ms
        """The time of its first batch."""
        self.offsets = OffsetSet()
        """Of its records."""

    def copy(self) -> "OpenTransaction":
        other = OpenTransaction(
            self.producer_id, self.producer_epoch, self.first_offset, self.started_ms
        )
        other.offsets = self.offsets.copy()
        return other


class EndedTransaction(NamedTuple):
    """One whose marker is in the log, and not committed as far as is known."""

    transaction: OpenTransaction
    marker_offset: int
    is_commit: bool
    stable_offset: int
    """All below was decided once the marker is committed."""


class AbortedTransaction(NamedTuple):
    """One whose abort is committed (an entry of Kafka's TransactionIndex)."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""
    stable_offset: int
    """No transaction that ends later begins below it."""


class Transactions:
    """``note_records`` and ``note_marker`` as they come into the log, ``commit`` with the high watermark, ``cut`` with
    the log. Single owner.
    """

    def __init__(self) -> None:
        self.open: dict[int, OpenTransaction] = {}
        """By producer id, in the order of their first records."""
        self.aborted: list[AbortedTransaction] = []
        """In the order of their markers."""
        self.latest_offset = NO_OFFSET
        """Of the last batch that was noted: one that is noted again does nothing."""
        self.version = 0
        """Grows with each change that is worth being kept in the file."""
        self.unkept_offset: int | None = None
        """Of the first batch that the file may not know; None: it knows them all."""
        self.kept_end = 0
        """The file knows a batch right below it; 0: none."""
        self.first_unstable_offset: int | None = None
        """Of the first record that is not decided, as far as is committed; None: all are."""
        self._pending: deque[EndedTransaction] = deque()
        """In the order of their markers."""
        self._unstable: dict[int, None] = {}
        """First offsets of those that are open or pending, in order."""
        self._settled_offset = NO_OFFSET
        """Of the last marker that is committed: what it has ended is not known any more."""

    @property
    def pending(self) -> tuple[EndedTransaction, ...]:
        return tuple(self._pending)

    @property
    def settled_offset(self) -> int:
        return self._settled_offset

    def stable_offset(self, high_watermark: int, log_start: int) -> int:
        """All below is decided (Kafka's last stable offset): at most the high watermark. What is deleted is not waited
        for.
        """
        first = self.first_unstable_offset
        if first is None:
            return high_watermark
        return min(high_watermark, max(first, log_start))

    def note_records(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        base_offset: int,
        next_offset: int,
        timestamp_ms: int,
    ) -> None:
        """A batch of a transaction is in the log."""
        if base_offset <= self.latest_offset:
            return
        known = self.open.get(producer_id)
        if known is None:
            known = OpenTransaction(producer_id, producer_epoch, base_offset, timestamp_ms)
            self.open[producer_id] = known
            self._unstable[base_offset] = None
            self._look_for_first()
        known.producer_epoch = producer_epoch
        known.offsets.update(OffsetSet.between_ends(base_offset, next_offset))
        self._noted(base_offset)

    def note_marker(self, producer_id: int, *, offset: int, is_commit: bool) -> OffsetSet:
        """A marker is in the log; the records that it makes vanish once it is committed."""
        if offset <= self.latest_offset:
            return OffsetSet()
        self._noted(offset)
        ended = self.open.pop(producer_id, None)
        if ended is None:
            return OffsetSet()
        stable = next(iter(self.open.values())).first_offset if self.open else offset + 1
        self._pending.append(EndedTransaction(ended, offset, is_commit, stable))
        return OffsetSet() if is_commit else ended.offsets.copy()

    def _noted(self, offset: int) -> None:
        self.latest_offset = offset
        self.version += 1
        if self.unkept_offset is None:
            self.unkept_offset = offset

    def commit(self, high_watermark: int) -> None:
        """All below is committed."""
        while self._pending and self._pending[0].marker_offset < high_watermark:
            ended = self._pending.popleft()
            first = ended.transaction.first_offset
            del self._unstable[first]
            self._settled_offset = ended.marker_offset
            if not ended.is_commit:
                self.aborted.append(
                    AbortedTransaction(
                        ended.transaction.producer_id,
                        first,
                        ended.marker_offset,
                        ended.stable_offset,
                    )
                )
            self._look_for_first()

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with records in ``[start, end)``, or between two of their records."""
        place = bisect_left(self.aborted, start, key=lambda it: it.last_offset)
        found: list[AbortedTransaction] = []
        for it in self.aborted[place:]:
            if it.first_offset < end:
                found.append(it)
            if it.stable_offset >= end:
                break
        return found

    def first_aborted_at(self, marker_offset: int) -> int | None:
        """Where the transaction begins that the committed marker there aborts. From any thread."""
        aborted = self.aborted
        place = bisect_left(aborted, marker_offset, key=lambda it: it.last_offset)
        is_there = place < len(aborted) and aborted[place].last_offset == marker_offset
        return aborted[place].first_offset if is_there else None

    def cut(self, end_offset: int) -> bool:
        """The log ends there now. False: what was committed is cut, which only an unclean election does, and so the
        log has to be read again; nothing is known until then.
        """
        if self.latest_offset < end_offset:
            return True
        if self._settled_offset >= end_offset:
            self.clear()
            return False
        transactions = list(self.open.values())
        while self._pending and self._pending[-1].marker_offset >= end_offset:
            transactions.append(self._pending.pop().transaction)
        transactions = [it for it in transactions if it.first_offset < end_offset]
        transactions.sort(key=lambda it: it.first_offset)
        for it in transactions:
            it.offsets.keep_between(0, end_offset)
        self._restore_open(transactions)
        self.latest_offset = min(self.latest_offset, end_offset - 1)
        if self.unkept_offset is not None:
            self.unkept_offset = min(self.unkept_offset, end_offset)
        self.version += 1
        return True

    def clear(self) -> None:
        """Nothing is known, and nothing is in the file."""
        self.open, self.aborted, self._pending, self._unstable = {}, [], deque(), {}
        self.latest_offset = self._settled_offset = NO_OFFSET
        self.unkept_offset = None
        self.version += 1
        self._look_for_first()

    def forget_below(self, log_start_offset: int) -> None:
        """What was there is gone. A transaction that is open stays so until its marker comes."""
        place = bisect_left(self.aborted, log_start_offset, key=lambda it: it.last_offset)
        if place:
            self.aborted = self.aborted[place:]  # another thread may look at the old list

    def cleaned_below(self, offset: int) -> None:
        """Compaction has taken away what was aborted there."""
        self.forget_below(offset)
        self.version += 1

    def restore(
        self,
        *,
        transactions: Sequence[OpenTransaction],
        pending: Iterable[EndedTransaction],
        aborted: Iterable[AbortedTransaction],
        latest_offset: int,
        settled_offset: int,
    ) -> None:
        """What was kept; nothing was known before."""
        if self.latest_offset != NO_OFFSET:
            raise BrokenInvariant("transactions are restored where none are known")
        self.aborted, self._pending = list(aborted), deque(pending)
        self._restore_open(transactions)
        self.latest_offset, self._settled_offset = latest_offset, settled_offset

    def _restore_open(self, transactions: Sequence[OpenTransaction]) -> None:
        """``transactions`` in the order of their first records."""
        self.open = {it.producer_id: it for it in transactions}
        ended = (it.transaction.first_offset for it in self._pending)
        firsts = sorted([*(it.first_offset for it in transactions), *ended])
        self._unstable = dict.fromkeys(firsts)
        self._look_for_first()

    def _look_for_first(self) -> None:
        self.first_unstable_offset = next(iter(self._unstable), None)

    def snapshot(self) -> "Transactions":
        """As it is now, for another thread."""
        other = Transactions()
        other.restore(
            transactions=[it.copy() for it in self.open.values()],
            pending=[it._replace(transaction=it.transaction.copy()) for it in self._pending],
            aborted=self.aborted,
            latest_offset=self.latest_offset,
            settled_offset=self._settled_offset,
        )
        return other


class AbortedBatches:
    """Which batches of a log are of aborted transactions. A copy, for another thread."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._of: dict[int, list[AbortedTransaction]] = {}
        for it in aborted:
            self._of.setdefault(it.producer_id, []).append(it)

    def has(self, producer_id: int, base_offset: int) -> bool:
        """Of a batch of a transaction."""
        known = self._of.get(producer_id)
        if known is None:
            return False
        place = bisect_left(known, base_offset, key=lambda it: it.last_offset)
        is_before_marker = place < len(known) and known[place].last_offset > base_offset
        return is_before_marker and known[place].first_offset <= base_offset

    def has_batch(self, header: BatchHeader) -> bool:
        return header.is_transactional and self.has(header.producer_id, header.base_offset)
