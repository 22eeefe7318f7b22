"""What a backup has of a partition, appended by its leader with the offsets that it had."""

import time
from typing import TYPE_CHECKING, Final

from streamlog.errors import CorruptBatch, InvalidRecord, StorageFailed, StreamlogError
from streamlog.partition.pending_appends import Acknowledgement, PendingAppend
from streamlog.record.batch import batches

if TYPE_CHECKING:
    from streamlog.partition.partition import Partition

_EPOCH: Final = slice(12, 16)


def restore_batches(partition: "Partition", records: memoryview, ack: Acknowledgement) -> None:
    """Append them, checked, in this leader's epoch; those that are there are passed over, so that
    the same again is a success. ``ack`` hears of the commit.

    Raises NotLeader, StorageFull, StorageFailed, Overloaded; CorruptBatch where they are damaged or
    do not follow what is there.
    """
    state, started = partition.state, time.perf_counter()
    state.check_writable()
    log = state.log
    base_offset = log.log_end_offset
    new = _stamped(records, base_offset, state.leader_epoch)
    size, position = len(new), 0
    try:
        while position < size:
            position += _append(partition, memoryview(new)[position:])
    except StreamlogError as error:
        partition.append_failed(error)
        raise
    if size:
        partition.grown()
    state.pending.add(PendingAppend(log.log_end_offset, base_offset, size, started, ack))
    before = state.high_watermark
    partition.committed(state.settle(), before)  # at once, where all of it was there
    partition.syncing.keep()


def _append(partition: "Partition", records: memoryview) -> int:
    state = partition.state
    try:
        size = state.log.append_fetched(records)
    except StorageFailed as error:
        state.fail(error)
        raise
    if not size:
        raise CorruptBatch(f"{state.tp}: a batch is cut")
    partition.producing.fetched(records[:size])
    partition.erasing.fetched(records[:size])
    return size


def _stamped(records: memoryview, end_offset: int, leader_epoch: int) -> bytearray:
    """Those from ``end_offset`` on; the checksum does not cover the epoch."""
    epoch, out, left = leader_epoch.to_bytes(4, "big"), bytearray(), len(records)
    for header, batch in batches(records):
        left -= len(batch)
        if header.producer_id >= 0:
            raise InvalidRecord("a backup's batches must not name producers of another cluster")
        if header.next_offset > end_offset:
            start = len(out)
            out += batch
            out[start + _EPOCH.start : start + _EPOCH.stop] = epoch
    if left:
        raise CorruptBatch(f"the last batch is cut: {left} bytes are left")
    return out
