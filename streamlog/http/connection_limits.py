"""Limits of HTTP connections: how many there are, and how long each may take to ask and to be answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import hdrs, web

from streamlog.config import HttpSection

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConnectionLimits:
    """Makes the protocols of connections; those beyond the limit are closed at once.

    ``middleware`` is aiohttp's, and has to be the first: it tells when a request is there as a
    whole, and when it has been answered.

    A request whose body comes in chunks ends its connection. No route takes such a body, and aiohttp's
    compiled parser counts what follows the last chunk (trailers, RFC 9112, 7.1.2) as headers of the
    connection's next request: behind a proxy that may be another client's, and get a token.
    """

    def __init__(self, limits: HttpSection) -> None:
        self.connections_max = limits.connections_max
        self.request_timeout_s = limits.request_timeout_ms / 1000
        self.idle_timeout_s = limits.idle_timeout_ms / 1000
        self.send_timeout_s = limits.send_timeout_ms / 1000
        self.visits: dict[asyncio.Protocol, LimitedConnection] = {}
        """Of those who are in, by aiohttp's protocol of the connection."""

        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            visit = self.visits.get(request.protocol)
            if visit is None:  # it has gone by now
                return await _ending(request, handler)
            visit.asked()
            try:
                return await _ending(request, handler)
            finally:
                visit.answered()

        self.middleware: Final = middleware

    def let_in(self, inner: asyncio.Protocol) -> "LimitedConnection":
        return LimitedConnection(self, inner)


async def _ending(request: web.Request, handler: Handler) -> web.StreamResponse:
    """``handler``'s answer, the connection's last one if the body came in chunks."""
    if hdrs.TRANSFER_ENCODING not in request.headers:
        return await handler(request)
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        refusal.force_close()
        raise
    response.force_close()
    return response


class LimitedConnection(asyncio.Protocol):
    """A connection: what comes is passed on. Each request has to be there in time, from its first
    byte on, the first one from the beginning; between them the connection may rest for a while.
    Who takes nothing of an answer is cut off, too.
    """

    def __init__(self, porter: ConnectionLimits, inner: asyncio.Protocol) -> None:
        self._porter = porter
        self._inner = inner
        self._transport: asyncio.Transport | None = None  # while it is in
        self._rests = False  # no byte of the next request has come
        self._timer: asyncio.TimerHandle | None = None  # until the next request is there
        self._stuck: asyncio.TimerHandle | None = None  # while nothing is taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's has another parent
        if len(self._porter.visits) >= self._porter.connections_max:
            transport.abort()
            return
        self._transport = transport
        self._porter.visits[self._inner] = self
        self._expect(self._porter.request_timeout_s)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._rests:
            self._rests = False
            self._expect(self._porter.request_timeout_s)
        self._inner.data_received(data)

    def asked(self) -> None:
        """A request is there; it may take as long as it takes, as a page's events do."""
        self._rests = False
        _cancel(self._timer)

    def answered(self) -> None:
        """The next one may come."""
        if self._transport is not None:
            self._rests = True
            self._expect(self._porter.idle_timeout_s)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._timer)
        _cancel(self._stuck)
        if self._transport is not None:
            self._transport = None
            del self._porter.visits[self._inner]
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        loop = asyncio.get_running_loop()
        self._stuck = loop.call_later(self._porter.send_timeout_s, self._cut_off)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        _cancel(self._stuck)
        self._stuck = None
        self._inner.resume_writing()

    def _expect(self, seconds: float) -> None:
        """The next request in that time, and the answer before taken."""
        _cancel(self._timer)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expired, seconds)

    def _expired(self, seconds: float) -> None:
        if self._stuck is not None:  # an answer is on its way; there is another limit for that
            self._expect(seconds)
        else:
            self._cut_off()

    def _cut_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
