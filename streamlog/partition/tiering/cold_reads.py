"""Segments on their way back from the object store, for fetches that wait for them as for new records.

A fetch of a cold offset must hold up neither its connection nor other partitions of the same request. So it asks for
what it needs here, answers with what else there is or waits in its purgatory (KIP-405's DelayedRemoteFetch), and looks
again when that has come.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from streamlog.errors import Overloaded, StreamlogError
from streamlog.partition.tiering.tiered_log import PinnedSegment, TieredLog

WAITING_MAX: Final = 1_000
"""Reads that are wanted and have not come; for more, readers are told to come again."""
HELD_S: Final = 5.0
"""So long what has come stays in the cache for the fetch that waits for it."""

Ready = Callable[[], None]


class _Held:
    """A pinned segment, for a while."""

    def __init__(self, tiered: TieredLog, pinned: PinnedSegment) -> None:
        self._tiered = tiered
        self._pinned: PinnedSegment | None = pinned

    def release(self) -> None:
        """May be called again."""
        pinned, self._pinned = self._pinned, None
        if pinned is not None:
            self._tiered.unpin(pinned)


class ColdReads:
    """``want`` at any time; ``run`` as a task."""

    def __init__(self, *, concurrency: int) -> None:
        self._turns = asyncio.Semaphore(concurrency)
        self._wanted: dict[tuple[TieredLog, int], list[Ready]] = {}
        self._held: OrderedDict[_Held, None] = OrderedDict()
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, tiered: TieredLog, offset: int, max_bytes: int, ready: Ready) -> None:
        """Have it fetched, and ``ready`` called when it has come, or cannot; nothing on a node that stops. Raises
        Overloaded.
        """
        waiting = self._wanted.get((tiered, offset))
        if waiting is not None:
            if ready not in waiting:
                waiting.append(ready)
            return
        if self._group is None:
            return
        if len(self._wanted) >= WAITING_MAX:
            raise Overloaded("too many readers wait for segments of the object store")
        self._wanted[tiered, offset] = [ready]
        self._group.create_task(self._fetch(tiered, offset, max_bytes))

    async def run(self) -> None:
        """For as long as the node runs."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await asyncio.get_running_loop().create_future()  # until cancelled
        finally:
            self._group = None
            self._wanted.clear()
            self._release_all()

    async def _fetch(self, tiered: TieredLog, offset: int, max_bytes: int) -> None:
        failure: StreamlogError | None = None
        try:
            async with self._turns:
                await self._prepare(tiered, offset, max_bytes)
        except StreamlogError as error:
            failure = error
        tiered.came(offset, failure)
        for ready in self._wanted.pop((tiered, offset), ()):
            ready()

    async def _prepare(self, tiered: TieredLog, offset: int, max_bytes: int) -> None:
        try:
            pinned = await tiered.prepare(offset, max_bytes)
        except Overloaded:  # all of the cache is pinned, perhaps by what is held here
            self._release_all()
            pinned = await tiered.prepare(offset, max_bytes)
        if pinned is not None:
            held = _Held(tiered, pinned)
            self._held[held] = None
            asyncio.get_running_loop().call_later(HELD_S, self._release, held)

    def _release(self, held: _Held) -> None:
        self._held.pop(held, None)
        held.release()

    def _release_all(self) -> None:
        while self._held:
            held, _ = self._held.popitem()
            held.release()
