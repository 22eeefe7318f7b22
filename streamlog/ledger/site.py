"""The HTTP side of an ordering node: metrics, and whether it is alive and ready."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from streamlog.config.token_file import Tokens
from streamlog.errors import AuthenticationFailed
from streamlog.http.hosts import PUBLIC, refuse_other_names
from streamlog.http.server import HttpServer
from streamlog.ledger.channel.channel import Channel
from streamlog.ledger.metrics import LedgerMetrics

logger = logging.getLogger(__name__)

_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpListener(NamedTuple):
    """Where it listens, and who is let in."""

    host: str
    port: int
    tokens: Tokens | None = None
    """Who reads metrics has one of these; None: every client does."""
    tls: Callable[[], ssl.SSLContext | None] = lambda: None
    """For who comes next."""

    def check(self) -> None:
        """Raises ConfigError for a file that cannot be used."""
        if self.tokens is not None:
            self.tokens.check()


class LedgerSite:
    """Serves what others know."""

    def __init__(
        self,
        listener: HttpListener,
        *,
        metrics: LedgerMetrics,
        channels: Callable[[], Iterable[Channel]],
    ) -> None:
        self._server = HttpServer(listener.host, listener.port, keys="--http-", tls=listener.tls)
        self._tokens = listener.tokens
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        self._channels = channels

    @property
    def port(self) -> int:
        """The port that was asked for; once started, the one that was got."""
        return self._server.port

    async def start(self) -> None:
        """Listen. Raises ConfigError when the address cannot be had."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._judge(request, handler)

        app = web.Application(middlewares=[refuse_other_names, guard])
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        await self._server.start(app)

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
        await self._server.stop()

    async def _judge(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._tokens is not None and request.path not in PUBLIC:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            try:
                if scheme.lower() != "bearer":
                    raise AuthenticationFailed("say who you are")
                await self._tokens.demand(given, request.remote or "")
            except AuthenticationFailed as error:
                return web.Response(status=401, text=f"{error}\n", headers=_CHALLENGE)
        return await handler(request)

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
