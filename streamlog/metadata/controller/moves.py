"""Other replicas for a partition: a move begins, ends or is cancelled; drains. Pure.

A move keeps the old replicas until all of the new ones are in sync (KIP-455). A replica that is in the ISR
then and stays is enough to go on: a move never leaves fewer in sync than the stream asks for.
"""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import CancelMove, DrainNode, MovePartition
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.election import led, revive_leaderless
from streamlog.metadata.controller.partition_changes import (
    PartitionChanges,
    ReplicaPlace,
    cautious_changes,
    known_node,
    place_of,
    places,
)
from streamlog.metadata.controller.placement import Placement
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metadata.image.records import NodeDraining
from streamlog.model import NO_LEADER, NodeId

DRAINED_AT_ONCE_MAX: Final = 100
"""Partitions on their way off draining nodes at any time."""


def move_partition(changes: PartitionChanges, command: MovePartition) -> Decision:
    """Raises InvalidRequest if the replicas cannot be those."""
    place = place_of(changes.image, command.stream, command.partition)
    target, wanted = command.replicas, place.stream.config.replicas
    if len(set(target)) != len(target) or len(target) != wanted:
        raise InvalidRequest(
            f"{len(target)} replicas named, and stream {place.stream.name!r} has {wanted};"
            " change that with an update of the stream"
        )
    for node_id in target:
        node = known_node(changes.image, node_id)
        if node_id in place.partition.former:
            continue
        if node.draining or node_id not in changes.available:
            state = "is being drained" if node.draining else "is not alive"
            raise InvalidRequest(f"node {node_id} {state}")
    changes.put(place, retargeted(changes, place, target))
    return changes.decision()


def cancel_move(changes: PartitionChanges, command: CancelMove) -> Decision:
    """Raises InvalidRequest if there is no move, or no way back."""
    place = place_of(changes.image, command.stream, command.partition)
    if not place.partition.is_moving:
        raise InvalidRequest(f"{command.stream}-{command.partition} is not being moved")
    _cancel(changes, place)
    return changes.decision()


def retargeted(
    changes: PartitionChanges, place: ReplicaPlace, target: tuple[NodeId, ...]
) -> PartitionImage:
    """On the way to ``target``, or there already. Raises InvalidRequest.

    What a move before this one was still adding, and this one does not want, is dropped at once.
    """
    known = place.partition
    former = known.former
    leaving = tuple(node for node in former if node not in target)
    adding = tuple(node for node in target if node not in former)
    after = _with_replicas(changes, known, (*target, *leaving), adding=adding, removing=leaving)
    return finished(changes, place, after)


def finished(
    changes: PartitionChanges, place: ReplicaPlace, partition: PartitionImage
) -> PartitionImage:
    """With the target's replicas alone if they can go on without the others, else as it is."""
    if not partition.is_moving or partition.leader == NO_LEADER:
        return partition
    target = partition.target
    isr = tuple(node for node in target if node in partition.isr)
    enough = min(place.stream.config.min_isr, len(partition.isr))
    if len(isr) < max(1, enough) or not set(partition.adding) <= set(isr):
        return partition
    after = replace(partition, replicas=target, isr=isr, adding=(), removing=())
    if after.leader in isr:
        return after
    leader = changes.choose(after, isr)
    return partition if leader == NO_LEADER else led(changes, after, leader)


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
    able = sum(1 for node in image.nodes.values() if not node.draining) - 1
    wanted = max(
        (len(it.partition.target) for it in places(image) if node_id in it.partition.target),
        default=0,
    )
    if wanted > able:
        raise InvalidRequest(
            f"{wanted} replicas are kept of a stream, and without node {node_id} there are {able}"
            " nodes to keep them"
        )


def _cancel_drain(changes: PartitionChanges, node_id: NodeId) -> None:
    for place in places(changes.image):
        if node_id in place.partition.removing:
            try:
                _cancel(changes, place)
            except InvalidRequest:
                continue  # there is no way back: it ends as a move like any other


def _cancel(changes: PartitionChanges, place: ReplicaPlace) -> None:
    known, wanted = place.partition, place.stream.config.replicas
    if len(known.former) != wanted:
        raise InvalidRequest(
            f"without the move there would be {len(known.former)} replicas, and stream"
            f" {place.stream.name!r} has {wanted}; update the stream instead"
        )
    changes.put(place, _with_replicas(changes, known, known.former, adding=(), removing=()))


def _with_replicas(
    changes: PartitionChanges,
    known: PartitionImage,
    replicas: tuple[NodeId, ...],
    *,
    adding: tuple[NodeId, ...],
    removing: tuple[NodeId, ...],
) -> PartitionImage:
    """Other replicas, the ISR without those that are gone. Raises InvalidRequest if no replica stays
    that can lead.
    """
    isr = tuple(node for node in known.isr if node in replicas)
    after = replace(known, replicas=replicas, isr=isr, adding=adding, removing=removing)
    lost = bool(known.isr) and not isr
    if known.leader != NO_LEADER and known.leader not in isr:
        leader = changes.choose(after, isr)
        lost = leader == NO_LEADER
        after = led(changes, after, leader)
    if lost:
        raise InvalidRequest(f"only {known.isr} are in sync, and none of them would stay to lead")
    return after
