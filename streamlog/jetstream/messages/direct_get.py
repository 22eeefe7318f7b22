"""What DIRECT.GET answers: messages as they are, or a status; after several, a mark of the end.

Told by any replica in sync, up to what it knows to be committed: the leader is ahead of it by what
was committed since the follower's last fetch.

The passage of a stream is its messages from an offset on, in order, all or those of some subjects.
Which ones match, the partition's index knows; of the log no more is read than has some of them.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

from streamlog.errors import OffsetOutOfRange
from streamlog.jetstream.errors import ApiError, ApiRefused
from streamlog.jetstream.messages.matching import Matching
from streamlog.jetstream.messages.message_query import DirectQuery, MessageQuery
from streamlog.jetstream.messages.stored_messages import (
    StoredMessage,
    find_message,
    first_sequence,
    last_of_many,
    message_at,
    stored_message,
)
from streamlog.jetstream.verbs.stream_info import rfc3339
from streamlog.log.segment.slice import FileSlice
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches
from streamlog.record.codec import Record, iter_records, record_at

BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one answer where the request sets no limit; so far nats-server lets a client fall behind."""
SUBJECTS_MAX: Final = 1024
"""In one answer to ``multi_last``; for more, nothing is answered but that they are too many."""

NO_MESSAGE: Final = ApiError(404, 0, "Message Not Found")
NO_RESULTS: Final = ApiError(404, 0, "No Results")
TOO_MANY: Final = ApiError(413, 0, "Too Many Results")
LEVEL_MISSING: Final = ApiError(412, 0, "Required Api Level")


class DirectReply(NamedTuple):
    """One message of an answer."""

    block: bytes
    """From ``NATS/1.0`` to the empty line; b"" where no headers were wanted."""
    data: bytes = b""


def status(error: ApiError) -> DirectReply:
    """In place of a message."""
    return DirectReply(f"NATS/1.0 {error.code} {error.description}\r\n\r\n".encode())


def no_responders(subject: str) -> bytes:
    """What nats-server says where no subscriber listens: as none does without ``allow_direct``."""
    shown = subject.encode(errors="surrogateescape")
    return b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % shown


async def direct_replies(
    stream: str, partition: Partition, query: DirectQuery
) -> AsyncIterator[DirectReply]:
    """In the order of their sequences. Raises Refused where something is refused half-way."""
    if query.multi_last:
        replies = _last_of_each(stream, partition, query)
    elif query.batch:
        replies = _batch(stream, partition, query)
    else:
        replies = _single(stream, partition, query.message)
    async for reply in replies:
        yield reply


async def _single(
    stream: str, partition: Partition, query: MessageQuery
) -> AsyncIterator[DirectReply]:
    try:
        found = await find_message(partition, query)
    except ApiRefused as refused:
        yield status(NO_MESSAGE if refused.error.code == 404 else refused.error)
        return
    yield _reply(stream, found, headers=not query.no_headers)


async def _batch(
    stream: str, partition: Partition, query: DirectQuery
) -> AsyncIterator[DirectReply]:
    message = query.message
    if message.last:
        yield status(NO_MESSAGE)
        return
    first = await first_sequence(partition, message)
    offset = max(first - 1, partition.log_start_offset)
    pending = await count_from(partition, message.following, offset)
    bounds = _Bounds(query)
    if query.batch < 0:  # as JetStream does it
        yield _end(pending, 0)
        return
    async for found in messages_from(partition, message.following, offset):
        pending = max(0, pending - 1)
        more = {"Nats-Num-Pending": pending, "Nats-Last-Sequence": bounds.last_sequence}
        yield _reply(stream, found, headers=not message.no_headers, **more)
        if bounds.reached_by(found):
            break
    else:
        pending = 0
    if not bounds.count:
        yield status(NO_MESSAGE)
        return
    yield _end(pending, bounds.last_sequence)


async def _last_of_each(
    stream: str, partition: Partition, query: DirectQuery
) -> AsyncIterator[DirectReply]:
    up_to = await _up_to_sequence(partition, query)
    found = await last_of_many(
        partition, query.multi_last, up_to_sequence=up_to, limit=SUBJECTS_MAX
    )
    if found is None:
        yield status(TOO_MANY)
        return
    sequences = [sequence for sequence in found if sequence >= query.message.sequence]
    if not sequences:
        yield status(NO_RESULTS)
        return
    bounds, pending = _Bounds(query), len(sequences)
    for sequence in sequences:
        pending -= 1
        try:
            message = await message_at(partition, sequence)
        except ApiRefused:  # taken away meanwhile
            continue
        more = {"Nats-Num-Pending": pending, "Nats-Last-Sequence": bounds.last_sequence}
        yield _reply(stream, message, headers=True, **more)
        if bounds.reached_by(message):
            break
    yield _end(pending, bounds.last_sequence, up_to)


async def _up_to_sequence(partition: Partition, query: DirectQuery) -> int:
    """The last sequence that may be told."""
    if query.up_to_ms is None:
        return query.up_to_sequence or partition.high_watermark
    later = await partition.offset_for_timestamp(query.up_to_ms)
    return partition.high_watermark if later is None else later[0]


class _Bounds:
    """How much has been sent, and how much may be."""

    def __init__(self, query: DirectQuery) -> None:
        self._bytes_max = query.bytes_max or BYTES_MAX
        self._batch = query.batch
        self._bytes = 0
        self.count = 0
        self.last_sequence = 0

    def reached_by(self, sent: StoredMessage) -> bool:
        self.count += 1
        self._bytes += len(sent.subject) + len(sent.header_block) + len(sent.data)
        self.last_sequence = sent.sequence
        return self._bytes >= self._bytes_max or 0 < self._batch <= self.count


def _reply(stream: str, found: StoredMessage, *, headers: bool, **more: object) -> DirectReply:
    """The message's own headers, and after them where it is from."""
    if not headers:
        return DirectReply(b"", found.data)
    lines = {
        "Nats-Stream": stream,
        "Nats-Subject": found.subject,
        "Nats-Sequence": found.sequence,
        "Nats-Time-Stamp": rfc3339(found.timestamp_ms),
        **more,
    }
    own = found.header_block[:-2] or b"NATS/1.0\r\n"
    return DirectReply(own + _lines(lines) + b"\r\n", found.data)


def _end(pending: int, last_sequence: int, up_to_sequence: int | None = None) -> DirectReply:
    lines = {"Nats-Num-Pending": pending, "Nats-Last-Sequence": last_sequence}
    if up_to_sequence is not None:
        lines["Nats-UpTo-Sequence"] = up_to_sequence
    return DirectReply(b"NATS/1.0 204 EOB\r\n" + _lines(lines) + b"\r\n")


def _lines(fields: dict[str, object] | dict[str, int]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()


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


async def messages_from(
    partition: Partition, pattern: str, offset: int
) -> AsyncIterator[StoredMessage]:
    """All that are committed by now, from ``offset`` on, whose subject matches; "": all.

    Raises Overloaded where subjects cannot be known, CorruptBatch, StorageFailed.
    """
    end = partition.high_watermark
    offset = max(offset, partition.log_start_offset)
    matching = Matching(partition.subjects, pattern, end) if pattern else None
    wanted: Sequence[int]
    while offset < end:
        if matching is None:
            wanted, offset = range(offset, end), end
        else:
            wanted, offset = await matching.offsets(offset, end, limit=NAMED_AT_ONCE)
        async for records in _read_all(partition, wanted):
            for record in records:
                if record.offset not in partition.erased:
                    yield stored_message(record)


async def count_from(partition: Partition, pattern: str, offset: int) -> int:
    """How many these are; without a pattern those that were compacted away count, too."""
    offset, end = max(offset, partition.log_start_offset), partition.high_watermark
    if not pattern:
        return max(0, end - offset) - partition.erased.count(offset, end)
    return await Matching(partition.subjects, pattern, end).count(offset)


async def _read_all(partition: Partition, wanted: Sequence[int]) -> AsyncIterator[list[Record]]:
    """As far as they are there; some at a time."""
    while wanted:
        is_near = len(wanted) > 1 and wanted[1] - wanted[0] <= NEAR
        try:
            with await partition.read(wanted[0], READ_BYTES if is_near else 1) as part:
                records, upper = await asyncio.to_thread(_picked, part, wanted)
        except OffsetOutOfRange:
            upper = partition.log_start_offset
            if upper <= wanted[0]:
                raise
            records = []  # retention was quicker
        yield records
        wanted = wanted[bisect_left(wanted, upper) :]


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
