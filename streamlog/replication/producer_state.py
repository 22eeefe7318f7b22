"""The state of one idempotent producer: its epoch and last sequences (Kafka's ProducerStateEntry). Pure."""

from collections import deque
from typing import Final, NamedTuple

from streamlog.errors import InvalidProducerEpoch, OutOfOrderSequence

SEQUENCE_MAX: Final = 2**31 - 1
"""Sequences go on from 0 after it."""
BATCHES_KEPT: Final = 5
"""Kafka's number: no client has more requests than that in flight when it numbers batches."""


def following(sequence: int, count: int) -> int:
    """The sequence after ``count`` records of which the first has ``sequence``."""
    return (sequence + count) & SEQUENCE_MAX


class KeptBatch(NamedTuple):
    """One that is in the log."""

    first_sequence: int
    next_sequence: int
    base_offset: int
    next_offset: int


class ProducerState:
    """One producer in one partition.

    A new epoch begins again, with the sequence 0, as in Kafka; or it goes on where the last one
    ended. A client that takes a producer over does the latter: it is refused if the other one has written
    since it looked, and the other one is refused from then on.
    """

    __slots__ = ("batches", "epoch", "first_offset", "seen_ms")

    def __init__(self, epoch: int, first_offset: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.first_offset = first_offset
        """Of its first batch, in whatever epoch, that is known of."""
        self.seen_ms = seen_ms
        """When it last wrote, by the clock of this node."""
        self.batches: deque[KeptBatch] = deque(maxlen=BATCHES_KEPT)
        """The last ones of ``epoch``, oldest first; never empty once it has written."""

    def check_sequence(self, epoch: int, sequence: int, count: int) -> KeptBatch | None:
        """The batch in the log that this one repeats; None: it is the next one.

        Raises InvalidProducerEpoch, OutOfOrderSequence.
        """
        if epoch < self.epoch:
            text = f"epoch {epoch}, where {self.epoch} has written"
            raise InvalidProducerEpoch(text, self.first_offset)
        if epoch == self.epoch:
            wanted = sequence, following(sequence, count)
            for kept in self.batches:
                if wanted == (kept.first_sequence, kept.next_sequence):
                    return kept
        expected = self.batches[-1].next_sequence
        if sequence == expected or (epoch > self.epoch and sequence == 0):
            return None
        text = f"sequence {sequence}, where {expected} is next"
        raise OutOfOrderSequence(text, self.first_offset)

    def note(self, epoch: int, batch: KeptBatch) -> None:
        """It is in the log, after all that were noted before."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
        self.batches.append(batch)
