"""A response to come, which a coordinator's core knows as a token."""

import asyncio
from collections.abc import Callable
from typing import Any

from streamlog.errors import BrokenInvariant


class DelayedReply:
    """Given once; may be waited for by several."""

    __slots__ = ("__weakref__", "_result", "_watchers", "is_there")

    def __init__(self) -> None:
        self.is_there = False
        self._result: Any = None
        self._watchers: list[Callable[[], None]] = []

    @property
    def result(self) -> Any:
        if not self.is_there:
            raise BrokenInvariant("no answer has been given")
        return self._result

    def watch(self, watcher: Callable[[], None]) -> None:
        """``watcher`` is called when there is a result, once."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.remove(watcher)

    def give(self, result: Any) -> None:
        if self.is_there:
            raise BrokenInvariant("an answer is given once")
        self._result, self.is_there = result, True
        for watcher in tuple(self._watchers):
            watcher()

    async def given(self, timeout_s: float) -> Any:
        """The result, when it is there. Raises TimeoutError."""
        there = asyncio.Event()
        self.watch(there.set)
        try:
            if not self.is_there:
                async with asyncio.timeout(timeout_s):
                    await there.wait()
        finally:
            self.unwatch(there.set)
        return self.result

    def forward(self, to: "DelayedReply") -> None:
        """Have ``to`` be given what this one is given."""
        if self.is_there:
            to.give(self.result)
        else:
            self.watch(lambda: to.give(self.result))
