"""Waiting for what the cluster does in its own time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from streamlog.cli.output import say
from streamlog.errors import RequestTimedOut, Unavailable

POLL_S: Final = 0.25

Question = Callable[[], Awaitable[str | None]]
"""What it still waits for, in words; None: it is done."""


async def wait_until(question: Question, timeout_s: float | None) -> None:
    """Says on standard error what it waits for, whenever that changes.

    A node or a controller that is away for a moment is waited for, too. Raises RequestTimedOut
    after ``timeout_s``; what was asked for goes on all the same.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    told = ""
    while (waits_for := await _answer(question)) is not None:
        if deadline is not None and time.monotonic() >= deadline:
            raise RequestTimedOut(f"not within {timeout_s:g} s: {waits_for}")
        if waits_for != told:
            told = waits_for
            say(f"waiting: {waits_for}", to_stderr=True)
        await asyncio.sleep(POLL_S)


async def _answer(question: Question) -> str | None:
    try:
        return await question()
    except Unavailable as error:
        return str(error)
