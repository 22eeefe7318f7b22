"""A thread that does what it was given when a test says so."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Later(Executor):
    """One thread."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., Any], Callable[[], Any], Future[Any]]] = deque()

    @property
    def count(self) -> int:
        """Of the calls that wait."""
        return len(self._waiting)

    def waiting(self, name: str) -> int:
        """How many calls of functions of this name wait."""
        return sum(fn.__name__ == name for fn, _, _ in self._waiting)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((fn, lambda: fn(*args, **kwargs), future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What waits is done when somebody says so."""

    def run(self, count: int | None = None) -> None:
        """The next ``count`` calls, or all; what one raises comes out here."""
        left = len(self._waiting) if count is None else min(count, len(self._waiting))
        for _ in range(left):
            _, call, future = self._waiting.popleft()
            future.set_result(call())
