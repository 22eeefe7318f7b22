"""Asking again: a leader or a coordinator that moves or restarts is back in a moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from streamlog.errors import FencedLeaderEpoch, RequestTimedOut, Unavailable

BACKOFF_MS: Final = 100

T = TypeVar("T")


async def with_retries(ask: Callable[[], Awaitable[T]], patience_ms: int, *, about: str = "") -> T:
    """What ``ask`` comes to, which is called again where that may help.

    Raises RequestTimedOut with the last reason after ``patience_ms``; it begins with ``about``.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_ms / 1000
    while True:
        try:
            return await ask()
        except (Unavailable, FencedLeaderEpoch) as error:
            if loop.time() >= deadline:
                reason = f"{about}: {error}" if about else str(error)
                raise RequestTimedOut(f"{reason}, for {patience_ms} ms") from error
        await asyncio.sleep(BACKOFF_MS / 1000)
