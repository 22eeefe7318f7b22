"""Messages that say themselves how long they stay (``Nats-TTL``): when each of them goes.

The leader reads the log as it is committed, from its start on when it begins to lead, and remembers
of each such message its offset and its time. The log alone says what there is, so nothing has to
be kept over a restart or a failover.

In a stream that leaves markers the messages that are too old go here as well, one by one. A message goes there with
what the log says alone: nothing is foreseen. In one turn of the event loop the leader looks at all of the log, appends
the markers, and then the erasure; so a newer message of the subject is in the log before, and there is no marker, or
it comes behind the marker.
"""

import asyncio
import heapq
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from streamlog.errors import OffsetOutOfRange, StreamlogError
from streamlog.log.segment.file_slice import FileSlice
from streamlog.metadata.stream.setting_type import NO_LIMIT
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_EPOCH
from streamlog.partition.deletes.message_deletes import MessageDeletes
from streamlog.partition.deletes.subject_markers import (
    KV_OPERATION,
    REASON_HEADER,
    AgeQueue,
    DueMessage,
    ended_subjects,
    is_marker,
    marker_headers,
)
from streamlog.partition.reader import Reader
from streamlog.partition.state import UNAWAITED, PartitionState
from streamlog.partition.subjects.subject_index import Subjects
from streamlog.record.batch import PUBLISHED, BatchHeader, batches
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.offset_set import OffsetSet
from streamlog.record.published import TTL_HEADER, asked, lifetime_s

KNOWN_MAX: Final = 4_000_000
"""Messages of one partition, 8 bytes each. Of more, those that go last are forgotten, and the log
is read again when the first of them is due."""
READ_BYTES: Final = 4 * 1024 * 1024
PARTS_AT_ONCE: Final = 16
"""... then other partitions have their turn."""
SHORT_S: Final = 60
SHORT_GRAIN_MS: Final = 100
GRAIN_MS: Final = 1_000
"""Times are rounded up to these, for lifetimes up to the short one and longer ones: many messages
share a time, so a time costs little."""
GONE_AT_ONCE: Final = 400
"""Messages that go in one turn of the event loop where markers take their places: all of what a crash may leave
undone is among those that the next leader looks at (``ingest.dedup_recovery``)."""
TURNS_AT_ONCE: Final = 50
AHEAD_MS: Final = 10_000
"""So far ahead it is read which messages will be too old ..."""
AHEAD_MAX: Final = 20_000
"""... but no further than so many times and markers."""
_HEADER_BYTES: Final = TTL_HEADER.encode()
_MARKING: Final = (REASON_HEADER.encode(), KV_OPERATION.encode())

Deadline = tuple[int, int]
"""When a message is to be gone, in milliseconds; and twice its offset, and one more if it is a marker itself."""


class PublishAdmission(Protocol):
    """What admits the messages that come to a led partition. ``PartitionIngest``."""

    @property
    def is_settled(self) -> bool:
        """Nothing that a former leader began is undone, and no message is judged that is not appended."""

    @property
    def gathers(self) -> bool:
        """There are messages that are judged, and not appended yet."""


class ExpiryRules(NamedTuple):
    """What a stream's configuration has to say of it."""

    marker_ttl_s: int
    """0: there are no markers."""
    max_age_ms: int
    """NO_LIMIT: none goes here by its age."""
    lifetime_min_s: int
    """A shorter one lasts so long: else a marker could still be there when the next one is due."""

    @classmethod
    def of(cls, config: StreamConfig) -> "ExpiryRules":
        if not config.leaves_markers:
            return cls(0, NO_LIMIT, 0)
        ttl_s = config.subject_delete_marker_ttl_ms // 1_000
        shortest = 0 if config.max_messages_per_subject == 1 else ttl_s
        return cls(ttl_s, config.retention_ms, shortest)


class TtlDeadlines:
    """Pure: which messages go when."""

    def __init__(self, known_max: int = KNOWN_MAX) -> None:
        self._known_max = known_max
        self._by_ms: dict[int, array[int]] = {}
        self._times_ms: list[int] = []
        """A heap of the keys."""
        self.count = 0
        self.horizon_ms: int | None = None
        """Of messages that go then or later some are not known."""

    def add(self, due: Deadline) -> None:
        due_ms, offset = due
        if self.horizon_ms is not None and due_ms >= self.horizon_ms:
            return
        known = self._by_ms.get(due_ms)
        if known is None:
            known = self._by_ms[due_ms] = array("q")
            heapq.heappush(self._times_ms, due_ms)
        known.append(offset)
        self.count += 1
        if self.count > self._known_max:
            self._forget_last()

    @property
    def next_ms(self) -> int | None:
        """When the first of them is due."""
        return self._times_ms[0] if self._times_ms else None

    def take(self, now_ms: int) -> list[int]:
        """All that are due, in order."""
        found: list[int] = []
        while self._times_ms and self._times_ms[0] <= now_ms:
            found += self._by_ms.pop(heapq.heappop(self._times_ms))
        self.count -= len(found)
        return sorted(found)

    def is_passed(self, now_ms: int) -> bool:
        """Messages may be due that are not known."""
        return self.horizon_ms is not None and self.horizon_ms <= now_ms

    def _forget_last(self) -> None:
        """About half of them; those of one time stay together."""
        ordered = sorted(self._by_ms)
        kept = 0
        for place, due_ms in enumerate(ordered):
            if place and kept + len(self._by_ms[due_ms]) > self._known_max // 2:
                self.horizon_ms = due_ms
                break
            kept += len(self._by_ms[due_ms])
        else:
            return
        for due_ms in ordered[place:]:
            del self._by_ms[due_ms]
        self._times_ms = ordered[:place]
        self.count = kept


class MessageTtl:
    """Of one partition; on the event loop, while it leads."""

    __slots__ = (
        "_ages", "_append", "_config", "_deadlines", "_epoch", "_erasing", "_losses", "_reader", "_ready",
        "_rules", "_state", "_subjects", "_until", "admission",
    )  # fmt: skip

    def __init__(
        self,
        state: PartitionState,
        reader: Reader,
        erasing: MessageDeletes,
        *,
        subjects: Subjects,
        config: Callable[[], StreamConfig],
        append: Callable[[RecordRun], object],
    ) -> None:
        """``append``: as the leader, and no publisher waits. Raises as ``Partition.append``."""
        self.admission: PublishAdmission | None = None
        """None: it is not known what a former leader has left undone, and no marker is made."""
        self._state = state
        self._reader = reader
        self._erasing = erasing
        self._subjects = subjects
        self._config = config
        self._append = append
        self._rules = ExpiryRules(0, NO_LIMIT, 0)
        self._deadlines: TtlDeadlines | None = None
        """None: nothing was read."""
        self._ages = AgeQueue(0)
        self._ready = array("q")
        """What is due and is still to go, as in a ``Deadline``, the last first."""
        self._losses, self._epoch = 0, NO_EPOCH
        """Of ``erasing``, and of the leader, when the first of it was read."""
        self._until = 0
        """All below was read."""

    def forget(self) -> None:
        """The partition is not led any more, or messages stay as long as others."""
        self._deadlines = None

    async def settle(self, now_ms: int) -> None:
        """Read what was committed since, and have go what is due. Raises StreamlogError."""
        deadlines, rules = self._deadlines, ExpiryRules.of(self._config())
        state, losses = self._state, self._erasing.losses
        read_as = self._losses, self._epoch, self._rules
        if (
            deadlines is None
            or deadlines.is_passed(now_ms)
            or read_as != (losses, state.leader_epoch, rules)
        ):
            deadlines = self._deadlines = TtlDeadlines()
            self._until, self._losses, self._epoch = 0, losses, state.leader_epoch
            self._rules, self._ready = rules, array("q")
            self._ages = AgeQueue(state.log.log_start_offset)
        self._until = max(self._until, state.log.log_start_offset)
        for _ in range(PARTS_AT_ONCE):
            if self._until >= self._upper() or self._deadlines is not deadlines:
                break
            await self._read_on(deadlines)
        if not rules.marker_ttl_s:
            self.take_due(now_ms)
            return
        if rules.max_age_ms != NO_LIMIT:
            await self._read_ages(deadlines, now_ms)
        for _ in range(TURNS_AT_ONCE):
            if self._deadlines is not deadlines or not self._let_go(now_ms):
                break
            await asyncio.sleep(0)

    @property
    def next_ms(self) -> int | None:
        """When the first of the messages that are known is due."""
        if self._deadlines is None:
            return None
        if self._ready:
            return 0
        known = self._deadlines.next_ms, self._ages.next_ms
        return min((it for it in known if it is not None), default=None)

    def take_due(self, now_ms: int) -> None:
        """Have go what is known to be due; where markers take its place, as much as one turn may."""
        if self._deadlines is None or not self._state.is_leader:
            return
        if self._config().leaves_markers:
            with suppress(StreamlogError):  # ``settle`` meets it as well, and raises it
                self._let_go(now_ms)
            return
        gone = OffsetSet.in_order(code >> 1 for code in self._deadlines.take(now_ms))
        gone.keep_between(self._state.log.log_start_offset, self._upper())
        gone.remove_all(self._erasing.erased)
        if gone:
            self._erasing.foresee(gone)

    def _let_go(self, now_ms: int) -> bool:
        """Some of what is due goes, and markers take the places of the last of each subject; whether there may be
        more. Raises as ``MessageDeletes.erase`` and ``Subjects.at_hand``: then all of it is still due.
        """
        deadlines, state, rules = self._deadlines, self._state, self._rules
        if deadlines is None or not state.is_leader or self._epoch != state.leader_epoch:
            return False
        if rules != ExpiryRules.of(self._config()):  # the next look reads again
            return False
        if taken := deadlines.take(now_ms):
            self._ready = array("q", sorted([*self._ready, *taken], reverse=True))
        self._ages.begin_at(state.log.log_start_offset)
        by_age = self._ages.due(now_ms, GONE_AT_ONCE)
        end = self._known_end(by_age, now_ms)
        by_ttl = [it for it in map(_due_of, self._ready[-GONE_AT_ONCE:]) if it.offset < end]
        if not by_age and not by_ttl:
            return False
        if self.admission is None or not self.admission.is_settled:
            return False
        start, upper, erased = state.log.log_start_offset, self._upper(), self._erasing.erased
        due = [
            it
            for it in sorted({*by_age, *by_ttl})
            if start <= it.offset < upper and it.offset not in erased
        ]
        if due:
            state.check_writable()
            state.check_min_isr()
            self._erasing.say_at_once()  # so that the index says of each subject what the log says
            index = self._subjects.at_hand()
            if index is None:
                self._subjects.want()
                return False
            run = RecordRun(attributes=PUBLISHED)
            for subject in ended_subjects(due, index.subject_at, index.count):
                run.append(None, b"", marker_headers(subject, rules.marker_ttl_s))
            if run.count:
                self._append(run)
            self._erasing.append(OffsetSet.in_order(it.offset for it in due), UNAWAITED)
        if by_age:
            self._ages.begin_at(by_age[-1].offset + 1)
        del self._ready[len(self._ready) - len(by_ttl) :]
        return True

    def _known_end(self, by_age: list[DueMessage], now_ms: int) -> int:
        """So far it is known what is due by its age. Messages go in the order of the log: a marker, say, after what it
        stands for.
        """
        ages, upper = self._ages, self._upper()
        if len(by_age) == GONE_AT_ONCE:
            return by_age[-1].offset + 1
        last_ms = ages.last_ms
        is_behind = self._rules.max_age_ms != NO_LIMIT and (last_ms is None or last_ms <= now_ms)
        return ages.until if is_behind else upper

    async def _read_on(self, deadlines: TtlDeadlines) -> None:
        shortest = self._rules.lifetime_min_s
        try:
            with await self._reader.read(self._until, READ_BYTES, self._upper) as part:
                found, until = await asyncio.to_thread(_look, part, self._until, shortest)
        except OffsetOutOfRange:  # retention was quicker
            return
        erased = self._erasing.erased
        for due in found:
            if due[1] >> 1 not in erased:
                deadlines.add(due)
        self._until = max(self._until, until)

    async def _read_ages(self, deadlines: TtlDeadlines, now_ms: int) -> None:
        """As far as it matters soon."""
        ages = self._ages
        ages.begin_at(self._state.log.log_start_offset)
        for _ in range(PARTS_AT_ONCE):
            last_ms = ages.last_ms
            if ages.until >= self._upper() or self._deadlines is not deadlines:
                break
            if len(ages) >= AHEAD_MAX or (last_ms is not None and last_ms > now_ms + AHEAD_MS):
                break
            try:
                with await self._reader.read(ages.until, READ_BYTES, self._upper) as part:
                    found = await asyncio.to_thread(_look_at_ages, part, ages.until, now_ms)
            except OffsetOutOfRange:  # retention was quicker
                break
            for stored_ms, until, markers in found:
                ages.add(stored_ms + self._rules.max_age_ms, until, markers)

    def _upper(self) -> int:
        return self._state.high_watermark


def _look(part: FileSlice, from_offset: int, shortest_s: int) -> tuple[list[Deadline], int]:
    """What a piece of the log tells, and where it ends. Blocks. Raises CorruptBatch."""
    data, until = part.read(), from_offset
    found: list[Deadline] = []
    uncompressed = _HEADER_BYTES in data
    for header, batch in batches(data):
        until = header.next_offset
        if header.is_published and (header.compression or uncompressed):
            found += (due for due in _dues(batch, shortest_s) if due[1] >> 1 >= from_offset)
    return found, until


def _dues(batch: memoryview, shortest_s: int) -> Iterator[Deadline]:
    """Of messages that came over NATS: a Kafka producer's header asks for nothing."""
    for record in iter_records(batch):
        names = asked(record.headers)
        lifetime = lifetime_s(names.get(TTL_HEADER, b""))
        if lifetime is not None and lifetime > 0:
            if not names.get(REASON_HEADER):
                lifetime = max(lifetime, shortest_s)
            due_ms = _rounded_up(record.timestamp_ms, lifetime)
            yield due_ms, record.offset << 1 | is_marker(record.headers)


def _due_of(code: int) -> DueMessage:
    return DueMessage(code >> 1, bool(code & 1))


_Aged = tuple[int, int, list[int]]
"""When messages were stored, the offset behind them, and those of them that are markers."""


def _look_at_ages(part: FileSlice, from_offset: int, now_ms: int) -> list[_Aged]:
    """Of a piece of the log. A Kafka producer may say that a record is of a time to come: it is as old as others that
    are read at the same time. Blocks. Raises CorruptBatch.
    """
    data = part.read()
    uncompressed = any(it in data for it in _MARKING)
    found: list[_Aged] = []
    for header, batch in batches(data):
        if header.next_offset <= from_offset:
            continue
        may_mark = header.is_published and (header.compression or uncompressed)
        one_time = header.is_log_append_time or header.base_timestamp_ms == header.max_timestamp_ms
        if header.is_control or not header.record_count or (one_time and not may_mark):
            found.append((min(header.max_timestamp_ms, now_ms), header.next_offset, []))
        else:
            found += _aged(header, batch, now_ms)
    return found


def _aged(header: BatchHeader, batch: memoryview, now_ms: int) -> Iterator[_Aged]:
    """Of each record of a batch; what compaction has taken out counts to the one after it."""
    for record in iter_records(batch):
        marks = header.is_published and is_marker(record.headers)
        stored_ms = min(record.timestamp_ms, now_ms)
        yield stored_ms, record.offset + 1, [record.offset] if marks else []
    if record.offset + 1 < header.next_offset:
        yield stored_ms, header.next_offset, []


def _rounded_up(stored_ms: int, lifetime_s: int) -> int:
    grain_ms = SHORT_GRAIN_MS if lifetime_s <= SHORT_S else GRAIN_MS
    return -(-(stored_ms + lifetime_s * 1_000) // grain_ms) * grain_ms
