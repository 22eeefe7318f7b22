"""Threads that sync files and never wait for the interpreter lock.

A worker thread in Python takes the lock three times for a sync: to take the call, to begin it and to tell the
event loop of its end. Each time it may wait for the event loop's turn, and the event loop for it. That takes as
long as the sync itself on a fast disk. These threads are compiled; requests and answers go through pipes.
"""

import asyncio
import contextlib
import os
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Final

from streamlog.log.compiled.open_files import SYNC_REQUEST_BYTES, serve_syncs

_REQUEST: Final = struct.Struct("=qq")
ANSWERS_AT_ONCE: Final = 64


class SyncThreads:
    """Of one event loop. They begin with the first sync."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requests = self._answers = -1
        self._last_number = 0
        self._waiting: dict[int, Callable[[OSError | None], None]] = {}
        self._end: weakref.finalize[[int, int], SyncThreads] | None = None
        """Ends the threads, also where this object is forgotten without ``close``."""

    def sync(self, fd: int, ended: Callable[[OSError | None], None]) -> None:
        """fdatasync of a file that stays open until ``ended`` is called, on the event loop, with what
        went wrong. At most as many at once as a pipe takes. Raises OSError where there are no file
        descriptors for the pipes, and RuntimeError after ``close``: nothing has begun then.
        """
        if self._end is None:
            self._open()
        elif not self._end.alive:  # the pipe's number may be another file's by now
            raise RuntimeError("the sync threads are closed")
        self._last_number += 1
        self._waiting[self._last_number] = ended
        os.write(self._requests, _REQUEST.pack(self._last_number, fd))

    def close(self) -> None:
        """What has begun is finished, and ``ended`` is not called for it. May be called again."""
        if self._end is not None and self._end.alive:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._answers)
            self._end()
            self._waiting.clear()

    def _open(self) -> None:
        with contextlib.ExitStack() as opened:
            taken, requests = _pipe(opened)
            answers, given = _pipe(opened)
            os.set_blocking(answers, False)
            mine = [(_copy(opened, taken), _copy(opened, given)) for _ in range(self._count)]
            opened.pop_all()
        os.close(taken)
        os.close(given)
        self._end = weakref.finalize(self, _close, requests, answers)
        self._requests, self._answers = requests, answers
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(answers, self._answered)
        for number, its in enumerate(mine):
            name = f"fdatasync-{number}"
            threading.Thread(target=_serve, args=its, name=name, daemon=True).start()

    def _answered(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._answers, ANSWERS_AT_ONCE * SYNC_REQUEST_BYTES)
            for number, code in _REQUEST.iter_unpack(data):
                ended = self._waiting.pop(number)
                ended(OSError(code, os.strerror(code)) if code else None)


def _close(requests: int, answers: int) -> None:
    os.close(requests)  # the threads end at its end
    os.close(answers)


def _pipe(opened: contextlib.ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        opened.callback(os.close, end)
    return ends


def _copy(opened: contextlib.ExitStack, fd: int) -> int:
    copy = os.dup(fd)
    opened.callback(os.close, copy)
    return copy


def _serve(requests: int, answers: int) -> None:
    try:
        serve_syncs(requests, answers)
    finally:
        os.close(requests)
        os.close(answers)
