"""What the object of a segment says beside its files: which transactions were aborted, and what its producers did.

The local log knows both of what it has: of all records, once it has read them. What is in the store alone would have to
be fetched whole for it. So the parts below are written when a segment is sealed for good, and all of it is decided.

- ``.transactions``: JSON; the aborted transactions with records in the segment, and offsets that are no messages.
- ``.producers``: for each producer the headers of its last batches in the segment, and its last marker.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import orjson

from streamlog.errors import CorruptFile
from streamlog.log.layout import KEY_SUFFIX
from streamlog.log.transactions.transactions import AbortedTransaction
from streamlog.record.batch import HEADER_BYTES, BatchHeader, read_header
from streamlog.record.offset_set import OffsetSet
from streamlog.replication.producer_state import BATCHES_KEPT

KEY_PART: Final = KEY_SUFFIX
TRANSACTIONS_PART: Final = ".transactions"
PRODUCERS_PART: Final = ".producers"

_FORMAT: Final = 1
_LENGTH: Final = struct.Struct(">I")


class SegmentTransactions(NamedTuple):
    """What of a segment is not for readers of committed records."""

    aborted: tuple[AbortedTransaction, ...] = ()
    """In the order of their markers."""
    erased: OffsetSet | None = None
    """Offsets in it that are no messages; None: there are none."""


def encode_transactions(told: SegmentTransactions) -> bytes:
    """b"" where there is nothing to say."""
    erased = [] if told.erased is None else list(_runs(told.erased))
    if not told.aborted and not erased:
        return b""
    return orjson.dumps(
        {"format": _FORMAT, "aborted": [list(it) for it in told.aborted], "erased": erased}
    )


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """From each to its end."""
    start = stop = -1
    for offset in offsets:
        if offset != stop:
            if start >= 0:
                yield start, stop
            start = offset
        stop = offset + 1
    if start >= 0:
        yield start, stop


def decode_transactions(data: bytes, path: str) -> SegmentTransactions:
    """Raises CorruptFile."""
    try:
        content = orjson.loads(data)
        if content["format"] != _FORMAT:
            raise CorruptFile(f"{path}: its format is not known here")
        erased = OffsetSet()
        for start, stop in content["erased"]:
            erased.update(OffsetSet.between_ends(start, stop))
        aborted = tuple(AbortedTransaction(*it) for it in content["aborted"])
        return SegmentTransactions(aborted, erased or None)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{path}: does not decode: {error!r}") from None


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
