"""The transactions of a partition's folder, for those who read its files beside the node. Pure."""

from typing import Final

from streamlog.errors import CorruptFile
from streamlog.log.checked_file import owner_of
from streamlog.log.transactions.transactions import AbortedBatches, Transactions
from streamlog.log.transactions.transactions_file import FILE_NAME, decode
from streamlog.record.batch import BatchHeader

_ALL: Final = 2**62


class FolderTransactions:
    """As the folder's file has them. A node writes it before the high-watermark checkpoint passes a batch of a
    transaction, so that it has all that is below that.
    """

    def __init__(self, data: bytes, folder: str) -> None:
        """``data``: of the file; b"" where there is none. Raises CorruptFile."""
        self._path = f"{folder}/{FILE_NAME}"
        self._is_there = bool(data)
        self._transactions = Transactions()
        if data:
            self._transactions = decode(data, self._path, owner_of(folder)).transactions
        # Of a transaction with records below a stable offset the end is committed, whatever the file says of it.
        ended = self._transactions.snapshot()
        ended.commit(_ALL)
        self._aborted = AbortedBatches(ended.aborted)

    def stable_offset(self, high_watermark: int, log_start: int) -> int:
        known = self._transactions.snapshot()
        known.commit(high_watermark)
        return known.stable_offset(high_watermark, log_start)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Of a batch below a stable offset. Raises CorruptFile where that is not known."""
        return header.is_transactional and self.has_aborted(header.producer_id, header.base_offset)

    def has_aborted(self, producer_id: int, base_offset: int) -> bool:
        """The same of a transaction's batch by its producer and its base offset."""
        if not self._is_there:
            raise CorruptFile(
                f"{self._path}: it is missing, and the log has transactions: which of them were aborted is not known"
            )
        return self._aborted.has(producer_id, base_offset)
