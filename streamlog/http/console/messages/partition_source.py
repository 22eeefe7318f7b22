"""A partition's messages in bounded pieces: of a replica here that may serve reads, or its leader's.

Of a record no more is kept than is made of it: a batch may decompress to thousands of times its bytes.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from streamlog.client.cluster import Cluster
from streamlog.client.position import Offset
from streamlog.client.reader import PartitionReader
from streamlog.errors import OffsetOutOfRange
from streamlog.http.console.messages.decode import shown
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches, check_batch
from streamlog.record.codec import Record, iter_records
from streamlog.record.compression import Buffer

READ_BYTES: Final = 256 * 1024
"""At once; one batch that is larger comes whole."""
OPENED_BYTES_MAX: Final = 8 << 20
"""Of keys and values that one piece comes to; the batch that goes beyond it is looked at as a whole."""
PATIENCE_MS: Final = 2_000

Taken = dict[str, Any]
Take = Callable[[Record], Taken | None]
"""What is made of a record, in a worker thread; None: it is not wanted."""


class LookedAt(NamedTuple):
    """Some of a partition, looked at."""

    taken: list[Taken]
    next_offset: int
    """Of what has not been looked at."""
    records: int = 0
    """Looked at."""
    size_bytes: int = 0
    """Of their keys and values."""


class PartitionSource(Protocol):
    """A partition that can be read, here or at its leader. Everything raises StreamlogError."""

    async def bounds(self) -> tuple[int, int]:
        """Where it begins, and where what is committed ends: open transactions are not."""

    async def offset_at(self, timestamp_ms: int) -> int:
        """The first committed offset of that time or later; the end of ``bounds`` where there is none."""

    async def look(self, offset: int, stop: int, take: Take, most: int) -> LookedAt:
        """At records from ``offset`` on, below ``stop``, until ``most`` are taken or it has been
        enough for once.
        """

    def close(self) -> None: ...


class LocalSource:
    """A replica on this node."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    async def bounds(self) -> tuple[int, int]:
        return self._partition.log_start_offset, self._partition.stable_offset

    async def offset_at(self, timestamp_ms: int) -> int:
        found = await self._partition.offset_for_timestamp(timestamp_ms, stable=True)
        return self._partition.stable_offset if found is None else found[0]

    async def look(self, offset: int, stop: int, take: Take, most: int) -> LookedAt:
        """The file is read and decoded in a worker thread."""
        with await self._partition.read(offset, READ_BYTES) as found:
            piece = await asyncio.to_thread(
                lambda: _look([it for _, it in batches(found.read())], offset, stop, take, most)
            )
        erased = self._partition.erased
        return piece._replace(taken=[it for it in piece.taken if it["offset"] not in erased])

    def close(self) -> None:
        """Nothing is held."""


class LeaderSource:
    """A partition that this node does not keep, or is behind with."""

    def __init__(self, cluster: Cluster, tp: TopicPartition) -> None:
        self._cluster = cluster
        self._tp = tp
        self._start: int | None = None
        """As last heard; asked for again after a read that came too late."""

    async def bounds(self) -> tuple[int, int]:
        end = await self._cluster.latest_offset(self._tp)
        if self._start is None or self._start > end:
            self._start = await self._cluster.earliest_offset(self._tp)
        return self._start, end

    async def offset_at(self, timestamp_ms: int) -> int:
        found = await self._cluster.offset_for_timestamp(self._tp, timestamp_ms)
        return await self._cluster.latest_offset(self._tp) if found is None else found

    async def look(self, offset: int, stop: int, take: Take, most: int) -> LookedAt:
        try:
            return await self._look(offset, stop, take, most)
        except OffsetOutOfRange:
            self._start = None
            raise

    async def _look(self, offset: int, stop: int, take: Take, most: int) -> LookedAt:
        async with PartitionReader(
            self._cluster,
            self._tp,
            Offset(offset),
            fetch_bytes=READ_BYTES,
            patience_ms=PATIENCE_MS,
        ) as reader:
            taken: list[Taken] = []
            records = size_bytes = read_bytes = 0
            at = offset
            async for _, batch in reader.batches(stop=stop):
                left = most - len(taken)
                piece = await asyncio.to_thread(_look, [batch], at, stop, take, left)
                taken += piece.taken
                records, size_bytes = records + piece.records, size_bytes + piece.size_bytes
                read_bytes += len(batch)
                at = piece.next_offset
                is_enough = read_bytes >= READ_BYTES or size_bytes >= OPENED_BYTES_MAX
                if len(taken) == most or is_enough or at >= stop:
                    return LookedAt(taken, at, records, size_bytes)
            return LookedAt(taken, max(at, stop), records, size_bytes)

    def close(self) -> None:
        self._cluster.close()


async def newest(
    source: PartitionSource, offset: int, count: int, stop: int, take: Take = shown
) -> list[Taken]:
    """At most ``count`` from ``offset`` on, whatever that costs: for a few."""
    found: list[Taken] = []
    while offset < stop and len(found) < count:
        piece = await source.look(offset, stop, take, count - len(found))
        found += piece.taken
        offset = piece.next_offset
    return found


def _look(found: list[Buffer], offset: int, stop: int, take: Take, most: int) -> LookedAt:
    """In a worker thread. Raises CorruptBatch."""
    taken: list[Taken] = []
    records = size_bytes = 0
    at = offset
    for batch in found:
        header = check_batch(batch)
        for record in iter_records(batch):
            if record.offset < offset:
                continue
            if record.offset >= stop:
                return LookedAt(taken, stop, records, size_bytes)
            records += 1
            size_bytes += len(record.value or b"") + len(record.key or b"")
            made = take(record)
            if made is not None:
                taken.append(made)
                if len(taken) == most:
                    return LookedAt(taken, record.offset + 1, records, size_bytes)
        at = max(at, header.next_offset)
        if size_bytes >= OPENED_BYTES_MAX or at >= stop:
            return LookedAt(taken, at, records, size_bytes)
    return LookedAt(taken, at if found else stop, records, size_bytes)
