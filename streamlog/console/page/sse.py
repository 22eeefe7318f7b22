"""Server-sent events: one answer that does not end (HTML Living Standard, 9.2)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

WRITE_TIMEOUT_S: Final = 10.0
"""A client that takes nothing for so long is let go."""
RETRY_MS: Final = 1_000


class Events:
    """One client's stream. Raises ConnectionError or TimeoutError where it does not take it."""

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self._request = request
        self._response = response

    @property
    def is_heard(self) -> bool:
        """False once the client has gone, which is not noticed where nothing is written."""
        return self._request.transport is not None

    async def send(self, event: str, data: Any) -> None:
        await self.send_text(event, json.dumps(data, separators=(",", ":")))

    async def send_text(self, event: str, data: str) -> None:
        """``data`` is JSON on one line: a name or payload in it cannot begin another event."""
        await self._write(f"event: {event}\ndata: {data}\n\n")

    async def keep_alive(self) -> None:
        await self._write(":\n\n")

    async def _write(self, text: str) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._response.write(text.encode())


class Seats:
    """How many may listen at once; whoever comes then is told to come later, with a 503."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
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
            events = Events(request, response)
            await events._write(f"retry: {RETRY_MS}\n\n")
            await tell(events)
        except (ConnectionError, TimeoutError):
            pass  # it has gone, or takes nothing
        finally:
            self.taken -= 1
        return response
