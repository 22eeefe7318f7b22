"""``/api/tail``: the newest records of a partition, as they are committed."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from aiohttp import web

from streamlog.errors import (
    InvalidRequest,
    PartitionNotFound,
    StreamlogError,
    StreamNotFound,
)
from streamlog.http.console.messages.decode import Schemas, shown
from streamlog.http.console.messages.partition_source import PartitionSource, Take, newest
from streamlog.http.console.query import TEXT_MAX, number
from streamlog.http.console.sse import ClientLimit, Events, MayStay, anybody
from streamlog.metadata.stream.stream_config import PARTITIONS_MAX
from streamlog.model import TopicPartition

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


class Tail:
    """Each client costs a look at its partition four times a second, and a read where it grew."""

    def __init__(
        self,
        *,
        open_partition: Callable[[TopicPartition], PartitionSource],
        clients_max: int,
        refused: Callable[[], str],
        schemas: Schemas,
        may_read: MayRead = everyone,
        may_stay: MayStay = anybody,
    ) -> None:
        """``open_partition`` raises StreamlogError where there is none; ``refused``: why payloads
        are not shown, empty where they are; ``may_read``: whether who asks may read the stream;
        ``may_stay``: whether they would still be let in.
        """
        self._may_read = may_read
        self._schemas = schemas
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
            decoding = await self._schemas.asked(request.query)
            source = self._open(TopicPartition(name, partition))
        except (StreamNotFound, PartitionNotFound) as error:
            return web.Response(status=404, text=f"{error}\n")
        except InvalidRequest as error:
            return web.Response(status=400, text=f"{error}\n")
        except StreamlogError as error:
            return web.Response(status=503, text=f"{error}\n")

        async def tell(events: Events) -> None:
            may_read = partial(self._may_read, request, name)
            await self._follow(events, source, back, partial(shown, decoding=decoding), may_read)

        try:
            return await self._seats.serve(request, tell)
        finally:
            source.close()

    async def _follow(
        self,
        events: Events,
        source: PartitionSource,
        back: int,
        take: Take,
        may_read: Callable[[], bool],
    ) -> None:
        """``may_read`` is asked before each look: a right may be taken away meanwhile."""
        position: int | None = None
        looks = failures = 0
        while not self._closed and await events.goes_on() and may_read():
            try:
                told, position = await _some(source, position, back, take)
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
    source: PartitionSource, position: int | None, back: int, take: Take
) -> tuple[dict[str, Any] | None, int]:
    """What came since ``position``, and where that ends; None for nothing new."""
    start, end = await source.bounds()
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
    records = await newest(source, first, RECORDS_MAX, end, take)
    told = {
        "high_watermark": end,
        "skipped": skipped,
        "records": records,
    }
    return told, records[-1]["offset"] + 1 if records else end
