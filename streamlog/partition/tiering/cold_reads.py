"""Segments on their way back from the object store, for fetches that wait for them as for new records.

A fetch of a cold offset must hold up neither its connection nor other partitions of the same request. So it asks for the
segment here, answers with what else there is or waits in its purgatory, and looks again when the segment has come.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from streamlog.errors import Overloaded, StreamlogError
from streamlog.partition.tiering.tiered_log import CachedSegment, TieredLog

WAITING_MAX: Final = 1_000
"""Segments that are wanted and have not come; for more, readers are told to come again."""
HELD_S: Final = 10.0
"""So long a segment that has come stays in the cache for the fetch that waits for it."""

Key = tuple[TieredLog, int]


class ColdReads:
    """``want`` at any time; ``run`` as a task."""

    def __init__(self, came: Callable[[TieredLog], None], *, concurrency: int) -> None:
        """``came``: called when something that was wanted is there, or cannot come; its ``failure`` says why."""
        self._came = came
        self._turns = asyncio.Semaphore(concurrency)
        self._wanted: dict[Key, None] = {}
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, tiered: TieredLog, offset: int) -> None:
        """Raises Overloaded."""
        key = tiered, offset
        if key in self._wanted or self._group is None:
            return
        if len(self._wanted) >= WAITING_MAX:
            raise Overloaded("too many readers wait for segments of the object store")
        self._wanted[key] = None
        self._group.create_task(self._fetch(tiered, offset))

    async def run(self) -> None:
        """For as long as the node runs."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await asyncio.get_running_loop().create_future()  # until cancelled
        finally:
            self._group = None
            self._wanted.clear()

    async def _fetch(self, tiered: TieredLog, offset: int) -> None:
        try:
            async with self._turns:
                cached = await tiered.fetch(offset)
        except StreamlogError as error:
            tiered.failure = error
        else:
            if cached is not None:
                self._hold(cached)
        finally:
            self._wanted.pop((tiered, offset), None)
        self._came(tiered)

    def _hold(self, cached: CachedSegment) -> None:
        asyncio.get_running_loop().call_later(HELD_S, cached.release)
