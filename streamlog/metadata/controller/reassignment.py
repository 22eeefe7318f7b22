"""Partition reassignment: a partition moves to other replicas; a move begins, ends, is cancelled. Pure.

A move keeps the old replicas until all of the new ones are in sync (KIP-455). A replica that is in the ISR
then and stays is enough to go on: a move never leaves fewer in sync than the stream asks for.
"""

from dataclasses import replace

from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import CancelMove, MovePartition
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.election import choose_leader, led
from streamlog.metadata.controller.partition_changes import (
    PartitionChanges,
    ReplicaPlace,
    known_node,
    place_of,
)
from streamlog.metadata.controller.placement import check_machines
from streamlog.metadata.image.metadata_image import PartitionImage
from streamlog.model import NO_LEADER, NodeId


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
    check_machines(changes.image, target)
    changes.put(place, retargeted(changes, place, target))
    return changes.decision()


def cancel_move(changes: PartitionChanges, command: CancelMove) -> Decision:
    """Raises InvalidRequest if there is no move, or no way back."""
    place = place_of(changes.image, command.stream, command.partition)
    if not place.partition.is_moving:
        raise InvalidRequest(f"{command.stream}-{command.partition} is not being moved")
    cancel(changes, place)
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
    leader = choose_leader(changes, after, isr)
    return partition if leader == NO_LEADER else led(changes, after, leader)


def cancel(changes: PartitionChanges, place: ReplicaPlace) -> None:
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
        leader = choose_leader(changes, after, isr)
        lost = leader == NO_LEADER
        after = led(changes, after, leader)
    if lost:
        raise InvalidRequest(f"only {known.isr} are in sync, and none of them would stay to lead")
    return after
