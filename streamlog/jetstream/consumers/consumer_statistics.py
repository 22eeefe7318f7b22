"""What a node counts of the JetStream consumers that it coordinates. Pure."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class ConsumerCounts:
    """What grows while the node runs."""

    deliveries: int = 0
    redeliveries: int = 0
    acks: int = 0


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
