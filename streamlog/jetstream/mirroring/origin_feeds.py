"""One origin of one led partition, read for as long as that is led: over a link, or from a leader of this cluster."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from streamlog.clock import monotonic_ms
from streamlog.condition import NO_ACTION, Condition
from streamlog.errors import InvalidStreamConfig, StreamlogError, StreamNotFound
from streamlog.jetstream.consumers.stream_source import StartQuery, StreamSource
from streamlog.jetstream.errors import api_error
from streamlog.jetstream.mirroring.mirror_statistics import NEVER, OriginState
from streamlog.jetstream.mirroring.origin_batches import identity_of
from streamlog.jetstream.mirroring.origin_links import OriginLink, new_token
from streamlog.jetstream.mirroring.origin_reader import (
    MADE_AGAIN,
    FlowControl,
    OriginMessage,
    OriginReader,
    ReaderStep,
)
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.stream_origin import StreamOrigin, transform_of
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)

ORIGIN_REPLACED: Final = Condition(
    "SL-0529",
    "a source was made again",
    NO_ACTION,
    meaning="The origin that a source names was deleted and made again. The messages of the new one are taken from its "
    "beginning.",
)

STORED_BYTES: Final = 1024 * 1024
"""At once."""
QUEUED_BYTES_MAX: Final = 128 * 1024 * 1024
"""More than an origin sends that obeys flow control: JetStream stops at 32 MiB."""
LINK_LOOK_S: Final = 0.2
READ_LIMIT: Final = 5_000
PAUSE_S: Final = 0.1
CLOCKS_MS: Final = 60_000
"""The clocks of two nodes differ by less. Else the first messages of a stream that was made again would count as those
of a backup, and be lost to its sources."""
PAUSE_S_MAX: Final = 5.0


class OriginChanged(StreamlogError):
    """It has other partitions than before: all of them are to be read."""


Store = Callable[[Sequence[OriginMessage]], Awaitable[None]]
Committed = Callable[[], Awaitable[None]]


class LinkFeed:
    """An origin that is reached by its JetStream API. ``run`` raises what storing raises."""

    def __init__(
        self,
        origin: StreamOrigin,
        link: OriginLink,
        *,
        index_name: str,
        position: int,
        inbox: str,
        store: Store,
        committed: Committed,
        is_mirror: bool = False,
        identity: str = "",
    ) -> None:
        self._index_name = index_name
        self._link = link
        self._store = store
        self._committed = committed
        self._reader = OriginReader(
            origin, position, new_token, inbox=inbox, is_mirror=is_mirror, identity=identity
        )
        self._queue: deque[OriginMessage | FlowControl] = deque()
        """Bounded by the origin's flow control; an origin without is given up for as long as it is full."""
        self._queued_bytes = 0
        self._changed = asyncio.Event()
        self._ends: list[Callable[[], None]] = []
        """What ends the subscriptions."""

    def state(self) -> OriginState:
        reader, error = self._reader, self._reader.error
        if not self._link.is_open:
            error = {"code": 503, "err_code": 10008, "description": "NATS is not connected"}
        return OriginState(
            self._index_name,
            reader.lag,
            NEVER if reader.heard_ms is None else monotonic_ms() - reader.heard_ms,
            error,
            reader.position,
            reader.restarts,
        )

    async def run(self) -> None:
        """Until cancelled."""
        reader = self._reader
        try:
            while True:
                if not reader.is_reading and not self._link.is_open:
                    await asyncio.sleep(LINK_LOOK_S)
                    continue
                self._do(reader.tick(monotonic_ms()))
                await self._store_queued()
                await self._wait_changed(reader.due_ms)
        finally:
            self._do(ReaderStep(closes=True))

    async def _wait_changed(self, due_ms: int) -> None:
        try:
            async with asyncio.timeout(max(0, due_ms - monotonic_ms()) / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    async def _store_queued(self) -> None:
        """A slow commit must not look like silence of the origin: the time of waiting does not count."""
        queue = self._queue
        while queue:
            some, size = list[OriginMessage](), 0
            while queue and size < STORED_BYTES and isinstance(it := queue[0], OriginMessage):
                queue.popleft()
                some.append(it)
                size += it.size_bytes
            self._queued_bytes -= size
            if some:
                await self._store(some)
                continue
            request = queue.popleft()
            assert isinstance(request, FlowControl), "no message is first"
            await self._committed()
            self._link.publish(request.reply, b"", block=request.block)

    def _do(self, step: ReaderStep) -> None:
        if step.closes:
            ends, self._ends = self._ends, []
            for end in ends:
                end()
        if step.opens:
            self._ends.append(self._link.listen(self._reader.deliver_subject, self._heard))
        if step.asks:
            self._ends.append(self._link.listen(self._reader.answer_subjects, self._answered))
        for it in step.sends:
            self._link.publish(it.subject, it.payload, it.reply, it.block)
        if step.takes:
            self._queue.extend(step.takes)
            self._queued_bytes += sum(
                it.size_bytes for it in step.takes if isinstance(it, OriginMessage)
            )
        if step != ReaderStep():
            self._changed.set()

    def _heard(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        reader, now_ms = self._reader, monotonic_ms()
        self._do(reader.heard(subject, reply, block, payload, now_ms))
        if self._queued_bytes + reader.held_bytes > QUEUED_BYTES_MAX and reader.is_reading:
            self._do(reader.give_up(now_ms, "the origin does not obey flow control"))

    def _answered(self, subject: bytes, _: bytes, block: bytes, payload: bytes) -> None:
        reader, replaced = self._reader, self._reader.replaced
        self._do(reader.answered(subject, payload, block, monotonic_ms()))
        if reader.replaced > replaced:
            logger.warning(ORIGIN_REPLACED, extra={"source": self._index_name})


class ClusterFeed:
    """One partition of a stream of this cluster, read from its leader. ``run`` raises what storing raises.

    The cursor moves with what was read: where nothing matches, no position is kept of it, and it is read again
    after a change of leaders.
    """

    def __init__(
        self,
        origin: StreamOrigin,
        number: int,
        source: StreamSource,
        image: Callable[[], MetadataImage],
        *,
        index_name: str,
        position: int,
        store: Store,
        partitions: int = 1,
        wanted_partitions: int | None = None,
        identity: str = "",
    ) -> None:
        """``identity``: of the stream that ``position`` is of, as far as it is known. ``partitions``: as many as the
        origin has, or 1 where it is not there. ``wanted_partitions``: as many as a mirror needs it to have.
        """
        self._identity = identity
        self._origin = origin
        self._number = number
        self._partitions = partitions
        self._wanted_partitions = wanted_partitions
        self._source = source
        self._image = image
        self._index_name = index_name
        self._position = position
        self._store = store
        self._transform = transform_of(origin)
        self._lag = 0
        self._heard_ms: int | None = None
        self._error: dict[str, Any] | None = None
        self._restarts = 0

    def state(self) -> OriginState:
        active_ms = NEVER if self._heard_ms is None else monotonic_ms() - self._heard_ms
        return OriginState(
            self._index_name, self._lag, active_ms, self._error, self._position, self._restarts
        )

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = PAUSE_S
        cursor: tuple[object, int] | None = None
        """The stream, and the offset that is read next."""
        while True:
            try:
                tp = TopicPartition(self._origin.name, self._number)
                stream = self._image().stream(tp.stream)
                if stream.config.is_restoring:
                    raise StreamNotFound(f"{tp.stream!r} is being restored")
                self._check_partitions(len(stream.partitions))
                if cursor is None or cursor[0] != stream.stream_id:
                    await self._compare(tp, stream)
                    cursor = stream.stream_id, await self._start(tp, stream.stream_id)
                offset = cursor[1]
                part = await self._source.read(
                    tp, stream.stream_id, self._origin.filters, offset, limit=READ_LIMIT
                )
                if part.high_watermark < self._position:
                    said = (
                        f"the origin ends at {part.high_watermark}: another stream has its name now"
                    )
                    raise StreamlogError(said)
            except OriginChanged:
                raise
            except StreamlogError as error:
                self._error, self._restarts = api_error(error).json(), self._restarts + 1
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
                continue
            pause_s, self._error, self._heard_ms = PAUSE_S, None, monotonic_ms()
            cursor, self._lag = (stream.stream_id, part.next_offset), part.beyond
            run = part.messages
            if run.count:
                await self._store([self._message(*run.message(it)) for it in range(run.count)])
                self._position = run.next_offset
            if part.next_offset >= part.high_watermark:
                try:
                    await self._source.wait(tp, stream.stream_id, part.next_offset)
                except StreamlogError:  # the next read tells
                    await asyncio.sleep(PAUSE_S)

    def _check_partitions(self, count: int) -> None:
        """Raises OriginChanged, StreamlogError."""
        wanted = self._wanted_partitions
        if wanted is None and count != self._partitions:
            raise OriginChanged(f"{self._origin.name} has {count} partitions now")
        if wanted is not None and count != wanted:
            raise InvalidStreamConfig(
                f"mirror: {self._origin.name!r} has {count} partitions, and the mirror {wanted}"
            )

    async def _compare(self, tp: TopicPartition, stream: StreamImage) -> None:
        """Where another stream has the name, a source begins with that. A restored stream has its old messages, and
        what came since its restore is new, though its backup may end before this position. Raises StreamlogError.
        """
        identity = identity_of(stream.stream_id)
        if self._position and self._identity and self._identity != identity:
            fresh = await self._first_new(tp, stream)
            if self._wanted_partitions is not None and fresh < self._position:
                raise StreamlogError(MADE_AGAIN)
            self._position = min(self._position, fresh)
            if not self._position:
                logger.warning(ORIGIN_REPLACED, extra={"source": self._index_name})
        self._identity = identity

    async def _first_new(self, tp: TopicPartition, stream: StreamImage) -> int:
        """The offset of its first message that the stream before it did not have. Raises StreamlogError."""
        if stream.restored_end:
            return stream.restored_end
        start = await self._source.start(tp, stream.stream_id, StartQuery("all"))
        part = await self._source.read(tp, stream.stream_id, (), start.offset, limit=1)
        run = part.messages
        if not run.count:
            return 0
        _, _, timestamp_ms, _, _ = run.message(0)
        if timestamp_ms >= stream.created_ms - CLOCKS_MS:
            return 0
        # Its messages are older than it is: a backup was restored, of which the metadata says nothing.
        query = StartQuery("by_start_time", (), stream.created_ms)
        return (await self._source.start(tp, stream.stream_id, query)).offset

    async def _start(self, tp: TopicPartition, stream_id: Any) -> int:
        """Raises StreamlogError."""
        origin = self._origin
        if self._position:
            return self._position
        if origin.start_ms is not None:
            query = StartQuery("by_start_time", origin.filters, origin.start_ms)
        elif origin.start_seq:
            query = StartQuery("by_start_sequence", origin.filters, origin.start_seq - 1)
        else:
            query = StartQuery("all", origin.filters)
        return (await self._source.start(tp, stream_id, query)).offset

    def _message(
        self, subject: str, sequence: int, timestamp_ms: int, block: bytes, data: bytes
    ) -> OriginMessage:
        made = self._transform(subject) if self._origin.transforms else subject
        return OriginMessage(made, sequence, timestamp_ms, block, data, subject, self._identity)
