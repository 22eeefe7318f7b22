"""Checks a batch before it is appended (Kafka's LogValidator).

A batch of a Kafka producer is also held to max.message.bytes, before that. The same limit on a NATS
message is in ``ingest/frames.pyx``.
"""

from typing import Final

from streamlog.errors import CorruptBatch, RecordTooLarge
from streamlog.log.segment.batch_scan import BatchPlace
from streamlog.record.batch import (
    ENCRYPTED,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    check_batch,
    header_fields,
)
from streamlog.record.compacted import gap_from, is_gap

RUN_BYTES: Final = 1024 * 1024
"""The most that is checked and written in one go, but for a first batch that is larger ..."""
RUN_BATCHES: Final = 500
"""... and the most batches, so that no other task waits long for it."""

_HEAD: Final = header_fields(
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "last_offset_delta",
    "max_timestamp_ms",
)


def check_batch_size(
    size_bytes: int, largest_bytes: int, *, stream_max: int | None, node_max: int
) -> None:
    """Enforces max.message.bytes on a producer's batch (the stream's ``message_bytes_max``, or
    ``log.message_bytes_max``). ``largest_bytes``: of its largest record. Raises RecordTooLarge.

    The limit is on a batch, as in Kafka. A stream's own limit is also the limit on a NATS message,
    so it does not refuse a batch of many small records that the node's limit allows.
    """
    limit = node_max if stream_max is None else stream_max
    if size_bytes > limit and (size_bytes > node_max or largest_bytes > limit):
        raise RecordTooLarge(f"a batch of {size_bytes} bytes, {limit} are allowed")


def next_batch(
    batch: bytes, *, end_offset: int, epoch: int, directory: str
) -> tuple[int, int, int]:
    """The next offset, leader epoch and time of a batch that was made here.

    Raises CorruptBatch if it cannot follow at ``end_offset`` after a batch of ``epoch``.
    """
    if len(batch) < HEADER_BYTES:
        raise CorruptBatch(f"{directory}: a batch of {len(batch)} bytes")
    base_offset, length, own_epoch, magic, last_delta, timestamp_ms = _HEAD.unpack_from(batch)
    if (
        base_offset != end_offset
        or length + LENGTH_PREFIX_BYTES != len(batch)
        or magic != MAGIC
        or last_delta < 0
        or own_epoch < epoch
    ):
        raise CorruptBatch(
            f"{directory}: a batch of {len(batch)} bytes with base offset {base_offset}, "
            f"length {length}, magic {magic}, epoch {own_epoch} cannot follow at "
            f"{end_offset} in epoch {epoch}"
        )
    return base_offset + last_delta + 1, own_epoch, timestamp_ms


def from_offset(records: memoryview, end_offset: int) -> memoryview:
    """``records``, which are to follow at ``end_offset``. Of a gap at their front it is the part
    from there on, by itself: compaction elsewhere may have made it of more than is missing here.

    Raises CorruptBatch.
    """
    if len(records) < HEADER_BYTES or _HEAD.unpack_from(records)[0] >= end_offset:
        return records
    header = check_batch(records)
    if is_gap(header) and end_offset < header.next_offset:
        return memoryview(gap_from(header, end_offset))
    return records


def next_run(
    records: memoryview,
    *,
    end_offset: int,
    epoch: int,
    is_empty: bool,
    directory: str,
    epoch_max: int | None = None,
) -> list[BatchPlace]:
    """The batches at the front of ``records``, as another node wrote them, checksums included.

    As many as are good for one go; a cut last one is left out. The first may begin before
    ``end_offset`` if the log ``is_empty``: its leader's log starts in the middle of that batch.
    Batches of a later epoch than ``epoch_max`` are left out, with all that follows them.
    Raises CorruptBatch if one is damaged or cannot follow the one before.
    """
    places: list[BatchPlace] = []
    position = 0
    while position < len(records) and len(places) < RUN_BATCHES:
        if places and _is_cut(records, position):
            break
        header = check_batch(records, position)
        if header.attributes & ENCRYPTED:
            raise CorruptBatch(f"{directory}: a fetched batch at {end_offset} is encrypted")
        straddles = is_empty and not places and header.base_offset < end_offset < header.next_offset
        if (header.base_offset != end_offset and not straddles) or header.leader_epoch < epoch:
            raise CorruptBatch(
                f"{directory}: a fetched batch with base offset {header.base_offset}, epoch"
                f" {header.leader_epoch} cannot follow at {end_offset} in epoch {epoch}"
            )
        end = position + header.size_bytes
        if places and end > RUN_BYTES:
            break
        if epoch_max is not None and header.leader_epoch > epoch_max:
            break
        end_offset, epoch = header.next_offset, header.leader_epoch
        places.append(
            BatchPlace(
                position, end, header.base_offset, end_offset, epoch, header.max_timestamp_ms
            )
        )
        position = end
    return places


def _is_cut(records: memoryview, position: int) -> bool:
    left = len(records) - position
    if left < LENGTH_PREFIX_BYTES:
        return True
    length: int = _HEAD.unpack_from(records, position)[1] if left >= _HEAD.size else left
    return length + LENGTH_PREFIX_BYTES > left
