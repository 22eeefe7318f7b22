"""What a coordinator's core wants done, and the clocks that it goes by. Pure."""

from collections.abc import Callable
from typing import Any, NamedTuple

from streamlog.wire.error_codes import ErrorCode

NONE = ErrorCode.none


class Now(NamedTuple):
    """The two clocks."""

    ms: int
    """Monotonic: all deadlines are by it."""
    wall_ms: int
    """Of the day: what is kept in the log goes by it."""


class KeptRecord(NamedTuple):
    """A record of the log, as bytes; ``value`` None is a tombstone."""

    key: bytes
    value: bytes | None


class SendReply(NamedTuple):
    """``token`` stands for a request that waits; it is answered once, with ``result``."""

    token: object
    result: Any


class TransactionPart(NamedTuple):
    """What is written belongs to a producer's transaction."""

    producer_id: int
    producer_epoch: int
    verified: object
    """What the partition has been told by the transaction's coordinator."""


class Write(NamedTuple):
    """Append the records, as one batch; tell ``then`` when it is committed, or that it is not.

    ``then(error, now)`` gives further effects. An error leaves open whether the records are in the
    log, unless the partition is still led in the same epoch: then they are not.
    """

    records: tuple[KeptRecord, ...]
    then: Callable[[ErrorCode, Now], "list[Any]"]
    transaction: TransactionPart | None = None
