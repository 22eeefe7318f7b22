"""Sparse indexes: files of big-endian entries of two fields, both of which only grow.

Kafka's layouts. The offset index has (relative offset u32, position u32): at that position starts
the batch that *ends* with that offset. The time index has (timestamp i64 ms, relative offset u32):
the batch that ends with that offset was the first to reach that time, which is the latest of the
segment up to there.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import lt
from typing import Final, Protocol

from streamlog.errors import CorruptFile
from streamlog.log.storage.disk import DiskFile
from streamlog.log.storage.file_pool import FilePool, PooledFile

OFFSET_ENTRY: Final = struct.Struct(">II")
TIME_ENTRY: Final = struct.Struct(">qI")
RELATIVE_OFFSET_MAX: Final = 2**31 - 1

FIRST: Final = 0
SECOND: Final = 1

_BLOCK_ENTRIES: Final = 256
"""A search in a file reads this many entries at once when no more are left to choose from, and they
are kept for a reader that goes on.
"""

Entry = tuple[int, int]


class Index(Protocol):
    """Where a search may begin."""

    def floor(self, field: int, bound: int) -> Entry | None:
        """The last entry whose ``field`` is at most ``bound``."""

    def last(self) -> Entry | None: ...


class IndexEntries:
    """An index in memory, which grows."""

    __slots__ = ("_entry", "_fields", "_packed")

    def __init__(self, entry: struct.Struct) -> None:
        self._entry = entry
        self._fields = (array("q"), array("q"))
        self._packed = bytearray()  # the same entries, as they go to the file

    @classmethod
    def load(cls, data: bytes, entry: struct.Struct, path: str) -> "IndexEntries":
        """The content of an index file. Raises CorruptFile if it cannot be what was written.

        Zeros at the end, which a power cut may leave in place of a page, do not pass.
        """
        if len(data) % entry.size:
            raise CorruptFile(f"{path}: {len(data)} bytes are not whole entries of {entry.size}")
        entries = cls(entry)
        entries._fields = _columns(data, entry)
        entries._packed += data
        for values in entries._fields:
            if not all(map(lt, values, values[1:])):
                raise CorruptFile(f"{path}: the entries are out of order")
        return entries

    def __len__(self) -> int:
        return len(self._fields[0])

    def __iter__(self) -> Iterator[Entry]:
        return zip(*self._fields, strict=True)

    def append(self, first: int, second: int) -> None:
        self._packed += self._entry.pack(first, second)
        self._fields[0].append(first)
        self._fields[1].append(second)

    def floor(self, field: int, bound: int) -> Entry | None:
        at = self.count_up_to(field, bound) - 1
        return self._at(at) if at >= 0 else None

    def count_up_to(self, field: int, bound: int) -> int:
        """How many entries have a ``field`` of at most ``bound``."""
        return bisect_right(self._fields[field], bound)

    def last(self) -> Entry | None:
        return self._at(-1) if self._packed else None

    def packed(self) -> bytes:
        return bytes(self._packed)

    def _at(self, at: int) -> Entry:
        return self._fields[0][at], self._fields[1][at]


def _columns(data: bytes, entry: struct.Struct) -> "tuple[array[int], array[int]]":
    """The two fields of whole entries."""
    pairs = list(entry.iter_unpack(data))
    return array("q", [first for first, _ in pairs]), array("q", [second for _, second in pairs])


class _Block:
    """Neighbouring entries of a file."""

    __slots__ = ("end", "fields", "index", "low")

    def __init__(self, index: "IndexFile", low: int, data: bytes, entry: struct.Struct) -> None:
        self.index = index  # who read them; the file may have been cut and written again since
        whole = len(data) - len(data) % entry.size
        self.fields = _columns(data[:whole], entry)
        self.low = low  # how many entries are before
        self.end = low + len(self.fields[0])

    def has_floor(self, field: int, bound: int, count: int) -> bool:
        """The last of the ``count`` entries up to ``bound`` is here, or there is none."""
        values = self.fields[field]
        if not values or (self.low and values[0] > bound):
            return False
        return self.end >= count or values[-1] > bound

    def floor(self, field: int, bound: int) -> Entry | None:
        at = bisect_right(self.fields[field], bound) - 1
        return (self.fields[0][at], self.fields[1][at]) if at >= 0 else None


class IndexFile:
    """A sealed segment's index, searched where it lies."""

    __slots__ = ("_count", "_entry", "_path", "_pool")

    def __init__(self, pool: FilePool, path: str, entry: struct.Struct) -> None:
        self._pool = pool
        self._path = path
        self._entry = entry
        self._count = -1  # of entries; -1 before the first look

    def floor(self, field: int, bound: int) -> Entry | None:
        count = self._load_count()
        if not count:
            return None
        pooled = self._pool.pin(self._path)
        try:
            block = self._noted(pooled)
            if block is None or not block.has_floor(field, bound, count):
                after = 0 if block is None else block.end - 1
                pooled.note = block = self._block_with(pooled.file, field, bound, count, after)
        except struct.error:
            raise CorruptFile(f"{self._path}: shorter than it was") from None
        finally:
            self._pool.unpin(pooled)
        return block.floor(field, bound)

    def _noted(self, pooled: PooledFile) -> _Block | None:
        block = pooled.note
        return block if isinstance(block, _Block) and block.index is self else None

    def _block_with(self, file: DiskFile, field: int, bound: int, count: int, after: int) -> _Block:
        """The one with the last entry up to ``bound``; perhaps it begins at the ``after``th."""
        if 0 < after < count - 1:
            block = self._block(file, after, count)
            if block.has_floor(field, bound, count):
                return block
        low, high, size = 0, count, self._entry.size
        # Entries below low are at most bound, from high on above.
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._entry.unpack(file.pread(size, middle * size))[field] <= bound:
                low = middle
            else:
                high = middle
        return self._block(file, low, count)

    def _block(self, file: DiskFile, low: int, count: int) -> _Block:
        size = self._entry.size
        data = file.pread(min(count - low, _BLOCK_ENTRIES) * size, low * size)
        return _Block(self, low, data, self._entry)

    def last(self) -> Entry | None:
        count = self._load_count()
        if not count:
            return None
        pooled = self._pool.pin(self._path)
        try:
            data = pooled.file.pread(self._entry.size, (count - 1) * self._entry.size)
        finally:
            self._pool.unpin(pooled)
        if len(data) < self._entry.size:
            raise CorruptFile(f"{self._path}: shorter than it was")
        first, second = self._entry.unpack(data)
        return first, second

    def _load_count(self) -> int:
        if self._count < 0:
            try:
                pooled = self._pool.pin(self._path)
            except FileNotFoundError:
                return 0  # not remembered: a scrub may write it
            try:
                self._count = pooled.file.size() // self._entry.size
            finally:
                self._pool.unpin(pooled)
        return self._count
