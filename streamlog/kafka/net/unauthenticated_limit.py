"""Connections that have not said yet who they are, or what they want.

Anybody can make these, for next to nothing. So there may be so many of them, and each for so long.
"""

import asyncio
from collections.abc import Callable
from typing import Final

GRACE_S: Final = 1.0
"""A connection is not closed before that: an honest one needs a few milliseconds."""


class HandshakeTimedOut(Exception):
    """It has not come to its first request in time, or others wanted in."""


Leave = Callable[[HandshakeTimedOut], None]


class UnauthenticatedLimit:
    """In the order in which they came; one timer for all of them.

    Policy when it is full: who has been one for longest leaves, if that is longer than the grace;
    else the new one is not let in.
    """

    def __init__(self, unauthenticated_connections_max: int, timeout_ms: int) -> None:
        self._unauthenticated_connections_max = unauthenticated_connections_max
        self._timeout_ms = timeout_ms
        self._since: dict[Leave, float] = {}  # loop time, by what makes them leave
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def admit(self, leave: Leave) -> bool:
        """False: no room. ``leave`` is called if it takes too long."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if len(self._since) >= self._unauthenticated_connections_max:
            oldest, since_s = next(iter(self._since.items()))
            if now_s - since_s < GRACE_S:
                return False
            del self._since[oldest]
            oldest(
                HandshakeTimedOut(
                    f"{self._unauthenticated_connections_max} others wait to be let in"
                )
            )
        self._since[leave] = now_s
        if self._timer is None:
            self._timer = loop.call_at(now_s + self._timeout_ms / 1000, self._look)
        return True

    def settle(self, leave: Leave) -> None:
        """It has come to its first request, or is gone; twice is no error."""
        self._since.pop(leave, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() - self._timeout_ms / 1000
        self._timer = None
        for leave, since_s in tuple(self._since.items()):
            if since_s > due_s:
                self._timer = loop.call_at(since_s + self._timeout_ms / 1000, self._look)
                return
            del self._since[leave]
            leave(HandshakeTimedOut(f"no request in {self._timeout_ms} ms"))
