"""Why a message is not stored, as JetStream would say it. Pure.

``code`` is HTTP-like, ``err_code`` is JetStream's own number; clients choose their exception by the
first and may look at the second.
"""

from typing import Final, NamedTuple

from streamlog.errors import (
    NotEnoughReplicas,
    NotLeader,
    Overloaded,
    PartitionNotFound,
    RecordTooLarge,
    StorageFailed,
    StorageFull,
    StreamlogError,
    StreamNotFound,
)
from streamlog.ingest.liftbridge import envelope
from streamlog.metadata.stream.write_state import WriteState


class PublishRefusal(NamedTuple):
    """One reason. ``reason`` is the label of the metric, a word out of a small fixed set."""

    code: int
    err_code: int
    description: str
    reason: str


TOO_LARGE = PublishRefusal(400, 10054, "message size exceeds maximum allowed", "too_large")
NO_KEY = PublishRefusal(
    400,
    10003,
    "bad request: the stream is compacted, and there is no Streamlog-Key header",
    "no_key",
)
WRONG_STREAM = PublishRefusal(400, 10060, "expected stream does not match", "expectation")
SUBJECT_SEQUENCE_MISSING = PublishRefusal(
    400, 10193, "missing sequence for expected last sequence per subject", "expectation"
)
SUBJECT_SEQUENCE_UNKNOWN = PublishRefusal(
    503, 10163, "expected last sequence per subject temporarily unavailable", "not_ready"
)
"""The index of subjects is being made; asking again helps."""
OVERLOADED = PublishRefusal(429, 10167, "too many requests", "overloaded")
IDS_FULL = PublishRefusal(
    429, 10167, "too many requests: the duplicate window holds all the ids it may", "overloaded"
)
STANDS_STILL: Final = {
    WriteState.SEALED: PublishRefusal(400, 10109, "invalid operation on sealed stream", "sealed"),
    WriteState.MIRROR: PublishRefusal(
        400, 10109, "stream is a mirror; nothing was stored", "readonly"
    ),
    WriteState.READONLY: PublishRefusal(
        400, 10109, "stream is read-only; nothing was stored", "readonly"
    ),
    WriteState.PAUSED: PublishRefusal(503, 10118, "stream is paused; nothing was stored", "paused"),
}
NO_BATCHES = PublishRefusal(400, 10174, "atomic publish is disabled", "batch")
REPEATED_IN_BATCH = PublishRefusal(
    400, 10201, "atomic publish batch contains duplicate message id", "batch"
)
REPEATED_SOON = PublishRefusal(
    503, 10008, "a message id of the batch is not committed yet; ask again", "not_ready"
)
"""The first one may yet be lost with its leader; who is told that it is a repetition would not send
it again."""
INTERNAL = PublishRefusal(503, 10077, "internal error; nothing was stored", "internal")
NOT_ENOUGH_REPLICAS = PublishRefusal(
    503, 10077, "fewer replicas in sync than min_isr; nothing was stored", "not_enough_replicas"
)
NOT_LEADER = PublishRefusal(503, 10008, "JetStream system temporarily unavailable", "not_leader")
"""Of a message that had been appended already, the next leader may have it: ask again."""

_BY_ERROR: tuple[tuple[type[StreamlogError], PublishRefusal], ...] = (
    (RecordTooLarge, TOO_LARGE),
    (Overloaded, OVERLOADED),
    (StorageFull, PublishRefusal(503, 10077, "storage is full", "storage_full")),
    (StorageFailed, PublishRefusal(503, 10077, "storage failed", "storage_failed")),
    (NotLeader, NOT_LEADER),
    (NotEnoughReplicas, NOT_ENOUGH_REPLICAS),
    (StreamNotFound, PublishRefusal(404, 10059, "stream not found", "stream_gone")),
    (PartitionNotFound, PublishRefusal(404, 10059, "stream not found", "stream_gone")),
)


CONFLICTS: Final = frozenset({10070, 10071})
"""Refusals that tell of the log: another message is the last one."""


def wrong_last_sequence(sequence: int) -> PublishRefusal:
    return PublishRefusal(400, 10071, f"wrong last sequence: {sequence}", "expectation")


def wrong_last_message_id(message_id: bytes) -> PublishRefusal:
    text = message_id.decode(errors="replace")
    return PublishRefusal(400, 10070, f"wrong last msg ID: {text}", "expectation")


_ENVELOPE_ERRORS: Final = {10054: envelope.TOO_LARGE, 10071: envelope.INCORRECT_OFFSET}


def envelope_error(refusal: PublishRefusal) -> int:
    """What Liftbridge calls it in an Ack, where it has a word for it."""
    return _ENVELOPE_ERRORS.get(refusal.err_code, envelope.UNKNOWN)


def refusal_of(error: Exception) -> PublishRefusal:
    """What a publisher is told about ``error``; anything unforeseen is an internal error."""
    for kind, refusal in _BY_ERROR:
        if isinstance(error, kind):
            return refusal
    return INTERNAL
