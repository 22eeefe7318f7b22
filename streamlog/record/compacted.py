"""Batches of which compaction has taken records away.

A batch keeps its offsets, producer, epoch and latest time, whatever it loses. One that has lost all
is a *gap*: a header and nothing else, which may stand for many batches of one leader epoch that lay
next to each other. So batches stay dense, and a missing one is still seen to be missing.

The first cleaning that passes a tombstone writes into its batch until when it stays, in place of
the base time (KIP-534); the deltas of the records' times are then counted from there.
"""

from typing import Final

from crc32c import crc32c

from streamlog.errors import BrokenInvariant
from streamlog.record.batch import (
    CHECKED,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TO_CRC,
    BatchHeader,
)
from streamlog.record.compression import Buffer, compress

GAP_OFFSETS_MAX: Final = 2**31
"""As many as the last offset delta can tell."""

_NO_TIMESTAMP: Final = -1


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """Until when its tombstones stay; None where no cleaning has passed any."""
    return header.base_timestamp_ms if header.attributes & DELETE_HORIZON else None


def left_over(
    header: BatchHeader, body: Buffer, count: int, *, horizon_ms: int | None = None
) -> bytes:
    """The batch with ``count`` records, opened, in place of those it had; compressed as it was.

    ``horizon_ms``: to be written in place of the base time, from which the deltas are counted.
    """
    if not count:
        return emptied(header)
    attributes, base_ms = header.attributes, header.base_timestamp_ms
    if horizon_ms is not None:
        attributes, base_ms = attributes | DELETE_HORIZON, horizon_ms
    changed = header._replace(attributes=attributes, base_timestamp_ms=base_ms, record_count=count)
    return _packed(changed, compress(header.compression, body))


def emptied(header: BatchHeader) -> bytes:
    """The batch without records: what its producer's next one is held to."""
    return _packed(header._replace(record_count=0), b"")


def gap(base_offset: int, next_offset: int, *, leader_epoch: int, max_timestamp_ms: int) -> bytes:
    """In place of all batches of ``[base_offset, next_offset)``, of which nothing is left."""
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=next_offset - base_offset - 1,
        base_timestamp_ms=_NO_TIMESTAMP,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return _packed(header, b"")


def is_gap(header: BatchHeader) -> bool:
    return not header.record_count and header.producer_id < 0


def gap_from(header: BatchHeader, offset: int) -> bytes:
    """The part of a gap that begins at ``offset``."""
    if not is_gap(header) or not header.base_offset <= offset < header.next_offset:
        raise BrokenInvariant(f"offset {offset} is not in a gap")
    return gap(
        offset,
        header.next_offset,
        leader_epoch=header.leader_epoch,
        max_timestamp_ms=header.max_timestamp_ms,
    )


def _packed(header: BatchHeader, body: Buffer) -> bytes:
    rest = CHECKED.pack(*header[5:])
    crc = crc32c(body, crc32c(rest))
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    head = TO_CRC.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc)
    return b"".join((head, rest, body))
