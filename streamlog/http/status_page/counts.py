"""What partitions want, and how many of a stream's want it. Pure."""

from typing import Final, NamedTuple

from streamlog.metadata.image.metadata_image import PartitionImage, StreamImage
from streamlog.model import NO_LEADER

LEADERLESS: Final = "leaderless"
UNDER_MIN_ISR: Final = "under_min_isr"
UNDER_REPLICATED: Final = "under_replicated"
MOVING: Final = "moving"


class PartitionCounts(NamedTuple):
    """Of one stream, or of all."""

    partitions: int = 0
    leaderless: int = 0
    under_min_isr: int = 0
    """Too few in sync: writes with acks=all are refused."""
    under_replicated: int = 0
    moving: int = 0

    def of(self, want: str) -> int:
        """How many want that; empty: how many there are."""
        match want:
            case "":
                return self.partitions
            case "leaderless":
                return self.leaderless
            case "under_min_isr":
                return self.under_min_isr
            case "under_replicated":
                return self.under_replicated
            case "moving":
                return self.moving
        return 0

    def plus(self, other: "PartitionCounts", times: int = 1) -> "PartitionCounts":
        return PartitionCounts(
            self.partitions + times * other.partitions,
            self.leaderless + times * other.leaderless,
            self.under_min_isr + times * other.under_min_isr,
            self.under_replicated + times * other.under_replicated,
            self.moving + times * other.moving,
        )


WANTS: Final = (LEADERLESS, UNDER_MIN_ISR, UNDER_REPLICATED, MOVING)
ONE_WELL: Final = PartitionCounts(1)


def counts_of(stream: StreamImage, number: int, partition: PartitionImage) -> PartitionCounts:
    """Of one partition."""
    isr = len(partition.isr)
    is_under_min = isr < stream.config.min_isr and isr < stream.min_isr(number)
    is_under_replicated = isr < len(partition.replicas)
    is_leaderless = partition.leader == NO_LEADER
    if is_leaderless or is_under_min or is_under_replicated or partition.is_moving:
        moving = partition.is_moving
        return PartitionCounts(1, is_leaderless, is_under_min, is_under_replicated, moving)
    return ONE_WELL


def wants(stream: StreamImage, number: int, partition: PartitionImage) -> frozenset[str]:
    """What a partition wants, by the names above."""
    counts = counts_of(stream, number, partition)
    return frozenset(want for want in WANTS if counts.of(want))
