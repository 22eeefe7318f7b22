"""``/metrics/partitions``: series of each partition, for those who ask; ``?stream=`` names some."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from streamlog.http.gauges.partition_gauges import EachPartition
from streamlog.partition.statistics import PartitionStatistics

STREAMS_MAX: Final = 100
"""Named in one request."""


class PartitionScrape:
    """Ten thousand partitions are 90,000 series: a Prometheus asks for those that it is to keep."""

    def __init__(
        self,
        *,
        statistics: Callable[[Iterable[str] | None], Awaitable[list[PartitionStatistics]]],
        partitions_max: int,
    ) -> None:
        """``statistics``: of the partitions here of these streams; None: of all."""
        self._statistics = statistics
        self._partitions_max = partitions_max

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics/partitions", self._metrics)]

    async def _metrics(self, request: web.Request) -> web.Response:
        streams = request.query.getall("stream", [])
        if len(streams) > STREAMS_MAX:
            raise web.HTTPBadRequest(text=f"stream: at most {STREAMS_MAX} in one request\n")
        found = await self._statistics(set(streams) if streams else None)
        found.sort(key=lambda it: it.tp)
        shown = tuple(islice(found, self._partitions_max))
        gauges = EachPartition(shown, omitted=len(found) - len(shown))
        text = await asyncio.to_thread(generate_latest, gauges)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
