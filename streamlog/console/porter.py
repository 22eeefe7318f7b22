"""At the door of HTTP: so many may be in, and who has come says in time what they want."""

import asyncio
from collections.abc import Callable
from typing import cast

from streamlog.config import HttpSection

END_OF_HEAD = b"\r\n\r\n"


class Porter:
    """Makes the protocols of connections; those beyond the limit are closed at once."""

    def __init__(self, make: Callable[[], asyncio.Protocol], limits: HttpSection) -> None:
        self._make = make
        self.connections_max = limits.connections_max
        self.timeout_s = limits.request_timeout_ms / 1000
        self.visitors = 0

    def let_in(self) -> "Visit":
        return Visit(self, self._make())


class Visit(asyncio.Protocol):
    """A connection: what comes is passed on; its first request has to be there in time."""

    def __init__(self, porter: Porter, inner: asyncio.Protocol) -> None:
        self._porter = porter
        self._inner = inner
        self._is_in = False
        self._timer: asyncio.TimerHandle | None = None  # until the first head is there
        self._tail = b""  # of what has come, where the end of a head may begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's has another parent
        if self._porter.visitors >= self._porter.connections_max:
            transport.abort()
            return
        self._is_in = True
        self._porter.visitors += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._porter.timeout_s, transport.abort)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_in:
            return
        if self._timer is not None:
            seen = self._tail + data
            self._tail = seen[-len(END_OF_HEAD) + 1 :]
            if END_OF_HEAD in seen:
                self._rest()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._is_in else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        if self._is_in:
            self._is_in = False
            self._porter.visitors -= 1
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
