"""Operations on single messages: find one, read some in order, delete one."""

import base64
from dataclasses import dataclass
from typing import Final

from streamlog.acl.rules import Operation
from streamlog.control.messages.message_query import MessageQuery
from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.control.operation import Operations, operation
from streamlog.errors import DeletionDenied, InvalidRequest, StreamNotFound
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.config import check_writable_by_clients, is_hidden
from streamlog.metadata.stream.write_state import check_may_be_cut
from streamlog.model import TopicPartition

READ_MAX: Final = 1_000
"""Messages in one answer."""


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A stored message. ``data`` and the values of ``headers`` are base64 of the bytes."""

    partition: int
    offset: int
    timestamp_ms: int
    subject: str
    headers: tuple[tuple[str, str], ...]
    data: str


def _message(found: StoredMessage) -> ReadMessage:
    return ReadMessage(
        0,
        found.sequence - 1,
        found.timestamp_ms,
        found.subject,
        tuple(_headers(found.header_block)),
        base64.b64encode(found.data).decode(),
    )


def _headers(block: bytes) -> "list[tuple[str, str]]":
    lines = block.split(b"\r\n")[1:-2] if block else []
    pairs = (line.partition(b": ") for line in lines)
    return [
        (name.decode(errors="replace"), base64.b64encode(value).decode())
        for name, _, value in pairs
    ]


class MessageOperations(Operations):
    """Of partition 0, as JetStream has it, but for those that name a partition."""

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
        stream = await self._stream(name)
        if self._access is not None:
            self._access.check_topic(Operation.READ, name)
        return stream

    @operation("DELETE /streams/{stream}/message", about=("stream", "offset"), act=True)
    async def delete(self, stream: str, offset: int, partition: int = 0) -> None:
        """Delete one message: it is erased on every replica. Its offset is not used again."""
        config = (await self._stream(stream)).config
        if self._access is not None:
            self._access.check_topic(Operation.DELETE, stream)
        check_writable_by_clients(stream)
        check_may_be_cut(config)
        if config.deny_delete:
            raise DeletionDenied(f"{stream!r} denies that messages are deleted")
        await self._service.leaders.delete(TopicPartition(stream, partition), offset + 1)

    async def _stream(self, name: str) -> StreamImage:
        """Raises StreamNotFound, but not for a stream that this node is about to hear of."""
        if is_hidden(name):
            raise StreamNotFound(f"{name!r} is an internal stream")
        try:
            return self._metadata.image.stream(name)
        except StreamNotFound:
            await self._service.freshness.catch_up()
        return self._metadata.image.stream(name)
