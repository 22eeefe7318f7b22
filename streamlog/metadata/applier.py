"""From committed images to a node that acts on them: one at a time, in order."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

from streamlog.errors import NoController
from streamlog.metadata.image import Image

Listener = Callable[[Image, Image], Awaitable[None]]
"""Told of each change with the image before and after; awaited before the next one."""

NOT_AN_IMAGE = -1


class Applier:
    """``image`` is what the node acts on; what is committed waits until the listeners are ready.

    Images that come while listeners work are taken together.
    """

    def __init__(self, image: Image) -> None:
        self.image = image
        """Replaced as a whole; never changes under whoever holds it."""
        self.acted = image.offset
        """All listeners have acted on the metadata below."""
        self._listeners: list[Listener] = []
        self._next: Image | None = None
        self._touched: set[str] = set()
        self._all_touched = True
        """``_touched`` tells every difference between ``image`` and ``_next``."""
        self._arrived = asyncio.Event()
        self._acting = asyncio.Lock()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def attach(self, listener: Listener, begin: Callable[[Image], Awaitable[None]]) -> None:
        """``begin`` with the image there is, then have ``listener`` told of each change, after
        those that were there before it.
        """
        async with self._acting:
            await begin(self.image)
            self._listeners.append(listener)

    def start_from(self, image: Image) -> None:
        """Nobody listens yet."""
        self.image, self.acted = image, image.offset

    def committed(self, image: Image) -> None:
        """To be acted on, soon."""
        before = self._next or self.image
        if image.offset <= before.offset:
            return
        if image.parent_offset == before.offset:
            self._touched |= image.touched
        else:
            self._all_touched = False
        self._next = image
        self._arrived.set()

    async def wait(self, offset: int) -> None:
        """Until the node acts on the metadata below ``offset``."""
        if self.acted < offset:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (offset, next(self._numbers), waiting))
            await waiting

    async def run(self) -> None:
        """Whatever a listener raises stops the node: it must handle what it can."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                async with self._acting:
                    await self._act()
        finally:
            for *_, waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(NoController("the node is stopping"))

    async def _act(self) -> None:
        old, new = self.image, self._next
        if new is None:
            return
        self._next = None
        if self._all_touched:
            new = replace(new, parent_offset=old.offset, touched=frozenset(self._touched))
        else:
            new = replace(new, parent_offset=NOT_AN_IMAGE)
        self._touched, self._all_touched = set(), True
        self.image = new
        for listener in tuple(self._listeners):
            await listener(old, new)
        self.acted = new.offset
        while self._waiting and self._waiting[0][0] <= self.acted:
            *_, waiting = heapq.heappop(self._waiting)
            if not waiting.done():
                waiting.set_result(None)
