"""A node is drained: its replicas move to other nodes, a bounded number at a time. Pure.

``drain_node`` notes it; ``next_moves`` is asked every now and then and goes on with it.
"""

from collections.abc import Set as AbstractSet
from typing import Final

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
from streamlog.metadata.controller.placement import Placement
from streamlog.metadata.controller.reassignment import cancel, finished, retargeted
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import NodeDraining
from streamlog.model import NO_LEADER, NodeId

DRAINED_AT_ONCE_MAX: Final = 100
"""Partitions on their way off draining nodes at any time."""


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
    image: MetadataImage, live: AbstractSet[NodeId], heard_of: AbstractSet[NodeId] | None = None
) -> Decision:
    """What is to be done unasked, to be called every now and then: drains go on, moves end, and
    partitions without a leader get one if they can.

    Cheap while there is nothing to do. Drains are bounded: where no node can take a replica it
    stays, and the next call tries again; and they wait until the controller knows who is alive, of
    those that it has not heard of (see ``decide``). The result: partitions ``moving`` and ``left``.
    """
    changes = cautious_changes(image, live, heard_of)
    revive_leaderless(changes)
    if changes.hearsay or not any(image.load(node).replicas for node in changes.draining):
        return changes.decision(moving=0, left=0)
    moving, waiting = _drained(changes)
    placements: dict[str, Placement] = {}
    left = 0
    for place in waiting:
        stream = place.stream
        if stream.name not in placements:
            placements[stream.name] = Placement(changes, stream.partitions)
        if moving < DRAINED_AT_ONCE_MAX and _move_off(changes, place, placements[stream.name]):
            moving += 1
        else:
            left += 1
    return changes.decision(moving=moving, left=left)


def _drained(changes: PartitionChanges) -> tuple[int, list[ReplicaPlace]]:
    """How many partitions are on their way, and those that have yet to begin, or to begin again
    because the node that they go to is away.

    A partition without a leader cannot move: it waits without being counted.
    """
    moving, waiting = 0, list[ReplicaPlace]()
    for place in places(changes.image):
        partition = place.partition
        if changes.draining.isdisjoint(partition.replicas) or partition.leader == NO_LEADER:
            continue
        away = any(node not in changes.available for node in partition.adding)
        if away or not changes.draining.isdisjoint(partition.target):
            waiting.append(place)
        elif not changes.put(place, finished(changes, place, partition)):
            moving += 1
    return moving, waiting


def _move_off(changes: PartitionChanges, place: ReplicaPlace, placement: Placement) -> bool:
    """Whether there is somewhere to go."""
    partition = place.partition
    stays = tuple(
        node
        for node in partition.target
        if node not in changes.draining
        and (node not in partition.adding or node in changes.available)
    )
    try:
        others = iter(placement.more(stays, len(partition.target) - len(stays)))
        target = tuple(node if node in stays else next(others) for node in partition.target)
        return changes.put(place, retargeted(changes, place, target))
    except InvalidRequest:
        return False


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
