from collections import deque
from typing import Final, NamedTuple

from streamlog.errors import InvalidProducerEpoch, OutOfOrderSequence
from streamlog.producers.sequence import following

BATCHES_KEPT: Final = 5
"""Kafka's number: no client has more requests than that in flight when it numbers batches."""


class KeptBatch(NamedTuple):
    """One that is in the log."""

    first_sequence: int
    next_sequence: int
    base_offset: int
    next_offset: int


class Producer:
    """One producer in one partition. A new epoch begins anew, with the sequence 0."""

    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        """When it last wrote, by the clock of this node."""
        self.batches: deque[KeptBatch] = deque(maxlen=BATCHES_KEPT)
        """The last ones of ``epoch``, oldest first; never empty once it has written."""

    def judge(self, epoch: int, sequence: int, count: int) -> KeptBatch | None:
        """The batch in the log that this one repeats; None: it is the next one.

        Raises InvalidProducerEpoch, OutOfOrderSequence.
        """
        if epoch < self.epoch:
            raise InvalidProducerEpoch(f"epoch {epoch}, where {self.epoch} has written")
        if epoch > self.epoch:
            expected = 0
        else:
            wanted = sequence, following(sequence, count)
            for kept in self.batches:
                if wanted == (kept.first_sequence, kept.next_sequence):
                    return kept
            expected = self.batches[-1].next_sequence
        if sequence != expected:
            raise OutOfOrderSequence(f"sequence {sequence}, where {expected} is next")
        return None

    def note(self, epoch: int, batch: KeptBatch) -> None:
        """It is in the log, after all that were noted before."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
        self.batches.append(batch)
