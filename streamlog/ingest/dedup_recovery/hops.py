"""Blocking calls of many partitions that share their way to a worker thread.

A hop to a thread and back costs more than the reading of a small log, and a node may have very many
of these.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

CALLS_MAX: Final = 32
"""In one hop: the event loop takes up their results in one turn."""
BYTES_MAX: Final = 512 * 1024
"""Read by the calls of one hop, for the same reason; one call may read more, in a hop of its own."""


class InThread(Protocol):
    """How a blocking call that reads ``size_bytes`` gets to a worker thread; it raises what the call
    does.
    """

    async def __call__(self, call: Callable[[], T], size_bytes: int) -> T: ...


async def alone(call: Callable[[], T], size_bytes: int) -> T:
    """In a hop of its own."""
    return await asyncio.to_thread(call)


class _QueuedCall(NamedTuple):
    call: Callable[[], Any]
    size_bytes: int
    answer: asyncio.Future[Any]


class SharedHops:
    """``run`` a call together with others that are asked for at the same time, or while all hops
    are under way.

    Calls are spread over the hops that are free, so that few large ones still run side by side.
    """

    def __init__(self, at_once: int) -> None:
        """``at_once``: so many hops may be under way."""
        self._free = at_once
        self._asked: list[_QueuedCall] = []
        self._is_due = False
        """Hops begin at the end of this turn of the event loop."""

    async def run(self, call: Callable[[], T], size_bytes: int) -> T:
        """What ``call`` returns, or raises. It reads about ``size_bytes``."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.append(_QueuedCall(call, size_bytes, answer))
        self._begin_soon()
        return await answer

    def _begin_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        loop = asyncio.get_running_loop()
        self._asked = [
            it for it in self._asked if not it.answer.done()
        ]  # no caller waits for others
        while self._free and self._asked:
            count = self._count_of_next()
            some, self._asked = self._asked[:count], self._asked[count:]
            self._free -= 1
            hop = loop.run_in_executor(None, _called, [it.call for it in some])
            hop.add_done_callback(partial(self._done, some))

    def _count_of_next(self) -> int:
        """How many of the calls the next hop takes."""
        count, size_bytes = 0, 0
        for asked in self._asked[: min(CALLS_MAX, -(-len(self._asked) // self._free))]:
            size_bytes += asked.size_bytes
            if count and size_bytes > BYTES_MAX:
                break
            count += 1
        return count

    def _done(
        self, some: list[_QueuedCall], hop: asyncio.Future[list[tuple[Any, Exception | None]]]
    ) -> None:
        self._free += 1
        if self._asked:
            self._begin_soon()
        if hop.cancelled():
            for asked in some:
                asked.answer.cancel()
            return
        for asked, (value, error) in zip(some, hop.result(), strict=True):
            if asked.answer.done():
                continue
            if error is None:
                asked.answer.set_result(value)
            else:
                asked.answer.set_exception(error)


def _called(calls: list[Callable[[], Any]]) -> list[tuple[Any, Exception | None]]:
    """What each returned or raised. Blocks."""
    return [_outcome(call) for call in calls]


def _outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error
