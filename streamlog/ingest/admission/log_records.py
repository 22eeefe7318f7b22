"""Single records of a log, read on the event loop while a message is judged."""

from streamlog.log.segment.record_places import slice_of
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches
from streamlog.record.codec import Record, may_have, opened, record_in


def record_now(partition: Partition, offset: int) -> Record | None:
    """The record there; None: not now. Blocking, for a few records if its batch was read before. Raises
    StreamlogError.
    """
    segment = partition.segment_of(offset)
    if segment is not None and (batch := partition.known_batch(segment, offset)) is not None:
        with slice_of(segment, batch, offset) as part:
            return batch.record_in(part.read(), offset)
    part_now = partition.reader.read_now(offset, 1, lambda: partition.log_end_offset)
    if part_now is None:
        return None
    with part_now as part:
        position, is_plain = part.position, not part.is_encrypted and part.held is None
        data = part.read()
    found = next(batches(data), None)
    if found is None or not may_have(found[0], offset):
        return None
    header, batch_bytes = found
    if segment is not None and is_plain:
        partition.know_batch(segment, position, header, batch_bytes)
    return record_in(opened(header, batch_bytes), header, offset)
