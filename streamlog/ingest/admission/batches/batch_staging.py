"""Atomic batches: messages that are stored together or not at all, as JetStream has them (ADR-50).

A message belongs to a batch by ``Nats-Batch-Id``; ``Nats-Batch-Sequence`` counts from 1;
``Nats-Batch-Commit`` ends it, ``1`` with this message and ``eob`` without it. The order of the
checks is JetStream's. What lies here is of no partition yet: a leader that goes takes it along.

Batches on their way into one partition: staged message by message, stored at once.

A batch that is committed is moved into the run that the current read gathers, just where its last
message stands; so it is part of one record batch, which a crash leaves whole or not at all, and
nothing that came before or after it changes places with it.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Final, NamedTuple

from streamlog.errors import BrokenInvariant
from streamlog.ingest.admission.counters import SOURCES_HEADER, CounterTotals
from streamlog.ingest.admission.deduplicator import Asked, Deduplicator
from streamlog.ingest.admission.expectations import SubjectSequence, unknown_sequence
from streamlog.ingest.admission.publish_headers import Headers, level_objection
from streamlog.ingest.admission.refusal import (
    CONFLICTS,
    INTERNAL,
    NO_BATCHES,
    NOT_ENOUGH_REPLICAS,
    PublishRefusal,
)
from streamlog.ingest.admission.rollups import Rollups, asked_rollup
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.frames import RecordCollector
from streamlog.ingest.pub_ack_format import batch_ack_json
from streamlog.ingest.pub_acks import PubAcks
from streamlog.ingest.schedules import scheduling_rules
from streamlog.partition.partition import Partition
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.published import asked

RECORD_GROWTH_BYTES: Final = 16
"""More than a record's position and length can grow when it moves."""
HEADERS_BYTES_MAX: Final = 1 << 20
"""More than the headers of the last message can take as a record, above what NATS counts."""

REST_BYTES_MAX: Final = 8 << 20
"""More than the rest of the read can take as records: what comes behind a batch must not be refused
for want of room in the run."""

COMMIT_HEADER: Final = (b"Nats-Batch-Commit", b"1")


NODE_BATCHES_MAX: Final = 1_000
"""Of a node. JetStream's limit, as are the others of batches."""
ROOM_SHARE: Final = 4
"""Batches get one part in so many of the room for what is in flight: they may lie for a while, and
must leave room to those that do not."""


class BatchStagingLimit:
    """At either limit the batch that asks for more is refused, and given up.

    What is staged is in flight, too: it takes from the node's room.
    """

    def __init__(
        self,
        room: InFlightBytes,
        *,
        in_flight_bytes_max: int,
        batches_max: int = NODE_BATCHES_MAX,
        given_up: Callable[[str, bytes, str], None] = lambda *_: None,
    ) -> None:
        self._room = room
        self.given_up = given_up
        """Told of each batch that was: its stream, its id, why."""
        self.bytes_max = in_flight_bytes_max // ROOM_SHARE
        self._batches_max = batches_max
        self.count = 0
        """Batches."""
        self.taken_bytes = 0

    def begin(self) -> bool:
        """One batch more; False if there may be none."""
        if self.count >= self._batches_max:
            return False
        self.count += 1
        return True

    def take(self, size_bytes: int) -> None:
        self.taken_bytes += size_bytes
        self._room.take(size_bytes)

    def has_room(self, size_bytes: int) -> bool:
        return self.taken_bytes + size_bytes <= self.bytes_max

    def end(self, size_bytes: int) -> None:
        """A batch is stored, or given up; ``size_bytes``: all that was taken for it."""
        self.count -= 1
        self.taken_bytes -= size_bytes
        if self.count < 0 or self.taken_bytes < 0:
            raise BrokenInvariant("what ended had begun")
        self._room.give_back(size_bytes)


BATCH_BYTES_MAX: Final = 64 << 20
"""A batch that has grown beyond it gets no message more: it becomes part of one record batch, which
must not be too large for those who fetch it."""
MESSAGE_OVERHEAD_BYTES: Final = 256
"""What a staged message costs beside its record, when the batch is taken apart."""


class StagedMessage(NamedTuple):
    """One message of a batch, as it will be stored."""

    subject: bytes
    asked: Headers
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class AtomicBatch:
    """Its messages so far. Messages go into ``run`` one by one, in their order."""

    __slots__ = ("deadline_ms", "last", "run", "taken_bytes")

    def __init__(self) -> None:
        self.run = RecordRun()
        self.last = 0
        """The number within the batch of its last message; the first is 1."""
        self.deadline_ms = 0
        """Given up then, if nothing more has come."""
        self.taken_bytes = 0
        """For which room has been taken."""

    @property
    def size_bytes(self) -> int:
        """In memory."""
        return self.run.size_bytes + self.run.count * MESSAGE_OVERHEAD_BYTES

    def take_messages(self) -> Iterator[StagedMessage]:
        """All of them, in order; the batch is empty afterwards."""
        if not self.run.count:
            return
        sealed = self.run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)
        for record in iter_records(sealed):
            headers = [(name.encode(), value) for name, value in record.headers]
            wants = {name.encode(): value for name, value in asked(record.headers).items()}
            yield StagedMessage(headers[0][1] or b"", wants, record.key, record.value, headers)


ID_BYTES_MAX: Final = 64
MESSAGES_MAX: Final = 1_000
"""Of one batch."""
BATCHES_MAX: Final = 50
"""Of one partition."""
IDLE_MS_MAX: Final = 10_000
"""After this long without a message a batch is given up."""
SEQUENCE_DIGITS_MAX: Final = 19

INCOMPLETE: Final = PublishRefusal(400, 10176, "atomic publish batch is incomplete", "batch")
TOO_MANY: Final = PublishRefusal(429, 10210, "atomic publish too many inflight", "overloaded")
_NO_SEQUENCE: Final = PublishRefusal(400, 10175, "atomic publish sequence is missing", "batch")
_BAD_ID: Final = PublishRefusal(400, 10179, "atomic publish batch ID is invalid", "batch")
_BAD_COMMIT: Final = PublishRefusal(400, 10200, "atomic publish batch commit is invalid", "batch")


class BatchStep(NamedTuple):
    """What becomes of one message: refused, staged in ``batch``, or the end of ``batch``."""

    batch: AtomicBatch | None = None
    refusal: PublishRefusal | None = None
    commits: bool = False
    stores: bool = True
    """With a commit: this message is part of the batch."""


class OpenBatches:
    """``add`` each message; who commits a batch, or drops one, ``end``s it.

    Invariant: every batch in here has begun in ``staging``, with the bytes that it has taken.
    """

    def __init__(self, stream: str, staging: BatchStagingLimit) -> None:
        self._stream = stream
        self._staging = staging
        self._batches: dict[bytes, AtomicBatch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, headers: Headers, *, now_ms: int) -> BatchStep:
        """Where a message goes."""
        batch_id = headers[b"Nats-Batch-Id"]
        if len(batch_id) > ID_BYTES_MAX:
            return BatchStep(refusal=_BAD_ID)
        sequence = _number(headers.get(b"Nats-Batch-Sequence", b""))
        if sequence is None:
            return BatchStep(refusal=_NO_SEQUENCE)
        commit = headers.get(b"Nats-Batch-Commit")
        self.expire(now_ms)
        batch, refusal = self._find(batch_id, sequence, commit)
        if batch is None:
            return BatchStep(refusal=refusal)
        if commit not in (None, b"1", b"eob"):
            self.end(batch_id)
            return BatchStep(refusal=_BAD_COMMIT)
        refusal = self._objection(batch_id, batch, sequence, headers)
        if refusal:
            return BatchStep(refusal=refusal)
        batch.deadline_ms = now_ms + IDLE_MS_MAX
        return BatchStep(batch, commits=commit is not None, stores=commit != b"eob")

    def end(self, batch_id: bytes) -> None:
        """It is stored, or will not be."""
        self._staging.end(self._batches.pop(batch_id).taken_bytes)

    def abandon(self, batch_id: bytes, reason: str) -> None:
        """``reason``: JetStream's word."""
        self.end(batch_id)
        self._staging.given_up(self._stream, batch_id, reason)

    def account(self) -> None:
        """Take room for what has been staged by now."""
        for batch in self._batches.values():
            grown = batch.size_bytes - batch.taken_bytes
            if grown:
                self._staging.take(grown)
                batch.taken_bytes += grown

    def expire(self, now_ms: int) -> None:
        """Give up those for which nothing has come for too long."""
        idle = [it for it, batch in self._batches.items() if batch.deadline_ms <= now_ms]
        for batch_id in idle:
            self.abandon(batch_id, "timeout")

    def clear(self) -> None:
        """They cannot be committed here any more, and the next leader knows none of them."""
        for batch_id in list(self._batches):
            self.end(batch_id)

    def _find(
        self, batch_id: bytes, sequence: int, commit: bytes | None
    ) -> tuple[AtomicBatch | None, PublishRefusal | None]:
        """The batch, which is begun by its first message; else why not."""
        batch = self._batches.get(batch_id)
        if batch is not None:
            return batch, None
        if sequence != 1:
            large = _stored(sequence, commit) > MESSAGES_MAX
            return None, too_large() if large else INCOMPLETE
        if len(self._batches) >= BATCHES_MAX or not self._staging.begin():
            return None, TOO_MANY
        batch = self._batches[batch_id] = AtomicBatch()
        return batch, None

    def _objection(
        self, batch_id: bytes, batch: AtomicBatch, sequence: int, headers: Headers
    ) -> PublishRefusal | None:
        """Why the batch ends here; it has been given up then."""
        refusal = level_objection(headers)
        if refusal is not None:
            self.abandon(batch_id, "unsupported")
            return refusal
        batch.last += 1
        commit = headers.get(b"Nats-Batch-Commit")
        if batch.last != sequence or not _stored(sequence, commit):
            self.abandon(batch_id, "incomplete")
            return INCOMPLETE
        if _stored(sequence, commit) > MESSAGES_MAX:
            self.abandon(batch_id, "large")
            return too_large()
        if batch.size_bytes > BATCH_BYTES_MAX:
            self.abandon(batch_id, "large")
            return too_large(f"{BATCH_BYTES_MAX} bytes")
        if commit is None and not self._staging.has_room(batch.size_bytes - batch.taken_bytes):
            self.abandon(batch_id, "large")
            return TOO_MANY
        return None


def too_large(limit: object = MESSAGES_MAX) -> PublishRefusal:
    return PublishRefusal(400, 10199, f"atomic publish batch is too large: {limit}", "batch")


def _stored(sequence: int, commit: bytes | None) -> int:
    """How many messages the batch has with this one."""
    return sequence - 1 if commit == b"eob" else sequence


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= SEQUENCE_DIGITS_MAX else None


class RunBatch(NamedTuple):
    """A batch that is part of the run, whose messages lie next to each other there."""

    position: int
    """Of its first message."""
    asked: list[Asked]
    """What each of its messages asks for."""
    batch_id: bytes
    reply: bytes

    @property
    def positions(self) -> range:
        return range(self.position, self.position + len(self.asked))

    @property
    def rolls_up(self) -> bool:
        return any(
            asked_rollup(headers) or scheduling_rules.purged(headers) for _, headers in self.asked
        )

    def answer(self, stream: str, base_offset: int) -> tuple[int, bytes]:
        """The offset of its last message, and what its publisher is told once it is committed."""
        offset = base_offset + self.positions[-1]
        batch_id = self.batch_id.decode(errors="replace")
        return offset, batch_ack_json(stream, offset + 1, batch_id, len(self.asked))


def _never(_subjects: Sequence[bytes], _size_bytes: int) -> PublishRefusal | None:
    """There is always room."""
    return None


Extended = tuple[RecordRun, bytes, bytes]
"""The run that a message goes to, and the name and value of a header that it gets besides its own."""


def extended(run: RecordRun, added: tuple[bytes, bytes] | None) -> RecordRun | Extended:
    return run if added is None else (run, *added)


class BatchStaging:
    """Part of a partition ingest, on whose event loop it is."""

    __slots__ = (
        "_answers", "_await_conflict", "_batches", "_deduplicator", "_in_run", "_inflow", "_last_on",
        "_make_room", "_partition", "_rollups", "_stream", "_too_much", "allowed", "counters", "has_grown",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        *,
        stream: str,
        inflow: RecordCollector,
        deduplicator: Deduplicator,
        staging: BatchStagingLimit,
        answers: PubAcks,
        last_on: SubjectSequence = unknown_sequence,
        too_much: Callable[[Sequence[bytes], int], PublishRefusal | None] = _never,
        rollups: Rollups | None = None,
        make_room: Callable[[], None] = lambda: None,
        await_conflict: Callable[[bytes, PublishRefusal, int], None] | None = None,
    ) -> None:
        """``make_room`` appends, or refuses, what the run has. ``await_conflict`` takes the reply of a batch that
        expected other messages to be the last, its refusal, and the position that the batch would have had in the run.
        """
        self.allowed = False
        """The stream takes batches; those that have begun go on until they are refused."""
        self.counters: CounterTotals | None = None
        """Of a stream of counters."""
        self.has_grown = False
        """Something was staged that is not accounted for."""
        self._partition = partition
        self._stream = stream
        self._inflow = inflow
        self._deduplicator = deduplicator
        self._batches = OpenBatches(stream, staging)
        self._answers = answers
        self._in_run: list[RunBatch] = []
        self._last_on = last_on
        self._too_much = too_much
        """Why there is no room for messages of these subjects, of so many bytes, if so."""
        self._rollups = rollups
        self._make_room = make_room
        self._await_conflict = await_conflict

    def __len__(self) -> int:
        return len(self._batches)

    def admit(
        self,
        headers: Headers,
        subject: bytes,
        reply: bytes,
        now_ms: int,
        *,
        has_payload: bool = False,
    ) -> bool | RecordRun | Extended:
        """As an inflow asks: the run that the message goes to, or False: nowhere. ``has_payload``
        matters to counters alone.
        """
        headers, added = scheduling_rules.with_rollup(headers, self._deduplicator.scheduling)
        if not self.allowed:
            return self._refuse(reply, NO_BATCHES)
        step = self._batches.add(headers, now_ms=now_ms)
        if step.refusal is not None:
            return self._refuse(reply, step.refusal)
        assert step.batch is not None, "a step has a batch or a refusal"
        if not step.commits:
            self.has_grown = True
            self._answers.tell(reply, b"")
            return extended(step.batch.run, added)
        batch_id = headers[b"Nats-Batch-Id"]
        size_bytes = step.batch.run.size_bytes
        messages = list(step.batch.take_messages())
        self._batches.end(batch_id)
        asked = [(message.subject, message.asked) for message in messages]
        if step.stores:
            asked.append((subject, headers))
        with_payload = {number for number, it in enumerate(messages) if it.value}
        if has_payload:
            with_payload.add(len(messages))
        refusal = self._objection(asked, size_bytes, now_ms, with_payload)
        if refusal is not None:
            if refusal.err_code in CONFLICTS and reply and self._await_conflict is not None:
                self._await_conflict(reply, refusal, self._inflow.run.count)
                return False
            return self._refuse(reply, refusal)
        self._note(RunBatch(0, asked, batch_id, reply))
        self._move(messages, with_last=not step.stores)
        return extended(self._inflow.run, added) if step.stores else False

    @property
    def has_any_in_run(self) -> bool:
        return bool(self._in_run)

    @property
    def positions(self) -> set[int]:
        """Of the messages in the run that are part of a batch."""
        return {position for batch in self._in_run for position in batch.positions}

    def take_in_run(self) -> list[RunBatch]:
        """The batches of the run, which is appended or dropped; there are none afterwards."""
        in_run, self._in_run = self._in_run, []
        return in_run

    def move(self, batch: RunBatch, now_ms: int) -> PublishRefusal | None:
        """What was before it in the run is refused: its messages would now come to the end of the
        run. Judged again, as a whole, since it may have expected what is gone. None: add them.
        """
        refusal = self._judged(batch.asked, now_ms)
        if refusal is None:
            self._note(batch)
        return refusal

    def account(self) -> None:
        """Take room for what was staged."""
        self.has_grown = False
        self._batches.account()

    def expire(self, now_ms: int) -> None:
        """Give up what is idle."""
        self._batches.expire(now_ms)

    def clear(self) -> None:
        self._batches.clear()

    def _objection(
        self, asked: list[Asked], size_bytes: int, now_ms: int, with_payload: Container[int]
    ) -> PublishRefusal | None:
        if self._partition.below_min_isr:
            return NOT_ENOUGH_REPLICAS
        run = self._inflow.run
        needed = size_bytes + len(asked) * RECORD_GROWTH_BYTES
        needed += self._inflow.message_bytes_max + HEADERS_BYTES_MAX
        is_full = run.size_bytes + needed + REST_BYTES_MAX > run.bytes_max
        if run.count and (is_full or any(scheduling_rules.purged(headers) for _, headers in asked)):
            self._make_room()
        if run.size_bytes + needed > run.bytes_max:
            return INTERNAL
        too_much = self._too_much([subject for subject, _ in asked], size_bytes)
        return too_much or self._judged(asked, now_ms, with_payload)

    def _judged(
        self, asked: list[Asked], now_ms: int, with_payload: Container[int] = ()
    ) -> PublishRefusal | None:
        """At the end of the run."""
        refusal = None
        if self._rollups is not None:
            objection = self._rollups.objection
            broken = (objection(asked_rollup(it), scheduling_rules.purged(it)) for _, it in asked)
            refusal = next(filter(None, broken), None)
        refusal = refusal or self._deduplicator.admit_batch(
            asked,
            self._inflow.run.count,
            log_end_offset=self._partition.log_end_offset,
            messages_end=self._partition.messages_end,
            now_ms=now_ms,
            last_on=self._last_on,
            committed_end=self._partition.high_watermark,
            with_payload=with_payload,
        )
        if refusal is None and self.counters is not None:
            broken = (self.counters.objection(subject) for subject in {it for it, _ in asked})
            refusal = next(filter(None, broken), None)
            if refusal is not None:  # its ids were taken into the window
                self._deduplicator.abort(self._partition.log_end_offset + self._inflow.run.count)
        return refusal

    def _note(self, batch: RunBatch) -> None:
        """Its messages go to the end of the run now."""
        position = self._inflow.run.count
        self._in_run.append(batch._replace(position=position))
        if self._rollups is not None:
            for at, (subject, headers) in enumerate(batch.asked, position):
                purged = scheduling_rules.purged(headers)
                self._rollups.add(asked_rollup(headers), subject, at, purged=purged)

    def _move(self, messages: list[StagedMessage], *, with_last: bool) -> None:
        """Into the current run."""
        run = self._inflow.run
        for number, message in enumerate(messages, 1):
            is_last = with_last and number == len(messages)
            headers = [*message.headers, COMMIT_HEADER] if is_last else message.headers
            value = message.value
            if self.counters is not None:
                value, sources = self.counters.count(message.asked, message.subject, run.count)
                if sources:
                    headers = [it for it in headers if it[0] != SOURCES_HEADER]
                    headers.append((SOURCES_HEADER, sources))
            run.append(message.key, value, headers)

    def _refuse(self, reply: bytes, refusal: PublishRefusal) -> bool:
        self._answers.refuse_one(self._stream, reply, refusal)
        return False
