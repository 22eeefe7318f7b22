"""What a node counts of the JetStream consumers that it coordinates. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class ConsumerCounts:
    """What grows while the node runs."""

    deliveries: int = 0
    redeliveries: int = 0
    acks: int = 0


class Holder(NamedTuple):
    """A consumer of a stream that keeps what its consumers have not acknowledged."""

    stream: str
    consumer: str
    messages: int
    """That stay for it, at most: its filters may not match all of them."""


class ConsumerStatistics(NamedTuple):
    """Of one node, at one moment. Counters grow while the node runs."""

    durable: int = 0
    ephemeral: int = 0
    loading: int = 0
    """Partitions of which the consumers are not known yet."""
    deliveries: int = 0
    """Redeliveries included."""
    redeliveries: int = 0
    acks: int = 0
    """Of every kind."""
    unreported: int = 0
    """Streams whose leaders could not be told what may be removed."""
    holders: Sequence[Holder] = ()
    """Of partitions that are led here; those that hold most, if they are many."""
