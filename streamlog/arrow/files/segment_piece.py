"""A piece of a segment as the decoder is fed it."""

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from streamlog.errors import CorruptBatch, StreamlogError
from streamlog.record.batch import CRC_START, ENCRYPTED, BatchHeader, batches
from streamlog.record.compression import Buffer

if TYPE_CHECKING:
    from streamlog.log.encryption.opener import SegmentOpener


@dataclass(frozen=True)
class SegmentPiece:
    """Batches as they were appended, and where each of them lies in the file."""

    data: Buffer
    at: int
    """Where the piece begins in the file."""
    starts: Sequence[int] = (0,)
    """Of batches in ``data``; then its end."""
    positions: Sequence[int] = (0,)
    """Of the same in the piece."""
    is_opened: bool = False

    def position(self, position: int) -> int:
        """In the file, of a position in ``data``."""
        index = bisect_right(self.starts, position) - 1
        return self.at + self.positions[index] + position - self.starts[index]


class OpenedPieces:
    """Opens pieces of a segment, of which some batches are encrypted."""

    def __init__(
        self, opener: "SegmentOpener", start_offset: int, end_offset: int, *, check_crc: bool
    ) -> None:
        """Batches without an offset of that range stay as they are: the decoder skips them."""
        self._opener = opener
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._check_crc = check_crc

    def piece(self, data: memoryview, at: int) -> SegmentPiece:
        """Whole batches of it, from the first one on. Where there is none to be opened: all of it
        as it is, for the decoder to tell what is the matter.

        Raises CorruptBatch, CorruptFile, EncryptionKeyMissing for the first one; from others on
        which that happens, a next piece begins.
        """
        parts: list[Buffer] = []
        starts, positions = [0], [0]
        for header, batch in _whole_batches(data):
            if header.base_offset >= self._end_offset:
                break
            try:
                part = self._opened(header, batch)
            except StreamlogError:
                if not parts:
                    raise
                break
            parts.append(part)
            starts.append(starts[-1] + len(part))
            positions.append(positions[-1] + len(batch))
        if not parts:
            return SegmentPiece(data, at, is_opened=True)
        return SegmentPiece(b"".join(parts), at, starts, positions, is_opened=True)

    def _opened(self, header: BatchHeader, batch: memoryview) -> Buffer:
        if header.next_offset <= self._start_offset:
            return batch
        if self._check_crc and crc32c(batch[CRC_START:]) != header.crc:
            problem = "its checksum is wrong"  # as the decoder says it
            raise CorruptBatch(f"record batch at offset {header.base_offset}: {problem}")
        return self._opener.opened(batch)


def _whole_batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Up to one that cannot be a batch."""
    with contextlib.suppress(CorruptBatch):
        yield from batches(data)


def is_encrypted_at(data: Buffer, position: int) -> bool:
    """Whether the header there says so; it may be damaged."""
    end = position + CRC_START + 2
    return end <= len(data) and bool(data[end - 2] << 8 & ENCRYPTED)
