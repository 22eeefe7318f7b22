from collections.abc import Callable, Iterator
from typing import Final

from streamlog.errors import CorruptBatch
from streamlog.log.disk import DiskFile
from streamlog.log.segment import Segment
from streamlog.record.batch import BatchHeader, read_header, whole_batches

PIECE_BYTES: Final = 1024 * 1024


def read_batches(
    file: DiskFile, segment: Segment, pause: Callable[[int], None]
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """All batches of a segment, checked; ``pause`` is called with the bytes of each piece.

    Raises CorruptBatch unless they are whole and dense from its first offset to its last, OSError.
    """
    position, next_offset = 0, segment.base_offset
    while position < segment.size_bytes:
        piece = _piece(file, position, segment)
        pause(len(piece))
        before = position
        for header, batch in whole_batches(piece):
            if header.base_offset != next_offset:
                raise CorruptBatch(
                    f"{segment.path}: base offset {header.base_offset} where {next_offset} should"
                    f" be, at {position}"
                )
            yield header, batch
            position += len(batch)
            next_offset = header.next_offset
        if position == before:
            raise CorruptBatch(f"{segment.path}: no whole batch at {position}")
    if next_offset != segment.next_offset:
        raise CorruptBatch(f"{segment.path}: ends at {next_offset}, not {segment.next_offset}")


def _piece(file: DiskFile, position: int, segment: Segment) -> bytes:
    left = segment.size_bytes - position
    piece = file.pread(min(left, PIECE_BYTES), position)
    size_bytes = read_header(piece).size_bytes
    if len(piece) < size_bytes <= left:
        piece = file.pread(size_bytes, position)
    return piece
