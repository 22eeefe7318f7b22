"""A Kafka client of bare frames, which can also send what no client would."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, NamedTuple

from streamlog.wire import api_messages, fetch
from streamlog.wire.cursor import Cursor
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from streamlog.wire.framing import frame
from streamlog.wire.header import encode_request_header, read_response_header
from streamlog.wire.registry import APIS, FETCH
from tests.fake_metadata import first_id

PATIENCE_S = 10.0
"""No test takes that long; one that hangs fails instead."""


class Sent(NamedTuple):
    """A request on its way."""

    key: int
    version: int
    correlation_id: int


class RawClient:
    """Requests may be sent before the answers to earlier ones are read."""

    def __init__(self, port: int, *, own_address: str = "127.0.0.1") -> None:
        self._port = port
        self._own_address = own_address
        self._correlation_id = 100

    async def __aenter__(self) -> "RawClient":
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=(self._own_address, 0)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()

    def half_close(self) -> None:
        self._writer.write_eof()

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readexactly(size)

    async def closed(self) -> bool:
        """Has the server closed, without another byte?"""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    async def frame(self) -> bytes:
        return await self.read(int.from_bytes(await self.read(4), "big"))

    def send(self, key: int, version: int, values: api_messages.Message) -> Sent:
        return self._send(key, version, api_messages.encode_request(APIS[key], version, values))

    def send_fetch(self, request: FetchRequest, version: int | None = None) -> Sent:
        """By default in the newest version that names topics as the request does."""
        if version is None:
            newest = APIS[FETCH].version_max
            version = newest if request.is_by_id else fetch.TOPIC_IDS_FROM - 1
        return self._send(FETCH, version, fetch.encode_request(request, version))

    def _send(self, key: int, version: int, body: bytes) -> Sent:
        self._correlation_id += 1
        header = encode_request_header(APIS[key], version, self._correlation_id, "raw")
        self.write(frame(header, body))
        return Sent(key, version, self._correlation_id)

    async def answer(self, sent: Sent) -> Cursor:
        cursor = Cursor(await self.frame())
        assert read_response_header(cursor, APIS[sent.key], sent.version) == sent.correlation_id
        return cursor

    async def ask(self, key: int, version: int, values: api_messages.Message) -> dict[str, Any]:
        sent = self.send(key, version, values)
        cursor = await self.answer(sent)
        answer = api_messages.read_response(cursor, APIS[key], version)
        assert cursor.remaining == 0
        return answer

    async def fetched(self, sent: Sent) -> FetchResponse:
        cursor = await self.answer(sent)
        answer = fetch.read_response(cursor, sent.version)
        assert cursor.remaining == 0
        return answer

    async def fetch(self, request: FetchRequest, version: int | None = None) -> FetchResponse:
        return await self.fetched(self.send_fetch(request, version))


def wanted(
    *partitions: FetchPartition,
    topic: str = "flights",
    topic_id: bytes = b"",
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**30,
    **more: Any,
) -> FetchRequest:
    """A request for partitions of one topic. A replica names it by the id of its first stream."""
    if more.get("replica_id", -1) >= 0 and not topic_id:
        topic_id = first_id(topic).bytes
    topics = [FetchTopic(topic, list(partitions), topic_id)]
    return FetchRequest(topics, max_wait_ms, min_bytes, max_bytes, **more)


def at(offset: int, *, partition: int = 0, max_bytes: int = 2**20, **more: Any) -> FetchPartition:
    return FetchPartition(partition, offset, max_bytes, **more)
