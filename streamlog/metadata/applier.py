"""From committed images to a node that acts on them: at once, whatever is slow elsewhere.

What follows from an image at once takes effect in the same turn of the event loop as the image
itself: who leads, which log belongs to which stream, who is gone. Nothing there waits for a disk
or a network. What takes its time, as opening logs or telling NATS, each listener does by itself,
and catches up with the newest image; ``settled`` waits for that.
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

from streamlog.errors import NoController
from streamlog.metadata.image.metadata_image import MetadataImage

Listener = Callable[[MetadataImage, MetadataImage], None]
"""Called with the image before and after each change; must not wait for anything."""

Settled = Callable[[str | None], Awaitable[None]]
"""Returns when the listener has done all that the images up to now ask for: of the stream of this
name, or of all streams."""

NOT_AN_IMAGE = -1


class Applier:
    """``image`` is what the node acts on.

    Images that come in one turn of the event loop, or before a listener has begun, are taken
    together. Invariant: outside of ``_apply`` every listener has heard of ``image``.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        """Replaced as a whole; never changes under whoever holds it."""
        self._listeners: list[Listener] = []
        self._settled: list[Settled] = []
        self._next: MetadataImage | None = None
        self._touched: set[str] = set()
        self._all_touched = True
        """``_touched`` tells every difference between ``image`` and ``_next``."""
        self._arrived = asyncio.Event()
        self._attaching = asyncio.Lock()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def attach(
        self,
        listener: Listener,
        begin: Callable[[MetadataImage], Awaitable[None]],
        settled: Settled | None = None,
    ) -> None:
        """``begin`` with the image there is, then have ``listener`` told of each change, after
        those that were there before it. No image is applied meanwhile.
        """
        async with self._attaching:
            await begin(self.image)
            self._listeners.append(listener)
            if settled is not None:
                self._settled.append(settled)

    def start_from(self, image: MetadataImage) -> None:
        """Nobody listens yet."""
        self.image = image

    def committed(self, image: MetadataImage) -> None:
        """To be applied in the next turn of the event loop."""
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
        """Until the metadata below ``offset`` is applied."""
        if self.image.offset < offset:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (offset, next(self._numbers), waiting))
            await waiting

    async def wait_settled(self, offset: int, stream: str | None = None) -> None:
        """Until that is so, and the listeners have done what it asks for; of ``stream`` or all."""
        await self.wait(offset)
        for settled in tuple(self._settled):
            await settled(stream)

    async def run(self) -> None:
        """Whatever a listener raises stops the node: it must handle what it can."""
        try:
            while True:
                await self._arrived.wait()
                async with self._attaching:
                    self._arrived.clear()
                    self._apply()
        finally:
            for *_, waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(NoController("the node is stopping"))

    def _apply(self) -> None:
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
            listener(old, new)
        while self._waiting and self._waiting[0][0] <= new.offset:
            *_, waiting = heapq.heappop(self._waiting)
            if not waiting.done():
                waiting.set_result(None)
