"""Many messages of a stream, by reading its log from an offset on.

Each search reads at most ``SCAN_BYTES_MAX`` of it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from streamlog.admin.errors import ApiError, Refused
from streamlog.admin.messages import ReadablePartition, StoredMessage, stored_message
from streamlog.metadata.subjects import overlap
from streamlog.record.batch import batches
from streamlog.record.codec import Record, iter_records
from streamlog.record.offset_set import OffsetSet

READ_BYTES: Final = 1024 * 1024
SCAN_BYTES_MAX: Final = 64 * 1024 * 1024
SCAN_ENDED: Final = ApiError(500, 10051, f"more than {SCAN_BYTES_MAX >> 20} MiB would be read")


async def messages_from(
    partition: ReadablePartition, pattern: str, offset: int
) -> AsyncIterator[StoredMessage]:
    """All committed ones from ``offset`` on whose subject matches; "": all."""
    wanted = _matcher([pattern] if pattern else [])
    async for records in _chunks(partition, offset, partition.high_watermark, wanted):
        for record in records:
            yield stored_message(record)


async def count_matching(partition: ReadablePartition, pattern: str, offset: int) -> int:
    """How many there are from ``offset`` on; without a pattern those that were compacted away
    count, too. At the bound of a search it is at least so many.
    """
    if not pattern:
        return max(0, partition.high_watermark - offset)
    count = 0
    try:
        async for records in _chunks(
            partition, offset, partition.high_watermark, _matcher([pattern])
        ):
            count += len(records)
    except Refused:
        count += 1
    return count


async def _chunks(
    partition: ReadablePartition, offset: int, end: int, wanted: Callable[[Record], bool]
) -> AsyncIterator[list[Record]]:
    """Raises Refused when too much has been read."""
    read_bytes = 0
    while offset < end:
        with await partition.read(offset, READ_BYTES) as part:
            data = await asyncio.to_thread(part.read)
        read_bytes += len(data)
        if not data:
            return
        if read_bytes > SCAN_BYTES_MAX:
            raise Refused(SCAN_ENDED)
        kept = _not_in(partition.erased, wanted)
        found = await asyncio.to_thread(_records, data, offset, end, kept)
        offset = max(header.next_offset for header, _ in batches(data))
        yield found


def _not_in(erased: OffsetSet, wanted: Callable[[Record], bool]) -> Callable[[Record], bool]:
    return lambda record: record.offset not in erased and wanted(record)


def _records(data: bytes, offset: int, end: int, wanted: Callable[[Record], bool]) -> list[Record]:
    return [
        record
        for _, batch in batches(data)
        for record in iter_records(batch)
        if offset <= record.offset < end and wanted(record)
    ]


def _matcher(patterns: Sequence[str]) -> Callable[[Record], bool]:
    """True for every record where there are no patterns."""
    if not patterns:
        return lambda _: True
    literal = {pattern.encode() for pattern in patterns if not {"*", ">"} & set(pattern.split("."))}
    wild = [pattern for pattern in patterns if pattern.encode() not in literal]

    def matches(record: Record) -> bool:
        subject = _subject(record)
        if subject in literal:
            return bool(subject)
        text = subject.decode(errors="replace")
        return bool(subject) and any(overlap(pattern, text) for pattern in wild)

    return matches


def _subject(record: Record) -> bytes:
    """b"" where it was no NATS message."""
    if record.headers and record.headers[0][0] == "subject":
        return record.headers[0][1] or b""
    return b""
