"""From the log of a partition of an internal stream to what its coordinator keeps. Pure.

The last record of each key holds. What was read costs no more memory than what there is.
"""

from abc import ABC, abstractmethod

from streamlog.record.batch import BatchHeader, batches
from streamlog.record.codec import iter_records
from streamlog.record.compression import Buffer


class LogReplay(ABC):
    """``feed`` the log, batch by batch. May be used in any one thread."""

    def __init__(self) -> None:
        self.next_offset = 0
        """All below has been read."""
        self.records = 0

    def feed(self, data: bytes | memoryview) -> None:
        """Whole batches, back to back. Raises CorruptBatch."""
        for header, batch in batches(data):
            if header.is_control:
                self._take_control(header, batch)
            else:
                for record in iter_records(batch):
                    if record.offset >= self.next_offset and record.key is not None:
                        self.records += 1
                        self.take(record.key, record.value, record.offset, header)
            self.next_offset = max(self.next_offset, header.next_offset)

    @abstractmethod
    def _take_control(self, header: BatchHeader, batch: Buffer) -> None:
        """A control batch. Raises CorruptBatch."""

    @abstractmethod
    def take(
        self, key: bytes, value: bytes | None, offset: int = 0, header: BatchHeader | None = None
    ) -> None:
        """One record, and the header of its batch. Raises CorruptBatch."""
