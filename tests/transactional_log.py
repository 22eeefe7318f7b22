"""A log with transactions, on a simulated disk; and what a reader that knows nothing but the batches makes of them."""

from collections.abc import Sequence
from typing import NamedTuple

from streamlog.log.control_batches import note_all
from streamlog.log.control_load import history_of, load
from streamlog.log.erasure import erasures_file
from streamlog.log.transactions import transactions_file
from streamlog.log.transactions.transactions import AbortedTransaction
from streamlog.record.batch import TRANSACTIONAL
from streamlog.record.codec import RecordRun
from streamlog.record.transaction_marker import TransactionMarker, marker_batch, marker_of
from tests.erased_log import ErasedLog
from tests.log_folder import read_batches

OWNER = b"s/0"


def transactional_batch(
    producer_id: int,
    values: Sequence[bytes],
    *,
    base_offset: int,
    producer_epoch: int = 0,
    sequence: int = 0,
    leader_epoch: int = 0,
    key: bytes = b"k",
) -> bytes:
    run = RecordRun(attributes=TRANSACTIONAL)
    for value in values:
        run.append(key, value)
    return run.seal(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_ms=1_000,
        producer=(producer_id, producer_epoch, sequence),
    )


class TransactionalLog(ErasedLog):
    """Batches are appended, and known, as a partition's leader or follower does it."""

    def write(self, producer_id: int, count: int = 1, *, epoch: int = 0, key: bytes = b"k") -> int:
        """Records of a transaction; the base offset."""
        base_offset = self.log.log_end_offset
        values = [b"%d" % (base_offset + at) for at in range(count)]
        self._append(
            transactional_batch(
                producer_id, values, base_offset=base_offset, leader_epoch=epoch, key=key
            )
        )
        return base_offset

    def mark(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> int:
        offset = self.log.log_end_offset
        self._append(
            marker_batch(
                TransactionMarker(producer_id, 0, is_commit, 0),
                base_offset=offset,
                leader_epoch=epoch,
                timestamp_ms=1_000,
            )
        )
        return offset

    def _append(self, batch: bytes) -> None:
        self.log.append(batch, 1_000)
        note_all(self.log.erasures, self.log.transactions, batch)

    def keep(self, *, erasures_alone: bool = False) -> None:
        """Write the files, or one of them before the process is killed."""
        log = self.log
        log.beside.write(
            erasures_file.FILE_NAME, erasures_file.encode(log.erasures.snapshot(), OWNER)
        )
        if erasures_alone:
            return
        kept = transactions_file.encode(log.transactions.snapshot(), history_of(log), OWNER)
        log.beside.write(transactions_file.FILE_NAME, kept)
        log.erasures.kept_end = log.erasures.latest_offset + 1
        log.transactions.kept_end = log.transactions.latest_offset + 1
        log.erasures.unkept_offset = log.transactions.unkept_offset = None

    @property
    def checkpoint(self) -> int:
        unkept = self.log.erasures.unkept_offset, self.log.transactions.unkept_offset
        return min([self.log.recovery_point, *(it for it in unkept if it is not None)])

    def come_back(
        self, checkpoint: int, high_watermark: int, kept: tuple[int, int] = (0, 0)
    ) -> None:
        """``kept``: where the files end, as the checkpoints say."""
        self.open(recovery_point=checkpoint)
        self.log.erasures, self.log.transactions = load(
            self.log,
            known_offset=self.log.recovery_limit.bound(checkpoint),
            erasures_end=kept[0],
            transactions_end=kept[1],
        )
        self.commit(min(high_watermark, self.log.log_end_offset))

    def commit(self, high_watermark: int) -> None:
        self.log.erasures.commit(high_watermark)
        self.log.transactions.commit(high_watermark)

    @property
    def known(self) -> tuple[int, int]:
        return self.log.erasures.kept_end, self.log.transactions.kept_end


class SegmentPiece(NamedTuple):
    """A batch of a transaction, or a marker."""

    offset: int
    end: int
    producer_id: int
    is_commit: bool | None
    """None: records."""


def pieces_of(log: TransactionalLog) -> list[SegmentPiece]:
    found = []
    for header, batch in read_batches(log.log):
        marker = marker_of(batch, header)
        if marker is not None or header.is_transactional:
            is_commit = None if marker is None else marker.is_commit
            found.append(
                SegmentPiece(header.base_offset, header.next_offset, header.producer_id, is_commit)
            )
    return found


class Oracle:
    """Looks through all batches for each answer."""

    def __init__(self, pieces: Sequence[SegmentPiece], high_watermark: int) -> None:
        self.pieces = pieces
        self.high_watermark = high_watermark

    def _end_of(self, records: SegmentPiece) -> SegmentPiece | None:
        for it in self.pieces:
            is_later = it.offset > records.offset
            if is_later and it.producer_id == records.producer_id and it.is_commit is not None:
                return it if it.offset < self.high_watermark else None
        return None

    @property
    def _records(self) -> list[SegmentPiece]:
        return [it for it in self.pieces if it.is_commit is None]

    @property
    def stable_offset(self) -> int:
        undecided = [it.offset for it in self._records if self._end_of(it) is None]
        return min([self.high_watermark, *undecided])

    @property
    def no_messages(self) -> set[int]:
        """Aborted records, and the markers."""
        found = {it.offset for it in self.pieces if it.is_commit is not None}
        found = {it for it in found if it < self.high_watermark}
        for it in self._records:
            end = self._end_of(it)
            if end is not None and not end.is_commit:
                found |= set(range(it.offset, it.end))
        return found

    @property
    def aborted(self) -> dict[int, tuple[int, int]]:
        """By the offset of the marker: producer and first offset."""
        found: dict[int, tuple[int, int]] = {}
        for it in self._records:
            end = self._end_of(it)
            if end is not None and not end.is_commit:
                found.setdefault(end.offset, (it.producer_id, it.offset))
        return found

    def aborted_between(self, start: int, end: int) -> set[tuple[int, int, int]]:
        return {
            (producer_id, first, marker)
            for marker, (producer_id, first) in self.aborted.items()
            if first < end and marker >= start
        }


def told(found: Sequence[AbortedTransaction]) -> set[tuple[int, int, int]]:
    return {(it.producer_id, it.first_offset, it.last_offset) for it in found}
