"""Many things of one request, one after another, without holding the event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

TURN_S: Final = 0.002
"""After so long others get their turn of the event loop."""

T = TypeVar("T")


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; between two of them others may be served."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + TURN_S
    for item in items:
        yield item
        if loop.time() >= ends_s:
            await asyncio.sleep(0)
            ends_s = loop.time() + TURN_S
