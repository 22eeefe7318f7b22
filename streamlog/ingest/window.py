"""The ids of the duplicate window out of the log, so that a restart forgets none of them."""

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from streamlog.errors import StreamlogError
from streamlog.ingest.sequencer import Sequencer
from streamlog.log.slice import FileSlice
from streamlog.model import TopicPartition
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records

logger = logging.getLogger(__name__)

READ_BYTES = 4 * 1024 * 1024
MESSAGE_ID = "Nats-Msg-Id"
_MESSAGE_ID_BYTES = MESSAGE_ID.encode()


class ReadablePartition(Protocol):
    """What the rebuilding needs of ``partition.owner.Partition``."""

    @property
    def tp(self) -> TopicPartition: ...

    @property
    def high_watermark(self) -> int: ...

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None: ...

    async def read(self, offset: int, max_bytes: int) -> FileSlice: ...


class KnownId(NamedTuple):
    """A message id in the log."""

    message_id: bytes
    offset: int
    timestamp_ms: int


async def rebuild_window(
    partition: ReadablePartition, sequencer: Sequencer, *, from_offset: int, since_ms: int
) -> int:
    """Have ``sequencer`` remember every id stored since then; how many. Decodes in worker threads.

    At damaged records it ends and says so: a stream must not stay shut for them.
    """
    offset, count = from_offset, 0
    while offset < partition.high_watermark:
        try:
            with await partition.read(offset, READ_BYTES) as part:
                next_offset, ids = await asyncio.to_thread(_scan, part)
        except StreamlogError as error:
            _tell_of_gap(partition.tp, offset, error)
            break
        for message_id, at, timestamp_ms in ids:
            if timestamp_ms >= since_ms:
                sequencer.remember(message_id, at, timestamp_ms)
                count += 1
        if next_offset <= offset:
            break
        offset = next_offset
    return count


def _scan(part: FileSlice) -> tuple[int, list[KnownId]]:
    """The offset after the slice, and its ids. Batches that cannot hold one are not decoded."""
    data = part.read()
    next_offset = -1
    ids: list[KnownId] = []
    uncompressed_ids = _MESSAGE_ID_BYTES in data
    for header, batch in batches(data):
        next_offset = header.next_offset
        if header.compression or uncompressed_ids:
            ids.extend(_ids_of(batch))
    return next_offset, ids


def _ids_of(batch: memoryview) -> Iterator[KnownId]:
    for record in iter_records(batch):
        for name, value in record.headers:
            if name == MESSAGE_ID and value:
                yield KnownId(value, record.offset, record.timestamp_ms)
                break


def _tell_of_gap(tp: TopicPartition, offset: int, error: Exception) -> None:
    logger.error(
        "message ids from here on are not known",
        extra={
            "stream": tp.stream,
            "partition": tp.partition,
            "offset": offset,
            "error": str(error),
        },
    )
