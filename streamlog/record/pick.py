"""One record out of a batch, without decoding the others."""

from streamlog.errors import CorruptBatch
from streamlog.record.batch import HEADER_BYTES, read_header
from streamlog.record.codec import RUN_BYTES_MAX, Record, decode_records
from streamlog.record.compression import Buffer, Compression, decompress
from streamlog.record.keys import place_of


def record_at(batch: Buffer, offset: int) -> Record | None:
    """None if the whole batch has none of that offset, or is a control batch. Raises CorruptBatch
    for what is not one; the checksum is not looked at.
    """
    header = read_header(batch)
    if header.is_control or not header.base_offset <= offset < header.next_offset:
        return None
    if header.size_bytes > len(batch):
        raise CorruptBatch(f"batch is cut: {len(batch)} of {header.size_bytes} bytes")
    body: Buffer = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.compression is not Compression.NONE:
        body = decompress(header.compression, body, bytes_max=RUN_BYTES_MAX)
    place = place_of(body, header.record_count, offset - header.base_offset)
    if place is None:
        return None
    alone = memoryview(body)[place[0] : place[1]]
    return next(iter(decode_records(alone, header._replace(record_count=1))))
