"""Requests that are answered side by side, and those that wait for it: both have a limit."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from streamlog.errors import Overloaded

AT_ONCE_MAX: Final = 64
WAITING_MAX: Final = 20_000
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than this does not wait: whoever asks is told at once."""


class ConcurrencyLimit:
    """``admit``, then ``async with turn``: first come, first served."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._waiting = 0
        self._waiting_bytes = 0

    def admit(self, size_bytes: int) -> None:
        """A request that is to wait for its turn. Raises Overloaded where too many do."""
        if self._waiting >= WAITING_MAX or self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
            raise Overloaded("too many requests wait at this node")
        self._waiting += 1
        self._waiting_bytes += size_bytes

    @contextlib.asynccontextmanager
    async def turn(self, size_bytes: int) -> AsyncIterator[None]:
        """Of a request that was admitted."""
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
            self._waiting_bytes -= size_bytes
        try:
            yield
        finally:
            self._slots.release()

    async def wait_all_done(self) -> None:
        """For all that were admitted; there are no turns any more then."""
        while self._waiting:
            async with self._slots:
                await asyncio.sleep(0)  # those that have yet to ask for theirs do so
        for _ in range(AT_ONCE_MAX):
            await self._slots.acquire()
