"""Atomic batches: messages that are stored together or not at all, as JetStream has them (ADR-50).
Pure.

A message belongs to a batch by ``Nats-Batch-Id``; ``Nats-Batch-Sequence`` counts from 1;
``Nats-Batch-Commit`` ends it, ``1`` with this message and ``eob`` without it. The order of the
checks is JetStream's. What lies here is of no partition yet: a leader that goes takes it along.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.ingest.acks.batch_staging_limit import BatchStagingLimit
from streamlog.ingest.admission.publish_headers import API_LEVEL, Headers
from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.published import asked

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
_API_LEVEL: Final = PublishRefusal(
    412, 10185, "JetStream minimum api level required", "unsupported"
)


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
        """Nobody can commit them here any more, and the next leader knows none of them."""
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
        level = headers.get(b"Nats-Required-Api-Level")
        if level and not (level.isdigit() and len(level) < 10 and int(level) <= API_LEVEL):
            self.abandon(batch_id, "unsupported")
            return _API_LEVEL
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
