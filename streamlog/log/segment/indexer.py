from typing import Final

from streamlog.errors import CorruptFile
from streamlog.log.segment.index import OFFSET_ENTRY, TIME_ENTRY, IndexEntries
from streamlog.log.segment.scan import BatchPlace

NO_TIMESTAMP: Final = -1


class Indexer:
    """Builds a segment's two indexes from its batches, one after the other."""

    __slots__ = (
        "_bytes_since_entry",
        "_stored",
        "base_offset",
        "interval_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offsets",
        "times",
    )

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offsets = IndexEntries(OFFSET_ENTRY)
        self.times = IndexEntries(TIME_ENTRY)
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset  # last offset of the batch that first reached it
        self._bytes_since_entry = 0
        self._stored = (0, 0)  # how many entries were let go

    def add(self, position: int, end_position: int, next_offset: int, timestamp_ms: int) -> None:
        """Take note of a batch that ends with offset ``next_offset - 1``."""
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
            self.max_timestamp_offset = next_offset - 1
        if self._bytes_since_entry > self.interval_bytes:
            self.offsets.append(next_offset - 1 - self.base_offset, position)
            self.note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += end_position - position

    def add_place(self, place: BatchPlace) -> None:
        self.add(place.position, place.end_position, place.next_offset, place.max_timestamp_ms)

    def note_time(self) -> None:
        """An entry for the latest time, unless there is one; a sealed segment ends with it."""
        last = self.times.last()
        if self.max_timestamp_ms > (last[0] if last else NO_TIMESTAMP):
            self.times.append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)

    def let_go(self) -> None:
        """Of the entries, which are stored; nothing is added before ``take_back``."""
        self._stored = len(self.offsets), len(self.times)
        self.offsets, self.times = IndexEntries(OFFSET_ENTRY), IndexEntries(TIME_ENTRY)

    def take_back(self, offsets: IndexEntries, times: IndexEntries) -> None:
        """What was let go, from where it was stored. Raises CorruptFile if it is not that."""
        last = times.last()
        told = NO_TIMESTAMP if last is None else last[0]
        if self._stored != (len(offsets), len(times)) or told != self.max_timestamp_ms:
            raise CorruptFile(f"{len(offsets)} and {len(times)} entries are not what was stored")
        self.offsets, self.times = offsets, times

    @classmethod
    def resume(
        cls, base_offset: int, interval_bytes: int, offsets: IndexEntries, times: IndexEntries
    ) -> "Indexer":
        """Go on from entries that were stored, at the batch of the last offset entry."""
        indexer = cls(base_offset, interval_bytes)
        indexer.offsets = offsets
        indexer.times = times
        if last := times.last():
            indexer.max_timestamp_ms = last[0]
            indexer.max_timestamp_offset = base_offset + last[1]
        return indexer
