"""A request that waits on a channel."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from streamlog.kafka.net.channel import RequestWait, SocketChannel


@contextlib.asynccontextmanager
async def waiting(channel: SocketChannel) -> AsyncIterator[RequestWait]:
    """``ended`` once the peer has left, ``is_followed`` once it has sent more."""
    wait = RequestWait(channel)
    task = asyncio.create_task(wait.wait())
    await asyncio.sleep(0)
    try:
        yield wait
    finally:
        wait.end()
        await task
