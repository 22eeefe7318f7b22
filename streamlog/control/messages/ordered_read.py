"""The passage of a partition: its messages from an offset on, in order, all or those of some subjects.

Which ones match, the partition's index knows; of the log no more is read than has some of them.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from streamlog.control.messages.matching import Matching
from streamlog.control.messages.stored_messages import StoredMessage, stored_message
from streamlog.errors import OffsetOutOfRange
from streamlog.log.segment.file_slice import FileSlice
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches
from streamlog.record.codec import Record, iter_records, opened, record_at
from streamlog.record.compiled.message_run import MessageRun
from streamlog.record.compiled.subjects import NOTHING

READ_BYTES: Final = 1024 * 1024
"""Read at once where the next messages are near."""
NEAR: Final = 64
"""So many offsets apart; what is farther is read by itself, with the rest of its batch."""
NAMED_AT_ONCE: Final = 1_000
"""Offsets that are known before they are read: what goes meanwhile is left out."""
PICKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""What is held of one read: its batches may decompress to far more than was read."""
RECORD_BYTES: Final = 300
"""What a record takes beside its key, value and headers."""
PASSAGE_BYTES_MAX: Final = 1024 * 1024
"""A passage ends with the message that reaches this size."""
TURN: Final = 100
"""Messages that are looked for one by one in one turn of the event loop."""


class PassageQuery(NamedTuple):
    """Where a passage begins: at an offset, with the first message of a time or later, or with the ``last`` so
    many. At the log's start where none of these is given.
    """

    offset: int | None = None
    start_ms: int | None = None
    last: int | None = None
    subject: str = ""
    """Only messages whose subject matches; "": all."""
    limit: int = 100


class Passage(NamedTuple):
    """Some messages in order, and where the next ones are looked for."""

    messages: list[StoredMessage]
    start_offset: int
    """From where on they were looked for."""
    next_offset: int
    log_start_offset: int
    high_watermark: int
    """Or where the first transaction begins that is open: no message is read from there on."""


async def read_passage(partition: Partition, query: PassageQuery) -> Passage:
    """Raises OffsetOutOfRange for an offset that is not committed yet, and what ``messages_from`` does."""
    start = await _start_of(partition, query)
    found: list[StoredMessage] = []
    left, next_offset = PASSAGE_BYTES_MAX, start
    end = partition.stable_offset
    if query.limit:
        next_offset = end
        async with aclosing(messages_from(partition, query.subject, start)) as messages:
            async for it in messages:
                found.append(it)
                left -= RECORD_BYTES + len(it.data) + len(it.header_block) + len(it.key or b"")
                if left <= 0 or len(found) == query.limit:
                    next_offset = it.sequence
                    break
    return Passage(
        found, start, max(next_offset, start), partition.log_start_offset, partition.stable_offset
    )


async def _start_of(partition: Partition, query: PassageQuery) -> int:
    start, end = partition.log_start_offset, partition.stable_offset
    if query.offset is not None:
        if query.offset > end:
            raise OffsetOutOfRange(query.offset, start, end)
        return max(query.offset, start)
    if query.start_ms is not None:
        at_time = await partition.offset_for_timestamp(query.start_ms, stable=True)
        return end if at_time is None else max(at_time[0], start)
    if query.last is None:
        return start
    if not query.subject:
        return partition.erased.start_of_last_absent(query.last, start, end)
    matching, count, looked = Matching(partition.subjects, query.subject, end), 0, 0
    first = below = end
    while count < query.last and (below := await matching.last(below)) not in (NOTHING, first):
        if below < start:
            break
        if below not in partition.erased:
            first, count = below, count + 1
        looked += 1
        if looked % TURN == 0:
            await asyncio.sleep(0)
    return first


async def messages_from(
    partition: Partition, pattern: str | Matching, offset: int
) -> AsyncGenerator[StoredMessage, None]:
    """All that are committed by now, from ``offset`` on, whose subject matches; "": all. ``pattern``: or what is
    known of it already, up to where that was committed.

    Raises Overloaded where subjects cannot be known, CorruptBatch, StorageFailed.
    """
    end = partition.stable_offset
    offset = max(offset, partition.log_start_offset)
    matching = pattern if isinstance(pattern, Matching) else None
    if isinstance(pattern, str) and pattern:
        matching = Matching(partition.subjects, pattern, end)
    if matching is not None:
        end = min(end, matching.below)
    while offset < end:
        wanted: Sequence[int]
        if matching is None:
            wanted, offset = range(offset, end), end
        else:
            wanted, offset = await matching.offsets(offset, end, limit=NAMED_AT_ONCE)
        async with aclosing(messages_at(partition, wanted)) as messages:
            async for message in messages:
                yield message


async def messages_at(
    partition: Partition, offsets: Sequence[int]
) -> AsyncGenerator[StoredMessage, None]:
    """Those of these offsets, which are in order, that are there."""
    async for records in _read_all(partition, offsets):
        for record in records:
            if record.offset not in partition.erased:
                yield stored_message(record)


async def read_run(
    partition: Partition, offsets: Sequence[int], patterns: Sequence[bytes] = (), *, bytes_max: int
) -> tuple[MessageRun, int]:
    """The same, of those whose subject matches one of ``patterns`` if there are any, for those who take thousands;
    and the end of what was looked at, which is above the last offset if that was all. The run ends with the message
    that reaches ``bytes_max``, or before it, once it has half of that: another read costs more than it brings, and a
    batch of which it took a part would be read again for the rest.
    """
    run, wanted, upper = MessageRun(), offsets, offsets[-1] + 1 if offsets else 0

    def gather(part: FileSlice) -> int:
        return _gather(run, part, wanted, patterns, bytes_max)

    while wanted and _is_short(run, bytes_max):
        try:
            size_bytes = min(_read_bytes(wanted), bytes_max)
            with await partition.read(wanted[0], size_bytes) as part:
                upper = await asyncio.to_thread(gather, part)
        except OffsetOutOfRange:
            upper = partition.log_start_offset  # retention was quicker
            if upper <= wanted[0]:
                raise
        wanted = wanted[bisect_left(wanted, upper) :]
    if partition.erased:
        run.leave_out(partition.erased)
    return run, upper


def _gather(
    run: MessageRun,
    part: FileSlice,
    wanted: Sequence[int],
    patterns: Sequence[bytes],
    bytes_max: int,
) -> int:
    """The end of what was looked at, as that of ``_picked``."""
    upper = wanted[-1] + 1
    for header, batch in batches(part.read()):
        if run.size_bytes + header.size_bytes > bytes_max and not _is_short(run, bytes_max):
            break
        upper = header.next_offset
        low, high = (bisect_left(wanted, it) for it in (header.base_offset, upper))
        if low < high and not header.is_control:
            body = opened(header, batch)
            upper = run.add_records(
                body, header, wanted[low:high], patterns=patterns, bytes_max=bytes_max
            )
        if run.size_bytes >= bytes_max:
            break
    return upper


def _is_short(run: MessageRun, bytes_max: int) -> bool:
    return run.size_bytes <= bytes_max // 2


async def count_from(partition: Partition, pattern: str, offset: int) -> int:
    """How many these are; without a pattern those that were compacted away count, too."""
    offset, end = max(offset, partition.log_start_offset), partition.stable_offset
    if not pattern:
        return max(0, end - offset) - partition.erased.count(offset, end)
    return await Matching(partition.subjects, pattern, end).count(offset)


async def _read_all(partition: Partition, wanted: Sequence[int]) -> AsyncIterator[list[Record]]:
    """As far as they are there; some at a time."""
    while wanted:
        try:
            with await partition.read(wanted[0], _read_bytes(wanted)) as part:
                records, upper = await asyncio.to_thread(_picked, part, wanted)
        except OffsetOutOfRange:
            upper = partition.log_start_offset
            if upper <= wanted[0]:
                raise
            records = []  # retention was quicker
        yield records
        wanted = wanted[bisect_left(wanted, upper) :]


def _read_bytes(wanted: Sequence[int]) -> int:
    is_near = len(wanted) > 1 and wanted[1] - wanted[0] <= NEAR
    return READ_BYTES if is_near else 1


def _picked(part: FileSlice, wanted: Sequence[int]) -> tuple[list[Record], int]:
    """Those of the wanted ones that are in the slice, and the end of what was looked at: of the
    slice, or before it where they come to much. Of an empty slice that is the end of all.
    """
    found: list[Record] = []
    left, upper = PICKED_BYTES_MAX, wanted[-1] + 1
    for header, batch in batches(part.read()):
        upper = header.next_offset
        low, high = (bisect_left(wanted, it) for it in (header.base_offset, header.next_offset))
        for record in _of_batch(batch, wanted[low:high]):
            found.append(record)
            left -= _size_of(record)
            if left <= 0:
                return found, record.offset + 1
    return found, upper


def _of_batch(batch: memoryview, wanted: Sequence[int]) -> Iterator[Record]:
    if len(wanted) == 1:
        record = record_at(batch, wanted[0])
        if record is not None:
            yield record
    elif wanted:
        chosen = set(wanted)
        yield from (record for record in iter_records(batch) if record.offset in chosen)


def _size_of(record: Record) -> int:
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(RECORD_BYTES + len(name) + len(it or b"") for name, it in record.headers)
