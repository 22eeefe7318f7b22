"""One segment of a partition, read while a node may be writing it.

An index is a hint here, not a truth: it may be missing, or a moment old, and no code repairs it for
us. What it says of a place is checked against the batch header there; failing that, the segment is
walked.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from streamlog.arrow.files.file_system import Files, ReadableFile, opened, read_small
from streamlog.arrow.options.encryption_keys import Openers
from streamlog.errors import CorruptBatch, CorruptFile
from streamlog.log.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_stem,
)
from streamlog.log.segment.batch_scan import BatchPlace, find_batch, scan
from streamlog.log.segment.index import FIRST, OFFSET_ENTRY, SECOND, TIME_ENTRY, IndexEntries
from streamlog.record.batch import HEADER_BYTES, BatchHeader, read_header
from streamlog.record.codec import iter_records
from streamlog.record.compression import Buffer

OFFSET_MAX: Final = 2**63 - 1


class SegmentFile(NamedTuple):
    """A segment file; it holds offsets from ``base_offset`` to the next one's."""

    files: Files
    folder: str
    base_offset: int
    openers: Openers
    """Of what is encrypted in it."""
    is_swap: bool = False
    """It is about to be renamed over what it was made of; indexes there are not its own."""

    @property
    def path(self) -> str:
        return self.final_path + (SWAP_SUFFIX if self.is_swap else "")

    @property
    def final_path(self) -> str:
        """Its own, or what it is going to be: its data key lies beside that."""
        return self._file(LOG_SUFFIX)

    def open(self) -> AbstractContextManager[ReadableFile]:
        """The file of batches. Raises FileNotFoundError if retention has taken it."""
        return opened(self.files, self.path)

    def size(self) -> int:
        with self.open() as file:
            return file.size()

    def position_before(self, offset: int, file: ReadableFile | None = None) -> int:
        """A position at which a batch begins, at or before the one that holds ``offset``. In
        ``file``, where it is open: another one may have its name by now.
        """
        entry = self._index().floor(FIRST, offset - self.base_offset)
        return 0 if entry is None else self._checked(entry[SECOND], offset, file)

    def position_after(self, offset: int) -> int:
        """Where the batch that holds ``offset`` ends; the end of the file if there is none."""
        with self.open() as file:
            size = file.size()
            try:
                return find_batch(file, self.position_before(offset, file), size, offset)[1]
            except CorruptBatch:
                return size

    def boundaries_before(self, positions: Iterable[int]) -> set[int]:
        """The base offset of the batch at each of ``positions``, which must rise."""
        index = self._index()
        found: set[int] = set()
        start, boundary = 0, self.base_offset
        for position in positions:
            entry = index.floor(SECOND, position)
            if entry is not None:
                start = max(start, self._checked(entry[SECOND], OFFSET_MAX))
            for place in self.batches(start):
                if place.position > position:
                    break
                start, boundary = place.position, place.base_offset
            found.add(boundary)
        return found

    def end_offset(self) -> int:
        """The end of the last whole batch; a torn one after it does not count."""
        end = self.base_offset
        for place in self.batches(self.position_before(OFFSET_MAX)):
            end = place.next_offset
        return end

    def batches(self, position: int) -> Iterator[BatchPlace]:
        """The whole batches from ``position`` on, by their headers alone."""
        with self.open() as file:
            header = _header(file, position)
            if header is None and position:  # of another file, which had the name before
                position, header = 0, _header(file, 0)
            if header is None:
                return
            for place in scan(file, position, file.size(), header.base_offset, check_crc=False):
                if isinstance(place, BatchPlace):
                    yield place

    def first_offset_at(self, timestamp_ms: int) -> int | None:
        """The offset of the first record that is not earlier."""
        entry = self._entries(TIME_INDEX_SUFFIX, TIME_ENTRY).floor(FIRST, timestamp_ms - 1)
        earlier = self.base_offset if entry is None else self.base_offset + entry[SECOND]
        for place in self.batches(self.position_before(earlier)):
            if place.max_timestamp_ms >= timestamp_ms:
                offset = self._first_record_at(place, timestamp_ms)
                if offset is not None:
                    return offset
        return None

    def _first_record_at(self, place: BatchPlace, timestamp_ms: int) -> int | None:
        with self.open() as file:
            batch: Buffer = file.pread(place.end_position - place.position, place.position)
        if read_header(batch).is_log_append_time:
            return place.base_offset
        batch = self._opened(batch, place)
        offsets = (r.offset for r in iter_records(batch) if r.timestamp_ms >= timestamp_ms)
        return next(offsets, None)

    def _opened(self, batch: Buffer, place: BatchPlace) -> Buffer:
        try:
            return self.openers.of(self.files, self.final_path).opened(batch)
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path} at byte {place.position}: {error}") from None

    def _checked(self, position: int, offset: int, file: ReadableFile | None = None) -> int:
        """``position`` if a batch begins there that holds ``offset`` or comes before it; else 0."""
        if file is None:
            with self.open() as opened_now:
                return self._checked(position, offset, opened_now)
        header = _header(file, position)
        right = header is not None and self.base_offset <= header.base_offset <= offset
        return position if right else 0

    def _index(self) -> IndexEntries:
        return self._entries(INDEX_SUFFIX, OFFSET_ENTRY)

    def _entries(self, suffix: str, entry: struct.Struct) -> IndexEntries:
        path = self._file(suffix)
        if self.is_swap:
            return IndexEntries(entry)
        try:
            return IndexEntries.load(read_small(self.files, path), entry, path)
        except (FileNotFoundError, CorruptFile):
            return IndexEntries(entry)

    def _file(self, suffix: str) -> str:
        return f"{self.folder}/{segment_stem(self.base_offset)}{suffix}"


def _header(file: ReadableFile, position: int) -> BatchHeader | None:
    try:
        return read_header(file.pread(HEADER_BYTES, position))
    except CorruptBatch:
        return None
