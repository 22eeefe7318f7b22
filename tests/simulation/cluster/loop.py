"""An asyncio event loop on a simulated machine: the node's shells run on it as they are.

Every callback is an event of the one heap, so that all machines go on side by side and a seed tells
the same story twice. Worker threads are events, too: a blocking call takes its time, and is done in
one piece. What is not here (sockets, signals, subprocesses) raises NotImplementedError.
"""

import asyncio
import contextvars
import gc
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, ClassVar

from tests.simulation.cluster.host import Host
from tests.simulation.cluster.machine import SimThreads

DEFAULT_THREADS = 8
GENERATIONS_MAX = 20
"""What is let go may, on its way, hold on to something else: it is gone through until nothing is found."""

Callback = Callable[..., object]


@contextmanager
def graveyard() -> Iterator[None]:
    """At the end of it, the tasks of all processes that were killed are let go in silence.

    What was there before is not gone through for it, again and again. What is frozen by then, as the
    tests' own things are, stays so.
    """
    was_frozen = gc.get_freeze_count() > 0
    gc.collect(2 if was_frozen else 0)
    gc.freeze()
    try:
        yield
    finally:
        let_go()
        if not was_frozen:
            gc.unfreeze()


def let_go() -> None:
    """The same for what is there by now, once nothing refers to it any more."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SimLoop.ended.clear()
        for _ in range(GENERATIONS_MAX):
            if not gc.collect():
                break
    sys.unraisablehook = before


class SimTask(asyncio.Task[Any]):
    """A group cancels its tasks in the order of a set of them: not by where they lie in memory."""

    def __init__(self, coro: Coroutine[Any, Any, Any], number: int, **settings: Any) -> None:
        self._number = number
        super().__init__(coro, **settings)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(asyncio.AbstractEventLoop):
    """For one life of one host; what is left on it when that ends is never called."""

    ended: ClassVar[list[object]] = []
    """All tasks that ever were: what a killed process has left is not to be cleaned up by it in the
    midst of a story. See ``graveyard``.
    """

    def __init__(self, host: Host, failed: Callable[[dict[str, Any]], None]) -> None:
        """``failed`` hears what nobody else handles."""
        self._host = host
        self._failed = failed
        self._life = host.life
        self._threads = SimThreads(max_workers=DEFAULT_THREADS)
        self._tasks: list[asyncio.Task[Any]] = []
        SimLoop.ended.append(self._tasks)

    # Time

    def time(self) -> float:
        return self._host.clock.monotonic_ns / 1e9

    def call_soon(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._host.after(0, lambda: self._run(handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callback,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callback,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """A little late, as on any loop."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        late_us = self._host.rng.randint(0, 1_000)
        self._host.after(
            self._host.clock.delay_us(when * 1_000) + late_us, lambda: self._run(handle)
        )
        return handle

    def pass_time(self, time_us: int, callback: Callable[[], None]) -> None:
        """The process works for so long, then ``callback`` is called; what else is due has its turns meanwhile."""
        handle = asyncio.Handle(callback, (), self)
        self._host.after(time_us, lambda: self._run(handle))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Its event does nothing when it comes."""

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(None)

    # Tasks

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],  # type: ignore[override]
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task = SimTask(coro, len(self._tasks), loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        threads = executor or self._threads
        return asyncio.wrap_future(threads.submit(func, *args), loop=self)

    # Sockets; see ``sockets.SimSocket`` and ``ports``

    def add_reader(self, fd: Any, callback: Callback, *args: Any) -> None:  # type: ignore[override]
        """``fd``: what calls its ``ready`` when there is something to be read, until that has been read."""
        is_due = False

        def run() -> None:
            nonlocal is_due
            is_due = False
            if fd.ready is ready:
                callback(*args)
                if fd.is_readable:
                    ready()

        def ready() -> None:
            nonlocal is_due
            if not is_due:
                is_due = True
                self.call_soon(run)

        fd.ready = ready
        if fd.is_readable:
            ready()

    def remove_reader(self, fd: Any) -> bool:
        was_read, fd.ready = fd.ready is not None, None
        return was_read

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        await sock.send_all(data)

    async def sock_recv(self, sock: Any, nbytes: int) -> bytes:
        found: bytes = await sock.receive(nbytes)
        return found

    async def sock_recv_into(self, sock: Any, buf: Any) -> int:
        data = await sock.receive(len(buf))
        buf[: len(data)] = data
        return len(data)

    # The rest

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._host.life != self._life

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._failed(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._failed(context)
