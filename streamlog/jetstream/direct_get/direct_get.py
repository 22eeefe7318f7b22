"""What DIRECT.GET answers: messages as they are, or a status; after several, a mark of the end.

Told by any replica in sync, up to what it knows to be committed: the leader is ahead of it by what
was committed since the follower's last fetch.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from streamlog.control.messages.ordered_read import count_from, messages_from
from streamlog.control.messages.stored_messages import (
    StoredMessage,
    find_message,
    first_sequence,
    last_of_many,
    message_at,
    settle_surplus,
)
from streamlog.errors import MessageNotFound
from streamlog.jetstream.direct_get.direct_query import DirectQuery
from streamlog.jetstream.errors import ApiError
from streamlog.jetstream.verbs.stream_info import rfc3339
from streamlog.partition.partition import Partition

BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one answer where the request sets no limit; so far nats-server lets a client fall behind."""
PART_BYTES: Final = 1024 * 1024
"""Of an answer that another node has to be asked for."""
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


class Progress:
    """How much of an answer is there, so that another node can be asked for the rest of it."""

    __slots__ = ("count", "last_sequence", "size_bytes", "up_to_sequence")

    def __init__(
        self,
        count: int = 0,
        size_bytes: int = 0,
        last_sequence: int = 0,
        up_to_sequence: int | None = None,
    ) -> None:
        self.count = count
        self.size_bytes = size_bytes
        self.last_sequence = last_sequence
        self.up_to_sequence = up_to_sequence
        """Of ``multi_last``: fixed when the answer begins."""

    def json(self) -> list[int | None]:
        """The arguments that make it again."""
        return [self.count, self.size_bytes, self.last_sequence, self.up_to_sequence]

    def add(self, message: StoredMessage) -> None:
        self.count += 1
        self.size_bytes += len(message.subject) + len(message.header_block) + len(message.data)
        self.last_sequence = message.sequence

    def is_all(self, query: DirectQuery) -> bool:
        """Whether the query allows no further message."""
        limit = query.bytes_max or BYTES_MAX
        return self.size_bytes >= limit or 0 < query.batch <= self.count


async def direct_replies(
    stream: str, partition: Partition, query: DirectQuery, progress: Progress | None = None
) -> AsyncIterator[DirectReply]:
    """In the order of their sequences, after what ``progress`` has; it grows with each of them."""
    progress = Progress() if progress is None else progress
    if query.multi_last:
        replies = _last_of_each(stream, partition, query, progress)
    elif query.batch:
        await settle_surplus(partition)
        replies = _batch(stream, partition, query, progress)
    else:
        replies = _single(stream, partition, query)
    async for reply in replies:
        yield reply


class DirectPart(NamedTuple):
    """A part of an answer, as it travels from the leader to the node that was asked."""

    replies: list[DirectReply]
    progress: Progress | None
    """Where the next part begins; None: this is the last one."""


async def direct_part(
    stream: str, partition: Partition, query: DirectQuery, progress: Progress
) -> DirectPart:
    """Of about ``PART_BYTES``."""
    found, size, count = list[DirectReply](), 0, progress.count
    async for reply in direct_replies(stream, partition, query, progress):
        found.append(reply)
        size += len(reply.block) + len(reply.data)
        if size >= PART_BYTES and progress.count > count:  # the mark of the end is no message
            return DirectPart(found, progress)
        count = progress.count
    return DirectPart(found, None)


async def _single(
    stream: str, partition: Partition, query: DirectQuery
) -> AsyncIterator[DirectReply]:
    try:
        found = await find_message(partition, query.message)
    except MessageNotFound:
        yield status(NO_MESSAGE)
        return
    yield _reply(stream, found, headers=not query.no_headers)


async def _batch(
    stream: str, partition: Partition, query: DirectQuery, progress: Progress
) -> AsyncIterator[DirectReply]:
    message = query.message
    if message.last:
        yield status(NO_MESSAGE)
        return
    first = progress.last_sequence + 1
    if not progress.count:
        first = await first_sequence(partition, message)
    offset = max(first - 1, partition.log_start_offset)
    pending = await count_from(partition, message.following, offset)
    if query.batch < 0:  # as JetStream does it
        yield _end(pending, 0)
        return
    if not progress.is_all(query):
        async for found in messages_from(partition, message.following, offset):
            pending = max(0, pending - 1)
            more = {"Nats-Num-Pending": pending, "Nats-Last-Sequence": progress.last_sequence}
            progress.add(found)
            yield _reply(stream, found, headers=not query.no_headers, **more)
            if progress.is_all(query):
                break
        else:
            pending = 0
    if not progress.count:
        yield status(NO_MESSAGE)
        return
    yield _end(pending, progress.last_sequence)


async def _last_of_each(
    stream: str, partition: Partition, query: DirectQuery, progress: Progress
) -> AsyncIterator[DirectReply]:
    if progress.up_to_sequence is None:
        progress.up_to_sequence = await _up_to_sequence(partition, query)
    up_to = progress.up_to_sequence
    found = await last_of_many(
        partition, query.multi_last, up_to_sequence=up_to, limit=SUBJECTS_MAX
    )
    if found is None:
        yield status(TOO_MANY)
        return
    first = max(query.message.sequence, progress.last_sequence + 1)
    sequences = [sequence for sequence in found if sequence >= first]
    if not sequences and not progress.count:
        yield status(NO_RESULTS)
        return
    pending = len(sequences)
    for sequence in () if progress.is_all(query) else sequences:
        pending -= 1
        try:
            message = await message_at(partition, sequence)
        except MessageNotFound:  # taken away meanwhile
            continue
        more = {"Nats-Num-Pending": pending, "Nats-Last-Sequence": progress.last_sequence}
        progress.add(message)
        yield _reply(stream, message, headers=True, **more)
        if progress.is_all(query):
            break
    yield _end(pending, progress.last_sequence, up_to)


async def _up_to_sequence(partition: Partition, query: DirectQuery) -> int:
    """The last sequence that may be told."""
    if query.up_to_ms is None:
        return query.up_to_sequence or partition.stable_offset
    later = await partition.offset_for_timestamp(query.up_to_ms, stable=True)
    return partition.stable_offset if later is None else later[0]


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
