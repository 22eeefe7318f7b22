"""Why a message is not stored, as JetStream would say it. Pure.

``code`` is HTTP-like, ``err_code`` is JetStream's own number; clients choose their exception by the
first and may look at the second.
"""

from typing import NamedTuple

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


class Refusal(NamedTuple):
    """One reason. ``reason`` is the label of the metric, a word out of a small fixed set."""

    code: int
    err_code: int
    description: str
    reason: str


TOO_LARGE = Refusal(400, 10054, "message size exceeds maximum allowed", "too_large")
NO_KEY = Refusal(
    400,
    10003,
    "bad request: the stream is compacted, and there is no Streamlog-Key header",
    "no_key",
)
WRONG_STREAM = Refusal(400, 10060, "expected stream does not match", "expectation")
OVERLOADED = Refusal(429, 10167, "too many requests", "overloaded")
IDS_FULL = Refusal(
    429, 10167, "too many requests: the duplicate window holds all the ids it may", "overloaded"
)
INTERNAL = Refusal(503, 10077, "internal error; nothing was stored", "internal")
NOT_ENOUGH_REPLICAS = Refusal(
    503, 10077, "fewer replicas in sync than min_isr; nothing was stored", "not_enough_replicas"
)
NOT_LEADER = Refusal(503, 10008, "JetStream system temporarily unavailable", "not_leader")
"""Of a message that had been appended already, the next leader may have it: ask again."""

_BY_ERROR: tuple[tuple[type[StreamlogError], Refusal], ...] = (
    (RecordTooLarge, TOO_LARGE),
    (Overloaded, OVERLOADED),
    (StorageFull, Refusal(503, 10077, "storage is full", "storage_full")),
    (StorageFailed, Refusal(503, 10077, "storage failed", "storage_failed")),
    (NotLeader, NOT_LEADER),
    (NotEnoughReplicas, NOT_ENOUGH_REPLICAS),
    (StreamNotFound, Refusal(404, 10059, "stream not found", "stream_gone")),
    (PartitionNotFound, Refusal(404, 10059, "stream not found", "stream_gone")),
)


def wrong_last_sequence(sequence: int) -> Refusal:
    return Refusal(400, 10071, f"wrong last sequence: {sequence}", "expectation")


def wrong_last_message_id(message_id: bytes) -> Refusal:
    text = message_id.decode(errors="replace")
    return Refusal(400, 10070, f"wrong last msg ID: {text}", "expectation")


def refusal_of(error: Exception) -> Refusal:
    """What a publisher is told about ``error``; anything unforeseen is an internal error."""
    for kind, refusal in _BY_ERROR:
        if isinstance(error, kind):
            return refusal
    return INTERNAL
