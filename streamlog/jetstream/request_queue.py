"""Requests wait here for their turn: first come, first served, a limited number side by side.

Workers take them one after the other. A request that is answered without waiting costs no task of its
own, and wakes no worker of its own: each worker that begins a request calls one more if others wait,
which goes on with them if the first has to wait for something.

A request that needs no worker at all, a pull request whose consumer is here, is answered in the turn that brings it
(``take_turn``).

Requests that came with one read of the socket are answered in one turn of the event loop, a limited
number of them: then all others have their turn, and the answers leave, so that the NATS server and the
clients work while this node answers the rest. That is a number, since a time would mean nothing on a
busy machine, where it passes while other processes run.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from streamlog.errors import Overloaded
from streamlog.jetstream.connection import Request

AT_ONCE_MAX: Final = 64
WAITING_MAX: Final = 20_000
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than this does not wait: the client is told at once."""
IN_A_TURN_MAX: Final = 16
"""Are begun in one turn of the event loop."""


class RequestQueue:
    """``put`` any number; ``begin`` has them answered until ``end``."""

    def __init__(self, answer: Callable[[Request], Awaitable[None]]) -> None:
        """``answer`` raises nothing."""
        self._answer = answer
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._group: asyncio.TaskGroup | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._idle: list[asyncio.Future[None]] = []
        """Of workers that have nothing to do."""
        self._is_one_called = False
        """A worker that has not begun yet takes what waits."""
        self._busy = 0
        """Requests that are being answered."""
        self._done = asyncio.Event()
        self._left = IN_A_TURN_MAX
        """Of this turn."""
        self._is_turn_due = False

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Have what is put answered by tasks of ``group``, until ``end``."""
        self._group = group

    def take_turn(self) -> bool:
        """For a request that needs no wait and is answered by the caller at once. False: others wait that came before,
        or this turn has had enough.
        """
        if self._waiting or not self._left:
            return False
        self._left -= 1
        self._begin_turn_soon()
        return True

    def put(self, request: Request) -> None:
        """Raises Overloaded where too many wait."""
        size_bytes = self._waiting_bytes + len(request.data)
        if len(self._waiting) >= WAITING_MAX or size_bytes > WAITING_BYTES_MAX:
            raise Overloaded("too many requests wait at this node")
        self._waiting.append(request)
        self._waiting_bytes = size_bytes
        self._begin_turn_soon()
        self._call_one()

    async def wait_all_done(self) -> None:
        """For all that were put."""
        while self._waiting or self._busy:
            self._done.clear()
            await self._done.wait()

    def end(self) -> None:
        """No more is answered."""
        self._group = None
        for worker in self._workers:
            worker.cancel()

    def _call_one(self) -> None:
        """Where all are busy, the first that is done goes on."""
        if self._is_one_called:
            return
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                self._is_one_called = True
                return
        if len(self._workers) < AT_ONCE_MAX and self._group is not None:
            self._workers.append(self._group.create_task(self._work()))
            self._is_one_called = True

    async def _work(self) -> None:
        self._is_one_called = False
        while True:
            if not self._waiting:
                await self._rest()
                self._is_one_called = False
            elif self._left:
                self._left -= 1
                await self._answer_next()
            else:
                self._begin_turn_soon()
                await asyncio.sleep(0)

    async def _rest(self) -> None:
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        await idle

    async def _answer_next(self) -> None:
        request = self._waiting.popleft()
        self._waiting_bytes -= len(request.data)
        self._busy += 1
        if self._waiting:
            self._call_one()
        try:
            await self._answer(request)
        finally:
            self._busy -= 1
            if not (self._waiting or self._busy):
                self._done.set()

    def _begin_turn_soon(self) -> None:
        """Before the workers that are woken after this."""
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_turn_due = False
        self._left = IN_A_TURN_MAX
