"""A channel's stream as its ordering nodes read it: committed records, in order, from an offset."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.client.cluster import Cluster, with_retries
from streamlog.client.position import Offset
from streamlog.client.reader import PartitionReader, open_batch
from streamlog.condition import CHECK_NODES, Condition
from streamlog.errors import (
    AuthenticationFailed,
    InvalidRequest,
    OffsetOutOfRange,
    StreamlogError,
    StreamLost,
    StreamNotFound,
    Unavailable,
    UnknownTopicId,
)
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.encoding import encode_record
from streamlog.model import TopicPartition
from streamlog.record.codec import Record, decode_records

logger = logging.getLogger(__name__)

CHANNEL_STREAM_NOT_READ: Final = Condition(
    "SL-0705",
    "stream cannot be read just now",
    CHECK_NODES,
    meaning="The stream of a channel cannot be read. The ordering node tries again.",
)

FETCH_BYTES: Final = 4 * 1024 * 1024
PATIENCE_MS: Final = 5_000
"""How long a leader may be away until it is told of."""
MISSING_ATTEMPTS: Final = 5
MISSING_PAUSE_S: Final = 0.5
"""A stream that was there is taken for deleted when so many answers, so far apart, say so: a node
that has just started may be behind."""
RUN_RECORDS_MAX: Final = 4_096
"""A batch of more makes several runs: it may have millions of records, which take far more memory
than its bytes."""
RECORD_BYTES: Final = 200
"""What a record takes beside its bytes."""
PAUSE_S: Final = 1.0
"""Between attempts while no leader can be reached, which may last for ever."""
REFUSED_PAUSE_S: Final = 5.0
"""Before that, where the login is refused: nodes count such tries."""


class StreamPlace(NamedTuple):
    """The one partition of a channel's stream."""

    tp: TopicPartition
    topic_id: UUID


async def find_stream(cluster: Cluster, stream: str, *, attempts: int = 1) -> StreamPlace:
    """Raises StreamNotFound, InvalidRequest for a stream of several partitions, Unavailable.

    ``attempts``: so often a node has to say that there is no such stream.
    """
    while True:
        attempts -= 1
        cluster.forget(stream)
        try:
            topic = await with_retries(lambda: cluster.topic(stream), PATIENCE_MS, about=stream)
            break
        except StreamNotFound:
            if attempts <= 0:
                raise
        await asyncio.sleep(MISSING_PAUSE_S)
    if len(topic.partitions) != 1:
        raise InvalidRequest(
            f"stream {stream!r} has {len(topic.partitions)} partitions, and no order among them;"
            " a channel wants a stream with one"
        )
    if topic.topic_id is None:
        raise InvalidRequest(f"the nodes of stream {stream!r} are too old to tell its id")
    return StreamPlace(TopicPartition(stream, 0), topic.topic_id)


class Run(NamedTuple):
    """Records that follow each other."""

    records: list[Record]
    size_bytes: int
    """What it takes in memory, about."""


class StreamConsumer:
    """Reads on whatever happens to leaders and connections; never skips or repeats a record."""

    def __init__(self, cluster: Cluster, place: StreamPlace) -> None:
        self.place = place
        self.high_watermark = 0  # as last heard of
        self.problem = ""  # why nothing comes just now
        self._cluster = cluster

    async def log_start(self) -> int:
        """The first offset there is. Raises RequestTimedOut, StreamNotFound."""
        return await with_retries(
            lambda: self._cluster.earliest_offset(self.place.tp), PATIENCE_MS, about="the stream"
        )

    async def log_end(self) -> int:
        """The high watermark. Raises RequestTimedOut, StreamNotFound."""
        return await with_retries(
            lambda: self._cluster.latest_offset(self.place.tp), PATIENCE_MS, about="the stream"
        )

    async def runs(self, offset: int, *, stop: int | None = None) -> AsyncGenerator[Run, None]:
        """The records of a batch, or of a part of one, from ``offset`` on, below ``stop`` if it is
        given.

        Raises StreamLost where the stream is gone, or another has its name, or no longer has
        ``offset``, or has a hole: batches lie next to each other, whatever is erased or compacted
        away. Whatever else fails is told, and tried again for ever.
        """
        while True:
            reader = PartitionReader(
                self._cluster,
                self.place.tp,
                Offset(offset),
                fetch_bytes=FETCH_BYTES,
                patience_ms=PATIENCE_MS,
                topic_id=self.place.topic_id,
            )
            try:
                async with reader:
                    async for header, batch in reader.batches(follow=stop is None, stop=stop):
                        if header.base_offset > offset:
                            raise StreamLost(self._hole(offset, header.base_offset))
                        self.problem = ""
                        self.high_watermark = reader.high_watermark
                        if header.is_control:
                            offset = max(offset, header.next_offset)
                            continue
                        body = await open_batch(header, batch)
                        found = iter(decode_records(body, header))
                        size_bytes = len(body)  # goes with the first of its runs
                        while part := list(islice(found, RUN_RECORDS_MAX)):
                            below = part[-1].offset + 1 if stop is None else stop
                            records = [it for it in part if offset <= it.offset < below]
                            offset = max(offset, part[-1].offset + 1)
                            if records:
                                yield Run(records, size_bytes + RECORD_BYTES * len(records))
                                size_bytes = 0
                            await asyncio.sleep(0)
                        offset = max(offset, header.next_offset)
                return
            except StreamLost:
                raise
            except OffsetOutOfRange as error:
                raise StreamLost(self._no_longer_has(error)) from error
            except (StreamNotFound, UnknownTopicId) as error:
                await self._check_there(error)
            except AuthenticationFailed as error:  # nodes count such tries
                self._tell(error)
                await asyncio.sleep(REFUSED_PAUSE_S)
            except StreamlogError as error:  # also a batch that is damaged where it lies
                self._tell(error)
            await asyncio.sleep(PAUSE_S)

    async def check_has(self, block: Block) -> None:
        """The stream still has the last record of the block, if it has any as old as that. After a
        restore from a backup, or an unclean election, other records may have the offsets of those
        that were ordered, and the next ones would be passed over.

        Raises StreamLost, RequestTimedOut, StreamNotFound.
        """
        offset = block.metadata.end_offset - 1
        if await self.log_end() > offset:
            if await self.log_start() > offset:
                return  # retention has taken it
            async for run in self.runs(offset, stop=offset + 1):
                if not block.data.endswith(encode_record(run.records[0])):
                    break
            else:
                return  # also where it was erased
        raise StreamLost(
            f"stream {self.place.tp.stream!r} has not the record at offset {offset} that block"
            f" {block.number} ends with: it was restored, or an unclean leader was elected; what"
            " was ordered is kept, and can be delivered; order what the stream has as a channel of"
            " another name"
        )

    def _hole(self, offset: int, next_offset: int) -> str:
        return (
            f"stream {self.place.tp.stream!r} has a hole: no records from {offset} to"
            f" {next_offset - 1}; repair the replica that leads it (streamlog log verify), or have"
            " another one lead, and start this node again"
        )

    def _no_longer_has(self, error: OffsetOutOfRange) -> str:
        return (
            f"stream {self.place.tp.stream!r} has no record {error.offset}, only"
            f" [{error.log_start_offset}, {error.log_end_offset}); give the ledger's folder a copy"
            " of another node's blocks, or have the channel begin again in an empty one"
        )

    async def _check_there(self, error: StreamlogError) -> None:
        """Raises StreamLost unless the stream is there; a node may have been late to hear of it."""
        name = self.place.tp.stream
        try:
            found = await find_stream(self._cluster, name, attempts=MISSING_ATTEMPTS)
        except StreamNotFound:
            raise StreamLost(
                f"stream {name!r} was deleted, or this login may not know of it any more; what was"
                " ordered is kept, and can be delivered"
            ) from error
        except (Unavailable, InvalidRequest) as unclear:
            self._tell(unclear)
            return
        if found.topic_id != self.place.topic_id:
            raise StreamLost(
                f"stream {name!r} was deleted, and another has its name; what was ordered is kept,"
                " and can be delivered; order the new stream as a channel of another name"
            ) from error
        self._tell(error)

    def _tell(self, error: StreamlogError) -> None:
        if str(error) != self.problem:
            self.problem = str(error)
            extra = {"stream": self.place.tp.stream, "problem": self.problem}
            logger.warning(CHANNEL_STREAM_NOT_READ, extra=extra)
