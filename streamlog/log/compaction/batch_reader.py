from collections.abc import Callable, Iterator
from typing import Final

from streamlog.errors import CorruptBatch
from streamlog.log.segment.end_checksums import OTHER_BATCHES
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import DiskFile
from streamlog.record.batch import ENCRYPTED, BatchHeader, dense_batches, read_header

PIECE_BYTES: Final = 64 * 1024
"""Small enough that no thread waits long for the interpreter."""


def read_batches(
    file: DiskFile, segment: Segment, pause: Callable[[int], None]
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """All batches of a segment, checked, as they were appended; ``pause`` is called with the bytes
    of each piece.

    Raises CorruptBatch unless they are whole and dense from its first offset to its last, OSError,
    CorruptFile and EncryptionKeyMissing where they are encrypted.
    """
    position, offset = 0, segment.base_offset
    while position < segment.size_bytes:
        piece = _piece(file, position, segment)
        pause(len(piece))
        before = position
        try:
            for found in dense_batches(piece, offset):
                header, batch = found
                if segment.ends.contradicts(position, header.crc):
                    raise CorruptBatch(OTHER_BATCHES)
                yield found if segment.key is None else _opened(segment, header, batch)
                position += len(batch)
                offset += header.last_offset_delta + 1
        except CorruptBatch as error:
            raise CorruptBatch(f"{segment.path} position {position}: {error}") from None
        if position == before:
            raise CorruptBatch(f"{segment.path} position {position}: no whole batch")
    if offset != segment.next_offset:
        raise CorruptBatch(f"{segment.path}: ends at {offset}, not {segment.next_offset}")


def _opened(
    segment: Segment, header: BatchHeader, batch: memoryview
) -> tuple[BatchHeader, memoryview]:
    opened = memoryview(segment.opened(batch))
    return (read_header(opened), opened) if header.attributes & ENCRYPTED else (header, batch)


def _piece(file: DiskFile, position: int, segment: Segment) -> bytes:
    left = segment.size_bytes - position
    piece = file.pread(min(left, PIECE_BYTES), position)
    size_bytes = read_header(piece).size_bytes
    if len(piece) < size_bytes <= left:
        piece = file.pread(size_bytes, position)
    return piece
