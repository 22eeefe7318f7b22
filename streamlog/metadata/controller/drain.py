"""A node is drained, or lost: its replicas move to other nodes, a bounded number at a time. Pure.

``drain_node`` notes it; ``self_healing`` tells who is lost. ``next_moves`` is asked every now and then and goes on
with both.
"""

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any, Final

from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import DrainNode
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.election import revive_leaderless
from streamlog.metadata.controller.partition_changes import (
    PartitionChanges,
    ReplicaPlace,
    cautious_changes,
    known_node,
    places,
)
from streamlog.metadata.controller.placement import Placement, fits_all
from streamlog.metadata.controller.reassignment import cancel, finished, retargeted
from streamlog.metadata.controller.self_healing import (
    HEALED_AT_ONCE_MAX,
    DiskPlan,
    DiskRoom,
    Healing,
    healing_of,
)
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import NodeDraining
from streamlog.model import NO_LEADER, NodeId

DRAINED_AT_ONCE_MAX: Final = 100
"""Partitions on their way off draining nodes at any time."""
NONE_LOST: Final = Healing()
_HEALS: Final = True


def drain_node(changes: PartitionChanges, command: DrainNode) -> Decision:
    """Nothing is moved yet: ``next_moves`` does that. Raises NodeNotFound, InvalidRequest."""
    node = known_node(changes.image, command.node_id)
    if command.undo == (not node.draining):
        return Decision()
    if command.undo:
        _cancel_drain(changes, node.node_id)
    else:
        _check_room(changes.image, node.node_id)
    noted = NodeDraining(node_id=node.node_id, draining=not command.undo)
    return changes.decision(noted)


def next_moves(
    image: MetadataImage,
    live: AbstractSet[NodeId],
    heard_of: AbstractSet[NodeId] | None = None,
    healing: Healing = NONE_LOST,
) -> Decision:
    """What is to be done unasked, to be called every now and then: drains go on, lost nodes are replaced, moves
    end, and partitions without a leader get one if they can.

    Cheap while there is nothing to do. Drains and self-healing are bounded: where no node can take a replica it
    stays, and the next call tries again; and they wait until the controller knows who is alive, of those that it
    has not heard of (see ``decide``). The result: partitions ``moving`` and ``left``; where nodes are lost, a
    ``HealingStatus`` as ``healing``.
    """
    changes = cautious_changes(image, live, heard_of)
    revive_leaderless(changes)
    lost = healing.replaced(image)
    leaving = changes.draining | lost
    if changes.hearsay or not any(image.load(node).replicas for node in leaving):
        told = {"healing": healing_of(image, healing).json()} if healing.lost else {}
        return changes.decision(moving=0, left=0, **told)
    evacuation = _Evacuation(changes, lost, healing.room)
    evacuation.look()
    evacuation.go_on()
    return changes.decision(**evacuation.result(healing))


class _Evacuation:
    """What moves off nodes that are drained or lost. The counts are of partitions: those with a replica on a lost
    node (``_HEALS``), and the others.
    """

    def __init__(
        self, changes: PartitionChanges, lost: AbstractSet[NodeId], room: DiskRoom
    ) -> None:
        self._changes = changes
        self._lost = lost
        self._leaving = changes.draining | lost
        self._room = room
        self._disks: DiskPlan | None = None
        self._stays: list[ReplicaPlace] = []
        """Partitions that have yet to begin, or to begin again because the node that they go to is away."""
        self._placements: dict[str, Placement] = {}
        self.moving = Counter[bool]()
        self.waiting = Counter[bool]()
        self.without_room = Counter[bool]()
        self.leaderless = 0
        """It cannot move. Of a draining node such a partition is not counted."""

    def look(self) -> None:
        """What is under way, and whether it is at its end."""
        changes = self._changes
        for place in places(changes.image):
            partition = place.partition
            if self._leaving.isdisjoint(partition.replicas):
                continue
            heals = self._heals(place)
            if partition.leader == NO_LEADER:
                self.leaderless += heals
            elif any(self._is_away(node, heals=heals) for node in partition.adding) or (
                not self._leaving.isdisjoint(partition.target)
            ):
                self._stays.append(place)
            elif not changes.put(place, finished(changes, place, partition)):
                self.moving[heals] += 1

    def go_on(self) -> None:
        """As many as may move at once."""
        for place in self._stays:
            heals = self._heals(place)
            at_once_max = HEALED_AT_ONCE_MAX if heals else DRAINED_AT_ONCE_MAX
            is_known = not heals or self._disk_plan().size_of(place) is not None
            if self.moving[heals] >= at_once_max or not is_known:
                self.waiting[heals] += 1
            elif self._move_off(place, heals=heals):
                self.moving[heals] += 1
            else:
                self.without_room[heals] += 1

    def result(self, healing: Healing) -> dict[str, Any]:
        left = self.waiting.total() + self.without_room.total()
        told: dict[str, Any] = {"moving": self.moving.total(), "left": left}
        if healing.lost:
            status = replace(
                healing_of(self._changes.image, healing),
                moving=self.moving[_HEALS],
                waiting=self.waiting[_HEALS],
                leaderless=self.leaderless,
                without_room=self.without_room[_HEALS],
            )
            told["healing"] = status.json()
        return told

    def _heals(self, place: ReplicaPlace) -> bool:
        return not self._lost.isdisjoint(place.partition.replicas)

    def _is_away(self, node: NodeId, *, heals: bool) -> bool:
        """It does not get in sync before it is back, or has room again."""
        return node not in self._changes.available or (heals and node in self._changes.full)

    def _move_off(self, place: ReplicaPlace, *, heals: bool) -> bool:
        """Whether there is somewhere to go."""
        changes, partition = self._changes, place.partition
        stays = tuple(
            node
            for node in partition.target
            if node not in self._leaving
            and not (node in partition.adding and self._is_away(node, heals=heals))
        )
        placement = self._placements.get(place.stream.name)
        if placement is None:
            placement = Placement(changes, place.stream.partitions)
            self._placements[place.stream.name] = placement
        fits = partial(self._fits, place) if heals else fits_all
        try:
            more = placement.more(stays, len(partition.target) - len(stays), fits)
            others = iter(more)
            target = tuple(node if node in stays else next(others) for node in partition.target)
            moved = changes.put(place, retargeted(changes, place, target))
        except InvalidRequest:
            return False
        if heals and moved:
            for node in more:
                self._disk_plan().take(place, node)
        return moved

    def _fits(self, place: ReplicaPlace, node: NodeId) -> bool:
        return node not in self._changes.full and self._disk_plan().fits(place, node)

    def _disk_plan(self) -> DiskPlan:
        if self._disks is None:
            self._disks = DiskPlan(self._changes.image, self._room)
        return self._disks


def _check_room(image: MetadataImage, node_id: NodeId) -> None:
    others = [it for it in image.nodes.values() if not it.draining and it.node_id != node_id]
    able = len({it.machine_id for it in others})
    wanted = max(
        (len(it.partition.target) for it in places(image) if node_id in it.partition.target),
        default=0,
    )
    if wanted > able:
        raise InvalidRequest(
            f"{wanted} replicas are kept of a stream, and without node {node_id} there are {able}"
            f" {'nodes' if able == len(others) else 'machines'} to keep them"
        )


def _cancel_drain(changes: PartitionChanges, node_id: NodeId) -> None:
    for place in places(changes.image):
        if node_id in place.partition.removing:
            try:
                cancel(changes, place)
            except InvalidRequest:
                continue  # there is no way back: it ends as a move like any other
