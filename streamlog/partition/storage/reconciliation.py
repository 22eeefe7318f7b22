"""Partitions whose logs are not yet as the newest image wants them, each brought there by itself.

An image takes effect at once, see ``registry``. Opening a log, waiting for the end of a cut and
moving the folder of a deleted stream away take their time, and one slow disk or partition must not
hold up others. So each partition that is behind has one task, which works towards the newest image
and ends when nothing is left to do; what changes meanwhile it finds when it looks again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple
from uuid import UUID

from streamlog.errors import StreamlogError
from streamlog.log.log import PartitionLog
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition


class Leaving(NamedTuple):
    """A replica that this node keeps no longer: its folder is to make room for whatever follows."""

    stream_id: UUID
    partition: Partition | None
    """Open, and fenced already; None where it was not open."""
    why: StreamlogError
    incarnation: int | None = None
    """Of this replica; the folder of a later one stays. None: all are gone."""
    log: PartitionLog | None = None
    """Opened when nobody wanted it any more."""


class Behind:
    """One partition's task. Invariant: the folders in ``leaving`` go before another is opened."""

    __slots__ = ("done", "leaving", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.leaving: list[Leaving] = []
        """In the order in which they were kept."""
        self.done = asyncio.Event()


class Reconciliation:
    """``add`` at any time; ``run`` as a task. At most one task for each partition."""

    def __init__(self, work: Callable[[Behind], Awaitable[None]]) -> None:
        """``work`` returns when nothing is left to do, without having waited since it looked."""
        self._work = work
        self._behind: dict[str, dict[TopicPartition, Behind]] = {}
        """By stream."""
        self._unbegun: list[Behind] = []
        """Added while nothing runs."""
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._behind.values())

    def add(self, tp: TopicPartition) -> Behind:
        """There may be something to do; the task for it, new or not."""
        partitions = self._behind.setdefault(tp.stream, {})
        behind = partitions.get(tp)
        if behind is None:
            behind = partitions[tp] = Behind(tp)
            if self._group is None:
                self._unbegun.append(behind)
            else:
                self._group.create_task(self._catch_up(behind))
        return behind

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """For the tasks of several partitions; only out of one of them."""
        assert self._group is not None, "some partition's task runs"
        self._group.create_task(work)

    async def settled(self, stream: str | None = None) -> None:
        """Return when those of ``stream``, or all, that are behind now have caught up."""
        if self._group is None:
            await self._drain()
            return
        streams = [self._behind.get(stream, {})] if stream is not None else self._behind.values()
        for behind in [it for partitions in streams for it in partitions.values()]:
            await behind.done.wait()

    async def run(self) -> None:
        """Whatever ``work`` raises ends it."""
        async with asyncio.TaskGroup() as group:
            try:
                self._begin(group)
                await asyncio.get_running_loop().create_future()  # until cancelled
            finally:
                self._group = None

    async def _drain(self) -> None:
        """Nothing runs, as before a start is over."""
        async with asyncio.TaskGroup() as group:
            try:
                self._begin(group)
                while self._behind:
                    await next(iter(next(iter(self._behind.values())).values())).done.wait()
            finally:
                self._group = None

    def _begin(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        unbegun, self._unbegun = self._unbegun, []
        for behind in unbegun:
            group.create_task(self._catch_up(behind))

    async def _catch_up(self, behind: Behind) -> None:
        try:
            await self._work(behind)
        finally:
            partitions = self._behind[behind.tp.stream]
            del partitions[behind.tp]
            if not partitions:
                del self._behind[behind.tp.stream]
            behind.done.set()
