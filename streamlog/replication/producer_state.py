"""The state of one idempotent producer: its epoch and last sequences (Kafka's ProducerStateEntry). Pure."""

from collections import deque
from typing import Final, NamedTuple

from streamlog.errors import CoordinatorFenced, InvalidProducerEpoch, OutOfOrderSequence

SEQUENCE_MAX: Final = 2**31 - 1
"""Sequences go on from 0 after it."""
BATCHES_KEPT: Final = 5
"""Kafka's number: no client has more requests than that in flight when it numbers batches."""

NO_COORDINATOR: Final = -1


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

    __slots__ = (
        "batches", "begins_again", "coordinator_epoch", "end_offset", "epoch", "first_offset", "seen_ms",
    )  # fmt: skip

    def __init__(self, epoch: int, first_offset: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.first_offset = first_offset
        """Of its first batch, in whatever epoch, that is known of."""
        self.seen_ms = seen_ms
        """When it last wrote, by the clock of this node."""
        self.batches: deque[KeptBatch] = deque(maxlen=BATCHES_KEPT)
        """The last ones of ``epoch``, oldest first."""
        self.begins_again = False
        """A marker has given it a new epoch, in which it has written nothing yet."""
        self.coordinator_epoch = NO_COORDINATOR
        """Of its last transaction marker."""
        self.end_offset = first_offset
        """After its last batch, or marker."""

    def check_sequence(self, epoch: int, sequence: int, count: int) -> KeptBatch | None:
        """The batch in the log that this one repeats; None: it is the next one.

        Raises InvalidProducerEpoch, OutOfOrderSequence.
        """
        self.check_epoch(epoch)
        if epoch == self.epoch:
            wanted = sequence, following(sequence, count)
            for kept in self.batches:
                if wanted == (kept.first_sequence, kept.next_sequence):
                    return kept
        if epoch > self.epoch and sequence == 0:
            return None
        if self.batches:
            expected = self.batches[-1].next_sequence
        elif self.begins_again:
            expected = 0
        else:
            return None  # what came before is not known any more
        if sequence == expected:
            return None
        text = f"sequence {sequence}, where {expected} is next"
        raise OutOfOrderSequence(text, self.first_offset)

    def check_epoch(self, epoch: int) -> None:
        """Raises InvalidProducerEpoch."""
        if epoch < self.epoch:
            text = f"epoch {epoch}, where {self.epoch} has written"
            raise InvalidProducerEpoch(text, self.first_offset)

    def note(self, epoch: int, batch: KeptBatch) -> None:
        """It is in the log, after all that were noted before."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
        self.batches.append(batch)
        self.begins_again = False
        self.end_offset = batch.next_offset

    def note_unnumbered(self, epoch: int, next_offset: int) -> None:
        """The same of a batch that its writer has not numbered: a group's offsets, by the group's coordinator."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
        self.begins_again = False
        self.end_offset = next_offset

    def check_marker(self, epoch: int, coordinator_epoch: int) -> None:
        """Raises InvalidProducerEpoch, CoordinatorFenced."""
        if coordinator_epoch < self.coordinator_epoch:
            raise CoordinatorFenced(
                f"coordinator epoch {coordinator_epoch}, where {self.coordinator_epoch} has ended a transaction"
            )
        self.check_epoch(epoch)

    def note_marker(self, epoch: int, coordinator_epoch: int, next_offset: int) -> None:
        """A transaction of it has ended in the log: what comes next is of ``epoch``."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.begins_again = True
        self.coordinator_epoch = max(self.coordinator_epoch, coordinator_epoch)
        self.end_offset = next_offset
