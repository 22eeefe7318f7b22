"""Coroutines without an event loop: what they would wait for in a thread is a turn of the story."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any


class _Turn:
    def __await__(self) -> Generator[None, None, None]:
        yield


async def _in_a_turn(call: Callable[..., Any], *arguments: Any) -> Any:
    await _Turn()
    return call(*arguments)


@contextmanager
def turns_for_threads() -> Iterator[None]:
    """``asyncio.to_thread`` waits for a turn, and calls."""
    to_thread = asyncio.to_thread
    asyncio.to_thread = _in_a_turn  # type: ignore[assignment]
    try:
        yield
    finally:
        asyncio.to_thread = to_thread


def run_now(work: Coroutine[Any, Any, Any]) -> None:
    """To its end, while nothing else happens."""
    try:
        while True:
            work.send(None)
    except StopIteration:
        pass


def in_turns(
    work: Coroutine[Any, Any, Any],
    later: Callable[[Callable[[], None]], None],
    ended: Callable[[], None],
) -> None:
    """``later`` is asked to call what it is given when the next turn comes."""

    def turn() -> None:
        try:
            work.send(None)
        except StopIteration:
            ended()
        else:
            later(turn)

    turn()
