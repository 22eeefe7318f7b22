"""An HTTP port: it listens, by TLS where there is a certificate, and ends with what is open."""

import asyncio
import ssl
from collections.abc import Callable

from aiohttp import web

from streamlog.config import HttpSection
from streamlog.http.connection_limits import ConnectionLimits
from streamlog.http.server_log import logger
from streamlog.http.unbound import unbound
from streamlog.tls.reload import following

SHUTDOWN_TIMEOUT_S = 1.0
BACKLOG = 128


class HttpServer:
    """Holds nothing of its own but the socket."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        keys: str,
        limits: HttpSection | None = None,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """``keys``: how the settings for the address begin; ``tls``: for who comes next."""
        self.port = port
        """The port that was asked for; once started, the one that was got."""
        self._host = host
        self._keys = keys
        self._limits = limits or HttpSection()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, app: web.Application) -> None:
        """Listen. Raises ConfigError when the address cannot be had."""
        porter = ConnectionLimits(self._limits)
        app.middlewares.insert(0, porter.middleware)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S, logger=logger
        )
        await runner.setup()
        try:
            self._server = await self._listen(runner, porter)
        except OSError as error:
            await runner.cleanup()
            raise unbound(error, self._host, self.port, keys=self._keys) from None
        self._runner = runner
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _listen(self, runner: web.AppRunner, porter: ConnectionLimits) -> asyncio.Server:
        make = runner.server
        assert make is not None
        context = following(self._tls)
        return await asyncio.get_running_loop().create_server(
            lambda: porter.let_in(make()),
            self._host,
            self.port,
            ssl=context,
            backlog=BACKLOG,
            ssl_handshake_timeout=None if context is None else porter.request_timeout_s,
        )

    async def stop(self) -> None:
        """Close the socket and what is open on it."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        runner, self._runner = self._runner, None
        if runner:
            await runner.cleanup()
