"""How many partitions of each stream want something; counted again only where a stream changed."""

from typing import NamedTuple

from streamlog.metadata.image import Image, PartitionImage, StreamImage
from streamlog.model import NO_LEADER, NodeId

LEADERLESS = "leaderless"
UNDER_MIN_ISR = "under_min_isr"
UNDER_REPLICATED = "under_replicated"
MOVING = "moving"


class Counts(NamedTuple):
    """Of one stream, or of all."""

    partitions: int = 0
    leaderless: int = 0
    under_min_isr: int = 0
    """Too few in sync: writes with acks=all are refused."""
    under_replicated: int = 0
    moving: int = 0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


def wants(stream: StreamImage, number: int, partition: PartitionImage) -> frozenset[str]:
    """What a partition wants, by the names above."""
    found = set()
    if partition.leader == NO_LEADER:
        found.add(LEADERLESS)
    if len(partition.isr) < stream.min_isr(number):
        found.add(UNDER_MIN_ISR)
    if len(partition.isr) < len(partition.replicas):
        found.add(UNDER_REPLICATED)
    if partition.is_moving:
        found.add(MOVING)
    return frozenset(found)


class CountsOf:
    """Streams are immutable values: what was counted of one holds for as long as it is there."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[StreamImage, Counts]] = {}
        self._total: tuple[Image, frozenset[NodeId], Counts] | None = None

    def stream(self, stream: StreamImage) -> Counts:
        known = self._known.get(stream.name)
        if known is not None and known[0] is stream:
            return known[1]
        counts = _counted(stream)
        self._known[stream.name] = (stream, counts)
        return counts

    def total(self, image: Image, silent: frozenset[NodeId] = frozenset()) -> Counts:
        """``silent``: nodes that do not answer while no controller has others lead for them."""
        if self._total is not None and self._total[0] is image and self._total[1] == silent:
            return self._total[2]
        total = Counts()
        for stream in image.streams.values():
            total = total.plus(self.stream(stream))
        for name in self._known.keys() - image.streams.keys():
            del self._known[name]
        if silent:
            unled = sum(len(_led_by(silent, it)) for it in image.streams.values())
            total = total._replace(leaderless=total.leaderless + unled)
        self._total = (image, silent, total)
        return total


def _led_by(nodes: frozenset[NodeId], stream: StreamImage) -> list[int]:
    """The numbers of the partitions that these lead."""
    return [number for number, it in enumerate(stream.partitions) if it.leader in nodes]


def _counted(stream: StreamImage) -> Counts:
    found = [wants(stream, number, it) for number, it in enumerate(stream.partitions)]
    return Counts(
        len(found),
        *(
            sum(name in it for it in found)
            for name in (LEADERLESS, UNDER_MIN_ISR, UNDER_REPLICATED, MOVING)
        ),
    )
