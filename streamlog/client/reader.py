import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import UUID

from streamlog.client.cluster import Cluster, with_retries
from streamlog.client.connection import Connection
from streamlog.client.position import EARLIEST, Earliest, Position, resolve
from streamlog.errors import (
    CorruptBatch,
    OffsetOutOfRange,
    StreamlogError,
)
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.record.aborted import aborted_batches, without_records
from streamlog.record.batch import BatchHeader, batches, check_batch, read_header
from streamlog.record.codec import Record, decode_records, opened, opened_at_once
from streamlog.record.compression import Buffer
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import check
from streamlog.wire.fetch import (
    READ_COMMITTED,
    FetchedRecords,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)

FETCH_BYTES: Final = 8 * 1024 * 1024
MAX_WAIT_MS: Final = 1_000
PATIENCE_MS: Final = 60_000
TURN_RECORDS: Final = 1_000
"""After so many records that are passed over, others get their turn of the event loop."""

Batch = tuple[BatchHeader, memoryview]
T = TypeVar("T")


class PartitionReader:
    """The committed records of one partition, in order, none twice and none left out: also none of a transaction that
    is open, nor of one that was aborted, whose batches come without their records.
    """

    def __init__(
        self,
        cluster: Cluster,
        tp: TopicPartition,
        start: Position = EARLIEST,
        *,
        fetch_bytes: int = FETCH_BYTES,
        patience_ms: int = PATIENCE_MS,
        topic_id: UUID | None = None,
    ) -> None:
        """``topic_id``: of the one stream of that name that is meant; UnknownTopicId is raised
        where it is gone, whichever stream has its name by then.
        """
        self.tp = tp
        self.next_offset: int | None = None  # of the next record to be given; None until resolved
        self.high_watermark = 0  # or where the first open transaction begins; as last heard of
        self._cluster = cluster
        self._start = start
        self._fetch_bytes = fetch_bytes
        self._patience_ms = patience_ms  # how long the leader may be away
        self._topic_id = topic_id.bytes if topic_id else b""
        self._connection: Connection | None = None  # to the leader, for this reader alone
        self._leader_epoch = NO_EPOCH

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def records(
        self, *, count: int | None = None, follow: bool = False, stop: int | None = None
    ) -> AsyncGenerator[Record, None]:
        """Up to ``count`` records below ``stop``; without ``follow`` those committed now."""
        left = count
        if left == 0:
            return
        async with contextlib.aclosing(self.batches(follow=follow, stop=stop)) as found:
            async for header, batch in found:
                if header.is_control:
                    continue
                body = await open_batch(header, batch)
                for passed, record in enumerate(decode_records(body, header), 1):
                    if record.offset < self._position:  # in the batch that holds the start
                        if passed % TURN_RECORDS == 0:
                            await asyncio.sleep(0)
                        continue
                    if stop is not None and record.offset >= stop:
                        return
                    self.next_offset = record.offset + 1
                    yield record
                    if left is not None:
                        left -= 1
                        if left == 0:
                            return

    async def batches(
        self, *, follow: bool = False, stop: int | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Whole batches, their checksums right; the first and last may reach over the range's ends.

        ``next_offset`` moves past a batch when the next one is asked for, if not before.
        """
        await self._resolve_start()
        if stop is None and not follow:
            stop = await self._patiently(self._latest_offset)
            if self._position > stop:
                start = await self._patiently(self._earliest_offset)
                raise OffsetOutOfRange(self._position, start, stop)
        while stop is None or self._position < stop:
            fetched = await self._patiently(self._fetch)
            aborted: set[int] = set()
            if fetched.fetched.aborted:
                aborted = aborted_batches(fetched.records, fetched.fetched.aborted)
            for header, batch in self._whole_batches(fetched.records, aborted):
                yield header, batch
                self.next_offset = max(self._position, header.next_offset)
                if stop is not None and self._position >= stop:
                    return

    @property
    def _position(self) -> int:
        assert self.next_offset is not None, "the start is not resolved"
        return self.next_offset

    async def _resolve_start(self) -> None:
        if self.next_offset is None:
            self.next_offset = await self._patiently(self._start_offset)

    async def _start_offset(self) -> int:
        return await resolve(self._start, self.tp, self._cluster)

    async def _latest_offset(self) -> int:
        return await self._cluster.latest_offset(self.tp)

    async def _earliest_offset(self) -> int:
        return await self._cluster.earliest_offset(self.tp)

    def _whole_batches(self, records: memoryview, aborted: set[int]) -> list[Batch]:
        """Checked; those that end before the position are left out. ``aborted``: base offsets."""
        found = []
        for header, batch in batches(records):
            if header.next_offset > self._position:
                try:
                    check_batch(batch)
                except CorruptBatch as error:
                    raise CorruptBatch(self._damaged(header, str(error))) from None
                if header.base_offset in aborted:
                    left = memoryview(without_records(header))
                    found.append((read_header(left), left))
                else:
                    found.append((header, batch))
        if len(records) > 0 and not found:
            raise CorruptBatch(f"{self.tp}: no whole batch at offset {self._position}")
        return found

    def _damaged(self, header: BatchHeader, said: str) -> str:
        sender = "its leader" if self._connection is None else self._connection.address
        return (
            f"{self.tp}: offsets [{header.base_offset}, {header.next_offset}) came damaged from"
            f" {sender}: {said}; `streamlog log verify` on the partition's folder there tells"
            " whether its disk is at fault (docs/runbooks/damaged-disk.md)"
        )

    async def _fetch(self) -> FetchedRecords:
        """One request to the leader; what comes back may be empty."""
        try:
            connection = await self._to_leader()
            answer = await connection.fetch(self._request())
            check(answer.error_code, str(self.tp))
            (fetched,) = answer.partitions
            self._check(fetched)
        except StreamlogError:
            self._lose_leader()
            raise
        stable, end = fetched.fetched.stable_offset, fetched.fetched.high_watermark
        self.high_watermark = end if stable is None else stable
        return fetched

    def _request(self) -> FetchRequest:
        partition = FetchPartition(
            self.tp.partition, self._position, self._fetch_bytes, self._leader_epoch
        )
        topic = FetchTopic(self.tp.stream, [partition], self._topic_id)
        return FetchRequest(
            [topic], MAX_WAIT_MS, 1, self._fetch_bytes, isolation_level=READ_COMMITTED
        )

    def _check(self, fetched: FetchedRecords) -> None:
        code, end = fetched.fetched.error_code, fetched.fetched.high_watermark
        start = fetched.fetched.log_start_offset
        if code == ErrorCode.offset_out_of_range:
            if self._position < start and isinstance(self._start, Earliest):
                self.next_offset = start  # the oldest went while it was asked for
            else:
                raise OffsetOutOfRange(self._position, start, end)
        else:
            check(code, str(self.tp))

    async def _to_leader(self) -> Connection:
        if self._connection is None:
            node, self._leader_epoch = await self._cluster.leader(self.tp)
            self._connection = await self._cluster.connect(node)
        return self._connection

    def _lose_leader(self) -> None:
        """The next fetch asks again which node leads."""
        self.close()
        self._connection = None
        self._cluster.forget(self.tp.stream)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await with_retries(ask, self._patience_ms, about=str(self.tp))


async def open_batch(header: BatchHeader, batch: Buffer) -> Buffer:
    """The records of a whole batch, back to back; one that comes to much is opened in a thread.

    Raises CorruptBatch.
    """
    body = opened_at_once(header, batch)
    return body if body is not None else await asyncio.to_thread(opened, header, batch)
