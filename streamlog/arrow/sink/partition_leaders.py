"""The leaders of partitions, as a task that writes sees them: patient with changes of leader."""

from collections.abc import Iterator
from typing import Any, Final, Protocol

from streamlog.client.blocking import BlockingCluster, with_retries
from streamlog.errors import (
    OffsetOutOfRange,
    ProducerRefused,
    RecordTooLarge,
    StreamlogError,
    StreamNotFound,
    Unavailable,
)
from streamlog.model import TopicPartition
from streamlog.record.batch import BatchHeader, batches, check_bytes
from streamlog.wire import registry
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import check, error_of
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from streamlog.wire.produce import ACKS_ALL
from streamlog.wire.special_offsets import LATEST

COMMIT_TIMEOUT_MS: Final = 30_000
"""The leader gives up waiting for its followers; the batch may yet be committed."""
FETCH_BYTES: Final = 4 << 20
FETCH_WAIT_MS: Final = 500

Batch = tuple[BatchHeader, memoryview]


class Leaders(Protocol):
    """What a task asks for. Raises RequestTimedOut where a leader stays away for too long."""

    def partition_count(self, stream: str) -> int:
        """Raises StreamNotFound."""

    def produce(self, tp: TopicPartition, batch: bytes) -> int:
        """The base offset of the batch, once it is committed on all replicas in sync.

        Raises ProducerRefused, and whatever else the leader answers.
        """

    def committed(self, tp: TopicPartition, offset: int) -> Iterator[Batch]:
        """All batches from this offset on that are committed by now, their checksums right."""


class ClusterLeaders:
    """``Leaders`` over the socket API."""

    def __init__(self, cluster: BlockingCluster, patience_ms: int) -> None:
        self._cluster = cluster
        self._patience_ms = patience_ms

    def partition_count(self, stream: str) -> int:
        def ask() -> int:
            return len(self._cluster.topic(stream).partitions)

        try:
            return with_retries(ask, self._patience_ms, about=stream)
        except StreamNotFound:
            raise StreamNotFound(f"there is no stream {stream!r}; create it first") from None

    def produce(self, tp: TopicPartition, batch: bytes) -> int:
        return with_retries(lambda: self._produce(tp, batch), self._patience_ms, about=str(tp))

    def committed(self, tp: TopicPartition, offset: int) -> Iterator[Batch]:
        end = with_retries(lambda: self._end(tp), self._patience_ms, about=str(tp))
        while offset < end:
            start = offset
            try:
                records = with_retries(
                    lambda at=offset: self._fetch(tp, at),  # type: ignore[misc]
                    self._patience_ms,
                    about=str(tp),
                )
            except OffsetOutOfRange as error:  # retention was quicker
                if error.log_start_offset <= offset:
                    raise
                offset = error.log_start_offset
                continue
            for header, batch in batches(records):
                if header.next_offset > offset:
                    check_bytes(header, batch)
                    offset = header.next_offset
                    yield header, batch
            if offset == start:
                raise Unavailable(f"{tp}: no record at {offset}, where the log goes to {end}")

    def _end(self, tp: TopicPartition) -> int:
        return self._cluster.list_offsets([tp], LATEST, committed=False)[tp]

    def _produce(self, tp: TopicPartition, batch: bytes) -> int:
        cluster = self._cluster
        try:
            node, _ = cluster.leader(tp)
            answer = cluster.connection(node).request(
                registry.PRODUCE, self._produce_request(tp, batch), timeout_ms=2 * COMMIT_TIMEOUT_MS
            )
            return _base_offset(tp, answer)
        except ProducerRefused:
            raise
        except StreamlogError:
            cluster.forget(tp.stream)
            raise

    def _produce_request(self, tp: TopicPartition, batch: bytes) -> dict[str, Any]:
        """By the stream's name or by its id, whichever the agreed version has."""
        data = {
            "name": tp.stream,
            "topic_id": self._cluster.topic(tp.stream).topic_id,
            "partition_data": [{"index": tp.partition, "records": batch}],
        }
        return {
            "transactional_id": None,
            "acks": ACKS_ALL,
            "timeout": COMMIT_TIMEOUT_MS,
            "topic_data": [data],
        }

    def _fetch(self, tp: TopicPartition, offset: int) -> memoryview:
        cluster = self._cluster
        try:
            node, epoch = cluster.leader(tp)
            topic_id = cluster.topic(tp.stream).topic_id
            wanted = FetchPartition(tp.partition, offset, FETCH_BYTES, epoch)
            topic = FetchTopic(tp.stream, [wanted], topic_id.bytes if topic_id else b"")
            request = FetchRequest([topic], FETCH_WAIT_MS, 1, FETCH_BYTES)
            response = cluster.connection(node).fetch(request)
            check(response.error_code, str(tp))
            (answer,) = response.partitions
            fetched = answer.fetched
            if fetched.error_code == ErrorCode.offset_out_of_range:
                raise OffsetOutOfRange(offset, fetched.log_start_offset, fetched.high_watermark)
            check(fetched.error_code, str(tp))
        except OffsetOutOfRange:
            raise
        except StreamlogError:
            cluster.forget(tp.stream)
            raise
        return answer.records


def _base_offset(tp: TopicPartition, answer: dict[str, Any]) -> int:
    """Raises what the leader answers."""
    (topic,) = answer["responses"]
    (found,) = topic["partition_responses"]
    base_offset: int = found["base_offset"]
    if not found["error_code"]:
        return base_offset
    message = found.get("error_message")
    error = error_of(found["error_code"], f"{tp}: {message}" if message else str(tp))
    if isinstance(error, ProducerRefused):
        error.first_offset = base_offset
    if isinstance(error, RecordTooLarge):
        remedy = "make batchBytes smaller, or have the stream take larger ones (max.message.bytes)"
        raise RecordTooLarge(f"{error}; {remedy}")
    raise error
