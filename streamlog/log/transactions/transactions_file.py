"""Transactions as a small file. Pure.

After the head of a file that has an owner (``log.checked_file``): where the log ended, the epoch of its last batch and
where that epoch began. By these a start sees whether the file is of the log that is there.
Then the last batch that was noted and the last committed marker; then, each after how many there are, the open
transactions, those with a marker that waits for its commit, and the aborted ones.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.errors import CorruptFile
from streamlog.log.checked_file import owned, owned_body
from streamlog.log.transactions.transactions import (
    AbortedTransaction,
    EndedTransaction,
    OpenTransaction,
    Transactions,
)
from streamlog.record.offset_set import OffsetSet

FILE_NAME: Final = "transaction.snapshot"
_MAGIC: Final = b"SLTX\x00\x00\x00\x01"
_HISTORY: Final = struct.Struct(">qiq")
_ENDS: Final = struct.Struct(">qq")
_COUNT: Final = struct.Struct(">I")
_OPEN: Final = struct.Struct(">qhqqI")
_ENDED: Final = struct.Struct(">q?q")
_ABORTED: Final = struct.Struct(">qqqq")


class LogHistory(NamedTuple):
    """A log up to a moment. Two logs whose last batches before the end of the shorter one are of one epoch are the same
    up to there.
    """

    end_offset: int
    epoch: int
    epoch_start: int


class TransactionSnapshot(NamedTuple):
    """What such a file says."""

    history: LogHistory
    transactions: Transactions


def encode(transactions: Transactions, history: LogHistory, owner: bytes) -> bytes:
    parts = [
        _HISTORY.pack(*history),
        _ENDS.pack(transactions.latest_offset, transactions.settled_offset),
        _COUNT.pack(len(transactions.open)),
        *(_packed(it) for it in transactions.open.values()),
        _COUNT.pack(len(transactions.pending)),
    ]
    for ended in transactions.pending:
        parts.append(_ENDED.pack(ended.marker_offset, ended.is_commit, ended.stable_offset))
        parts.append(_packed(ended.transaction))
    parts.append(_COUNT.pack(len(transactions.aborted)))
    parts.extend(_ABORTED.pack(*it) for it in transactions.aborted)
    return owned(_MAGIC, owner, b"".join(parts))


def decode(data: bytes, path: str, owner: bytes) -> TransactionSnapshot:
    """Raises CorruptFile for what ``encode`` has not written for ``owner``."""
    reading = _Reading(owned_body(data, _MAGIC, owner, path, "a file of transactions"))
    try:
        history = LogHistory(*reading.unpack(_HISTORY))
        latest_offset, settled_offset = reading.unpack(_ENDS)
        transactions = Transactions()
        transactions.restore(
            transactions=list(reading.open_transactions()),
            pending=list(reading.ended()),
            aborted=list(reading.aborted()),
            latest_offset=latest_offset,
            settled_offset=settled_offset,
        )
    except (ValueError, struct.error) as error:
        raise CorruptFile(f"{path}: {error}") from None
    return TransactionSnapshot(history, transactions)


def _packed(it: OpenTransaction) -> bytes:
    offsets = it.offsets.encode()
    head = it.producer_id, it.producer_epoch, it.first_offset, it.started_ms, len(offsets)
    return _OPEN.pack(*head) + offsets


class _Reading:
    """Each method reads on. Raises ValueError, struct.error."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        found = form.unpack_from(self._data, self._at)
        self._at += form.size
        return found

    def _times(self) -> range:
        (count,) = self.unpack(_COUNT)
        return range(count)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        for _ in self._times():
            yield self._open_transaction()

    def _open_transaction(self) -> OpenTransaction:
        producer_id, producer_epoch, first_offset, started_ms, size = self.unpack(_OPEN)
        found = OpenTransaction(producer_id, producer_epoch, first_offset, started_ms)
        found.offsets = OffsetSet.decode(self._data[self._at : self._at + size])
        self._at += size
        return found

    def ended(self) -> Iterator[EndedTransaction]:
        for _ in self._times():
            marker_offset, is_commit, stable_offset = self.unpack(_ENDED)
            transaction = self._open_transaction()
            yield EndedTransaction(transaction, marker_offset, bool(is_commit), stable_offset)

    def aborted(self) -> Iterator[AbortedTransaction]:
        for _ in self._times():
            yield AbortedTransaction._make(self.unpack(_ABORTED))
