"""The HTTP server: metrics, health, and the pages that it is given; by TLS with a certificate."""

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from streamlog.config import HttpSection
from streamlog.console.access import HttpAccess
from streamlog.console.page.guard import add_headers, refuse_other_sites
from streamlog.console.porter import Porter
from streamlog.console.readiness import Readiness
from streamlog.tls.following import following
from streamlog.unbound import unbound

SHUTDOWN_TIMEOUT_S = 1.0
BACKLOG = 128


class Site:
    """Serves what others know; holds nothing of its own but the socket."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        registry: CollectorRegistry,
        gauges: Callable[[], Sequence[Collector]],
        readiness: Readiness,
        loop_lag_s: Callable[[], float],
        pages: Callable[[], Sequence[web.RouteDef]] = tuple,
        limits: HttpSection | None = None,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        access: HttpAccess | None = None,
    ) -> None:
        """``access``: None: everything is open to everybody."""
        self._host = host
        self.port = port
        """The port that was asked for; once started, the one that was got."""
        self._registry = registry
        self._gauges = gauges  # made anew for each scrape
        self._readiness = readiness
        self._loop_lag_s = loop_lag_s
        self._pages = pages
        self._limits = limits or HttpSection()
        self._tls = tls  # for who comes next
        self._server: asyncio.Server | None = None
        self._access = access
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises ConfigError when the address cannot be had."""
        middlewares: list[Middleware] = [refuse_other_sites]
        if self._access is not None:
            self._access.check()
            middlewares.append(self._access.middleware)
        app = web.Application(middlewares=middlewares)
        app.on_response_prepare.append(add_headers)
        app.add_routes(
            [
                *self._pages(),
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        try:
            self._server = await self._listen(runner)
        except OSError as error:
            await runner.cleanup()
            raise unbound(error, self._host, self.port, keys="http.") from None
        self._runner = runner
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _listen(self, runner: web.AppRunner) -> asyncio.Server:
        assert runner.server is not None
        porter, limits = Porter(runner.server, self._limits), self._limits
        context = following(self._tls)
        seconds = limits.request_timeout_ms / 1000 if context is not None else None
        return await asyncio.get_running_loop().create_server(
            porter.let_in,
            self._host,
            self.port,
            ssl=context,
            backlog=BACKLOG,
            ssl_handshake_timeout=seconds,
        )

    async def stop(self) -> None:
        """Close the socket and what is open on it."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        runner, self._runner = self._runner, None
        if runner:
            await runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        sources = (self._registry, *self._gauges())
        text = await asyncio.to_thread(lambda: b"".join(map(generate_latest, sources)))
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _healthz(self, request: web.Request) -> web.Response:
        lag_s = round(self._loop_lag_s(), 6)
        now_ms = time.time_ns() // 1_000_000
        answer = {"alive": True, "event_loop_lag_seconds": lag_s, "time_ms": now_ms}
        return web.json_response(answer)

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = self._readiness.reasons()
        answer = {"ready": not reasons, "reasons": reasons}
        return web.json_response(answer, status=503 if reasons else 200)
