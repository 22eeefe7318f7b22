import asyncio
import contextlib
from collections.abc import Callable

Watch = Callable[[Callable[[], None], Callable[[], None]], contextlib.AbstractContextManager[None]]
"""A context in which the first is called if the peer goes away, the second if it says more."""


class RequestWait:
    """One request's wait: woken when there may be more to say, ended when it must be answered."""

    def __init__(self, watching: Watch, *, is_followed: bool = False) -> None:
        """``is_followed``: the next request is here already."""
        self.yields = False
        """A next request ends the wait; else it has its turn when this one is answered."""
        self._watching = watching
        self._is_followed = is_followed
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
        if self.yields and self._is_followed:
            self.end()
        if not self._woken and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                with self._watching(self.end, self._follow):
                    await self._waiter
            finally:
                self._waiter = None
        self._woken = False

    def _follow(self) -> None:
        self._is_followed = True
        if self.yields:
            self.end()
