"""Records into a channel's stream: many at once in one batch, told of when they are committed."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.client.cluster import Cluster, with_retries
from streamlog.clock import wall_ms
from streamlog.errors import (
    Overloaded,
    ProducerRefused,
    RecordTooLarge,
    RequestTimedOut,
    StreamlogError,
)
from streamlog.ledger.core.entry import Message
from streamlog.model import TopicPartition
from streamlog.record.codec import RecordRun
from streamlog.wire import registry
from streamlog.wire.api_messages import Message as Request
from streamlog.wire.errors import check, error_of
from streamlog.wire.produce import ACKS_ALL

BATCH_BYTES: Final = 512 * 1024
"""A batch ends with the record that would make it larger; one record may be."""
PENDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of records that are on their way; more are refused with Overloaded."""
COMMIT_TIMEOUT_MS: Final = 5_000
PATIENCE_MS: Final = 30_000
"""How long the leader may be away."""
_OVERHEAD_BYTES: Final = 64
"""More than a record takes beside its key, value and headers."""


class _Waiting(NamedTuple):
    message: Message
    size_bytes: int
    offset: "asyncio.Future[int]"


def size_of(message: Message) -> int:
    """About what it takes in a batch; no less."""
    headers = sum(len(name) + len(value or b"") + 16 for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers + _OVERHEAD_BYTES


class StreamPublisher:
    """Publishes to one partition, ``run`` by one task; idempotent, so that no retry orders twice.

    One batch is under way at a time; what comes meanwhile goes into the next one. A producer that
    was refused, or whose batch was given up, goes on under a new id.
    """

    def __init__(
        self,
        cluster: Cluster,
        tp: TopicPartition,
        topic_id: UUID | None,
        *,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self._cluster = cluster
        self._tp = tp
        self._topic_id = topic_id
        self._patience_ms = patience_ms
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0  # with those under way
        self._wanted = asyncio.Event()
        self._closed = False
        self._producer: tuple[int, int] | None = None  # id and epoch; None: to be asked for
        self._sequence = 0  # of the next record

    async def publish(self, message: Message) -> int:
        """Its offset, when it is committed.

        Raises Overloaded when too much is on its way; RequestTimedOut: whether it will be ordered
        is not known; whatever else the leader answers: it will not be.
        """
        return await self.begin(message)

    def begin(self, message: Message) -> "asyncio.Future[int]":
        """As ``publish``; what comes to be known at once is raised at once."""
        if self._closed:
            raise Overloaded("the ledger is stopping; ask another node")
        size_bytes = size_of(message)
        if self._waiting_bytes and self._waiting_bytes + size_bytes > PENDING_BYTES_MAX:
            raise Overloaded(f"{self._waiting_bytes} bytes wait for stream {self._tp.stream!r}")
        offset: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(message, size_bytes, offset))
        self._waiting_bytes += size_bytes
        self._wanted.set()
        return offset

    async def run(self) -> None:
        """Until it is cancelled; who waits then is told so."""
        under_way: list[_Waiting] = []
        try:
            while True:
                await self._wanted.wait()
                under_way = self._next_batch()
                await self._send(under_way)
                self._settled(under_way)
                under_way = []
        finally:
            self._closed = True
            for waiting in (*under_way, *self._waiting):
                _refuse(waiting, RequestTimedOut("the ledger stopped before it was committed"))
            self._waiting.clear()

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size_bytes = 0
        while self._waiting:
            size_bytes += self._waiting[0].size_bytes
            if batch and size_bytes > BATCH_BYTES:
                break
            batch.append(self._waiting.popleft())
        if not self._waiting:
            self._wanted.clear()
        return batch

    def _settled(self, batch: list[_Waiting]) -> None:
        self._waiting_bytes -= sum(waiting.size_bytes for waiting in batch)

    async def _send(self, batch: list[_Waiting]) -> None:
        """Each is answered when it returns. Of a refused batch each record stands by itself."""
        try:
            base_offset = await self._produced([waiting.message for waiting in batch])
        except StreamlogError as error:
            if len(batch) > 1 and isinstance(error, RecordTooLarge):
                for waiting in batch:
                    await self._send([waiting])
                return
            for waiting in batch:
                _refuse(waiting, error)
            return
        for number, waiting in enumerate(batch):
            if not waiting.offset.done():
                waiting.offset.set_result(base_offset + number)

    async def _produced(self, messages: Sequence[Message]) -> int:
        """The base offset of the batch. Raises as ``publish``."""
        try:
            producer = await with_retries(
                self._known_producer, self._patience_ms, about=self._tp.stream
            )
            batch = self._batch(messages, (*producer, self._sequence))
            offset = await with_retries(
                lambda: self._produce(batch), self._patience_ms, about=self._tp.stream
            )
        except ProducerRefused as error:
            self._producer = None
            problem = f"{error}; whether it will be ordered is not known"
            raise RequestTimedOut(problem) from error
        except RequestTimedOut:
            self._producer = None  # the batch may be in the log: its numbers are spent
            raise
        self._sequence = (self._sequence + len(messages)) % 2**31
        return offset

    def _batch(self, messages: Sequence[Message], producer: tuple[int, int, int]) -> bytes:
        run = RecordRun()
        for message in messages:
            run.append(message.key, message.value, message.raw_headers)
        now_ms = wall_ms()
        return run.seal(
            base_offset=0,
            leader_epoch=-1,
            timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            producer=producer,
        )

    async def _known_producer(self) -> tuple[int, int]:
        if self._producer is None:
            values = {"transactional_id": None, "transaction_timeout": 0}
            values |= {"producer_id": -1, "producer_epoch": -1}
            answer = await self._cluster.ask_any(registry.INIT_PRODUCER_ID, values)
            check(answer["error_code"], "a producer's id")
            self._producer = answer["producer_id"], answer["producer_epoch"]
            self._sequence = 0
        return self._producer

    async def _produce(self, batch: bytes) -> int:
        try:
            node, _ = await self._cluster.leader(self._tp)
            answer = await self._cluster.ask(node, registry.PRODUCE, self._request(batch))
            return _base_offset(self._tp, answer)
        except StreamlogError:
            self._cluster.forget(self._tp.stream)
            raise

    def _request(self, batch: bytes) -> Request:
        data = {
            "name": self._tp.stream,
            "topic_id": self._topic_id,
            "partition_data": [{"index": self._tp.partition, "records": batch}],
        }
        return {
            "transactional_id": None,
            "acks": ACKS_ALL,
            "timeout": COMMIT_TIMEOUT_MS,
            "topic_data": [data],
        }


def _refuse(waiting: _Waiting, error: StreamlogError) -> None:
    if not waiting.offset.done():
        waiting.offset.set_exception(error)


def _base_offset(tp: TopicPartition, answer: dict[str, Any]) -> int:
    """Raises what the leader answers."""
    (topic,) = answer["responses"]
    (found,) = topic["partition_responses"]
    if found["error_code"]:
        message = found.get("error_message")
        raise error_of(found["error_code"], f"{tp}: {message}" if message else str(tp))
    return int(found["base_offset"])
