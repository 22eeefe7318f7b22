"""One message of a stream: by its sequence, from a time on, or the last or next one on a subject.

Who has which subject the partition's index knows, so that no lookup reads more than one batch of
the log, and of a batch that was read before a few records; the first one by subject has the index
made.
"""

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final, NamedTuple

from streamlog.control.messages.matching import LOOKED_AT_ONCE, LOOKS_AT_ONCE, TRIES_MAX, Matching
from streamlog.control.messages.message_query import MessageQuery
from streamlog.errors import (
    MessageErased,
    MessageNotFound,
    MessageNotStored,
    Overloaded,
    StreamlogError,
)
from streamlog.log.segment.record_places import slice_of
from streamlog.log.segment.segment import Segment
from streamlog.partition.page_cache import read_warm
from streamlog.partition.partition import Partition
from streamlog.record.batch import BatchHeader, batches
from streamlog.record.codec import Record, may_have, opened, opened_at_once, record_in
from streamlog.record.compiled.subjects import NOTHING, SubjectIndex, is_pattern
from streamlog.record.compression import Buffer

AT_ONCE_BYTES: Final = 1024 * 1024
"""A batch no larger than this, and in the page cache, is read and looked through on the event loop: 0.2 µs
a KiB. A thread has to wait for a busy loop's interpreter lock, twice, for milliseconds."""
PATTERNS_MAX: Final = 4_096
WILD_PATTERNS_MAX: Final = 100
"""Of one lookup of the last message of many subjects. With wildcards, each is compared with each
subject; without, it is found at once."""
LOOKS_MAX: Final = 20_000_000
"""Such comparisons in one lookup, of about 0.1 µs each."""
LOOKED_FOR_MAX: Final = 100_000
"""Subjects whose last message is not the one that is wanted; for more, none is looked for."""
_WITHOUT_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")


class StoredMessage(NamedTuple):
    """A record as the NATS message that it was."""

    subject: str
    sequence: int
    timestamp_ms: int
    header_block: bytes
    """From ``NATS/1.0`` to the empty line; b"" without headers."""
    data: bytes
    key: bytes | None = None
    """Of its record."""


def stored_message(record: Record) -> StoredMessage:
    """The first header is the subject; a second called ``reply`` is the message's reply subject.

    A Kafka producer's headers, and those of an envelope, are any bytes. Line ends in them become
    blanks: they would begin headers of their own in a message of NATS, or end them all.
    """
    headers, subject, own = record.headers, "", 0
    if len(headers) == 1 and headers[0][0] == "subject":  # as most are
        offset, timestamp_ms, key, value, _ = record
        subject = _in_a_line(headers[0][1] or b"").decode(errors="replace")
        return StoredMessage(subject, offset + 1, timestamp_ms, b"", value or b"", key)
    if headers and headers[0][0] == "subject":
        subject = _in_a_line(headers[0][1] or b"").decode(errors="replace")
        own = 2 if len(headers) > 1 and headers[1][0] == "reply" else 1
    block = b""
    if len(headers) > own:
        lines = b"".join(
            b"%b: %b\r\n" % (_in_a_line(name.encode()), _in_a_line(value or b""))
            for name, value in headers[own:]
        )
        block = b"NATS/1.0\r\n%b\r\n" % lines
    return StoredMessage(
        subject, record.offset + 1, record.timestamp_ms, block, record.value or b"", record.key
    )


def _in_a_line(text: bytes) -> bytes:
    return text.translate(_WITHOUT_LINE_ENDS)


async def find_message(partition: Partition, query: MessageQuery) -> StoredMessage:
    """Raises MessageNotFound if there is none; Overloaded where subjects cannot be known."""
    if query.last:
        return await last_message(partition, query.last)
    await settle_surplus(partition)
    sequence = await first_sequence(partition, query)
    if query.following:
        return await next_message(partition, query.following, sequence)
    return await message_at(partition, sequence)


async def settle_surplus(partition: Partition) -> None:
    """What has become too much of a subject is not there any more. Without an index of subjects it is there for
    longer.
    """
    with suppress(StreamlogError):
        await partition.surplus.settle()


async def first_sequence(partition: Partition, query: MessageQuery) -> int:
    """Where it begins, by sequence or by time; past the end where nothing is that late."""
    if query.start_ms is None:
        return query.sequence
    found = await partition.offset_for_timestamp(query.start_ms, stable=True)
    return partition.stable_offset + 1 if found is None else found[0] + 1


async def message_at(partition: Partition, sequence: int) -> StoredMessage:
    """Raises MessageNotStored, MessageErased, and MessageNotFound for one before the log's start."""
    offset = sequence - 1
    if offset >= partition.stable_offset:
        raise MessageNotStored(f"{partition.tp} has no message {sequence} yet")
    if offset < partition.log_start_offset:
        raise MessageNotFound(f"{partition.tp} does not have message {sequence} any more")
    if offset in partition.erased:
        raise MessageErased(f"message {sequence} of {partition.tp} is deleted")
    segment = partition.segment_of(offset)
    record = None if segment is None else _known_record(partition, segment, offset)
    if record is None:
        record = await _read_record(partition, segment, offset)
    if record is None:
        raise MessageErased(f"message {sequence} of {partition.tp} is compacted away")
    return stored_message(record)


def _known_record(partition: Partition, segment: Segment, offset: int) -> Record | None:
    """Of a batch that was looked into before, if the disk need not be waited for."""
    batch = partition.known_batch(segment, offset)
    if batch is None:
        return None
    try:
        with slice_of(segment, batch, offset) as part:
            data = read_warm(part)
    except OSError:  # the way that reads all of it says more of it
        return None
    return None if data is None else batch.record_in(data, offset)


async def _read_record(partition: Partition, segment: Segment | None, offset: int) -> Record | None:
    """With the rest of its batch, whose records are quicker to find afterwards."""
    cuts = 0 if segment is None else segment.cuts
    with await partition.read(offset, 1) as part:
        position, is_plain = part.position, not part.is_encrypted and part.held is None
        data = read_warm(part) if len(part) <= AT_ONCE_BYTES else None
        if data is None:
            data = await asyncio.to_thread(part.read)
    found = next(batches(data), None)
    if found is None or not may_have(found[0], offset):
        return None
    header, batch = found
    record = await _at(header, batch, offset)
    is_same = segment is not None and partition.segment_of(offset) is segment
    if segment is not None and is_same and segment.cuts == cuts and is_plain:
        partition.know_batch(segment, position, header, batch)
    return record


async def next_message(partition: Partition, pattern: str, from_sequence: int) -> StoredMessage:
    """The first message at or after ``from_sequence`` whose subject matches."""
    matching = Matching(partition.subjects, pattern, partition.stable_offset)
    offset = max(from_sequence - 1, 0)
    while (found := await matching.next(offset)) != NOTHING:
        try:
            return await message_at(partition, found + 1)
        except MessageNotFound:  # taken away meanwhile
            offset = found + 1
    raise MessageNotFound(f"{partition.tp} has no message whose subject matches {pattern!r}")


async def last_message(partition: Partition, pattern: str) -> StoredMessage:
    """The last message whose subject matches."""
    below = partition.stable_offset
    matching = Matching(partition.subjects, pattern, below)
    while (below := await matching.last(below)) != NOTHING:
        try:
            return await message_at(partition, below + 1)
        except MessageNotFound:  # taken away meanwhile
            continue
    raise MessageNotFound(f"{partition.tp} has no message whose subject matches {pattern!r}")


async def last_of_many(
    partition: Partition,
    patterns: Sequence[str],
    *,
    up_to_sequence: int | None = None,
    limit: int,
) -> list[int] | None:
    """The sequences of the last message of each subject that matches one of ``patterns``, in order,
    as of when ``up_to_sequence`` was the last one. None: they are more than ``limit``, or too many
    are looked for.
    """
    names = {pattern.encode() for pattern in patterns}
    wild = [name for name in names if is_pattern(name)]
    if len(names) > PATTERNS_MAX or len(wild) > WILD_PATTERNS_MAX:
        return None
    for _ in range(TRIES_MAX):
        index, below = await partition.subjects.know(), partition.stable_offset
        if up_to_sequence is not None:
            below = min(below, up_to_sequence)
        if len(wild) > 1 and len(wild) * index.number_end > LOOKS_MAX:
            return None
        exact = names.difference(wild)
        found = await _last_of_each(partition, index, exact, wild, below=below, limit=limit)
        if found is not None:
            return None if len(found) > limit else sorted(offset + 1 for offset in found)
    raise Overloaded("the index of subjects is rebuilt again and again")


async def _last_of_each(
    partition: Partition,
    index: SubjectIndex,
    names: AbstractSet[bytes],
    wild: Sequence[bytes],
    *,
    below: int,
    limit: int,
) -> list[int] | None:
    """Of subjects with these names, or that match one of the others: the offsets, or more than
    ``limit`` of them. None: the index was rebuilt meanwhile, and its numbers are others. Others
    have their turn of the event loop meanwhile.
    """
    named = {number for name in names if (number := index.number_of(name)) is not None}
    found, rest = index.last_of_each(list(named), below, below)
    step = max(1, LOOKS_AT_ONCE // max(1, len(wild)))
    for low in range(0, index.number_end if wild else 0, step):
        numbers = [it for it in index.matching(wild, low=low, high=low + step) if it not in named]
        some, others = index.last_of_each(numbers, below, below)
        found += some
        rest += others
        if len(found) > limit or len(rest) > max(limit, LOOKED_FOR_MAX):
            return [*found, *rest]  # too many
        await asyncio.sleep(0)
        if await partition.subjects.know() is not index:
            return None
    high = below
    while rest and len(found) <= limit:
        low = high - LOOKED_AT_ONCE
        some, rest = index.last_of_each(rest, low, high)
        found += some
        if low <= index.start_offset:
            break
        high = low
        await asyncio.sleep(0)
        if await partition.subjects.know() is not index:
            return None
    return found


async def _at(header: BatchHeader, batch: Buffer, offset: int) -> Record | None:
    """A batch that comes to much is opened and looked through in a thread."""
    body = opened_at_once(header, batch)
    if body is not None and len(body) <= AT_ONCE_BYTES:
        return record_in(body, header, offset)
    return await asyncio.to_thread(_found, header, batch, offset)


def _found(header: BatchHeader, batch: Buffer, offset: int) -> Record | None:
    return record_in(opened(header, batch), header, offset)
