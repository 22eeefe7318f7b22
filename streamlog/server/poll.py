import asyncio
import contextlib
from collections.abc import Callable

Watch = Callable[[Callable[[], None]], contextlib.AbstractContextManager[None]]
"""A context in which the callback is called if the peer goes away."""


class Poll:
    """One request's wait: woken when there may be more to say, ended when it must be answered."""

    def __init__(self, watching_for_end: Watch) -> None:
        self._watching_for_end = watching_for_end
        self._ended = False  # never goes back
        self._woken = False  # since the last wait
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """To be answered now: the peer is gone, the node stops, or the time is over."""
        return self._ended

    def wake(self) -> None:
        """There may be more to say."""
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """No more waiting."""
        self._ended = True
        self.wake()

    async def wait(self) -> None:
        """Until ``wake`` or ``end``; at once if either was called since the last wait."""
        if not self._woken and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                with self._watching_for_end(self.end):
                    await self._waiter
            finally:
                self._waiter = None
        self._woken = False
