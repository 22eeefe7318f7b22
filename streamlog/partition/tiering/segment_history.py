"""What the object of a segment says of its producers: for each the headers of its last batches, and its last marker.

The local log knows this once it has read all records. What is in the store alone would have to be fetched whole for it.
So the part ``.producers`` is written when a segment is sealed for good. Another one has its transactions, see
``tier.segment_transactions``.
"""

import struct
from collections.abc import Iterator
from typing import Final

from streamlog.errors import CorruptFile
from streamlog.record.batch import HEADER_BYTES, BatchHeader, read_header
from streamlog.replication.producer_state import BATCHES_KEPT

PRODUCERS_PART: Final = ".producers"

_LENGTH: Final = struct.Struct(">I")


class ProducerHistory:
    """``note`` each batch of a segment; ``encode`` what counts of its producers."""

    def __init__(self) -> None:
        self._batches: dict[int, list[bytes]] = {}

    def note(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        """``batch``: of a control batch all of it, of another one the header at least."""
        kept = bytes(batch if header.is_control else batch[:HEADER_BYTES])
        known = self._batches.pop(header.producer_id, [])
        self._batches[header.producer_id] = [*known[1 - 2 * BATCHES_KEPT :], kept]

    def encode(self) -> bytes:
        """In the order of the log, as a reader would take note of them."""
        batches = [it for known in self._batches.values() for it in known]
        batches.sort(key=lambda it: read_header(it).base_offset)
        return b"".join(_LENGTH.pack(len(it)) + it for it in batches)


def decode_producers(data: bytes, path: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """Raises CorruptFile."""
    at = 0
    while at < len(data):
        try:
            (length,) = _LENGTH.unpack_from(data, at)
        except struct.error:
            raise CorruptFile(f"{path}: it is cut") from None
        at += _LENGTH.size
        batch = data[at : at + length]
        if len(batch) < max(length, HEADER_BYTES):
            raise CorruptFile(f"{path}: it is cut")
        yield read_header(batch), batch
        at += length
