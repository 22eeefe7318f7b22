"""Server-sent events: one answer that does not end (HTML Living Standard, 9.2)."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

WRITE_TIMEOUT_S: Final = 10.0
"""A client that takes nothing for so long is let go."""
FETCH_BACKOFF_MS: Final = 1_000
ADMISSION_CHECK_S: Final = 10.0
"""A stream may last for days: so often it is checked whether its client would still be let in."""

MayStay = Callable[[web.Request], Awaitable[bool]]


async def anybody(_: web.Request) -> bool:
    """Where clients need not authenticate."""
    return True


def event_bytes(event: str, data: str) -> bytes:
    """``data`` is JSON on one line: a name or payload in it cannot begin another event."""
    return f"event: {event}\ndata: {data}\n\n".encode()


class Events:
    """One client's stream. Raises ConnectionError or TimeoutError where it does not take it."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, may_stay: MayStay = anybody
    ) -> None:
        self._request = request
        self._response = response
        self._may_stay = may_stay
        self._next_check_s = time.monotonic() + ADMISSION_CHECK_S

    async def goes_on(self) -> bool:
        """False once the client has gone, which is not noticed where nothing is written; or once
        its token, password or right is gone.
        """
        if self._request.transport is None:
            return False
        now_s = time.monotonic()
        if now_s < self._next_check_s:
            return True
        self._next_check_s = now_s + ADMISSION_CHECK_S
        return await self._may_stay(self._request)

    async def send(self, event: str, data: Any) -> None:
        await self.send_bytes(event_bytes(event, json.dumps(data, separators=(",", ":"))))

    async def keep_alive(self) -> None:
        await self.send_bytes(b":\n\n")

    async def send_bytes(self, events: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._response.write(events)


class ClientLimit:
    """How many may listen at once; further ones get a 503 with Retry-After."""

    def __init__(self, most: int, name: str, may_stay: MayStay = anybody) -> None:
        self._most = most
        self._name = name
        self._may_stay = may_stay
        self.taken = 0

    async def serve(
        self, request: web.Request, tell: Callable[[Events], Awaitable[None]]
    ) -> web.StreamResponse:
        """Until ``tell`` returns, or the client goes."""
        if self.taken >= self._most:
            text = f"{self._most} pages are watching already ({self._name}): close one\n"
            return web.Response(status=503, text=text, headers={"Retry-After": "5"})
        self.taken += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            events = Events(request, response, self._may_stay)
            await events.send_bytes(b"retry: %d\n\n" % FETCH_BACKOFF_MS)
            await tell(events)
        except (ConnectionError, TimeoutError):
            pass  # it has gone, or takes nothing
        finally:
            self.taken -= 1
        return response
