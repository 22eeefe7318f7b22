"""An HTTP port: it listens, by TLS where there is a certificate, and ends with what is open.

Anybody can send a malformed request, before they log in. aiohttp logs each as an error with a
traceback; here each is one line of level info, and at most one a second is logged. Errors of
handlers stay errors: those are the server's own.
"""

import asyncio
import errno
import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from streamlog.config import HttpSection
from streamlog.errors import ConfigError
from streamlog.http.connection_limits import ConnectionLimits
from streamlog.tls.watched_context import following


def unbound(error: OSError | UnicodeError, host: str, port: int, *, keys: str) -> ConfigError:
    """What to raise; ``keys`` is how the names of the settings begin, before host and port."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        problem, remedy = f"{port} is in use on {host}", "stop what uses it or choose another port"
        return ConfigError(f"{keys}port", problem, remedy)
    if number == errno.EACCES:
        return ConfigError(f"{keys}port", f"{port} is not allowed", "choose a port above 1023")
    return ConfigError(f"{keys}host", f"cannot listen on {host} ({error})", "name an own address")


PERIOD_S: Final = 1.0
PROBLEM_CHARS_MAX: Final = 100
MALFORMED: Final = "malformed HTTP request"


class MalformedRequests(logging.Filter):
    """Of the logger that aiohttp is given."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._told_s = -PERIOD_S
        self._untold = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            return True
        if not logger.isEnabledFor(logging.INFO):
            return False
        now_s = self._now_s()
        if now_s - self._told_s < PERIOD_S:
            self._untold += 1
            return False
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        if isinstance(record.args, tuple) and record.args:
            record.peer = record.args[0]
        record.msg, record.args = MALFORMED, ()
        record.problem = _problem(error)
        if self._untold:
            record.more_of_these = self._untold
        self._told_s, self._untold = now_s, 0
        return True


def _problem(error: Exception) -> str:
    """Without what was sent, which aiohttp shows in the lines below the first."""
    text = error.message if isinstance(error, HttpProcessingError) else str(error)
    return text.partition("\n")[0][:PROBLEM_CHARS_MAX] or type(error).__name__


logger: Final = logging.getLogger(__name__)
"""Of aiohttp's server."""
logger.addFilter(MalformedRequests())


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
        except (OSError, UnicodeError) as error:  # the latter of what cannot be a name, such as "."
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
