"""``/api/tail``: the newest records of a partition, as they are committed.

They are read here, if this node may serve reads; else at the leader. Of a record no more is kept
than is shown: a batch may decompress to thousands of times its bytes.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from aiohttp import web

from streamlog.client.cluster import Cluster
from streamlog.client.position import Offset
from streamlog.client.reader import PartitionReader
from streamlog.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    StreamlogError,
    StreamNotFound,
)
from streamlog.http.console.query import TEXT_MAX, number
from streamlog.http.console.sse import ClientLimit, Events, MayStay, anybody
from streamlog.http.console.view import shown
from streamlog.log.segment.slice import FileSlice
from streamlog.metadata.stream.config import PARTITIONS_MAX
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches, check_batch
from streamlog.record.codec import iter_records

READ_BYTES: Final = 256 * 1024
"""At once; one batch that is larger comes whole."""
PATIENCE_MS: Final = 2_000

Shown = dict[str, Any]
"""A record as ``record_view.shown`` has it."""


class LocalTail:
    """A replica on this node."""

    def __init__(self, partition: Partition) -> None:
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
        """As last heard; asked for again after a read that came too late."""

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


PERIOD_S: Final = 0.25
RECORDS_MAX: Final = 25
"""Told at once; of more, the newest, and how many were passed over: no eye follows a hundred."""
KEEP_ALIVE_LOOKS: Final = 60
NOT_READABLE: Final = (
    "who asks may not read stream {name!r}: log in as a user with the right READ on it"
    " (http.basic_auth); a token of http.token_file has no rights to streams"
)
FAILURES_MAX: Final = 20
"""In a row; then the page is told why, and asks again if it likes."""


MayRead = Callable[[web.Request, str], bool]


def everyone(_: web.Request, __: str) -> bool:
    """Where access is not restricted."""
    return True


class Tailed(Protocol):
    """A partition that can be read, here or at its leader."""

    async def bounds(self) -> tuple[int, int]:
        """Where it begins, and the high watermark. Raises StreamlogError."""

    async def read(self, offset: int, count: int) -> list[dict[str, Any]]:
        """As the page shows them; at most ``count`` from there on. Raises StreamlogError."""

    def close(self) -> None: ...


class Tail:
    """Each client costs a look at its partition four times a second, and a read where it grew."""

    def __init__(
        self,
        *,
        open_partition: Callable[[TopicPartition], Tailed],
        clients_max: int,
        refused: Callable[[], str],
        may_read: MayRead = everyone,
        may_stay: MayStay = anybody,
    ) -> None:
        """``open_partition`` raises StreamlogError where there is none; ``refused``: why payloads
        are not shown, empty where they are; ``may_read``: whether who asks may read the stream;
        ``may_stay``: whether they would still be let in.
        """
        self._may_read = may_read
        self._open = open_partition
        self._seats = ClientLimit(clients_max, "http.tail_clients_max", may_stay)
        self._refused = refused
        self._closed = False

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/tail", self._tail)]

    def close(self) -> None:
        self._closed = True

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        refused = self._refused()
        if refused:
            return web.Response(status=403, text=f"{refused}\n")
        try:
            name = request.query.get("stream", "")[:TEXT_MAX]
            partition = number(request.query, "partition", 0, PARTITIONS_MAX)
            back = number(request.query, "last", RECORDS_MAX, RECORDS_MAX)
            if not self._may_read(request, name):  # whether there is one or not
                return web.Response(status=403, text=f"{NOT_READABLE.format(name=name)}\n")
            tailed = self._open(TopicPartition(name, partition))
        except (StreamNotFound, PartitionNotFound) as error:
            return web.Response(status=404, text=f"{error}\n")
        except InvalidRequest as error:
            return web.Response(status=400, text=f"{error}\n")
        except StreamlogError as error:
            return web.Response(status=503, text=f"{error}\n")

        async def tell(events: Events) -> None:
            await self._follow(events, tailed, back, may_read=lambda: self._may_read(request, name))

        try:
            return await self._seats.serve(request, tell)
        finally:
            tailed.close()

    async def _follow(
        self, events: Events, tailed: Tailed, back: int, may_read: Callable[[], bool]
    ) -> None:
        """``may_read`` is asked before each look: a right may be taken away meanwhile."""
        position: int | None = None
        looks = failures = 0
        while not self._closed and await events.goes_on() and may_read():
            try:
                told, position = await _some(tailed, position, back)
                failures = 0
            except StreamlogError as error:
                failures += 1
                if failures in (1, FAILURES_MAX):
                    await events.send("problem", {"text": str(error)})
                if failures == FAILURES_MAX:
                    return
                told = None
            if told is not None:
                await events.send("records", told)
                looks = 0
            elif (looks := looks + 1) >= KEEP_ALIVE_LOOKS:
                await events.keep_alive()
                looks = 0
            await asyncio.sleep(PERIOD_S)


async def _some(
    tailed: Tailed, position: int | None, back: int
) -> tuple[dict[str, Any] | None, int]:
    """What came since ``position``, and where that ends; None for nothing new."""
    start, end = await tailed.bounds()
    if position is not None and position > end:
        position = None  # the log was cut, or is another
    first = max(start, end - back if position is None else position)
    skipped = 0
    if end - first > RECORDS_MAX:
        skipped = end - RECORDS_MAX - first
        first = end - RECORDS_MAX
    if first == end:
        told = None
        if position is None:
            told = {"high_watermark": end, "skipped": 0, "records": []}
        return told, end
    records = await tailed.read(first, RECORDS_MAX)
    told = {
        "high_watermark": end,
        "skipped": skipped,
        "records": records,
    }
    return told, records[-1]["offset"] + 1 if records else end
