"""Batches of aborted transactions: which of a fetch they are, and what is left of them. Pure."""

from collections.abc import Sequence

from streamlog.record.batch import BatchHeader, batches
from streamlog.record.compacted import emptied
from streamlog.record.compression import CODEC_MASK, Buffer
from streamlog.record.transaction_marker import marker_of


def aborted_batches(records: Buffer, ranges: Sequence[tuple[int, int]]) -> set[int]:
    """The base offsets of those batches, back to back in ``records``, that no reader of committed records is to have.
    ``ranges``: of each aborted transaction among them the producer and the first offset; it ends with that producer's
    next ABORT marker. Raises CorruptBatch.
    """
    found: set[int] = set()
    aborting: set[int] = set()
    left = sorted(ranges, key=lambda it: it[1])
    for header, batch in batches(records):
        while left and left[0][1] <= header.last_offset:
            aborting.add(left.pop(0)[0])
        if not header.is_transactional or header.producer_id not in aborting:
            continue
        if not header.is_control:
            found.add(header.base_offset)
            continue
        marker = marker_of(batch, header)
        if marker is not None and not marker.is_commit:
            aborting.discard(header.producer_id)
    return found


def without_records(header: BatchHeader) -> bytes:
    """In place of an aborted batch: so that those that follow it still do."""
    return emptied(header._replace(attributes=header.attributes & ~CODEC_MASK))
