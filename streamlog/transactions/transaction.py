"""A transactional id, and how its transactions come and go (Kafka: TransactionMetadata). Pure.

Each change gives another ``Transaction``, which holds once it is in the log:

    Empty, CompleteCommit, CompleteAbort -> Ongoing -> PrepareCommit -> CompleteCommit
                                                    -> PrepareAbort  -> CompleteAbort

An epoch belongs to one producer. With version 2 (KIP-890) each end of a transaction gives the producer its
next epoch, which the markers have already: what was sent late for the transaction before is refused by all
partitions. Before that only InitProducerId, and an abort that the coordinator decides on, change the epoch.
"""

from enum import IntEnum
from typing import Final, NamedTuple

PartitionId = tuple[str, int]
"""A topic's name and a partition's number."""

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
NEVER: Final = -1
EPOCH_MAX: Final = 2**15 - 1
"""No client has this one: with it, the coordinator can still end what the one before has begun."""
VERSION_2: Final = 2
"""Transactions of which each end changes the epoch."""


class TransactionState(IntEnum):
    """As Kafka numbers them in the log; the names are those of DescribeTransactions."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def shown(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """It is decided how the transaction ends, and the partitions are about to be told."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class ProducerEpoch(NamedTuple):
    """A producer's id, and which of its epochs."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """What is kept of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[PartitionId]
    update_ms: int
    """Wall clock, of this change."""
    start_ms: int = NEVER
    """Wall clock, of when its last transaction began."""
    last_epoch: int = NO_EPOCH
    """The epoch before, if the producer that has it may ask again for what has given it the present one;
    ``NO_EPOCH``: another producer may have come since.
    """
    previous_id: int = NO_PRODUCER
    """The producer's id before the present one, whose epochs were used up."""
    next_id: int = NO_PRODUCER
    """The producer's id once this transaction is complete, as the epochs of the present one are used up."""
    version: int = 0
    """Of the transaction: of the client that ends it, or has it begin."""

    @property
    def producer(self) -> ProducerEpoch:
        """Who may go on: the client knows its next epoch as soon as the end is prepared."""
        if self.next_id != NO_PRODUCER:
            return ProducerEpoch(self.next_id, 0)
        return ProducerEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_used_up(self) -> bool:
        """No client may have another epoch of this producer id."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def is_open(self) -> bool:
        """Its outcome is not known to every partition yet."""
        return self.state is TransactionState.ONGOING or self.state.is_prepared

    @property
    def commits(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def gave_next(self, producer: ProducerEpoch) -> bool:
        """The present epoch was given for a request by this producer, which may ask again."""
        if producer.epoch == NO_EPOCH or producer.epoch != self.last_epoch:
            return False
        if producer.producer_id == self.producer_id:
            return self.producer_epoch == producer.epoch + 1
        return producer.producer_id == self.previous_id and self.producer_epoch == 0

    def is_ended_for(self, producer: ProducerEpoch) -> bool:
        """It is decided how the transaction ends, and the markers have this producer's id and epoch."""
        return self.state.is_prepared and producer == (self.producer_id, self.producer_epoch)

    def initialised(
        self, producer: ProducerEpoch, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        """In the next epoch, or with another producer id, and without a transaction."""
        is_other = producer.producer_id != self.producer_id
        return self._replace(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            previous_id=self.producer_id if is_other else self.previous_id,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NEVER,
            update_ms=now_ms,
            version=0,
        )

    def with_partitions(
        self, partitions: frozenset[PartitionId], version: int, now_ms: int
    ) -> "Transaction":
        """The transaction has these, too; it begins with them if there is none."""
        is_open = self.state is TransactionState.ONGOING
        return self._replace(
            state=TransactionState.ONGOING,
            partitions=self.partitions | partitions if is_open else partitions,
            start_ms=self.start_ms if is_open else now_ms,
            update_ms=now_ms,
            last_epoch=NO_EPOCH,  # the producer knows its epoch
            version=version,
        )

    def prepared(self, *, commit: bool, now_ms: int) -> "Transaction":
        """It ends, and its producer keeps its epoch."""
        return self._replace(
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            update_ms=now_ms,
            version=0,
        )

    def prepared_with_next_epoch(
        self, *, commit: bool, may_retry: bool, next_id: int, now_ms: int
    ) -> "Transaction":
        """It ends, and what comes in the present epoch is refused from then on. ``next_id``: where ``is_used_up``."""
        return self.prepared(commit=commit, now_ms=now_ms)._replace(
            producer_epoch=self.producer_epoch + 1,
            last_epoch=self.producer_epoch if may_retry else NO_EPOCH,
            next_id=next_id,
            version=VERSION_2,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Each partition has its marker."""
        producer = self.producer
        is_other = self.next_id != NO_PRODUCER
        return self._replace(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            previous_id=self.producer_id if is_other else self.previous_id,
            next_id=NO_PRODUCER,
            state=TransactionState.COMPLETE_COMMIT
            if self.commits
            else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            update_ms=now_ms,
        )


def new_transaction(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """Of a transactional id that was not known; its first producer has the next epoch."""
    return Transaction(
        producer_id, NO_EPOCH, timeout_ms, TransactionState.EMPTY, frozenset(), now_ms
    )
