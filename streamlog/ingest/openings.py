"""Inlets on their way to being open: first their sequencer has to know the ids in the log."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from streamlog.ingest.inlet import Inlet
from streamlog.ingest.rolling import RolledPartition
from streamlog.ingest.snapshots import Kept, KeptPartition, Snapshots
from streamlog.ingest.window import NEVER_MS, ReadablePartition, look_at_recent, rebuild_window

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Windows that are rebuilt side by side."""


class OpenedPartition(ReadablePartition, KeptPartition, RolledPartition, Protocol):
    """What is needed of ``partition.owner.Partition``."""


class Openings:
    """``add``; ``run`` opens them in the background, ``drain`` at once. ``opened`` is told each."""

    def __init__(
        self, opened: Callable[[Inlet], None], *, snapshots: Snapshots, now_ms: Callable[[], int]
    ) -> None:
        self._opened = opened
        self._snapshots = snapshots
        self._now_ms = now_ms
        self._waiting: deque[tuple[Inlet, OpenedPartition, int]] = deque()
        self._added = asyncio.Event()
        self.count = 0
        """Inlets that are not open yet."""

    def add(self, inlet: Inlet, partition: OpenedPartition, *, known_offset: int = 0) -> None:
        """The sequencer has the ids below ``known_offset``, a batch's first one, already.

        Where that is all, as in an empty log, the inlet is open when this returns.
        """
        start, end = partition.log_start_offset, partition.log_end_offset
        known = max(known_offset, start) >= end and (start == end or not inlet.sequencer.rolls_up)
        if known and partition.subjects.is_ready:
            self._open(inlet)
            return
        self._waiting.append((inlet, partition, known_offset))
        self.count += 1
        self._added.set()

    async def run(self) -> None:
        """For as long as inlets are added."""
        while True:
            await self._added.wait()
            self._added.clear()
            await self.drain()

    async def drain(self) -> None:
        """Return when none waits."""
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(self._waiting))):
                group.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            inlet, partition, known_offset = self._waiting.popleft()
            try:
                if not inlet.closed:
                    await self._rebuild(inlet, partition, known_offset)
                    await self._know_subjects(inlet, partition)
                    self._open(inlet)
            finally:
                self.count -= 1

    async def _rebuild(self, inlet: Inlet, partition: OpenedPartition, known_offset: int) -> None:
        """A bug here must not keep the stream shut."""
        sequencer, tp = inlet.sequencer, partition.tp
        extra = {"stream": tp.stream, "partition": tp.partition, "epoch": inlet.leader_epoch}
        since_ms = self._now_ms() - sequencer.duplicate_window_ms
        try:
            if not known_offset:
                kept = Kept(partition, sequencer, inlet.leader_epoch)
                known_offset = await self._snapshots.recall(kept, since_ms)
            count = await rebuild_window(
                partition, sequencer, since_ms=since_ms, from_offset=known_offset
            )
        except Exception:
            sequencer.leave_out(NEVER_MS)
            logger.exception("duplicate window could not be rebuilt", extra=extra)
        else:
            if count:
                logger.info("duplicate window rebuilt", extra={**extra, "ids": count})

    async def _know_subjects(self, inlet: Inlet, partition: OpenedPartition) -> None:
        """Where messages expect the sequence of a subject, or have others go, before the first of
        them is judged. A leader may have ended between such a message and the erasure of what was
        before it: then it is owed, and appended before anything else is.
        """
        tp, rolls_up = partition.tp, inlet.sequencer.rolls_up
        extra = {"stream": tp.stream, "partition": tp.partition}
        try:
            recent = await look_at_recent(partition)
            rollups = [it for scanned in recent for it in scanned.rollups if rolls_up]
            expects = any(scanned.expects for scanned in recent) or any(
                subject is not None for _, subject in rollups
            )
            if not partition.subjects.is_ready or expects:
                partition.subjects.want()
                await partition.subjects.know()
            inlet.owe(rollups)
        except Exception as error:  # it must not keep the stream shut
            logger.warning("subjects are not known", extra={**extra, "error": str(error)})

    def _open(self, inlet: Inlet) -> None:
        if not inlet.closed:
            inlet.erase_owed()
            inlet.opened = True
            self._opened(inlet)
