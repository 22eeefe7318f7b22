"""What producers ask for, what the core answers, and what it wants done. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from streamlog.coordination.effects import Now, SendReply, Write
from streamlog.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER,
    PartitionId,
    ProducerEpoch,
)
from streamlog.wire.error_codes import ErrorCode

NO_PRODUCER_EPOCH = ProducerEpoch(NO_PRODUCER, NO_EPOCH)


class InitRequest(NamedTuple):
    """InitProducerId with a transactional id. ``known``: the producer that goes on (KIP-360), or none: a new one."""

    transactional_id: str
    timeout_ms: int
    known: ProducerEpoch = NO_PRODUCER_EPOCH


class AddRequest(NamedTuple):
    """AddPartitionsToTxn."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: frozenset[PartitionId]
    version: int
    """Of the transaction."""


class EndRequest(NamedTuple):
    """EndTxn."""

    transactional_id: str
    producer: ProducerEpoch
    commit: bool
    version: int


class GivenProducer(NamedTuple):
    """The answer to InitProducerId and EndTxn: the producer's id and epoch from now on."""

    error: ErrorCode
    producer: ProducerEpoch = NO_PRODUCER_EPOCH


class TakeProducerId(NamedTuple):
    """Find a producer id that no producer has had; tell ``then``."""

    then: Callable[[int | ErrorCode, Now], "list[Effect]"]


class SendMarkers(NamedTuple):
    """Tell each of these partitions how the transaction ends, until each has it; then ``marked``."""

    transactional_id: str
    producer: ProducerEpoch
    commit: bool
    partitions: frozenset[PartitionId]
    version: int


Effect = SendReply | Write | TakeProducerId | SendMarkers
