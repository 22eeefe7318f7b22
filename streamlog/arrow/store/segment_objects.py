"""Objects of tiered storage as the segment files that they hold, for readers of segment files.

What is beside a ``.log`` file comes with one request for the end of the object. The ``.log`` file itself comes in
pieces, each checked against its checksums. The next ones are on their way while one is being read: a reader holds
``AHEAD + 2`` of them at most.
"""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from streamlog.arrow.files.file_system import ReadableFile
from streamlog.arrow.location import StoredSegments
from streamlog.log.layout import INDEX_SUFFIX, LOG_SUFFIX, segment_stem
from streamlog.log.segment.index import FIRST, OFFSET_ENTRY, SECOND, IndexEntries
from streamlog.tier.blocking_store import BlockingStore
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.object_store import CHUNK_BYTES
from streamlog.tier.segment_object import checksums_of

AHEAD: Final = 2
"""Pieces of CHUNK_BYTES that are on their way while one is being read."""


class SegmentObjects:
    """A file system with the segments of one partition. Reads begin where they are asked for."""

    def __init__(
        self,
        store: BlockingStore,
        stored: StoredSegments,
        *,
        end_offset: int | None = None,
        piece_bytes: int = CHUNK_BYTES,
        ahead: int = AHEAD,
    ) -> None:
        """``end_offset``: nothing is read ahead of what is behind it."""
        self._store = store
        self._stored = stored
        self._end_offset = end_offset
        self._piece_bytes = piece_bytes
        self._ahead = ahead
        self._by_stem = {segment_stem(it.base_offset): it for it in stored.segments}
        self._parts: tuple[str, Mapping[str, bytes]] = ("", {})
        """Of the segment that was asked for last."""

    @property
    def folder(self) -> str:
        """As errors name it."""
        return f"{self._store.url}/{self._stored.prefix.segments}"

    def children(self, _folder: str) -> tuple[dict[str, int], list[str]]:
        return {stem + LOG_SUFFIX: it.size_bytes for stem, it in self._by_stem.items()}, []

    def open(self, path: str) -> ReadableFile:
        """Raises FileNotFoundError for what is no file of a segment, ObjectNotFound for an object that has gone, and
        what else the store does.
        """
        stem, dot, suffix = path.rpartition("/")[2].partition(".")
        segment = self._by_stem.get(stem)
        if segment is None:
            raise FileNotFoundError(path)
        parts = self.parts(segment)
        if dot + suffix == LOG_SUFFIX:
            return self._log_file(segment, parts)
        if dot + suffix not in parts:
            raise FileNotFoundError(path)
        return _Bytes(parts[dot + suffix])

    def parts(self, segment: TieredSegment) -> Mapping[str, bytes]:
        """What is beside the ``.log`` file."""
        if self._parts[0] != segment.name:
            self._parts = segment.name, self._store.parts(self._stored.prefix, segment)
        return self._parts[1]

    def _log_file(self, segment: TieredSegment, parts: Mapping[str, bytes]) -> "_ObjectFile":
        checksums = checksums_of(parts, segment)
        count = max(1, self._piece_bytes // checksums.block_bytes)

        def ask(first: int) -> "tuple[int, Future[memoryview]]":
            stop = min(first + count, len(checksums.blocks))
            blocks = range(first, stop)
            return stop, self._store.ask_blocks(self._stored.prefix, segment, checksums, blocks)

        return _ObjectFile(
            ask,
            segment.size_bytes,
            checksums.block_bytes,
            stop_position=self._stop_position(segment, parts),
            ahead=self._ahead,
        )

    def _stop_position(self, segment: TieredSegment, parts: Mapping[str, bytes]) -> int:
        """Where all batches end that have an offset below ``end_offset``, or behind that."""
        if self._end_offset is None or self._end_offset >= segment.end_offset:
            return segment.size_bytes
        return next(
            (
                position
                for end, position in batch_ends(segment, parts.get(INDEX_SUFFIX, b""))
                if end >= self._end_offset
            ),
            segment.size_bytes,
        )


def batch_ends(segment: TieredSegment, index: bytes) -> list[tuple[int, int]]:
    """Offsets at which batches end, as its index has them; and positions at which those batches have ended."""
    entries = IndexEntries.load(index, OFFSET_ENTRY, segment.name)
    found = list(entries)
    # An entry has the position at which its batch begins: it has ended where the next entry's begins.
    following = [*(it[SECOND] for it in found[1:]), segment.size_bytes]
    return [
        (segment.base_offset + it[FIRST] + 1, position)
        for it, position in zip(found, following, strict=True)
    ]


class _Bytes:
    """A small file that is here."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, length: int, position: int) -> bytes:
        return self._data[position : position + length]

    def read_into(self, buffer: bytearray, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        pass


_AskBlocks = Callable[[int], "tuple[int, Future[memoryview]]"]
"""From a block on: the one behind those that are asked for, and their bytes."""


class _Piece(NamedTuple):
    start: int
    stop: int
    data: "Future[memoryview]"


class _ObjectFile:
    """The ``.log`` file of a segment. Reads that rise are read ahead."""

    def __init__(
        self, ask: _AskBlocks, size_bytes: int, block_bytes: int, *, stop_position: int, ahead: int
    ) -> None:
        """``ask``: of the blocks from one on, some of them. ``stop_position``: nothing is read ahead behind it."""
        self._ask_blocks = ask
        self._size_bytes = size_bytes
        self._block_bytes = block_bytes
        self._stop_position = stop_position
        self._ahead = ahead
        self._pieces: deque[_Piece] = deque()

    def size(self) -> int:
        return self._size_bytes

    def pread(self, length: int, position: int) -> bytes:
        buffer = bytearray(max(0, min(length, self.size() - position)))
        return bytes(buffer[: self.read_into(buffer, position)])

    def read_into(self, buffer: bytearray, position: int) -> int:
        """All of the buffer, but at the end of the file."""
        filled, wanted = 0, min(len(buffer), self.size() - position)
        target = memoryview(buffer)
        while filled < wanted:
            piece = self._piece_at(position + filled, position)
            data = piece.data.result()[position + filled - piece.start :][: wanted - filled]
            target[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def close(self) -> None:
        while self._pieces:
            self._pieces.popleft().data.cancel()

    def _piece_at(self, position: int, kept: int) -> _Piece:
        """The one with ``position``; what is wholly below ``kept`` is let go of."""
        pieces = self._pieces
        while pieces and (pieces[0].stop <= kept or pieces[0].start > position):
            pieces.popleft().data.cancel()
        if pieces and pieces[-1].stop < position:
            self.close()
        if not pieces:
            self._ask(position // self._block_bytes)
        at = 0
        while True:
            if pieces[at].start <= position < pieces[at].stop:
                break
            at += 1
            if at == len(pieces):
                self._ask_next()
        while len(pieces) <= at + self._ahead and pieces[-1].stop < self._stop_position:
            self._ask_next()
        return pieces[at]

    def _ask_next(self) -> None:
        self._ask(self._pieces[-1].stop // self._block_bytes)

    def _ask(self, first: int) -> None:
        stop, data = self._ask_blocks(first)
        start = first * self._block_bytes
        self._pieces.append(_Piece(start, min(stop * self._block_bytes, self._size_bytes), data))
