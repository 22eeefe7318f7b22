"""Who writes: a task, known by the same producer id in each of its attempts."""

import hashlib
import random
from dataclasses import dataclass
from typing import Final

from streamlog.errors import InvalidProducerEpoch

DERIVED_IDS: Final = 1 << 62
"""Producer ids from here on are derived; those that a cluster gives away count from 0."""
SEQUENCE_FIRST_MAX: Final = 2**30
EPOCH_MAX: Final = 2**15 - 1
TAKEOVERS: Final = 16
"""A takeover uses up no more than such a part of the epochs that are left."""


@dataclass(frozen=True)
class TaskAttempt:
    """One attempt of one task of a write."""

    producer_id: int
    """The same for all attempts of the task, also after a restart of the query."""
    task: int
    """Tasks of one write have numbers from 0 on."""

    @classmethod
    def of_batch(cls, write_id: str, task: int) -> "TaskAttempt":
        return cls(_derived_id("batch", write_id, str(task)), task)

    @classmethod
    def of_stream(cls, query_id: str, epoch: int, task: int) -> "TaskAttempt":
        """``epoch``: which of the query's micro-batches; its retry is of the same number."""
        return cls(_derived_id("stream", query_id, str(epoch), str(task)), task + epoch)


def first_sequence() -> int:
    """Where an attempt begins to number that knows of no other: where no other does."""
    return random.randint(1, SEQUENCE_FIRST_MAX)


def epoch_after(epoch: int) -> int:
    """The epoch of an attempt that takes over from one of ``epoch``; rarely two attempts get the same.

    Raises InvalidProducerEpoch.
    """
    if epoch >= EPOCH_MAX:
        raise InvalidProducerEpoch("the task has been attempted too often; write it as a new query")
    return epoch + random.randint(1, max(1, (EPOCH_MAX - epoch) // TAKEOVERS))


def _derived_id(*parts: str) -> int:
    text = "\0".join(parts).encode()
    hashed = hashlib.blake2b(text, digest_size=8, person=b"streamlog-spark").digest()
    return DERIVED_IDS | int.from_bytes(hashed, "big") & (DERIVED_IDS - 1)
