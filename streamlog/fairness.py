"""Many things of one request, one after another, without holding the event loop."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Final, TypeVar

TURN_S: Final = 0.002
"""After so long others get their turn of the event loop."""

T = TypeVar("T")


async def stepwise(steps: Generator[None, None, T]) -> T:
    """What the steps come to; between two of them others may be served."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + TURN_S
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        if loop.time() >= ends_s:
            await asyncio.sleep(0)
            ends_s = loop.time() + TURN_S


async def cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; between two of them others may be served."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + TURN_S
    for item in items:
        yield item
        if loop.time() >= ends_s:
            await asyncio.sleep(0)
            ends_s = loop.time() + TURN_S
