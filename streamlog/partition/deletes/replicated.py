"""Waits until the in-sync replicas have a change. On the event loop."""

import asyncio
from collections.abc import Callable
from typing import Final

from streamlog.errors import RequestTimedOut, StreamlogError
from streamlog.model import TopicPartition
from streamlog.partition.state import Acknowledgement

COMMIT_S: Final = 4.0
"""An erasure or a purge waits no longer than this for the replicas; clients wait five seconds."""


async def replicated(
    tp: TopicPartition,
    begin: Callable[[Acknowledgement], None],
    *,
    committed: Callable[[], None] = lambda: None,
    timeout_s: float = COMMIT_S,
) -> None:
    """Return once it is. ``begin`` has it done, with the ``Acknowledgement`` that is waited for;
    ``committed`` is called at once then. Raises what ``begin`` raises, and RequestTimedOut where it
    may yet be done.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    begin(_Awaited(done, committed))
    try:
        async with asyncio.timeout(timeout_s):
            await done
    except TimeoutError:
        raise RequestTimedOut(f"{tp}: not all in-sync replicas have it yet") from None


class _Awaited:
    """An ``Acknowledgement``."""

    def __init__(self, done: "asyncio.Future[None]", committed: Callable[[], None]) -> None:
        self._done = done
        self._committed = committed

    def committed(self, base_offset: int) -> None:
        self._committed()
        if not self._done.done():
            self._done.set_result(None)

    def failed(self, error: StreamlogError) -> None:
        if not self._done.done():
            self._done.set_exception(error)
