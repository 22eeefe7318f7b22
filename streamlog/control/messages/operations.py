"""Operations on single messages: find one, read some in order, publish one, delete one."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from streamlog.acl.rules import Operation
from streamlog.clock import wall_ms
from streamlog.control.messages.message_query import MessageQuery
from streamlog.control.messages.ordered_read import PassageQuery
from streamlog.control.messages.publication import (
    Encoding,
    MessageHeader,
    batch_of,
    encoded,
    partition_of,
    payload_of,
    subject_of,
)
from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.control.operation import Operations, operation
from streamlog.errors import DeletionDenied, InvalidRequest
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import check_writable_by_clients
from streamlog.metadata.stream.subjects import SUBJECT_BYTES_MAX
from streamlog.metadata.stream.write_state import check_may_be_cut, check_takes_records
from streamlog.model import TopicPartition

READ_MAX: Final = 1_000
"""Messages in one answer."""


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """A header of a stored message. ``value`` is base64 of its bytes."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A stored message. ``data`` and ``key`` are base64 of the bytes."""

    partition: int
    offset: int
    timestamp_ms: int
    subject: str
    headers: tuple[StoredHeader, ...]
    data: str
    key: str | None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some messages of a partition, in order."""

    partition: int
    messages: tuple[ReadMessage, ...]
    next_offset: int
    """Where the next ones begin; at ``high_watermark`` there are no more yet."""
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """Where a message is that was published."""

    stream: str
    partition: int
    offset: int


def _message(found: StoredMessage) -> ReadMessage:
    return _of_partition(0, found)


def _of_partition(partition: int, found: StoredMessage) -> ReadMessage:
    return ReadMessage(
        partition,
        found.sequence - 1,
        found.timestamp_ms,
        found.subject,
        tuple(_headers(found.header_block)),
        base64.b64encode(found.data).decode(),
        None if found.key is None else base64.b64encode(found.key).decode(),
    )


def _headers(block: bytes) -> Iterator[StoredHeader]:
    lines = block.split(b"\r\n")[1:-2] if block else []
    pairs = (line.partition(b": ") for line in lines)
    for name, _, value in pairs:
        yield StoredHeader(name.decode(errors="replace"), base64.b64encode(value).decode())


class MessageOperations(Operations):
    """Of partition 0, as JetStream has it, but for those that name a partition."""

    group = "messages"

    @operation("GET /streams/{stream}/message", about=("stream",), shown=_message)
    async def get(
        self,
        stream: str,
        offset: int | None = None,
        last_by_subject: str = "",
        next_by_subject: str = "",
        start_ms: int | None = None,
    ) -> StoredMessage:
        """Get one message: at an offset, the first from a time on, or the last or next of a subject."""
        query = MessageQuery(
            0 if offset is None else offset + 1, last_by_subject, next_by_subject, start_ms
        )
        if query.is_empty or query.is_contradictory:
            raise InvalidRequest(
                "name an offset, last_by_subject, next_by_subject or start_ms, and not two that differ"
            )
        return await self.find(stream, query)

    async def find(self, name: str, query: MessageQuery) -> StoredMessage:
        """Raises MessageNotFound."""
        stream = await self.readable(name)
        return await self._service.leaders.message(stream.name, query)

    async def readable(self, name: str) -> StreamImage:
        """A stream that the caller may READ. Raises TopicForbidden, StreamNotFound."""
        await self._find(name)
        return self.known_readable(name)

    def known_readable(self, name: str) -> StreamImage:
        """The same of the image as it is. Raises TopicForbidden, StreamNotFound."""
        stream = self._known(name)
        if self._access is not None:
            self._access.check_topic(Operation.READ, name)
        return stream

    @operation("GET /streams/{stream}/messages", about=("stream",))
    async def read(
        self,
        stream: str,
        partition: int = 0,
        *,
        offset: int | None = None,
        start_ms: int | None = None,
        last: int | None = None,
        subject: str = "",
        limit: int = 100,
    ) -> MessagePage:
        """Read messages of a partition in order, at most ``limit``, or about 1 MiB of them.

        They begin at ``offset``, with the first of the time ``start_ms`` or later, or with the ``last`` so many;
        without any of these at the start of the log. ``subject`` reads only messages whose subject matches.
        """
        if sum(it is not None for it in (offset, start_ms, last)) > 1:
            raise InvalidRequest("offset, start_ms and last: only one of them")
        if not 1 <= limit <= READ_MAX or not 0 <= (last or 0) <= READ_MAX or (offset or 0) < 0:
            raise InvalidRequest(
                f"limit: 1 to {READ_MAX}; last: 0 to {READ_MAX}; offset: 0 or more"
            )
        if len(subject) > SUBJECT_BYTES_MAX:
            raise InvalidRequest(f"subject: more than {SUBJECT_BYTES_MAX} characters")
        await self.readable(stream)
        query = PassageQuery(offset, start_ms, last, subject, limit)
        found = await self._service.leaders.passage(TopicPartition(stream, partition), query)
        return MessagePage(
            partition,
            tuple(_of_partition(partition, it) for it in found.messages),
            found.next_offset,
            found.log_start_offset,
            found.high_watermark,
        )

    @operation("POST /streams/{stream}/message", about=("stream", "partition"), act=True)
    async def publish(
        self,
        stream: str,
        payload: str | None = "",
        *,
        encoding: Encoding = "text",
        subject: str | None = None,
        key: str | None = None,
        headers: tuple[MessageHeader, ...] = (),
        partition: int | None = None,
    ) -> PublishedMessage:
        """Publish one message, and wait until it is committed.

        It goes the way of Kafka's Produce with acks=all: headers such as Nats-Msg-Id or Nats-TTL are stored,
        but ask for nothing, so that the same message again is stored again. ``encoding`` is that of
        ``payload``; without a payload the record deletes its key in a compacted stream. ``partition`` is by
        default that of the key's hash, or the first. ``subject`` has to be one that the partition listens on, by
        default the first one without wildcards. 180 KiB at most.
        """
        found = await self._find(stream)
        check_writable_by_clients(stream)
        if self._access is not None:
            self._access.check_topic(Operation.WRITE, stream)
        check_takes_records(found.config)
        raw_key = None if key is None else encoded("key", key)
        number = partition_of(raw_key, len(found.partitions)) if partition is None else partition
        found.partition(number)  # raises PartitionNotFound
        records = batch_of(
            subject=subject_of(found.config, number, subject),
            key=raw_key,
            headers=headers,
            payload=None if payload is None else payload_of(payload, encoding),
            now_ms=wall_ms(),
        )
        offset = await self._service.leaders.publish(found, number, records)
        return PublishedMessage(stream, number, offset)

    @operation("DELETE /streams/{stream}/message", about=("stream", "offset"), act=True)
    async def delete(self, stream: str, offset: int, partition: int = 0) -> None:
        """Delete one message: it is erased on every replica. Its offset is not used again."""
        found = await self._find(stream)
        if self._access is not None:
            self._access.check_topic(Operation.DELETE, stream)
        check_writable_by_clients(stream)
        check_may_be_cut(found.config)
        if found.config.deny_delete:
            raise DeletionDenied(f"{stream!r} denies that messages are deleted")
        found.partition(partition)  # raises PartitionNotFound
        await self._service.leaders.delete(found, partition, offset + 1)
