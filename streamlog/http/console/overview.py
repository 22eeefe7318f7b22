"""All streams of the cluster, and what their partitions want, kept from one image to the next. Pure.

A look at each stream for each new image would take longer than the event loop may be held: at ten
thousand streams, where something changes all the time, tens of milliseconds a look. So what was
counted of a stream is kept, an image says which streams it changed, and only these are looked at
again, a limited number of partitions in a turn.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition

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


WORK_MAX: Final = 200
"""Of a turn: partitions counted, and streams looked at. About two milliseconds."""
SAME_FOR_ONE: Final = 16
"""So many partitions that are known to be the same cost as much as one that is counted."""


VALUES_MAX: Final = 1_000
NAME_CHANGES_MAX: Final = 10_000
"""Remembered; a list of names that is further behind is made again."""
NO_PARTITIONS: Final = PartitionCounts()
Leaders = Mapping[NodeId, int]
"""How many partitions of a stream each node leads."""


class OverviewEntry(NamedTuple):
    """What is known of a stream."""

    stream: StreamImage
    counts: PartitionCounts
    leaders: Leaders


class Overview:
    """``follow`` an image, then ``work`` until it is true: it tells of that image then."""

    def __init__(self) -> None:
        self.image: MetadataImage | None = None
        """What all that is told is about; None before the first."""
        self.total = NO_PARTITIONS
        self.names: list[str] = []
        """Of all streams, in order."""
        self.version = 0
        """Grows with each change of what is counted, or of the names."""
        self.names_version = 0
        """Grows with each name that comes or goes."""
        self._name_changes: deque[tuple[str, bool]] = deque(maxlen=NAME_CHANGES_MAX)
        self.worked = 0
        """Partitions counted and streams looked at since it began."""
        self._next: MetadataImage | None = None  # what ``work`` goes towards
        self._left: set[str] = set()  # names of streams that may be other ones in it
        self._entries: dict[str, OverviewEntry] = {}
        self._wanting: dict[str, set[str]] = {want: set() for want in WANTS}
        self._leads: dict[NodeId, int] = {}
        self._led: dict[NodeId, set[str]] = {}
        self._values: dict[object, tuple[PartitionCounts, Leaders]] = {}

    def follow(self, image: MetadataImage) -> None:
        """Takes the names of the streams that changed; of all where the image does not say so."""
        known = self._next
        if image is known:
            return
        if known is not None and image.parent_offset == known.offset:
            self._left |= image.touched
        else:
            self._left.update(self._entries, image.streams)
        self._next = image
        self.image = None if self._left else image

    def work(self, most: int = WORK_MAX) -> bool:
        """Whether all is counted. One stream is looked at as a whole, however large."""
        assert self._next is not None, "there is an image to follow"
        until = self.worked + most
        while self._left and self.worked < until:
            self._look_at(self._left.pop(), self._next)
        if not self._left:
            self.image = self._next
        return self.image is not None

    def name_changes(self, since: int) -> Iterator[tuple[str, bool]] | None:
        """What has come (True) or gone since that ``names_version``; None: more than is known."""
        count = self.names_version - since
        if count > len(self._name_changes):
            return None
        return islice(self._name_changes, len(self._name_changes) - count, None)

    def counts(self, name: str) -> PartitionCounts:
        return self._entries[name].counts

    def count(self, name: str, only: str, node_id: NodeId | None) -> int:
        """How many partitions want ``only``, or are led by ``node_id`` if it is given."""
        entry = self._entries[name]
        return entry.counts.of(only) if node_id is None else entry.leaders.get(node_id, 0)

    def wanting(self, want: str) -> set[str]:
        """Names of the streams with such partitions; not to be changed."""
        return self._wanting.get(want, set())

    def led_by(self, node_id: NodeId) -> set[str]:
        """Names of the streams with partitions that it leads; not to be changed."""
        return self._led.get(node_id, set())

    def unled(self, silent: frozenset[NodeId]) -> int:
        """Partitions that these lead."""
        return sum(self._leads.get(node_id, 0) for node_id in silent)

    def some(
        self, want: str, most: int, silent: frozenset[NodeId] = frozenset()
    ) -> list[TopicPartition]:
        """The first partitions that want this; those led by ``silent`` nodes are leaderless."""
        assert self.image is not None, "all is counted"
        names = set(nsmallest(most, self.wanting(want)))
        if want == LEADERLESS:
            for node_id in silent:
                names.update(nsmallest(most, self.led_by(node_id)))
        else:
            silent = frozenset()
        found: list[TopicPartition] = []
        for name in sorted(names):
            stream = self.image.streams[name]
            for number, it in enumerate(stream.partitions):
                if it.leader in silent or counts_of(stream, number, it).of(want):
                    found.append(TopicPartition(name, number))
                    if len(found) == most:
                        return found
        return found

    def _look_at(self, name: str, image: MetadataImage) -> None:
        self.worked += 1
        known, stream = self._entries.get(name), image.streams.get(name)
        if known is not None and known.stream is stream:
            return
        if stream is None:
            if known is not None:
                self._keep(name, known, None)
            return
        counts, leaders = self._counted(known, stream)
        self._keep(name, known, OverviewEntry(stream, counts, leaders))

    def _counted(
        self, known: OverviewEntry | None, stream: StreamImage
    ) -> tuple[PartitionCounts, Leaders]:
        """With the configuration that it had, only partitions that are others now are counted."""
        counts = NO_PARTITIONS
        leaders: dict[NodeId, int] = {}
        before: tuple[PartitionImage, ...] = ()
        after = old = stream
        if known is not None and known.stream.config is stream.config:
            counts, leaders, old = known.counts, dict(known.leaders), known.stream
            before = old.partitions
        more: dict[
            PartitionCounts, int
        ] = {}  # how many partitions more want the same; most want nothing
        numbers = _differing(before, after.partitions)
        self.worked += len(numbers) + len(before) // SAME_FOR_ONE
        for image, partitions, sign in ((old, before, -1), (after, after.partitions, 1)):
            for number in numbers:
                if number < len(partitions):
                    it = partitions[number]
                    one = counts_of(image, number, it)
                    more[one] = more.get(one, 0) + sign
                    leaders[it.leader] = leaders.get(it.leader, 0) + sign
        for one, times in more.items():
            counts = counts.plus(one, times)
        leaders.pop(NO_LEADER, None)
        if not all(leaders.values()):
            leaders = {node_id: count for node_id, count in leaders.items() if count}
        return self._shared(counts, leaders)

    def _shared(self, counts: PartitionCounts, leaders: Leaders) -> tuple[PartitionCounts, Leaders]:
        """Most streams are like some other one: fewer values are less to collect as garbage."""
        key = counts, *sorted(leaders.items())
        known = self._values.get(key)
        if known is None:
            if len(self._values) >= VALUES_MAX:
                self._values.clear()
            known = self._values[key] = counts, leaders
        return known

    def _keep(self, name: str, known: OverviewEntry | None, now: OverviewEntry | None) -> None:
        before, led_before = (NO_PARTITIONS, {}) if known is None else known[1:]
        after, led_after = (NO_PARTITIONS, {}) if now is None else now[1:]
        if before != after or led_before != led_after:
            self.version += 1
        if before != after:
            self.total = self.total.plus(before, -1).plus(after)
        if before[1:] != after[1:]:
            for want, names in self._wanting.items():
                _have(names, name, is_in=after.of(want) > 0)
        if led_before != led_after:
            for node_id in {*led_before, *led_after}:
                by = led_after.get(node_id, 0) - led_before.get(node_id, 0)
                self._leads[node_id] = self._leads.get(node_id, 0) + by
                _have(self._led.setdefault(node_id, set()), name, is_in=node_id in led_after)
                if not self._leads[node_id]:
                    del self._led[node_id], self._leads[node_id]
        if now is not None:
            self._entries[name] = now
        else:
            del self._entries[name]
        if known is None or now is None:
            place = bisect_left(self.names, name)
            self.version += 1
            self.names_version += 1
            self._name_changes.append((name, now is not None))
            if now is not None:
                self.names.insert(place, name)
            else:
                del self.names[place]


def _differing(
    before: tuple[PartitionImage, ...], after: tuple[PartitionImage, ...]
) -> Sequence[int]:
    """Numbers of partitions that are not the same in both."""
    if not before:
        return range(len(after))
    pairs = zip(before, after, strict=False)
    numbers = [number for number, (a, b) in enumerate(pairs) if a is not b]
    numbers += range(min(len(before), len(after)), max(len(before), len(after)))
    return numbers


def _have(names: set[str], name: str, *, is_in: bool) -> None:
    if is_in:
        names.add(name)
    else:
        names.discard(name)
