"""Where a tail is read: here, if this node may serve reads; else at the leader.

Of a record no more is kept than is shown: a batch may decompress to thousands of times its bytes.
"""

import asyncio
from typing import Any, Final, Protocol

from streamlog.client.cluster import Cluster
from streamlog.client.position import Offset
from streamlog.client.reader import PartitionReader
from streamlog.errors import OffsetOutOfRange
from streamlog.http.status_page.record_view import shown
from streamlog.log.segment.slice import FileSlice
from streamlog.model import TopicPartition
from streamlog.record.batch import batches, check_batch
from streamlog.record.codec import iter_records

READ_BYTES: Final = 256 * 1024
"""At once; one batch that is larger comes whole."""
PATIENCE_MS: Final = 2_000

Shown = dict[str, Any]
"""A record as ``record_view.shown`` has it."""


class TailedPartition(Protocol):
    """``partition.partition.Partition``."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    async def read(self, offset: int, max_bytes: int) -> FileSlice: ...


class LocalTail:
    """A replica on this node."""

    def __init__(self, partition: TailedPartition) -> None:
        self._partition = partition

    async def bounds(self) -> tuple[int, int]:
        return self._partition.log_start_offset, self._partition.high_watermark

    async def read(self, offset: int, count: int) -> list[Shown]:
        """The file is read and decoded in a worker thread."""
        with await self._partition.read(offset, READ_BYTES) as found:
            return await asyncio.to_thread(_records, found, offset, count)

    def close(self) -> None:
        """Nothing is held."""


class LeaderTail:
    """A partition that this node does not keep, or is behind with."""

    def __init__(self, cluster: Cluster, tp: TopicPartition) -> None:
        self._cluster = cluster
        self._tp = tp
        self._start: int | None = None
        """As last heard; asked for anew after a read that came too late."""

    async def bounds(self) -> tuple[int, int]:
        end = await self._cluster.latest_offset(self._tp)
        if self._start is None or self._start > end:
            self._start = await self._cluster.earliest_offset(self._tp)
        return self._start, end

    async def read(self, offset: int, count: int) -> list[Shown]:
        try:
            return await self._read(offset, count)
        except OffsetOutOfRange:
            self._start = None
            raise

    async def _read(self, offset: int, count: int) -> list[Shown]:
        async with PartitionReader(
            self._cluster,
            self._tp,
            Offset(offset),
            fetch_bytes=READ_BYTES,
            patience_ms=PATIENCE_MS,
        ) as reader:
            return [shown(record) async for record in reader.records(count=count)]

    def close(self) -> None:
        self._cluster.close()


def _records(found: FileSlice, offset: int, count: int) -> list[Shown]:
    records: list[Shown] = []
    for _, batch in batches(found.read()):
        check_batch(batch)
        for record in iter_records(batch):
            if record.offset >= offset:
                records.append(shown(record))
                if len(records) == count:
                    return records
    return records
