"""Appends batches of Kafka producers, each once: idempotence by producer id, epoch and sequence."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from streamlog.clock import wall_ms
from streamlog.condition import CRITICAL, Condition
from streamlog.errors import (
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidTimestamp,
    InvalidTransactionState,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StreamlogError,
)
from streamlog.log.control_batches import note_all, note_records
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.segment.segment import Segment
from streamlog.log.segment.time_search import latest_time
from streamlog.log.transactions.transactions import NO_OFFSET
from streamlog.partition.state import Acknowledgement, PartitionState
from streamlog.partition.tiering.segment_history import decode_producers
from streamlog.partition.tiering.tiered_log import TieredLog
from streamlog.record.batch import BatchHeader, read_header
from streamlog.record.codec import RecordRun, marked_batches
from streamlog.record.produced import ProducedBatch, stamp
from streamlog.record.transaction_marker import (
    NO_SEQUENCE,
    VERSION_2,
    TransactionMarker,
    as_transactional,
    marker_batch,
    marker_of,
)
from streamlog.replication.producer_state import NO_COORDINATOR, SEQUENCE_MAX, KeptBatch
from streamlog.replication.producer_table import PRODUCERS_MAX, ProducerTable

logger = logging.getLogger(__name__)

PRODUCERS_NOT_KNOWN: Final = Condition(
    "SL-0229",
    "producers from here on are not known",
    "idempotent producers begin again: restart them",
    meaning="A damaged part of the log hides the sequence numbers of its idempotent producers.",
    severity=CRITICAL,
)

TIERED_PRODUCERS_NOT_READ: Final = Condition(
    "SL-0237",
    "producers of old segments are not known",
    "see whether tier.url is reachable; idempotent producers go on meanwhile",
    meaning="A new leader could not read from the object store what old segments say of their "
    "producers. A batch that is repeated after more than the local retention may be stored twice.",
)
READ_BYTES: Final = 4 * 1024 * 1024
AHEAD_MS_MAX: Final = 3_600_000
"""Kafka's limit, too: a time that lies further ahead would keep a segment for ever."""
SEGMENTS_MIN: Final = 2
"""The last ones are read whatever times their records claim."""


class ProducerAppend(NamedTuple):
    """A producer's batch in the log."""

    base_offset: int
    append_time_ms: int | None = None
    """Where its records have the leader's time instead of their own."""
    is_repetition: bool = False
    """It was there already."""


class VerifiedTransaction:
    """That a producer's transaction has this partition is being asked, or was answered: the first batch of the
    transaction is appended by it. A marker that comes first, or another leader, makes it void.
    """

    __slots__ = ("epoch", "first_sequence", "producer_id")

    def __init__(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.first_sequence = first_sequence
        """The lowest that was asked for: nothing before it may come later."""


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers tells of it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_ms: int
    coordinator_epoch: int
    first_offset: int
    """Of its open transaction; -1: it has none."""


class _ScannedBatches(NamedTuple):
    """What a piece of the log says of producers, in its order."""

    found: list[tuple[BatchHeader, TransactionMarker | None]]
    next_offset: int


class ProducerStateManager:
    """A partition's producers, known from all batches in its log. On the event loop.

    What is appended or fetched is taken note of as it comes; what was in the log before this
    process is read when the first numbered batch asks for it, so a log of none never pays.
    Invariant: while ``complete``, the table has every numbered batch that the log has.
    """

    __slots__ = (
        "_cuts",
        "_expiration_ms",
        "_first_id",
        "_knows_tiered",
        "_read",
        "_reading",
        "_state",
        "_table",
        "_tiered",
        "_verified",
        "complete",
    )

    def __init__(
        self,
        state: PartitionState,
        read: Callable[[int, int], Awaitable[FileSlice]],
        *,
        expiration_ms: int,
        first_id: Callable[[], int] = lambda: 0,
        tiered: TieredLog | None = None,
    ) -> None:
        """``tiered``: what is in the object store; ``first_id``: the lowest producer id that is given in this metadata
        log.
        """
        self._state = state
        self._read = read
        self._expiration_ms = expiration_ms
        self._first_id = first_id
        self._table = ProducerTable(expiration_ms=expiration_ms)
        log = state.log
        self.complete = log.log_start_offset == log.log_end_offset
        self._tiered = tiered
        self._knows_tiered = tiered is None
        """What came before the local log was read, or there was none when the rest was."""
        self._cuts = 0
        self._reading = asyncio.Lock()
        self._verified: dict[int, VerifiedTransaction] = {}
        """By producer id."""

    async def know(self) -> None:
        """Return when the table is complete. Raises NotLeader, StorageFailed."""
        if not self._knows_tiered:
            self.complete = self.complete and not self._is_tiered
            self._knows_tiered = self.complete
        if self.complete:
            return
        async with self._reading:
            while not self.complete:
                await self._rebuild()

    def append(
        self,
        batch: ProducedBatch,
        ack: Acknowledgement,
        *,
        now_ms: int,
        append_time: bool = False,
        started: float = 0.0,
        check_room: Callable[[int, int], None] | None = None,
        verified: VerifiedTransaction | None = None,
    ) -> ProducerAppend:
        """At the log's end, and ``ack`` hears of the commit, later. Nothing, if it is a repetition:
        of the first one, whose commit ``ack`` hears of, perhaps at once.

        ``append_time``: the records are to have the leader's time. ``know`` comes before, for a
        numbered batch; ``check_room`` may refuse so many records of so many bytes, which are not
        there yet; ``verified`` is needed by a transaction's first batch. Raises NotLeader,
        StorageFull, StorageFailed, Overloaded,
        InvalidTimestamp, InvalidProducerEpoch, OutOfOrderSequence, UnknownProducer,
        InvalidTransactionState.
        """
        state = self._state
        state.check_writable()
        if batch.is_sequenced:
            if not self.complete:
                raise NotLeader(f"{state.tp}: its producers are not known any more")
            kept = self._table.check_sequence(batch.header, first_id=self._first_id())
            if kept is not None:
                self._await_again(kept, ack, started)
                return ProducerAppend(kept.base_offset, is_repetition=True)
            self._check_transaction(batch.header, verified)
        if check_room is not None:
            check_room(batch.record_count, len(batch.data))
        base_offset = state.log.log_end_offset
        no_time = batch.max_timestamp_ms < 0  # retention must have one to go by
        append_time_ms = now_ms if append_time or no_time else None
        self._write(batch, now_ms, append_time_ms)
        if batch.is_sequenced:
            self._noted(batch.header, base_offset, now_ms)
        state.await_commit(base_offset, state.appended_bytes, started, ack)
        return ProducerAppend(base_offset, append_time_ms)

    def _noted(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        self._table.note(header, base_offset, now_ms)
        if header.is_transactional:
            self._verified.pop(header.producer_id, None)
            note_records(self._state.log.transactions, header._replace(base_offset=base_offset))

    # Transactions

    def verify(self, header: BatchHeader) -> VerifiedTransaction | None:
        """What the transaction of this batch is to be verified by; None: it is open here. ``know`` comes before. It
        stays where the answer is no: a later batch must not come first when the answer to it is yes.
        """
        return self.verify_producer(header.producer_id, header.producer_epoch, header.base_sequence)

    def verify_producer(
        self, producer_id: int, epoch: int, first_sequence: int = NO_SEQUENCE
    ) -> VerifiedTransaction | None:
        """As ``verify``; without a sequence, for what the node itself writes."""
        known = self._state.log.transactions.open.get(producer_id)
        if known is not None and known.producer_epoch == epoch:
            return None
        verified = self._verified.get(producer_id)
        if verified is None or verified.epoch < epoch:
            if len(self._verified) >= PRODUCERS_MAX:
                del self._verified[next(iter(self._verified))]  # its batch is to be verified again
            verified = VerifiedTransaction(producer_id, epoch, first_sequence)
            self._verified[producer_id] = verified
        elif verified.epoch == epoch:
            verified.first_sequence = min(verified.first_sequence, first_sequence)
        return verified

    def was_deposed(self) -> None:
        """Another leader may have written a marker: what was verified before counts no more."""
        self._verified.clear()

    def _check_transaction(self, header: BatchHeader, verified: object) -> None:
        """Raises InvalidTransactionState, OutOfOrderSequence."""
        known = self._state.log.transactions.open.get(header.producer_id)
        about = f"{self._state.tp}: producer {header.producer_id}"
        if known is not None:
            if not header.is_transactional:
                raise InvalidTransactionState(f"{about} writes past its open transaction")
            if known.producer_epoch != header.producer_epoch:
                raise InvalidTransactionState(
                    f"{about} has a transaction of epoch {known.producer_epoch} that is yet to end"
                )
        elif header.is_transactional:
            valid = self._verified.get(header.producer_id)
            if valid is None or valid is not verified or valid.epoch != header.producer_epoch:
                raise InvalidTransactionState(
                    f"{about}: its transaction does not have this partition"
                )
            if 0 <= valid.first_sequence < header.base_sequence:
                raise OutOfOrderSequence(
                    f"sequence {header.base_sequence}, where {valid.first_sequence} is to come first"
                )

    def append_unnumbered(
        self,
        run: RecordRun,
        producer_id: int,
        producer_epoch: int,
        ack: Acknowledgement,
        *,
        verified: object,
    ) -> int:
        """As ``append``, records that the node itself writes for a producer's transaction; the base offset. The run is
        empty afterwards. Raises as that.
        """
        state, log, now_ms = self._state, self._state.log, wall_ms()
        try:
            state.check_writable()
            if not self.complete:
                raise NotLeader(f"{state.tp}: its producers are not known any more")
            self._table.check_epoch(producer_id, producer_epoch)
            base_offset = log.log_end_offset
            batch = run.seal(
                base_offset=base_offset,
                leader_epoch=state.leader_epoch,
                timestamp_ms=now_ms,
                producer=(producer_id, producer_epoch, NO_SEQUENCE),
            )
        finally:
            run.clear()
        batch = as_transactional(batch)
        header = read_header(batch)
        self._check_transaction(header, verified)
        state.write(batch, now_ms)
        state.appended_bytes = len(batch)
        self._noted(header, base_offset, now_ms)
        state.await_commit(base_offset, len(batch), time.perf_counter(), ack)
        return base_offset

    def end(self, marker: TransactionMarker, ack: Acknowledgement) -> None:
        """Append the marker, unless it is there; ``ack`` hears of the commit, never during this call. ``know`` comes
        before. Raises NotLeader, NotEnoughReplicas, StorageFull, StorageFailed, Overloaded, InvalidProducerEpoch,
        CoordinatorFenced.
        """
        state, log = self._state, self._state.log
        state.check_writable()
        state.check_min_isr()
        if not self.complete:
            raise NotLeader(f"{state.tp}: its producers are not known any more")
        started, now_ms, base_offset = time.perf_counter(), wall_ms(), log.log_end_offset
        is_there = self._table.check_marker(marker)
        known = log.transactions.open.get(marker.producer_id)
        is_next = marker.transaction_version >= VERSION_2
        if known is not None and marker.producer_epoch < known.producer_epoch + is_next:
            raise InvalidProducerEpoch(
                f"{state.tp}: a marker of epoch {marker.producer_epoch}, where {known.producer_epoch} has written"
            )
        if is_there:
            state.await_commit(base_offset, 0, started, ack)
            return
        batch = marker_batch(
            marker, base_offset=base_offset, leader_epoch=state.leader_epoch, timestamp_ms=now_ms
        )
        state.write(batch, now_ms)
        state.appended_bytes = len(batch)
        self._verified.pop(marker.producer_id, None)
        self._table.note_marker(marker, base_offset, now_ms)
        note_all(log.erasures, log.transactions, batch)
        state.await_commit(base_offset, len(batch), started, ack)

    def active(self) -> list[ActiveProducer]:
        """Those that may go on, and those with an open transaction that were forgotten. ``know`` comes before."""
        transactions = self._state.log.transactions.open
        found = [
            ActiveProducer(
                it.producer_id,
                it.producer_epoch,
                NO_SEQUENCE,
                it.started_ms,
                NO_COORDINATOR,
                it.first_offset,
            )
            for it in transactions.values()
            if it.producer_id not in self._table
        ]
        for producer_id, it in self._table.items():
            known = transactions.get(producer_id)
            last = (it.batches[-1].next_sequence - 1) & SEQUENCE_MAX if it.batches else NO_SEQUENCE
            first = NO_OFFSET if known is None else known.first_offset
            found.append(
                ActiveProducer(producer_id, it.epoch, last, it.seen_ms, it.coordinator_epoch, first)
            )
        return found

    def _await_again(self, kept: KeptBatch, ack: Acknowledgement, started: float) -> None:
        """Others wait for later offsets by now, and all wait in order: it waits with the last."""
        state = self._state
        if kept.next_offset <= state.high_watermark:
            ack.committed(kept.base_offset)
        else:
            state.await_commit(kept.base_offset, 0, started, ack)

    def _write(self, batch: ProducedBatch, now_ms: int, append_time_ms: int | None) -> None:
        state, log = self._state, self._state.log
        timestamp_ms = batch.max_timestamp_ms if append_time_ms is None else append_time_ms
        if timestamp_ms > now_ms + AHEAD_MS_MAX:
            raise InvalidTimestamp(f"a time of {timestamp_ms} ms, where it is {now_ms} ms")
        data = stamp(
            batch,
            base_offset=log.log_end_offset,
            leader_epoch=state.leader_epoch,
            append_time_ms=append_time_ms,
        )
        # Followers have only the batch's own time to roll by, and must roll where we do.
        state.write(data, timestamp_ms)
        state.appended_bytes = len(data)

    def fetched(self, records: memoryview) -> None:
        """These whole batches were appended as a follower."""
        self._note(self._table, _find(records))

    def was_cut(self) -> None:
        """The log is shorter now, or begins again."""
        self._cuts += 1
        log = self._state.log
        end = log.log_end_offset
        if log.log_start_offset == end:
            self._forget()
            self.complete = True
            self._knows_tiered = self._tiered is None  # it may begin above what it had
        elif self._table.reaches(end):
            self._forget()
            self.complete = False

    def _forget(self) -> None:
        self._table = ProducerTable(expiration_ms=self._expiration_ms)

    async def _rebuild(self) -> None:
        """Out of the log, as far as records may still be repeated; decodes in worker threads."""
        log, cuts = self._state.log, self._cuts
        table = ProducerTable(expiration_ms=self._expiration_ms)
        started = time.perf_counter()
        since_ms = wall_ms() - self._expiration_ms
        while True:
            start = log.log_start_offset
            tiered = await self._read_tiered(since_ms)
            first = await asyncio.to_thread(_first_young, list(log.segments), since_ms)
            if log.log_start_offset == start:
                break  # else the segments between were in neither
        self._note_tiered(table, tiered, start)
        offset = max(first, start)
        while offset < log.log_end_offset:
            try:
                with await self._read(offset, READ_BYTES) as part:
                    found = await asyncio.to_thread(_find_in, part)
            except OffsetOutOfRange:  # retention was quicker
                offset = max(offset, log.log_start_offset)
                continue
            except CorruptBatch as error:
                offset = self._after_damage(offset, error)
                continue
            if cuts != self._cuts:
                return
            self._note(table, found)
            if found.next_offset <= offset:
                break
            offset = found.next_offset
        if cuts == self._cuts:
            self._table, self.complete, self._knows_tiered = table, True, True
            self._tell(time.perf_counter() - started)

    @property
    def _is_tiered(self) -> bool:
        """The object store has records that the local log has not."""
        tiered = self._tiered
        return tiered is not None and tiered.log_start_offset < self._state.log.log_start_offset

    async def _read_tiered(self, since_ms: int) -> list[bytes]:
        """A store that is not reached must not hold up producers: the local log has the last minutes in any case, and
        with them what producers repeat.
        """
        if self._tiered is None:
            return []
        try:
            return await self._tiered.producers_since(since_ms)
        except StreamlogError as error:
            tp = self._state.tp
            extra = {"stream": tp.stream, "partition": tp.partition, "error": str(error)}
            logger.warning(TIERED_PRODUCERS_NOT_READ, extra=extra)
            return []

    def _note_tiered(self, table: ProducerTable, parts: list[bytes], end: int) -> None:
        """What is below ``end``: what follows is in the local log. Raises CorruptFile."""
        for data in parts:
            found = [
                (header, marker_of(memoryview(batch), header) if header.is_control else None)
                for header, batch in decode_producers(data, str(self._state.tp))
                if header.base_offset < end
            ]
            self._note(table, _ScannedBatches(found, 0))

    def _after_damage(self, offset: int, error: CorruptBatch) -> int:
        """A partition must not stay shut to producers for it: where the next segment begins."""
        tp, log = self._state.tp, self._state.log
        extra = {"stream": tp.stream, "partition": tp.partition, "offset": offset}
        logger.error(PRODUCERS_NOT_KNOWN, extra={**extra, "error": str(error)})
        later = (it.base_offset for it in log.segments if it.base_offset > offset)
        return next(later, log.log_end_offset)

    def _note(self, table: ProducerTable, found: _ScannedBatches) -> None:
        now_ms = wall_ms() if found.found else 0
        for header, marker in found.found:
            if marker is None:
                table.note(header, header.base_offset, now_ms)
            else:
                table.note_marker(marker, header.base_offset, now_ms)

    def _tell(self, seconds: float) -> None:
        if len(self._table):
            tp = self._state.tp
            extra = {"stream": tp.stream, "partition": tp.partition, "producers": len(self._table)}
            logger.info("producers read from the log", extra={**extra, "ms": round(seconds * 1000)})


def _first_young(segments: list[Segment], since_ms: int) -> int:
    """Where the first one begins whose producers have not all expired, as far as its times tell.

    Reads the ends of those before it.
    """
    for segment in segments[:-SEGMENTS_MIN]:
        try:
            latest_ms = latest_time(segment)
        except OSError:  # retention may have been quicker
            latest_ms = None
        if latest_ms is None or latest_ms >= since_ms:
            return segment.base_offset
    return segments[-SEGMENTS_MIN:][0].base_offset


def _find_in(part: FileSlice) -> _ScannedBatches:
    return _find(part.read())


def _find(records: bytes | memoryview) -> _ScannedBatches:
    positions, next_offset = marked_batches(records)
    found: list[tuple[BatchHeader, TransactionMarker | None]] = []
    for position in positions:
        header, marker = read_header(records, position), None
        if header.is_control:
            batch = memoryview(records)[position : position + header.size_bytes]
            marker = marker_of(batch, header)
            if marker is None:
                continue
        found.append((header, marker))
    return _ScannedBatches(found, next_offset)
