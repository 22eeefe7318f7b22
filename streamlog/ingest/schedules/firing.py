"""Has the schedules of the partitions that are led here fire when they are due. On the event loop.

A leader reads its log, from the start on to where it ends when it begins to lead, before anything fires: there
is each schedule, and the last message that it has fired, committed or not. What this leader appends it knows. So
no time fires twice: a message that was fired is in the log of the next leader, or of no leader.
A schedule that was due while no leader was there fires once, and goes on from now.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from streamlog.condition import CORRECT_THEN_RESTART, FAULT, WARNING, Condition
from streamlog.errors import OffsetOutOfRange, StreamlogError
from streamlog.ingest.admission.log_records import record_now
from streamlog.ingest.partition_ingest import PartitionIngest
from streamlog.ingest.schedules.log_scan import Stored, scan
from streamlog.ingest.schedules.pending_schedules import PendingSchedule, PendingSchedules
from streamlog.ingest.schedules.scheduled_message import (
    Schedule,
    ScheduledMessage,
    is_fired,
    message_of,
    schedule_of,
)
from streamlog.ingest.schedules.scheduling_rules import SCHEDULES_MAX
from streamlog.record.codec import Record
from streamlog.record.compiled.subjects import NOTHING, SubjectIndex

logger = logging.getLogger(__name__)

SCHEDULES_NOT_FIRED: Final = Condition(
    "SL-0422",
    "schedules do not fire",
    CORRECT_THEN_RESTART,
    meaning="The messages of a stream's schedules are not published, because its log could not be read.",
    severity=WARNING,
)
SCHEDULE_DROPPED: Final = Condition(
    "SL-0423",
    "schedule has ended without its message",
    "publish it again, with a time zone that the nodes know and a message that fits the stream",
    meaning="What a schedule was to publish is larger than the stream allows, or the schedule names a"
    " time zone that this node does not know, or no time any more.",
    severity=WARNING,
)

LOOK_S: Final = 0.25
"""Between two looks; JetStream's as well."""
READ_BYTES: Final = 4 * 1024 * 1024
PARTS_AT_ONCE: Final = 16
"""... then other partitions have their turn."""
LOOKED_AT_ONCE: Final = 2_000
"""Schedules, for whether they are there still."""
FIRED_AT_ONCE: Final = 500
FIRED_BYTES: Final = 4 * 1024 * 1024
PREPARED_AT_ONCE: Final = 50
"""... then others have their turn of the event loop."""
_EVERYTHING: Final = 2**62
_MS: Final = 1_000_000


class _Ready(NamedTuple):
    """What a schedule that is due publishes."""

    pending: PendingSchedule
    schedule: Schedule
    record: Record
    """The schedule's own."""
    content_offset: int
    """Of the newest message of its source, which is published; NOTHING: its own is."""
    message: ScheduledMessage
    next_ns: int | None
    checked: int
    """Below it all messages of its subject behind it were fired by other schedules."""


class PartitionSchedules:
    """Of one partition in one leader epoch."""

    def __init__(
        self,
        ingest: PartitionIngest,
        now_ms: Callable[[], int],
    ) -> None:
        self._ingest = ingest
        self._partition = ingest.partition
        self._now_ms = now_ms
        self._pending = PendingSchedules()
        self._until = 0
        """All below was read."""
        self._needed = ingest.partition.log_end_offset
        """All below must have been: this leader has appended nothing of it."""

    def __len__(self) -> int:
        """Schedules that are known."""
        return len(self._pending)

    @property
    def is_over(self) -> bool:
        return self._ingest.closed or self._ingest.deduplicator.scheduling is None

    async def look(self) -> None:
        """Read what was stored since, and fire what is due. Raises StreamlogError."""
        if self.is_over or not self._ingest.opened:
            return
        self._until = max(self._until, self._partition.log_start_offset)
        for _ in range(PARTS_AT_ONCE):
            if self._until >= self._partition.log_end_offset or self.is_over:
                break
            await self._read_on()
        if self._until < self._needed:
            return
        while not self.is_over and (due := self._pending.due(self._now_ns(), FIRED_AT_ONCE)):
            if not await self._fire(due):
                break
            await asyncio.sleep(0)
        self._free_room()

    def _free_room(self) -> None:
        """Of schedules that have gone before they were due."""
        index = self._ingest.sequences.index() if len(self._pending) > SCHEDULES_MAX // 2 else None
        if index is not None:
            for it in self._pending.some(LOOKED_AT_ONCE):
                if not _is_there(index, it):
                    self._pending.put_off(it, None)
        self._ingest.deduplicator.schedule_room.left = SCHEDULES_MAX - len(self._pending)

    def _now_ns(self) -> int:
        return self._now_ms() * _MS

    async def _read_on(self) -> None:
        try:
            with await self._partition.read_appended(self._until, READ_BYTES) as part:
                found, until = await asyncio.to_thread(scan, part, self._until)
        except OffsetOutOfRange:  # retention was quicker
            self._until = max(self._until, self._partition.log_start_offset)
            return
        index = await self._partition.subjects.know() if found else None
        for event in found:
            if index is None or not isinstance(event, Stored) or _is_there(index, event):
                event.tell(self._pending)
        self._until = max(self._until, until)

    async def _fire(self, due: list[PendingSchedule]) -> bool:
        """These are due; whether something has changed, so that others may be."""
        index = await self._partition.subjects.know()
        ready, size_bytes, changed = list[_Ready](), 0, False
        for number, pending in enumerate(due, 1):
            made = await self._prepare(index, pending)
            if made is None:
                changed = True
            else:
                ready.append(made)
                size_bytes += made.message.size_bytes
            if size_bytes > FIRED_BYTES:
                break
            if number % PREPARED_AT_ONCE == 0:
                await asyncio.sleep(0)
                index = await self._partition.subjects.know()
        # From here on nothing comes between: what is not current any more waits for the next look.
        now = self._ingest.sequences.index()
        if now is None or self.is_over or self._ingest.gathers:
            return False
        ready = [it for it in (self._as_now(now, it) for it in ready) if it is not None]
        if not ready:
            return changed
        base_offset = self._ingest.fire([it.message for it in ready])
        if base_offset < 0:
            return False
        for offset, it in enumerate(ready, base_offset):
            self._pending.fired(it.pending.subject, offset, it.next_ns)
        return True

    async def _prepare(self, index: SubjectIndex, pending: PendingSchedule) -> _Ready | None:
        """None: it does not fire now, and is not due any more."""
        checked = await self._current_until(index, pending)
        record = None if checked is None else await self._record(pending.offset)
        if checked is None or record is None:  # it has gone
            self._pending.put_off(pending, None)
            return None
        schedule = schedule_of(record)
        if schedule is None:
            self._drop(pending)
            return None
        now_ns, next_ns = self._now_ns(), None
        if schedule.spec.repeats:
            next_ns = schedule.spec.next_ns(pending.due_ns, now_ns)
            if next_ns is None:
                self._drop(pending)
                return None
            if self._pending.may_have_fired(pending):
                self._pending.put_off(pending, next_ns)
                return None
        content, content_offset = record, _last_of_source(index, schedule)
        if content_offset != NOTHING:
            content = await self._record(content_offset) or record
        message = message_of(schedule, content, next_ns=next_ns)
        if not self._has_room_for(message):
            self._drop(pending)
            return None
        return _Ready(pending, schedule, record, content_offset, message, next_ns, checked)

    def _has_room_for(self, message: ScheduledMessage) -> bool:
        return message.size_bytes <= self._ingest.inflow.message_bytes_max

    def _as_now(self, index: SubjectIndex, it: _Ready) -> _Ready | None:
        """With what its source has now, which may change all the time; None: it waits for the next look."""
        if not _is_current(index, it):
            return None
        offset = _last_of_source(index, it.schedule)
        if offset == it.content_offset:
            return it
        content: Record | None = it.record
        if offset >= self._partition.log_start_offset:
            content = record_now(self._partition, offset)
        if content is None:
            return None
        message = message_of(it.schedule, content, next_ns=it.next_ns)
        return it._replace(message=message) if self._has_room_for(message) else None

    async def _current_until(self, index: SubjectIndex, pending: PendingSchedule) -> int | None:
        """None: its message is not there any more, or another one has taken its place. A message that another
        schedule has fired takes none.
        """
        offset, subject = pending.offset, pending.subject
        if not _is_there(index, pending):
            return None
        checked = offset + 1
        while (other := index.next(subject, checked, self._partition.log_end_offset)) != NOTHING:
            record = await self._record(other)
            if record is not None and not is_fired(record):
                return None
            checked = other + 1
        return checked

    async def _record(self, offset: int) -> Record | None:
        """None: it is not there any more."""
        if offset < self._partition.log_start_offset:
            return None
        found = record_now(self._partition, offset)
        if found is None:  # its segment is to be checked first
            with await self._partition.read_appended(offset, 1):
                pass
            found = record_now(self._partition, offset)
        return found

    def _drop(self, pending: PendingSchedule) -> None:
        self._pending.put_off(pending, None)
        subject = pending.subject.decode(errors="replace")
        tp = self._partition.tp
        extra = {
            "stream": tp.stream,
            "partition": tp.partition,
            "subject": subject,
            "offset": pending.offset,
        }
        logger.warning(SCHEDULE_DROPPED, extra=extra)


def _last_of_source(index: SubjectIndex, schedule: Schedule) -> int:
    return index.last(schedule.source, _EVERYTHING) if schedule.source else NOTHING


def _is_current(index: SubjectIndex, it: _Ready) -> bool:
    followed = index.next(it.pending.subject, it.checked, _EVERYTHING)
    return _is_there(index, it.pending) and followed == NOTHING


def _is_there(index: SubjectIndex, it: PendingSchedule | Stored) -> bool:
    """Its message is."""
    return index.next(it.subject, it.offset, it.offset + 1) == it.offset


class ScheduleFiring:
    """``run`` as a task; ``heard`` of each partition ingest, and of each change of its settings. One whose
    stream takes no schedules costs nothing.
    """

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._led: dict[PartitionIngest, PartitionSchedules] = {}
        self._failed: set[PartitionIngest] = set()
        self._stopping = False

    def heard(self, ingest: PartitionIngest) -> None:
        if ingest.deduplicator.scheduling is not None and ingest not in self._led:
            self._led[ingest] = PartitionSchedules(ingest, self._now_ms)

    def stop(self) -> None:
        """Nothing fires here any more."""
        self._stopping = True

    async def run(self) -> None:
        """For as long as the node runs."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """At each of them. What cannot be is told once, and tried again."""
        for ingest, schedules in list(self._led.items()):
            if schedules.is_over:
                del self._led[ingest]
                self._failed.discard(ingest)
            elif not self._stopping:
                await self._look_at(ingest, schedules)

    async def _look_at(self, ingest: PartitionIngest, schedules: PartitionSchedules) -> None:
        try:
            await schedules.look()
        except Exception as error:  # a bug, too, must cost no more than this partition's schedules
            if ingest not in self._failed and not ingest.closed:
                self._failed.add(ingest)
                _tell(ingest, error)
        else:
            self._failed.discard(ingest)


def _tell(ingest: PartitionIngest, error: Exception) -> None:
    if isinstance(error, StreamlogError):
        logger.warning(SCHEDULES_NOT_FIRED, extra=ingest.partition.place(error))
    else:
        tp = ingest.partition.tp
        extra = {"stream": tp.stream, "partition": tp.partition}
        logger.error(FAULT.logged_as("schedules could not fire"), extra=extra, exc_info=error)
