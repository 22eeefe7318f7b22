"""Self-healing: the replicas of a node that is lost move to live nodes, unasked. Pure.

A node is lost when it has been fenced for ``cluster.self_healing_ms``. Who is lost follows from the metadata and
the controller's clock. A new controller counts from its own beginning, so that it is late rather than early. What
is under way is in the metadata alone: a partition that moves off a lost node. Hence a failover loses nothing, and
when the node comes back no further move begins; those under way go on to their end.

A lost node's replica is given up only for one that is in sync (``reassignment.finished``). A partition without a
leader is left alone: its last in-sync replicas are not alive, and nothing else has its records.

Where more than ``LOST_PERCENT_MAX`` of the nodes are lost nothing moves: the cause is likely to be another one, and
the rest could not carry the load. Nodes count that keep something, or are not lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.metadata.controller.partition_changes import ReplicaPlace, places
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.healing_status import HealingStatus
from streamlog.model import NodeId, TopicPartition

HEALED_AT_ONCE_MAX: Final = 20
"""Partitions on their way off lost nodes at any time."""
LOST_PERCENT_MAX: Final = 40
"""Of the nodes; more of them are not replaced."""


class LostNodes:
    """Since when nodes are fenced, as this controller has seen. Times are of its ``LoopClock``."""

    def __init__(self, after_ms: int) -> None:
        """``after_ms``: a node that is fenced for so long is lost; 0: none ever is."""
        self._after_ms = after_ms
        self._since_ms: dict[tuple[NodeId, int], int] = {}
        """By the node and its registration: one that registers is about to come back."""

    def started(self) -> None:
        """A controller begins: it has seen nothing yet."""
        self._since_ms.clear()

    def look(self, image: MetadataImage, now_ms: int) -> frozenset[NodeId]:
        """The nodes that are lost now. One that was only restored from a backup was never there."""
        if not self._after_ms:
            return frozenset()
        fenced = [it for it in image.nodes.values() if it.fenced and it.has_address]
        self._since_ms = {
            (it.node_id, it.epoch): self._since_ms.get((it.node_id, it.epoch), now_ms)
            for it in fenced
        }
        return frozenset(
            node_id
            for (node_id, _), since_ms in self._since_ms.items()
            if now_ms - since_ms >= self._after_ms
        )


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """What nodes have room for, as they have told at one time. A node that has not told gets nothing."""

    free_bytes: Mapping[NodeId, int]
    """Until the disk is as full as it may be."""
    sizes: Mapping[NodeId, Mapping[TopicPartition, int]]
    """Of the replicas that each node has."""


NO_ROOM: Final = DiskRoom({}, {})
"""Before nodes have told."""


class DiskPlan:
    """How much room is left once all has been copied that is on its way."""

    def __init__(self, image: MetadataImage, room: DiskRoom) -> None:
        self._room = room
        self._free = dict(room.free_bytes)
        for place in places(image):
            size = self.size_of(place)
            for node in place.partition.replicas:
                if size and node in self._free:
                    has = room.sizes[node].get(_tp(place), 0)
                    self._free[node] -= max(0, size - has)

    def size_of(self, place: ReplicaPlace) -> int | None:
        """None: its leader has not told."""
        return self._room.sizes.get(place.partition.leader, {}).get(_tp(place))

    def fits(self, place: ReplicaPlace, node: NodeId) -> bool:
        size = self.size_of(place)
        return size is not None and size <= self._free.get(node, -1)

    def take(self, place: ReplicaPlace, node: NodeId) -> None:
        """``node`` gets a replica."""
        self._free[node] -= self.size_of(place) or 0


class Healing(NamedTuple):
    """What the controller knows beside the metadata."""

    lost: frozenset[NodeId] = frozenset()
    room: DiskRoom = NO_ROOM

    def keeping(self, image: MetadataImage) -> frozenset[NodeId]:
        """The lost nodes that keep replicas."""
        return frozenset(it for it in self.lost if image.load(it).replicas)

    def replaced(self, image: MetadataImage) -> frozenset[NodeId]:
        """Those whose replicas move; none where too many are lost."""
        keeping = self.keeping(image)
        among = len(keeping) + len(set(image.nodes) - self.lost)
        return keeping if 100 * len(keeping) <= LOST_PERCENT_MAX * among else frozenset()


def healing_of(image: MetadataImage, healing: Healing) -> HealingStatus:
    """Before a partition has been looked at."""
    keeping = healing.keeping(image)
    too_many = bool(keeping) and not healing.replaced(image)
    return HealingStatus(tuple(sorted(keeping)), too_many=too_many)


def _tp(place: ReplicaPlace) -> TopicPartition:
    return TopicPartition(place.stream.name, place.number)
