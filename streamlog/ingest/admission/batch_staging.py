"""Batches on their way into one partition: staged message by message, stored at once.

A batch that is committed is moved into the run that the current read gathers, just where its last
message stands; so it is part of one record batch, which a crash leaves whole or not at all, and
nothing that came before or after it changes places with it.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from streamlog.ingest.acks.acks import batch_ack_json
from streamlog.ingest.acks.batch_staging_limit import BatchStagingLimit
from streamlog.ingest.acks.publisher_answers import PublisherAnswers
from streamlog.ingest.admission.atomic_batch import OpenBatches, StagedMessage
from streamlog.ingest.admission.expectations import SubjectSequence, unknown_sequence
from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import (
    INTERNAL,
    NO_BATCHES,
    NOT_ENOUGH_REPLICAS,
    PublishRefusal,
)
from streamlog.ingest.admission.rollup import asked_rollup
from streamlog.ingest.admission.rollup_deletes import Rollups
from streamlog.ingest.admission.sequencer import Asked, Sequencer
from streamlog.ingest.parser.frames import RecordCollector
from streamlog.record.codec import RecordRun

RECORD_GROWTH_BYTES: Final = 16
"""More than a record's position and length can grow when it moves."""
HEADERS_BYTES_MAX: Final = 1 << 20
"""More than the headers of the last message can take as a record, above what NATS counts."""

REST_BYTES_MAX: Final = 8 << 20
"""More than the rest of the read can take as records: what comes behind a batch must not be refused
for want of room in the run."""

COMMIT_HEADER: Final = (b"Nats-Batch-Commit", b"1")


class BatchPartition(Protocol):
    """What is needed of ``partition.partition.Partition``."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def messages_end(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def below_min_isr(self) -> bool: ...


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
        return any(asked_rollup(headers) for _, headers in self.asked)

    def answer(self, stream: str, base_offset: int) -> tuple[int, bytes]:
        """The offset of its last message, and what its publisher is told once it is committed."""
        offset = base_offset + self.positions[-1]
        batch_id = self.batch_id.decode(errors="replace")
        return offset, batch_ack_json(stream, offset + 1, batch_id, len(self.asked))


def _never(_subjects: Sequence[bytes], _size_bytes: int) -> PublishRefusal | None:
    """There is always room."""
    return None


class BatchStaging:
    """Part of an inlet, on whose event loop it is."""

    __slots__ = (
        "_answers", "_batches", "_in_run", "_inflow", "_last_on", "_make_room", "_partition",
        "_rollups",
        "_sequencer", "_stream", "_too_much", "allowed", "has_grown",
    )  # fmt: skip

    def __init__(
        self,
        partition: BatchPartition,
        *,
        stream: str,
        inflow: RecordCollector,
        sequencer: Sequencer,
        staging: BatchStagingLimit,
        answers: PublisherAnswers,
        last_on: SubjectSequence = unknown_sequence,
        too_much: Callable[[Sequence[bytes], int], PublishRefusal | None] = _never,
        rollups: Rollups | None = None,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """``make_room`` appends, or refuses, what the run has."""
        self.allowed = False
        """The stream takes batches; those that have begun go on until they are refused."""
        self.has_grown = False
        """Something was staged that is not accounted for."""
        self._partition = partition
        self._stream = stream
        self._inflow = inflow
        self._sequencer = sequencer
        self._batches = OpenBatches(stream, staging)
        self._answers = answers
        self._in_run: list[RunBatch] = []
        self._last_on = last_on
        self._too_much = too_much
        """Why there is no room for messages of these subjects, of so many bytes, if so."""
        self._rollups = rollups
        self._make_room = make_room

    def __len__(self) -> int:
        return len(self._batches)

    def admit(
        self, headers: Headers, subject: bytes, reply: bytes, now_ms: int
    ) -> bool | RecordRun:
        """As an inflow asks: the run that the message goes to, or False: nowhere."""
        if not self.allowed:
            return self._refuse(reply, NO_BATCHES)
        step = self._batches.add(headers, now_ms=now_ms)
        if step.refusal is not None:
            return self._refuse(reply, step.refusal)
        assert step.batch is not None, "a step has a batch or a refusal"
        if not step.commits:
            self.has_grown = True
            self._answers.tell(reply, b"")
            return step.batch.run
        batch_id = headers[b"Nats-Batch-Id"]
        size_bytes = step.batch.run.size_bytes
        messages = list(step.batch.take_messages())
        self._batches.end(batch_id)
        asked = [(message.subject, message.asked) for message in messages]
        if step.stores:
            asked.append((subject, headers))
        refusal = self._objection(asked, size_bytes, now_ms)
        if refusal is not None:
            return self._refuse(reply, refusal)
        self._note(RunBatch(0, asked, batch_id, reply))
        self._move(messages, with_last=not step.stores)
        return self._inflow.run if step.stores else False

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
        run. Judged anew, as a whole, since it may have expected what is gone. None: add them.
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

    def _objection(self, asked: list[Asked], size_bytes: int, now_ms: int) -> PublishRefusal | None:
        if self._partition.below_min_isr:
            return NOT_ENOUGH_REPLICAS
        run = self._inflow.run
        needed = size_bytes + len(asked) * RECORD_GROWTH_BYTES
        needed += self._inflow.value_bytes_max + HEADERS_BYTES_MAX
        if run.count and run.size_bytes + needed + REST_BYTES_MAX > run.bytes_max:
            self._make_room()
        if run.size_bytes + needed > run.bytes_max:
            return INTERNAL
        too_much = self._too_much([subject for subject, _ in asked], size_bytes)
        return too_much or self._judged(asked, now_ms)

    def _judged(self, asked: list[Asked], now_ms: int) -> PublishRefusal | None:
        """At the end of the run."""
        refusal = None
        if self._rollups is not None:
            wanted = (asked_rollup(headers) for _, headers in asked)
            refusal = next(filter(None, map(self._rollups.objection, wanted)), None)
        return refusal or self._sequencer.admit_batch(
            asked,
            self._inflow.run.count,
            log_end_offset=self._partition.log_end_offset,
            messages_end=self._partition.messages_end,
            now_ms=now_ms,
            last_on=self._last_on,
            committed_end=self._partition.high_watermark,
        )

    def _note(self, batch: RunBatch) -> None:
        """Its messages go to the end of the run now."""
        position = self._inflow.run.count
        self._in_run.append(batch._replace(position=position))
        if self._rollups is not None:
            for at, (subject, headers) in enumerate(batch.asked, position):
                self._rollups.add(asked_rollup(headers), subject, at)

    def _move(self, messages: list[StagedMessage], *, with_last: bool) -> None:
        """Into the current run."""
        run = self._inflow.run
        for number, message in enumerate(messages, 1):
            is_last = with_last and number == len(messages)
            headers = [*message.headers, COMMIT_HEADER] if is_last else message.headers
            run.append(message.key, message.value, headers)

    def _refuse(self, reply: bytes, refusal: PublishRefusal) -> bool:
        self._answers.refuse_one(self._stream, reply, refusal)
        return False
