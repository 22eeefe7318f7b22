"""Simulated clocks, threads and ids in the place of the real ones, in every module of streamlog.

Its shells ask the standard library what time it is and have it run threads. While ``simulated`` is
on, they are answered by the machine whose event runs.
"""

import random
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from streamlog.metadata.nodes.lease import Lease
from tests.simulation.cluster.host import Host

_ids = random.Random()


def _here() -> Host:
    assert Host.current is not None, "only what runs on a machine may ask it"
    return Host.current


def _uuid4() -> uuid.UUID:
    return uuid.UUID(int=_ids.getrandbits(128), version=4)


class SimThreads(Executor):
    """Threads of the machine that made them: each call takes its time, and is done in one piece."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "") -> None:
        self._host = _here()
        self._free = max_workers or 1
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((lambda: fn(*args, **kwargs), future))
        self._start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What waits is done all the same."""

    def _start(self) -> None:
        if self._free and self._waiting:
            self._free -= 1
            call, future = self._waiting.popleft()
            host, delay_us = self._host, self._host.disk_delay_us()
            done_us = host.rng.randint(0, delay_us)
            host.after(done_us, lambda: self._run(call, future, delay_us - done_us))

    def _run(self, call: Callable[[], Any], future: Future[Any], told_us: int) -> None:
        """Whoever waits is told later: a sync need not cover what is written meanwhile."""
        told: Callable[[], object] = future.cancel
        if future.set_running_or_notify_cancel():
            try:
                told = partial(future.set_result, call())
            except Exception as error:
                told = partial(future.set_exception, error)

        def tell() -> None:
            told()
            self._free += 1
            self._start()

        self._host.after(told_us, tell)


TIME = SimpleNamespace(
    monotonic=lambda: _here().clock.monotonic_ns / 1e9,
    monotonic_ns=lambda: _here().clock.monotonic_ns,
    perf_counter=lambda: _here().clock.monotonic_ns / 1e9,
    clock_gettime=lambda _clock: _here().clock.monotonic_ns / 1e9,
    clock_gettime_ns=lambda _clock: _here().clock.monotonic_ns,
    time=lambda: _here().clock.wall_ns / 1e9,
    time_ns=lambda: _here().clock.wall_ns,
)
UUID_MODULE = SimpleNamespace(**{**vars(uuid), "uuid4": _uuid4})


class OrderedWeakSet:
    """In the order in which its members came, not by where they lie in memory."""

    def __init__(self) -> None:
        self._members: WeakKeyDictionary[Any, None] = WeakKeyDictionary()

    def add(self, member: object) -> None:
        self._members[member] = None

    def discard(self, member: object) -> None:
        self._members.pop(member, None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


_REPLACED: dict[int, object] = {
    id(time): TIME,
    id(time.monotonic): TIME.monotonic,
    id(uuid): UUID_MODULE,
    id(uuid.uuid4): _uuid4,
    id(ThreadPoolExecutor): SimThreads,
    id(WeakSet): OrderedWeakSet,
}


@contextmanager
def simulated(seed: int, others: Iterable[tuple[object, object]] = ()) -> Iterator[None]:
    """For as long as the context lasts; ids follow from ``seed``.

    ``others``: more that is replaced, each wherever a module has it under whatever name.
    """
    _ids.seed(seed)
    replaced = {**_REPLACED, **{id(real): simulated for real, simulated in others}}
    undo: list[tuple[dict[str, Any], str, object]] = []
    names = [name for name in sys.modules if name == "streamlog" or name.startswith("streamlog.")]
    spaces = [vars(sys.modules[name]) for name in names]
    defaults = Lease.__init__.__kwdefaults__
    assert defaults is not None
    for space in (*spaces, defaults):
        for name, value in list(space.items()):
            replacement = replaced.get(id(value))
            if replacement is not None:
                undo.append((space, name, value))
                space[name] = replacement
    try:
        yield
    finally:
        for space, name, value in undo:
            space[name] = value
