"""One record out of a batch, without decoding the others."""

from streamlog.record.batch import BatchHeader, read_header
from streamlog.record.codec import Record, decode_records
from streamlog.record.compression import Buffer
from streamlog.record.keys import place_of
from streamlog.record.opening import opened


def record_at(batch: Buffer, offset: int) -> Record | None:
    """None if the whole batch has none of that offset, or is a control batch. Raises CorruptBatch
    for what is not one; the checksum is not looked at.
    """
    header = read_header(batch)
    if not may_have(header, offset):
        return None
    return record_in(opened(header, batch), header, offset)


def may_have(header: BatchHeader, offset: int) -> bool:
    """A record of users, by what the header says."""
    return not header.is_control and header.base_offset <= offset < header.next_offset


def record_in(body: Buffer, header: BatchHeader, offset: int) -> Record | None:
    """The same out of an opened batch that ``may_have`` it."""
    place = place_of(body, header.record_count, offset - header.base_offset)
    if place is None:
        return None
    alone = memoryview(body)[place[0] : place[1]]
    return next(iter(decode_records(alone, header._replace(record_count=1))))
