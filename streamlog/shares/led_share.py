"""One leadership of a share partition: the shell around ``share_partition``.

====================  =============================================================================
state                 what ends it
====================  =============================================================================
taking over           the coordinator has written that this leader owns the state: led
led                   another node leads, the coordinator refuses a save, or none succeeds in time: closed
closed                nothing; who asks for the partition next begins with another take-over
====================  =============================================================================

Changes are saved one after the other, each save with all that has changed meanwhile. What a member asked for is
answered once the version that it made is saved. Where a save fails, it is not known what the coordinator has: all
is forgotten here, and the state is taken over again, under another owner, so that what was sent before cannot come
later.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from streamlog.clock import wall_ms
from streamlog.condition import CHECK_NODES, Condition
from streamlog.config import GroupsSection
from streamlog.errors import (
    CorruptData,
    FencedShareState,
    GroupNotFound,
    NotLeader,
    OffsetOutOfRange,
    StreamlogError,
)
from streamlog.groups.records import NOT_SET, ShareState, StateKey
from streamlog.groups.shares.share_group_config import (
    READ_COMMITTED,
    ShareSettings,
    reset_of,
    settings_of,
)
from streamlog.groups.shares.share_states import ShareStateAnswer
from streamlog.log.segment.file_slice import FileSlice
from streamlog.partition.internal_partition import until
from streamlog.partition.partition import Partition
from streamlog.record.aborted import aborted_batches
from streamlog.record.batch import batches
from streamlog.shares.share_partition import (
    Acquired,
    BatchRange,
    ReadBatches,
    ShareAcknowledgement,
    SharePartition,
    Wish,
    add_acquired,
)

logger = logging.getLogger(__name__)

READ_BYTES: Final = 256 * 1024
"""Read at once, but for a batch that is larger: members ask for megabytes, and have enough records long before."""
VERIFIED_MS: Final = 5_000
"""A leader with nothing to save asks after so long whether the state is still its own."""
SHARE_STATE_NOT_READ: Final = Condition(
    "SL-0540",
    "state of a share partition cannot be read",
    "have the group begin again there, without members: `streamlog group rm GROUP --offsets STREAM`",
    meaning="What a share group's coordinator has kept of a partition does not decode. The group reads nothing of it.",
)
SHARE_STATE_NOT_SAVED: Final = Condition(
    "SL-0541",
    "state of a share partition is not saved",
    CHECK_NODES,
    meaning="The coordinator of a share group could not be asked to keep how far the group has come in a partition."
    " Records that members have are delivered again.",
)


class StateKeeper(Protocol):
    """``control.leaders.group_coordinators.CoordinatorRouter``: the coordinators of share groups."""

    async def take_over(
        self, key: StateKey, leader_epoch: int, owner: UUID
    ) -> ShareStateAnswer: ...
    async def save(self, key: StateKey, state: ShareState) -> ShareStateAnswer: ...


class AcquiredRecords(NamedTuple):
    """What a member has acquired."""

    records: bytes
    """The batches that have these records, whole."""
    acquired: Sequence[Acquired]
    version: int
    """To be saved before the member is told."""


class _ReadRecords(NamedTuple):
    """Whole batches."""

    records: bytes
    aborted: Collection[int] = ()
    """Base offsets of batches that no reader of committed records is to have."""


class LedShare:
    """A partition, led here in one epoch, as one share group reads it. All is on the event loop."""

    def __init__(
        self,
        key: StateKey,
        partition: Partition,
        settings: GroupsSection,
        keeper: StateKeeper,
        *,
        clock_ms: Callable[[], int],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """``start`` has a task of its own carry out what takes its time."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.failure: StreamlogError | None = None
        """Why it is closed."""
        self.used_ms = clock_ms()
        self.acquired_count = 0
        """Deliveries of records."""
        self.acknowledged_count = 0
        """Records accepted or rejected by their members, or found not to be there."""
        self._settings = settings
        self._keeper = keeper
        self._clock_ms = clock_ms
        self._start = start
        self._owner = uuid.uuid4()
        self._share: SharePartition | None = None
        self._shares = settings_of({}, settings)
        self._saved = 0
        """The version that the coordinator has."""
        self._saving = False
        self._verified_ms = clock_ms()
        """When the coordinator was heard of last."""
        self._changed = asyncio.Event()
        """Something was saved, or it is closed; another one each time."""
        self._reading = asyncio.Lock()
        self._watchers: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        start(self._take_over())

    # What there is

    @property
    def leads(self) -> bool:
        """It is led here still, in the same epoch."""
        return self.failure is None and self.partition.leads(self.leader_epoch)

    @property
    def settings(self) -> ShareSettings:
        """Of the group, as its coordinator has said last."""
        return self._shares

    @property
    def archived_count(self) -> int:
        """Records given up because they were delivered too often."""
        return 0 if self._share is None else self._share.archived

    @property
    def may_rest(self) -> bool:
        """Nothing is known here that the coordinator does not know."""
        share = self._share
        return share is not None and not share.has_locks and self._saved >= share.version

    def watch(self, watcher: Callable[[], None]) -> None:
        """``watcher`` is called when there may be more to acquire, or nothing ever again."""
        self._watchers[watcher] = None
        self.partition.add_watcher(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.pop(watcher, None)
        self.partition.remove_watcher(watcher)

    async def ready(self) -> SharePartition:
        """Once the state is taken over. Raises what forbids that, NotLeader."""
        while True:
            self._check()
            if self._share is not None:
                return self._share
            await self._changed.wait()

    async def saved(self, version: int) -> None:
        """Once the coordinator has this version. Raises NotLeader, and what has made it fail."""
        while self._saved < version:
            self._check()
            await self._changed.wait()

    # What members do

    async def acquire(
        self, member: str, wish: Wish, max_bytes: int, *, is_over: Callable[[], bool]
    ) -> AcquiredRecords | None:
        """None where there is nothing to acquire now, or where all that was read is not shown (markers, aborted
        records) when the time for the request ``is_over``: the next request goes on from there. Raises what a read
        raises, NotLeader.
        """
        share = await self.ready()
        parts: list[AcquiredRecords] = []
        left, left_bytes, above = wish, max_bytes, -1
        async with self._reading:
            while left_bytes > 0:
                self._check()
                self._expire()
                share.start_moved(self.partition.log_start_offset)
                start = share.wanted_offset
                if start is None or not above < start < self._upper_offset:
                    break
                try:
                    read = await self._read(start, min(left_bytes, READ_BYTES))
                except OffsetOutOfRange:
                    break  # the log starts later by now
                self._check()
                found = self._acquire(share, member, start, read, left)
                if found is None:  # there may be something further up
                    if is_over():
                        break
                    above = start
                    continue
                parts.append(found)
                left_bytes -= len(found.records)
                above = found.acquired[-1].last
                if wish.records_max > 0:
                    count = sum(it.last - it.first + 1 for it in found.acquired)
                    left = left._replace(records_max=left.records_max - count)
                    if left.records_max <= 0:
                        break
        self._save_soon()
        self._set_timer()
        if not parts:
            self.verify_soon(VERIFIED_MS)
            return None
        acquired: list[Acquired] = []
        for it in (it for part in parts for it in part.acquired):
            add_acquired(acquired, it, wish.batch_records)
        return AcquiredRecords(b"".join(it.records for it in parts), acquired, parts[-1].version)

    def acknowledge(self, member: str, acknowledgements: Sequence[ShareAcknowledgement]) -> int:
        """The version to be saved before the member is told. Raises NotLeader, InvalidRequest, InvalidRecordState."""
        self._check()
        share = self._share
        if share is None:
            raise NotLeader(f"{self.partition.tp} is about to be taken over")
        self._expire()
        pending = share.progress.pending
        share.acknowledge(member, acknowledgements, self._clock_ms())
        self.acknowledged_count += pending - share.progress.pending
        self._save_soon()
        self._set_timer()
        start = share.wanted_offset
        if start is not None and start < self._upper_offset:
            self._tell()
        return share.version

    def release_all(self, member: str) -> None:
        """The member has nothing from now on."""
        share = self._share
        if (
            self.failure is None
            and share is not None
            and share.release_all(member, self._clock_ms())
        ):
            self._save_soon()
            self._set_timer()
            self._tell()

    def verify_soon(self, age_ms: int = 0) -> None:
        """Ask whether an administrator has altered or deleted what is kept, or the group, unless the coordinator was
        heard of not longer ago. Where nothing is delivered nothing is saved, which would show it.
        """
        share = self._share
        is_due = self._clock_ms() - self._verified_ms >= age_ms
        if share is not None and is_due and not self._saving and self.failure is None:
            self._saving = True
            self._start(self._save(verifies=True))

    def close(self, error: StreamlogError) -> None:
        """Who waits is told why."""
        if self.failure is not None:
            return
        self.failure = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._has_changed()
        self._tell()

    # How it comes, and is kept

    async def _take_over(self) -> None:
        try:
            partition = self.partition
            await until(partition, lambda: not self.leads or partition.high_watermark_known)
            self._check()
            answer = await self._keeper.take_over(self.key, self.leader_epoch, self._owner)
            await self._begin(answer)
        except StreamlogError as error:
            if isinstance(error, CorruptData):
                logger.error(SHARE_STATE_NOT_READ, extra=self._place(error))
            self.close(error)

    async def _begin(self, answer: ShareStateAnswer) -> None:
        state = ShareState() if answer.state is None else answer.state
        settings = self._shares = settings_of(answer.configs, self._settings)
        limits = _limits(settings)
        if state.delivery:
            share = SharePartition.restored(state.delivery, self._clock_ms(), *limits)
        else:
            start = state.start_offset
            is_new = start == NOT_SET
            if is_new:
                start = await self._first_offset(settings)
            share = SharePartition.starting(start, *limits)
            # Where it begins must not be another place with the next leader.
            share.version = int(is_new)
        share.rewind(self.partition.log_end_offset)
        share.start_moved(self.partition.log_start_offset)
        self._check()
        self._share = share
        if share.version:
            self._save_soon()
        else:
            self._has_changed()
            self._tell()

    async def _first_offset(self, settings: ShareSettings) -> int:
        partition, age_ms = self.partition, reset_of(settings.auto_offset_reset)
        if age_ms is None:
            return partition.log_start_offset
        end = self._upper_offset
        if age_ms < 0:
            return end
        found = await partition.offset_for_timestamp(wall_ms() - age_ms)
        return end if found is None else found[0]

    @property
    def _upper_offset(self) -> int:
        """The group reads what is below."""
        if self._shares.isolation_level == READ_COMMITTED:
            return self.partition.stable_offset
        return self.partition.high_watermark

    async def _read(self, start: int, max_bytes: int) -> "_ReadRecords":
        """Raises what a read raises."""
        if self._shares.isolation_level != READ_COMMITTED:
            return _ReadRecords(await _bytes_of(await self.partition.read(start, max_bytes)))
        part, transactions = await self.partition.read_committed(start, max_bytes)
        data = await _bytes_of(part)
        if not transactions:
            return _ReadRecords(data)
        ranges = [(it.producer_id, it.first_offset) for it in transactions]
        return _ReadRecords(data, await asyncio.to_thread(aborted_batches, data, ranges))

    def _acquire(
        self, share: SharePartition, member: str, start: int, found: "_ReadRecords", wish: Wish
    ) -> AcquiredRecords | None:
        parts: list[tuple[BatchRange, memoryview]] = []
        end = start
        for header, batch in batches(memoryview(found.records)):
            end = max(end, header.next_offset)
            is_shown = not header.is_control and header.base_offset not in found.aborted
            if is_shown and header.record_count:
                parts.append((BatchRange(header.base_offset, header.next_offset - 1), batch))
        read = ReadBatches(start, end, [it for it, _ in parts])
        acquired = share.acquire(member, read, wish, self._clock_ms())
        if not acquired:
            return None
        self.acquired_count += sum(it.last - it.first + 1 for it in acquired)
        records = b"".join(_with_acquired(parts, acquired))
        return AcquiredRecords(records, acquired, share.version)

    def _save_soon(self) -> None:
        share = self._share
        if self.failure is not None or share is None or self._saving:
            return
        if share.version > self._saved:
            self._saving = True
            self._start(self._save())

    async def _save(self, *, verifies: bool = False) -> None:
        """``verifies``: once at least, also if there is nothing to save."""
        share = self._share
        assert share is not None
        only_asks = False
        try:
            while self.failure is None and (verifies or share.version > self._saved):
                verifies, only_asks = False, share.version == self._saved
                version, progress = share.version, share.progress
                state = ShareState(
                    self.leader_epoch, self._owner, version, progress.start_offset,
                    progress.end_offset, progress.pending, share.state(self._clock_ms()),
                )  # fmt: skip
                answer = await self._keeper.save(self.key, state)
                self._saved, self._verified_ms = version, self._clock_ms()
                self._shares = settings_of(answer.configs, self._settings)
                share.set_limits(*_limits(self._shares))
                self._has_changed()
        except (FencedShareState, GroupNotFound) as error:
            self.close(error)
        except StreamlogError as error:
            if only_asks:  # whatever becomes of the question, it changes nothing
                self._verified_ms = self._clock_ms()
            else:
                logger.warning(SHARE_STATE_NOT_SAVED, extra=self._place(error))
                self.close(error)
        finally:
            self._saving = False
        self._save_soon()  # of what has changed while it only asked
        self._set_timer()

    # Time

    def _expire(self) -> None:
        share = self._share
        if share is not None and share.expire(self._clock_ms()):
            self._tell()

    def _set_timer(self) -> None:
        """For the first lock that ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        share = self._share
        next_ms = None if share is None or self.failure is not None else share.next_deadline_ms
        if next_ms is not None:
            delay_s = max(0, next_ms - self._clock_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._expire()
        self._save_soon()
        self._set_timer()

    def _check(self) -> None:
        """Raises NotLeader, and what has closed it."""
        if self.failure is not None:
            raise self.failure
        if not self.leads:
            raise NotLeader(f"{self.partition.tp} is led by another node, or in another epoch")

    def _has_changed(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    def _tell(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    def _place(self, error: StreamlogError) -> dict[str, object]:
        tp = self.partition.tp
        return {"group": self.key.group, "stream": tp.stream, "partition": tp.partition,
                "error": str(error)}  # fmt: skip


def _limits(settings: ShareSettings) -> tuple[int, int, int]:
    return (
        settings.record_lock_duration_ms,
        settings.delivery_count_limit,
        settings.record_locks_max,
    )


async def _bytes_of(part: FileSlice) -> bytes:
    """In a thread: it may have to wait for the disk."""
    reading = asyncio.get_running_loop().run_in_executor(None, part.read)
    try:
        return await asyncio.shield(reading)
    finally:
        if not reading.done():
            await asyncio.wait([reading])  # the thread has the file still
        part.close()


def _with_acquired(
    parts: Sequence[tuple[BatchRange, memoryview]], acquired: Sequence[Acquired]
) -> list[memoryview]:
    """The batches that have at least one of the records."""
    found: list[memoryview] = []
    at = 0
    for batch, data in parts:
        while at < len(acquired) and acquired[at].last < batch.first:
            at += 1
        if at < len(acquired) and acquired[at].first <= batch.last:
            found.append(data)
    return found
