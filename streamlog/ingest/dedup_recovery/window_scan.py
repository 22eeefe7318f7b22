"""The ids of the duplicate window out of the log, so that no restart and no failover forgets one.

Up to the log end: what a former leader appended is kept by its successor, committed or not, and a
retry of it must not be stored a second time.
"""

import logging
from functools import partial
from typing import Final, NamedTuple

from streamlog.condition import ANOTHER_REPLICA, CRITICAL, Condition
from streamlog.errors import (
    CorruptData,
    OffsetOutOfRange,
    StorageFailed,
    StreamlogError,
    Unavailable,
)
from streamlog.ingest.admission import rollups as rolls
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.dedup_recovery.hops import InThread, alone
from streamlog.ingest.schedules.scheduling_rules import PURGE
from streamlog.log.segment.file_slice import FileSlice
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.record.published import asked

logger = logging.getLogger(__name__)

IDS_UNKNOWN_FROM_HERE: Final = Condition(
    "SL-0412",
    "message ids from here on are not known",
    "publishers may repeat themselves unseen; " + ANOTHER_REPLICA,
    meaning="A damaged part of the log hides the message ids of its duplicate window.",
    severity=CRITICAL,
)

NEVER_MS = 2**62
"""Later than any time."""
READ_BYTES = 4 * 1024 * 1024
WHOLE_BYTES = 64 * 1024
"""A log no larger than this is read once, as a whole. To look up where its window begins, and to
read its last messages again, would take longer than that."""
MESSAGE_ID = "Nats-Msg-Id"
_MESSAGE_ID_BYTES = MESSAGE_ID.encode()
EXPECTATION = "Nats-Expected-Last-Subject-Sequence"
_EXPECTATION_BYTES = EXPECTATION.encode()
ROLLUP = "Nats-Rollup"
_ROLLUP_BYTES = ROLLUP.encode()
SCHEDULE_NEXT = "Nats-Schedule-Next"
_SCHEDULE_NEXT_BYTES = SCHEDULE_NEXT.encode()
SCHEDULER = "Nats-Scheduler"
SOURCE = "Nats-Stream-Source"
"""Of a message that another stream has admitted: what it asked for was asked of that one."""
RECENT_MESSAGES = 1000
"""Of these it is looked what they want to know of subjects."""


class KnownId(NamedTuple):
    """A message id in the log."""

    message_id: bytes
    offset: int
    timestamp_ms: int


class Scanned(NamedTuple):
    """What a piece of a log told."""

    next_offset: int
    """The first one after it; -1: there was no batch in it."""
    epoch: int
    """Of its last batch."""
    ids: list[KnownId]
    expects: bool = False
    """One of its messages expected the sequence of a subject; of those to come, others will."""
    rollups: tuple[tuple[int, bytes | None], ...] = ()
    """The offset of each message that has others go, and their subject; None: all of them."""


async def rebuild_window(
    partition: Partition,
    deduplicator: Deduplicator,
    *,
    since_ms: int,
    from_offset: int = 0,
    in_thread: InThread = alone,
    whole: list[Scanned] | None = None,
) -> int:
    """Have ``deduplicator`` remember every id stored since then, at or above ``from_offset``.

    How many they are. Decodes in worker threads. At damaged records it ends and says so: a stream
    must not stay shut for them. Raises Unavailable where asking again may help, as with a disk that
    is full just when an index has to be repaired.

    ``whole`` has a small log read from its start, and gets what was read of it.
    """
    offset, count = from_offset, 0
    if whole is not None and (from_offset or partition.size_bytes > WHOLE_BYTES):
        whole = None
    try:
        if not from_offset:
            if whole is not None:
                offset = partition.files_start
            else:
                offset = await first_offset(partition, since_ms)
            deduplicator.leave_out(since_ms)
        while offset < partition.log_end_offset:
            found = await _scanned(partition, offset, in_thread)
            if found is None:
                offset = partition.local_log_start_offset
                continue
            count += remember(deduplicator, found.ids, since_ms)
            if found.next_offset <= offset:  # the log is being cut: another node leads
                deduplicator.leave_out(NEVER_MS)
                break
            offset = found.next_offset
            if whole is not None:
                whole.append(found)
    except Unavailable:
        raise
    except StreamlogError as error:
        deduplicator.leave_out(NEVER_MS)
        _tell_of_gap(partition.tp, offset, error)
    return count


async def _scanned(partition: Partition, offset: int, in_thread: InThread) -> Scanned | None:
    """None: that was before the log start, where files go at any time, and damage is not repaired."""
    try:
        with await partition.read_files(offset, READ_BYTES, is_appended=True) as part:
            return await in_thread(partial(scan, part), len(part))
    except (OffsetOutOfRange, CorruptData, StorageFailed):
        if offset >= partition.local_log_start_offset:
            raise
        return None


async def look_at_recent(partition: Partition, in_thread: InThread = alone) -> list[Scanned]:
    """The last messages; all of the last batch is among them. Raises StreamlogError."""
    end, found = partition.log_end_offset, list[Scanned]()
    offset = _recent_from(partition)
    while offset < end:
        try:
            with await partition.read_appended(offset, READ_BYTES) as part:
                found.append(await in_thread(partial(scan, part), len(part)))
        except OffsetOutOfRange:  # retention was quicker
            if offset >= partition.log_start_offset:
                raise
            offset = partition.log_start_offset
            continue
        if found[-1].next_offset <= offset:
            break
        offset = found[-1].next_offset
    return found


def recent_of(partition: Partition, whole: list[Scanned]) -> list[Scanned] | None:
    """As ``look_at_recent``, out of what was read of a log from its start; None where its end is
    not among that.
    """
    if not whole or whole[-1].next_offset < partition.log_end_offset:
        return None
    first = _recent_from(partition)
    recent = [it for it in whole if it.next_offset > first]
    return [
        it._replace(rollups=tuple(rollup for rollup in it.rollups if rollup[0] >= first))
        for it in recent
    ]


def _recent_from(partition: Partition) -> int:
    return max(partition.local_log_start_offset, partition.log_end_offset - RECENT_MESSAGES)


async def first_offset(partition: Partition, since_ms: int) -> int:
    """Below it, all is older. What is not committed has no time yet that could be looked up.

    Ids outlive their messages: a limit may have let these go, and files still have them.
    """
    try:
        found = await partition.offset_for_timestamp(since_ms, from_files_start=True)
    except (CorruptData, StorageFailed):
        found = await partition.offset_for_timestamp(since_ms)
    return partition.high_watermark if found is None else found[0]


def remember(deduplicator: Deduplicator, ids: list[KnownId], since_ms: int) -> int:
    """Those that are that young; how many."""
    deduplicator.leave_out(since_ms)
    count = 0
    for message_id, offset, timestamp_ms in ids:
        if timestamp_ms >= since_ms:
            deduplicator.remember(message_id, offset, timestamp_ms)
            count += 1
    return count


def scan(part: FileSlice) -> Scanned:
    """All of its ids. The headers of what did not come over NATS ask for nothing; nor are batches
    decoded that cannot hold an id. Blocks.
    """
    data = part.read()
    next_offset = epoch = -1
    ids: list[KnownId] = []
    expects = _EXPECTATION_BYTES in data
    rollups: list[tuple[int, bytes | None]] = []
    uncompressed_wishes = any(
        name in data for name in (_MESSAGE_ID_BYTES, _ROLLUP_BYTES, _SCHEDULE_NEXT_BYTES)
    )
    for header, batch in batches(data):
        next_offset, epoch = header.next_offset, header.leader_epoch
        if header.is_published and (header.compression or uncompressed_wishes):
            expects |= _look(batch, ids, rollups)
    return Scanned(next_offset, epoch, ids, expects, tuple(rollups))


def _look(batch: memoryview, ids: list[KnownId], rollups: list[tuple[int, bytes | None]]) -> bool:
    """Add its ids and its rollups to those; whether there was an expectation."""
    expects = False
    for record in iter_records(batch):
        if any(name == SOURCE for name, _ in record.headers):
            continue
        names = asked(record.headers)
        message_id = names.get(MESSAGE_ID)
        if message_id:
            ids.append(KnownId(message_id, record.offset, record.timestamp_ms))
        expects |= EXPECTATION in names
        rollup = names.get(ROLLUP, b"").lower()
        if rollup in (rolls.SUBJECT, rolls.ALL):
            subject = None if rollup == rolls.ALL else record.headers[0][1]
            rollups.append((record.offset, subject))
        scheduler = names.get(SCHEDULER)
        if scheduler and names.get(SCHEDULE_NEXT) == PURGE:
            rollups.append((record.offset, scheduler))
    return expects


def _tell_of_gap(tp: TopicPartition, offset: int, error: Exception) -> None:
    logger.error(
        IDS_UNKNOWN_FROM_HERE,
        extra={
            "stream": tp.stream,
            "partition": tp.partition,
            "offset": offset,
            "error": str(error),
        },
    )
