"""``/metrics``: what Prometheus scrapes. ``streamlog.metrics`` counts; ``gauges`` are made for each scrape."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector


class MetricsEndpoint:
    """Renders the metrics of the node, and of all partitions and groups that it has."""

    def __init__(
        self, registry: CollectorRegistry, gauges: Callable[[], Awaitable[Sequence[Collector]]]
    ) -> None:
        self._registry = registry
        self._gauges = gauges

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._scrape)]

    async def _scrape(self, request: web.Request) -> web.Response:
        """The text is made in a thread: it is long where there are many partitions."""
        sources = (self._registry, *await self._gauges())
        text = await asyncio.to_thread(lambda: b"".join(map(generate_latest, sources)))
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
