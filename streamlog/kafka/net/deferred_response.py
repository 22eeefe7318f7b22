"""An answer that is not there yet, while the requests after it are looked at already."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class DeferredResponse(Protocol):
    """``wake``, which its receiver sets, is called when ``is_due`` has become true, once."""

    wake: Callable[[], None]
    throttle_ms: int
    """As of an ``Answer``; from the request on, not from the answer."""

    @property
    def is_due(self) -> bool:
        """It can be given; that does not change again."""

    def end(self) -> None:
        """No more waiting: it is due now."""

    def frame(self) -> bytes:
        """The whole of it, once it is due."""


async def until_due(late: DeferredResponse) -> None:
    """Takes its ``wake`` for that long."""
    if late.is_due:
        return
    due = asyncio.get_running_loop().create_future()
    before = late.wake
    late.wake = lambda: None if due.done() else due.set_result(None)
    try:
        await due
    finally:
        late.wake = before
