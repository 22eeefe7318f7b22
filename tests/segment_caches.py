"""A cache of tiered segments with the tasks that it needs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from streamlog.tier.segment_cache import SegmentCache


@contextlib.asynccontextmanager
async def opened(cache: SegmentCache) -> AsyncIterator[SegmentCache]:
    """Open in there."""
    async with asyncio.TaskGroup() as group:
        await cache.open(group)
        yield cache
        await cache.close()
