"""Deduplicators of partitions that this node keeps and another leads, for when it is to lead itself.

Without them a new leader would first have to read the whole duplicate window out of its log, which
takes seconds where much is published. What is committed is read as it comes, a little behind; only
that, since the rest may yet be cut off.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from streamlog.condition import FAULT
from streamlog.errors import StreamlogError
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.dedup_recovery.hops import CALLS_MAX, SharedHops
from streamlog.ingest.dedup_recovery.window_scan import (
    first_offset,
    remember,
    scan,
)
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

UNKNOWN: Final = -1
PAUSE_S: Final = 0.2
"""Between two looks at what has come, so that many small batches are read at once."""
READ_BYTES: Final = 512 * 1024
"""Decoded of one log in one go, in a thread that the event loop has to take turns with."""


class Prepared(NamedTuple):
    """A deduplicator that has the ids of the window below ``known_offset``."""

    deduplicator: Deduplicator
    known_offset: int = 0


@dataclass(slots=True, eq=False)
class _StandbyWindow:
    partition: Partition
    deduplicator: Deduplicator
    watcher: Callable[[], None]
    known_offset: int = UNKNOWN
    """The ids of the window below it are in ``deduplicator``."""
    epoch: int = NO_EPOCH
    """Of the last batch below ``known_offset``; NO_EPOCH: none was read."""

    def is_sound(self) -> bool:
        """The log still has what was read: committed records, which only an unclean election or a
        damaged disk takes away. One epoch has one log, so its end tells.
        """
        if self.known_offset > self.partition.log_end_offset:
            return False
        if self.epoch == NO_EPOCH:
            return True
        epoch, end_offset = self.partition.epoch_end(self.epoch)
        return epoch == self.epoch and end_offset >= self.known_offset


class Standby:
    """``follow`` what is kept, ``run`` reads it, ``take`` it when it is to be led."""

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._followed: dict[str, dict[TopicPartition, _StandbyWindow]] = {}
        """By stream."""
        self._behind: dict[_StandbyWindow, None] = {}
        """Those of which more may be committed by now."""
        self._any_behind = asyncio.Event()
        self._hops = SharedHops(1)

    def follow(
        self, stream: str, partitions: Iterable[Partition], *, duplicate_window_ms: int
    ) -> None:
        """These partitions of the stream and no others."""
        before, now = self._followed.pop(stream, {}), dict[TopicPartition, _StandbyWindow]()
        for partition in partitions:
            followed = before.get(partition.tp)
            if followed is None or followed.partition is not partition:
                followed = self._new(partition, duplicate_window_ms)
            else:
                del before[partition.tp]
            followed.deduplicator.configure(duplicate_window_ms=duplicate_window_ms)
            now[partition.tp] = followed
        for followed in before.values():
            self._end(followed)
            followed.partition.subjects.let_go()
        if now:
            self._followed[stream] = now

    def leave_stream(self, stream: str) -> None:
        """It is gone."""
        self.follow(stream, (), duplicate_window_ms=0)

    def expire(self) -> None:
        """Forget ids that are older than their window."""
        for followed in (it for stream in self._followed.values() for it in stream.values()):
            followed.deduplicator.expire(self._now_ms())

    def take(self, partition: Partition) -> Prepared | None:
        """What is known of this one, which is followed no longer; None where it is of no use, as
        that of a stream of the same name that was deleted.
        """
        tp = partition.tp
        followed = self._followed.get(tp.stream, {}).pop(tp, None)
        if followed is None:
            return None
        self._end(followed)
        if followed.partition is not partition:
            return None
        if followed.known_offset == UNKNOWN or not followed.is_sound():
            return None
        return Prepared(followed.deduplicator, followed.known_offset)

    async def run(self) -> None:
        """For as long as anything is followed."""
        while True:
            await self._any_behind.wait()
            self._any_behind.clear()
            behind, self._behind = self._behind, {}
            waiting = deque(behind)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(CALLS_MAX, len(waiting))):
                    group.create_task(self._catch_up_with(waiting))
            await asyncio.sleep(PAUSE_S)

    async def _catch_up_with(self, waiting: deque[_StandbyWindow]) -> None:
        while waiting:
            followed = waiting.popleft()
            if self._is_followed(followed):  # a node that starts leads most of them by now
                await self._catch_up(followed)

    def _new(self, partition: Partition, duplicate_window_ms: int) -> _StandbyWindow:
        def moved() -> None:
            self._behind[followed] = None
            self._any_behind.set()

        deduplicator = Deduplicator(partition.tp.stream, duplicate_window_ms=duplicate_window_ms)
        followed = _StandbyWindow(partition, deduplicator, moved)
        partition.add_watcher(moved)
        moved()
        return followed

    def _end(self, followed: _StandbyWindow) -> None:
        followed.partition.remove_watcher(followed.watcher)
        self._behind.pop(followed, None)

    def _is_followed(self, followed: _StandbyWindow) -> bool:
        tp = followed.partition.tp
        return self._followed.get(tp.stream, {}).get(tp) is followed

    async def _catch_up(self, followed: _StandbyWindow) -> None:
        """With what is committed by now. What cannot be read now is read by the next leader."""
        try:
            await self._read_on(followed)
        except StreamlogError as error:
            tp = followed.partition.tp
            extra = {"stream": tp.stream, "partition": tp.partition, "error": str(error)}
            logger.debug("message ids are not read ahead", extra=extra)
            self._start_again(followed)
        except Exception:  # a bug here must cost no more than a slower take-over
            logger.exception(FAULT.logged_as("message ids could not be read ahead"))
            self._start_again(followed)

    async def _read_on(self, followed: _StandbyWindow) -> None:
        """May be overtaken by ``take`` at each await: nothing is changed after that."""
        partition, window_ms = followed.partition, followed.deduplicator.duplicate_window_ms
        if not followed.is_sound():
            self._start_again(followed)
        if followed.known_offset < partition.files_start:
            since_ms = self._now_ms() - window_ms
            first = await first_offset(partition, since_ms)
            if not self._is_followed(followed):
                return
            followed.deduplicator.leave_out(since_ms)
            followed.known_offset = first
        while (offset := followed.known_offset) < partition.high_watermark:
            with await partition.read_files(offset, READ_BYTES) as part:
                found = await self._hops.run(partial(scan, part), len(part))
            if not self._is_followed(followed) or found.next_offset <= offset:
                return
            remember(followed.deduplicator, found.ids, self._now_ms() - window_ms)
            followed.known_offset, followed.epoch = found.next_offset, found.epoch
            if found.expects:
                partition.subjects.want()
        followed.deduplicator.expire(self._now_ms())

    def _start_again(self, followed: _StandbyWindow) -> None:
        window_ms = followed.deduplicator.duplicate_window_ms
        if self._is_followed(followed):
            stream = followed.partition.tp.stream
            followed.deduplicator = Deduplicator(stream, duplicate_window_ms=window_ms)
            followed.known_offset, followed.epoch = UNKNOWN, NO_EPOCH
