"""The HTTP side of an ordering node: metrics, and whether it is alive and ready."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from streamlog.ledger.channel import Channel
from streamlog.ledger.metrics import LedgerMetrics
from streamlog.unbound import unbound

logger = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT_S: Final = 1.0


class LedgerSite:
    """Serves what others know; holds nothing of its own but the socket."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        metrics: LedgerMetrics,
        channels: Callable[[], Iterable[Channel]],
    ) -> None:
        self._host = host
        self.port = port
        """The port that was asked for; once started, the one that was got."""
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        self._channels = channels
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises ConfigError when the address cannot be had."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self.port).start()
        except OSError as error:
            await runner.cleanup()
            raise unbound(error, self._host, self.port, keys="--http-") from None
        self._runner = runner
        self.port = int(runner.addresses[0][1])

    async def run(self) -> None:
        """Until it is cancelled. Raises ConfigError when the address cannot be had."""
        await self.start()
        logger.info("metrics served", extra={"port": self.port})
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Close the socket and what is open on it."""
        runner, self._runner = self._runner, None
        if runner:
            await runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        text = generate_latest(self._registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _readyz(self, request: web.Request) -> web.Response:
        """Ready: all channels can be read, and take broadcasts."""
        reasons = {
            channel.name: channel.problem or "starts"
            for channel in self._channels()
            if channel.is_halted or not channel.ready.is_set()
        }
        answer = {"ready": not reasons, "reasons": reasons}
        return web.json_response(answer, status=503 if reasons else 200)
