"""What a backup has of a partition, as its leader appends it."""

from typing import Final

from streamlog.errors import CorruptBatch, InvalidRecord
from streamlog.record.batch import batches

_EPOCH: Final = slice(12, 16)


def restamped(records: memoryview, end_offset: int, leader_epoch: int) -> bytearray:
    """The batches from ``end_offset`` on, of ``leader_epoch``; their checksums do not cover it.
    Raises CorruptBatch, InvalidRecord.
    """
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
