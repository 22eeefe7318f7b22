"""Batches on their way into one partition: staged message by message, stored at once.

A batch that is committed is moved into the run that the current read gathers, just where its last
message stands; so it is part of one record batch, which a crash leaves whole or not at all, and
nothing that came before or after it changes places with it.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamlog.ingest.acks import batch_ack_json
from streamlog.ingest.answers import Answers
from streamlog.ingest.atomic_batch import StagedMessage
from streamlog.ingest.batches import Batches
from streamlog.ingest.expectations import SubjectSequence, unknown_sequence
from streamlog.ingest.frames import Inflow
from streamlog.ingest.publish_headers import Headers
from streamlog.ingest.refusal import INTERNAL, NO_BATCHES, NOT_ENOUGH_REPLICAS, Refusal
from streamlog.ingest.rolling import Rollups
from streamlog.ingest.rollups import asked_rollup
from streamlog.ingest.sequencer import Asked, Sequencer
from streamlog.ingest.staging import Staging
from streamlog.record.codec import RecordRun

RECORD_GROWTH_BYTES: Final = 16
"""More than a record's position and length can grow when it moves."""
HEADERS_BYTES_MAX: Final = 1 << 20
"""More than the headers of the last message can take as a record, above what NATS counts."""

COMMIT_HEADER: Final = (b"Nats-Batch-Commit", b"1")


class BatchPartition(Protocol):
    """What is needed of ``partition.owner.Partition``."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def messages_end(self) -> int: ...

    @property
    def below_min_isr(self) -> bool: ...


class Committed(Protocol):
    """Who is told of a commit."""

    def __call__(self, reply: bytes, offset: int, answer: bytes) -> None:
        """``answer`` goes to ``reply`` once the message at ``offset`` is committed."""


def _never(_subjects: Sequence[bytes], _size_bytes: int) -> Refusal | None:
    """There is always room."""
    return None


class Batching:
    """Part of an inlet, on whose event loop it is."""

    __slots__ = (
        "_answers", "_batches", "_committed", "_inflow", "_last_on", "_partition", "_rollups",
        "_sequencer", "_stream", "_too_much", "allowed", "has_grown",
    )  # fmt: skip

    def __init__(
        self,
        partition: BatchPartition,
        *,
        stream: str,
        inflow: Inflow,
        sequencer: Sequencer,
        staging: Staging,
        answers: Answers,
        committed: Committed,
        last_on: SubjectSequence = unknown_sequence,
        too_much: Callable[[Sequence[bytes], int], Refusal | None] = _never,
        rollups: Rollups | None = None,
    ) -> None:
        self.allowed = False
        """The stream takes batches; those that have begun go on until they are refused."""
        self.has_grown = False
        """Something was staged that is not accounted for."""
        self._partition = partition
        self._stream = stream
        self._inflow = inflow
        self._sequencer = sequencer
        self._batches = Batches(stream, staging)
        self._answers = answers
        self._committed = committed
        self._last_on = last_on
        self._too_much = too_much
        """Why there is no room for messages of these subjects, of so many bytes, if so."""
        self._rollups = rollups

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
        self._note_rollups(asked)
        offset = self._move(messages, with_last=not step.stores)
        answer = batch_ack_json(
            self._stream, offset + 1, batch_id.decode(errors="replace"), len(asked)
        )
        self._committed(reply, offset, answer)
        return self._inflow.run if step.stores else False

    def account(self) -> None:
        """Take room for what was staged."""
        self.has_grown = False
        self._batches.account()

    def expire(self, now_ms: int) -> None:
        """Give up what is idle."""
        self._batches.expire(now_ms)

    def clear(self) -> None:
        self._batches.clear()

    def _objection(self, asked: list[Asked], size_bytes: int, now_ms: int) -> Refusal | None:
        if self._partition.below_min_isr:
            return NOT_ENOUGH_REPLICAS
        run = self._inflow.run
        needed = size_bytes + len(asked) * RECORD_GROWTH_BYTES
        needed += self._inflow.value_bytes_max + HEADERS_BYTES_MAX
        if run.size_bytes + needed > run.bytes_max:
            return INTERNAL
        too_much = self._too_much([subject for subject, _ in asked], size_bytes)
        if self._rollups is not None and too_much is None:
            wanted = (asked_rollup(headers) for _, headers in asked)
            too_much = next(filter(None, map(self._rollups.objection, wanted)), None)
        return too_much or self._sequencer.admit_batch(
            asked,
            run.count,
            log_end_offset=self._partition.log_end_offset,
            messages_end=self._partition.messages_end,
            now_ms=now_ms,
            last_on=self._last_on,
        )

    def _note_rollups(self, asked: list[Asked]) -> None:
        """Of the messages that go into the run now."""
        if self._rollups is not None:
            for position, (subject, headers) in enumerate(asked, self._inflow.run.count):
                self._rollups.add(asked_rollup(headers), subject, position)

    def _move(self, messages: list[StagedMessage], *, with_last: bool) -> int:
        """Into the current run; the offset of the batch's last message, if it is among them or
        is the next one."""
        run = self._inflow.run
        for number, message in enumerate(messages, 1):
            is_last = with_last and number == len(messages)
            headers = [*message.headers, COMMIT_HEADER] if is_last else message.headers
            run.append(message.key, message.value, headers)
        return self._partition.log_end_offset + run.count - with_last

    def _refuse(self, reply: bytes, refusal: Refusal) -> bool:
        self._answers.refuse_one(self._stream, reply, refusal)
        return False
