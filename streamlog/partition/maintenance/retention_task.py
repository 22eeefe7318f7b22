"""Retention: logs begin later as soon as their limits say so, and files go that are wholly below.

Rules. A leader looks at a log when its limits may have been passed: when it begins to lead, when the limits change,
after a commit where there are too many messages or bytes, and at the time when its first batch becomes too old. Its
followers begin where it does. All logs are looked
at every ``retention_check_ms`` besides: for what failed, for what a clock that was set back has put off, and for
followers whose disk is full, which cannot hear of their leader.

Each move of a log start is a write to the disk, so a log is looked at again at once only if it is past a limit by a
hundredth of it or more; else within a second, or a hundredth of ``retention_ms`` later. A limit of 10 messages
is exact once the write is done, one of a million at the latest a second after.
"""

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from streamlog.clock import wall_ms
from streamlog.condition import CORRECT_THEN_RESTART, CRITICAL, Condition
from streamlog.config import LogSection
from streamlog.errors import StreamlogError
from streamlog.log.settings import UNLIMITED
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

RETENTION_FAILED: Final = Condition(
    "SL-0223",
    "retention failed",
    CORRECT_THEN_RESTART,
    meaning="Segments that have exceeded retention could not be removed. The log grows.",
    severity=CRITICAL,
)

GRAIN: Final = 100
"""What is past a limit by less than this part of it can wait."""
AGAIN_MS: Final = 1_000
"""... so long."""
AGE_GRAIN_MIN_MS: Final = 100
TRIM_SHARE: Final = 0.05
"""Of the time, at most, goes to looks after commits."""
PAUSE_S: Final = 0.01
PAUSE_MAX_S: Final = 1.0
"""Also after a look that had to wait for a segment to be checked."""
_AT_ONCE: Final = 200
"""Partitions that are looked at before others have their turn."""


def retain(partition: Partition, now_ms: int) -> None:
    """Let go soon of what a look without a check of segments finds: whole segments, and messages that are too many.
    Followers follow in that, but where the disk is full: they cannot fetch what would tell them. Raises
    StreamlogError.
    """
    state, log = partition.state, partition.state.log
    may_delete = partition.is_leader or not (state.has_room or state.cutting or partition.closed)
    if not may_delete or partition.failure is not None:
        return
    start = log.retained_start(now_ms, partition.high_watermark, erased=partition.erased)
    has_moved = _begin_later(partition, start) or _begin_later_here(partition, now_ms)
    if not has_moved and log.advance_log_start(
        log.log_start_offset, is_kept=True
    ):  # files that could not be removed before
        partition.offsets_changed()


def _begin_later(partition: Partition, start: int) -> bool:
    """Whether the log is to begin later now."""
    if partition.is_leader and partition.config.sources:
        places = partition.places
        start = partition.log_start_offset if places is None else places.start_for(start)
    if start <= partition.local_log_start_offset:
        return False
    if not partition.config.tiered:
        partition.begin_later(start)
    elif partition.is_leader:
        partition.expire_below(start)
    else:
        return False
    return True


def _begin_later_here(partition: Partition, now_ms: int) -> bool:
    """The same of the log of a tiered stream on this node alone: the object store has what goes."""
    end = partition.tiered.tiered_end_offset
    if end is None or not partition.config.tiered:
        return False
    start = partition.state.log.local_start(now_ms, min(end, partition.high_watermark))
    if start <= partition.local_log_start_offset:
        return False
    partition.begin_later(start)
    return True


class RetentionTask:
    """``run`` as a task."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        settings: LogSection,
        *,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._now_ms = now_ms
        self._changed: dict[Partition, None] = {}
        """Led logs with limits to which something was appended."""
        self._due_ms: dict[Partition, int] = {}
        """When they are looked at next, whatever happens."""
        self._order: list[tuple[int, int, Partition]] = []
        """A heap of the same, each with a number; an entry that is not in ``_due_ms`` any more counts no more."""
        self._numbers = itertools.count()
        self._failed: set[Partition] = set()
        """They have their turn again with all others."""
        self._any = asyncio.Event()

    def changed(self, partition: Partition) -> None:
        """Its offsets have. Called for each commit."""
        if partition.state.log.settings.is_limited and partition.is_leader:
            self._changed[partition] = None
            self._any.set()

    def limits_changed(self, partition: Partition) -> None:
        """Other limits hold, or it is led here from now on."""
        if partition.state.log.settings.is_limited and partition.is_leader:
            self._look_again(partition, self._now_ms())

    async def run(self) -> None:
        """For as long as the node runs."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_at_all_forever())
            group.create_task(self._trim_those_due())

    async def _look_at_all_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.retention_check_ms / 1000)
            await self.look_at_all()

    async def look_at_all(self) -> None:
        self._failed.clear()
        self._forget_gone()
        now_ms = self._now_ms()
        for done, partition in enumerate(tuple(self._partitions.values())):
            log = partition.state.log
            if log.segment_count == 1 and not log.settings.is_limited:
                continue
            try:
                retain(partition, now_ms)
            except StreamlogError as error:
                _tell_failed(partition, error)
            is_led = partition.is_leader and log.settings.is_limited
            if is_led and self._is_urgent(partition, now_ms):
                self._look_again(partition, now_ms)
            if done % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    def _forget_gone(self) -> None:
        """Partitions that are kept here no more, and what the heap has twice."""
        for partition in [it for it in self._due_ms if self._partitions.get(it.tp) is not it]:
            del self._due_ms[partition]
        if len(self._order) > 2 * len(self._due_ms):
            self._order = [(due_ms, next(self._numbers), it) for it, due_ms in self._due_ms.items()]
            heapq.heapify(self._order)

    async def _trim_those_due(self) -> None:
        while True:
            await self._any_due()
            started = time.monotonic()
            await self.trim_due()
            spent_s = time.monotonic() - started
            pause_s = min(spent_s / TRIM_SHARE - spent_s, PAUSE_MAX_S)
            await asyncio.sleep(max(pause_s, PAUSE_S))

    async def trim_due(self) -> None:
        """Have those begin later that are to by now."""
        now_ms = self._now_ms()
        for done, partition in enumerate(self._take_due(now_ms)):
            await self._trim(partition, now_ms)
            if done % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _any_due(self) -> None:
        while not self._changed:
            self._any.clear()
            wait_s = None
            if self._order:
                wait_s = (self._order[0][0] - self._now_ms()) / 1000
                if wait_s <= 0:
                    return
            try:
                async with asyncio.timeout(wait_s):
                    await self._any.wait()
            except TimeoutError:
                return

    def _take_due(self, now_ms: int) -> Iterable[Partition]:
        taken: dict[Partition, None] = {}
        while self._order and self._order[0][0] <= now_ms:
            due_ms, _, partition = heapq.heappop(self._order)
            if self._due_ms.get(partition) == due_ms:
                del self._due_ms[partition]
                taken[partition] = None
        changed, self._changed = self._changed, {}
        for partition in changed:
            if partition not in self._failed and self._is_urgent(partition, now_ms):
                taken[partition] = None
        return taken

    def _is_urgent(self, partition: Partition, now_ms: int) -> bool:
        """Whether it is looked at before it is due."""
        log, due_ms = partition.state.log, self._due_ms.get(partition)
        settings, start, end = log.settings, log.log_start_offset, partition.high_watermark
        if start == end:
            return False
        if due_ms is None and settings.retention_ms != UNLIMITED:
            return True  # it is not known when its first batch is too old
        over = _excess(settings.retention_bytes, lambda: log.kept_bytes)
        if UNLIMITED < settings.retention_messages < end - start:
            there = end - start - partition.erased.count(start, end)
            over = max(over, _excess(settings.retention_messages, lambda: there))
        rests = due_ms is not None and due_ms <= now_ms + AGAIN_MS
        return over > 0 and (over * GRAIN >= 1 or not rests)

    async def _trim(self, partition: Partition, now_ms: int) -> None:
        if not self._may_trim(partition):
            return
        try:
            trim = await partition.trimmed_start(now_ms)
        except StreamlogError as error:
            self._failed.add(partition)
            if self._may_trim(partition):
                _tell_failed(partition, error)
            return
        if not self._may_trim(partition):
            return
        has_moved = _begin_later(partition, trim.start_offset)
        settings = partition.state.log.settings
        if trim.due_ms is not None:
            grain_ms = max(settings.retention_ms // GRAIN, AGE_GRAIN_MIN_MS)
            grain_ms = min(grain_ms, max(self._settings.retention_check_ms, AGE_GRAIN_MIN_MS))
            self._look_again(partition, max(trim.due_ms, now_ms + grain_ms))
        if has_moved and not settings.retention_messages == settings.retention_bytes == UNLIMITED:
            self._look_again(partition, now_ms + AGAIN_MS)

    def _may_trim(self, partition: Partition) -> bool:
        return (
            self._partitions.get(partition.tp) is partition
            and partition.is_leader
            and not partition.closed
            and partition.failure is None
        )

    def _look_again(self, partition: Partition, due_ms: int) -> None:
        """Then at the latest."""
        due_ms = min(due_ms, self._due_ms.get(partition, due_ms))
        self._due_ms[partition] = due_ms
        heapq.heappush(self._order, (due_ms, next(self._numbers), partition))
        self._any.set()


def _excess(limit: int, there: Callable[[], int]) -> float:
    """How far it is past the limit, as a part of that."""
    return (there() - limit) / limit if limit != UNLIMITED else 0.0


def _tell_failed(partition: Partition, error: StreamlogError) -> None:
    logger.error(
        RETENTION_FAILED,
        extra={
            "stream": partition.tp.stream,
            "partition": partition.tp.partition,
            "error": str(error),
        },
    )
