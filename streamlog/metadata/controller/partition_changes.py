"""A decision in the making: the partitions it changes, and the loads as they will be then. Pure.

Every change of a partition goes through ``PartitionChanges.put``, which keeps the rules of its epochs.
"""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from streamlog.errors import BrokenInvariant, NodeNotFound, StaleNode
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.image.metadata_image import (
    MetadataImage,
    NodeImage,
    PartitionImage,
    StreamImage,
    partition_changed,
)
from streamlog.metadata.image.records import MetadataRecord
from streamlog.metadata.nodes.node_condition import keep_from_leading
from streamlog.model import NO_LEADER, NodeId

PORTION: Final = 2_000
"""Partitions that change by one decision. A node may keep 100,000: all of them at once take seconds,
in which the controller decides nothing else and answers no node."""


class ReplicaPlace(NamedTuple):
    """One partition of an image."""

    stream: StreamImage
    number: int
    partition: PartitionImage


class PartitionChanges:
    """Made of the newest image; thrown away once its ``decision`` is taken."""

    def __init__(
        self,
        image: MetadataImage,
        available: AbstractSet[NodeId],
        *,
        hearsay: AbstractSet[NodeId] = frozenset(),
    ) -> None:
        self.image = image
        self.available = available
        """Nodes that may lead and may be in sync: neither fenced nor without a session."""
        self.hearsay = hearsay
        """Nodes that may be so too, for all that is known: they are not elected, nor left out."""
        self.draining = frozenset(it.node_id for it in image.nodes.values() if it.draining)
        self.full = frozenset(it.node_id for it in image.nodes.values() if it.full)
        """Nodes without room: they lead where no other node can, and do not get in sync."""
        self.unfit = frozenset(
            it.node_id for it in image.nodes.values() if keep_from_leading(it.unfit)
        )
        """Nodes that cannot lead as they should: they do where no other node can."""
        self.hosts = sorted(node for node in available if node not in self.draining)
        """Nodes that may get replicas."""
        self.records: list[MetadataRecord] = []
        self.replicas = {node: image.load(node).replicas for node in image.nodes}
        self.leaders = {node: image.load(node).leaders for node in image.nodes}

    @property
    def is_full(self) -> bool:
        """The rest is for the next decision."""
        return len(self.records) >= PORTION

    def put(self, place: ReplicaPlace, wanted: PartitionImage, *, new_epoch: bool = False) -> bool:
        """Have ``place`` as ``wanted`` says, whose epochs do not matter; whether that is a change.

        The partition epoch grows with each change, the leader epoch with each change of leader and
        where a ``new_epoch`` is asked for.
        """
        known, isr = place.partition, wanted.isr
        if len(isr) > 1:
            isr = tuple(node for node in wanted.replicas if node in isr)
        is_new_epoch = new_epoch or wanted.leader != known.leader
        same = (
            not is_new_epoch
            and isr == known.isr
            and wanted.replicas == known.replicas
            and wanted.adding == known.adding
            and wanted.removing == known.removing
        )
        if same:
            return False
        self._count(known, -1)
        after = PartitionImage(
            wanted.replicas, wanted.leader, known.leader_epoch + is_new_epoch, isr,
            known.partition_epoch + 1, wanted.adding, wanted.removing,
        )  # fmt: skip
        self.add(place.stream.name, place.number, after)
        return True

    def add(self, stream: str, number: int, partition: PartitionImage) -> None:
        """A partition that is new, as it is."""
        if partition.leader != NO_LEADER and partition.leader not in partition.isr:
            raise BrokenInvariant(f"{stream}/{number}: leader {partition.leader} is not in the ISR")
        self._count(partition, 1)
        self.records.append(partition_changed(stream, number, partition))

    def decision(self, *more: MetadataRecord, **result: Any) -> Decision:
        """The partitions' changes, then ``more``."""
        return Decision((*self.records, *more), result)

    def portion(self) -> Decision:
        """The partitions' changes so far. What is noted of the node follows with the last portion."""
        return Decision(tuple(self.records), unfinished=True)

    def _count(self, partition: PartitionImage, by: int) -> None:
        for node in partition.replicas:
            self.replicas[node] += by
        if partition.leader != NO_LEADER:
            self.leaders[partition.leader] += by


def available_nodes(image: MetadataImage, live: AbstractSet[NodeId]) -> set[NodeId]:
    """Nodes that may lead and may be in sync."""
    return {node.node_id for node in image.nodes.values() if not node.fenced} & live


def cautious_changes(
    image: MetadataImage,
    live: AbstractSet[NodeId],
    heard_of: AbstractSet[NodeId] | None,
    *,
    without: NodeId | None = None,
) -> PartitionChanges:
    """Elects only whom the controller has heard of itself (None: any node that is alive).

    When all nodes start again together a new controller believes them alive that are not there
    yet. If others made room for these, the last one in sync could be one that has lost its disk.
    """
    nodes = available_nodes(image, live) - {without}
    if heard_of is None:
        return PartitionChanges(image, nodes)
    return PartitionChanges(image, nodes & heard_of, hearsay=nodes - heard_of)


def places(image: MetadataImage) -> Iterator[ReplicaPlace]:
    """All partitions, in an order that does not depend on chance."""
    for name in sorted(image.streams):
        stream = image.streams[name]
        for number, partition in enumerate(stream.partitions):
            yield ReplicaPlace(stream, number, partition)


def places_where(
    image: MetadataImage, wanted: Callable[[PartitionImage], bool]
) -> Iterator[ReplicaPlace]:
    """Those partitions, in the order of ``places``. The others cost next to nothing, and so does what
    comes after the last one that is taken.
    """
    streams = image.streams
    for name in sorted(streams):
        stream = streams[name]
        for number, partition in enumerate(stream.partitions):
            if wanted(partition):
                yield ReplicaPlace(stream, number, partition)


def place_of(image: MetadataImage, stream: str, number: int) -> ReplicaPlace:
    """Raises StreamNotFound, PartitionNotFound."""
    found = image.stream(stream)
    return ReplicaPlace(found, number, found.partition(number))


def known_node(image: MetadataImage, node_id: NodeId) -> NodeImage:
    """Raises NodeNotFound."""
    node = image.nodes.get(node_id)
    if node is None:
        raise NodeNotFound(f"there is no node {node_id}")
    return node


def present_node(image: MetadataImage, node_id: NodeId, node_epoch: int) -> NodeImage:
    """The node of this registration. Raises StaleNode if there is another, or none any more."""
    node = image.nodes.get(node_id)
    if node is None or node.epoch != node_epoch:
        raise StaleNode(f"node {node_id} is not that of epoch {node_epoch}")
    return node
