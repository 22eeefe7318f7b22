"""Leader election: a partition's leader and ISR when nodes fail, join or leave; preferred leaders. Pure.

Leaders come out of the ISR. Out of it only where the stream allows that (``unclean_election``), or
when an operator insists: then the ISR begins again with the leader alone.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from streamlog.errors import InvalidRequest, StalePartition
from streamlog.metadata.commands import ElectLeader, ReportLeader
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.partition_changes import (
    PartitionChanges,
    ReplicaPlace,
    place_of,
    places,
    places_where,
    present_node,
)
from streamlog.metadata.image.metadata_image import PartitionImage
from streamlog.model import NO_LEADER, NodeId

REBALANCED_MAX: Final = 1_000
"""Leaders moved by one decision."""


def choose_leader(
    changes: PartitionChanges, partition: PartitionImage, candidates: Iterable[NodeId]
) -> NodeId:
    """The one of ``candidates`` that is to lead: the preferred replica, else the one that leads least.

    Unavailable ones are passed over; full, unfit and draining ones come last. NO_LEADER if no node can.
    """
    able = [node for node in candidates if node in changes.available]
    if not able:
        return NO_LEADER
    preferred = partition.target[0]
    if preferred in able and preferred not in changes.draining | changes.full | changes.unfit:
        return preferred
    return min(
        able,
        key=lambda node: (
            node in changes.full,
            node in changes.unfit,
            node in changes.draining,
            changes.leaders[node],
        ),
    )


def without(
    changes: PartitionChanges, place: ReplicaPlace, node: NodeId, *, keep_last: bool = True
) -> PartitionImage:
    """The partition as it is to be while ``node`` is away.

    The node leaves the ISR if another replica there can lead on. Otherwise the ISR stays, for each of its
    members has all that was committed, and the first to return leads; unless this node's copy is
    not to be trusted (not ``keep_last``).
    """
    known = place.partition
    others = tuple(it for it in known.isr if it != node)
    goes_on = any(it in changes.available for it in others)
    isr = others if goes_on or not keep_last else known.isr
    if known.leader not in (node, NO_LEADER):
        return replace(known, isr=isr)
    return revived(changes, place, replace(known, leader=NO_LEADER, isr=isr))


def revived(
    changes: PartitionChanges, place: ReplicaPlace, partition: PartitionImage
) -> PartitionImage:
    """The leaderless ``partition`` with a leader, if a replica can lead."""
    leader = choose_leader(changes, partition, partition.isr)
    if leader == NO_LEADER and place.stream.config.unclean_election:
        return led_uncleanly(partition, choose_leader(changes, partition, partition.replicas))
    return led(changes, partition, leader)


def led(changes: PartitionChanges, partition: PartitionImage, leader: NodeId) -> PartitionImage:
    """Led by ``leader`` of the ISR, out of which go those that are away, if that is a change."""
    if leader in (NO_LEADER, partition.leader):
        return partition
    here = changes.available | changes.hearsay
    isr = tuple(node for node in partition.isr if node in here)
    return replace(partition, leader=leader, isr=isr)


def led_uncleanly(partition: PartitionImage, leader: NodeId) -> PartitionImage:
    """What ``leader`` has is the partition from now on. NO_LEADER: as it was."""
    return partition if leader == NO_LEADER else replace(partition, leader=leader, isr=(leader,))


def elect_leader(changes: PartitionChanges, command: ElectLeader) -> Decision:
    """Raises InvalidRequest if who is asked for cannot lead."""
    place = place_of(changes.image, command.stream, command.partition)
    known = place.partition
    if command.leader is None:
        after = _elected(changes, place, unclean=command.unclean)
    elif command.leader not in known.replicas:
        raise InvalidRequest(f"node {command.leader} has no replica; {known.replicas} have")
    elif command.leader not in changes.available:
        raise InvalidRequest(f"node {command.leader} is not alive")
    elif command.leader in known.isr:
        after = led(changes, known, command.leader)
    elif command.unclean:
        after = led_uncleanly(known, command.leader)
    else:
        raise InvalidRequest(
            f"node {command.leader} is not in sync ({known.isr} are): it lacks what was committed"
        )
    changes.put(place, after)
    leader_epoch = known.leader_epoch + (after.leader != known.leader)
    return changes.decision(leader=after.leader, leader_epoch=leader_epoch)


def elect_preferred_leaders(changes: PartitionChanges) -> Decision:
    """Preferred leader election: the first replica of each partition leads again, a bounded number of them."""
    moved = left = 0
    # Nearly all are led as they should be: they are passed over without a word.
    for place in places_where(
        changes.image, lambda it: bool(it.removing) or it.leader != it.replicas[0]
    ):
        known = place.partition
        preferred = known.target[0]
        if (
            known.leader in (NO_LEADER, preferred)
            or preferred not in known.isr
            or preferred not in changes.available
            or preferred in changes.draining | changes.full | changes.unfit
        ):
            continue
        if moved == REBALANCED_MAX:
            left += 1
            continue
        moved += changes.put(place, led(changes, known, preferred))
    return changes.decision(moved=moved, left=left)


def replace_leader(changes: PartitionChanges, report: ReportLeader) -> Decision:
    """Its followers cannot reach the leader: one of them leads. Raises StaleNode, StalePartition.

    Its own sessions tell whether the node is dead; here it loses one partition, and its place in
    the ISR, which it gets back by fetching.
    """
    present_node(changes.image, report.node_id, report.node_epoch)
    place = place_of(changes.image, report.stream, report.partition)
    known = place.partition
    if (known.leader, known.leader_epoch) != (report.leader, report.leader_epoch):
        raise StalePartition(
            f"{report.stream}-{report.partition} is led by {known.leader} in epoch"
            f" {known.leader_epoch}"
        )
    if _can_go_on(changes, known.isr, without=known.leader):
        changes.put(place, without(changes, place, known.leader))
    return changes.decision()


def give_up_offline(
    changes: PartitionChanges, node: NodeId, offline: Iterable[tuple[str, int]]
) -> None:
    """``node`` cannot write these: it leaves each ISR that has another member, alive or not.

    The last member stays, and leads on: what it has is all there is, and it says what is wrong.
    """
    for name, number in sorted(set(offline)):
        stream = changes.image.streams.get(name)
        if stream is None or not 0 <= number < len(stream.partitions):
            continue
        place = ReplicaPlace(stream, number, stream.partitions[number])
        isr = place.partition.isr
        if node in isr and len(isr) > 1:
            changes.put(place, without(changes, place, node, keep_last=False))


def give_way(
    changes: PartitionChanges, node: NodeId, *, but: Iterable[tuple[str, int]] = ()
) -> None:
    """``node`` has no room: it leaves each ISR that has a live member with room, which leads on.

    Where no such member is, it stays: what it has is whole, and it refuses what it cannot store.
    So leaderships do not move back and forth among nodes that are all full. ``but``: partitions that are
    decided about already.
    """
    decided = frozenset(but)
    for place in places(changes.image):
        isr = place.partition.isr
        if changes.is_full:  # its next heartbeat goes on
            break
        others = (it for it in isr if it != node and it not in changes.full)
        is_decided = (place.stream.name, place.number) in decided
        if node in isr and not is_decided and any(it in changes.available for it in others):
            changes.put(place, without(changes, place, node))


def hand_over(
    changes: PartitionChanges, node: NodeId, *, but: Iterable[tuple[str, int]] = ()
) -> None:
    """``node`` cannot lead as it should: live members in sync that can lead in its place.

    It stays in sync, for what it stores is whole. Where no such member is, it leads on; hence
    leaderships are not handed back and forth. ``but``: partitions that are decided about already.
    """
    decided = frozenset(but)
    worse = changes.full | changes.unfit | {node}
    for place in places(changes.image):
        known = place.partition
        if changes.is_full:  # its next heartbeat goes on
            break
        if known.leader != node or (place.stream.name, place.number) in decided:
            continue
        leader = choose_leader(changes, known, (it for it in known.isr if it not in worse))
        changes.put(place, led(changes, known, leader))


def revive_leaderless(changes: PartitionChanges) -> None:
    """Have partitions led that can be, as many as one decision may change. There are some left where a
    node has returned with more than that, a decision was cut in two by a crash, or a session ended
    and went on before the node was fenced.
    """
    if not changes.image.leaderless:
        return
    for place in places_where(changes.image, lambda it: it.leader == NO_LEADER):
        if changes.is_full:
            break
        changes.put(place, revived(changes, place, place.partition))


def _elected(changes: PartitionChanges, place: ReplicaPlace, *, unclean: bool) -> PartitionImage:
    known = place.partition
    preferred = known.target[0]
    if preferred in known.isr and preferred in changes.available:
        return led(changes, known, preferred)
    if known.leader != NO_LEADER:
        raise InvalidRequest(
            f"the preferred replica, node {preferred}, is not in sync or not alive;"
            f" node {known.leader} goes on leading"
        )
    after = revived(changes, place, known)
    if after.leader == NO_LEADER and unclean:
        after = led_uncleanly(known, choose_leader(changes, known, known.replicas))
    if after.leader == NO_LEADER:
        whose = "replicas" if unclean else "in-sync replicas"
        nodes = known.replicas if unclean else known.isr
        raise InvalidRequest(f"none of the {whose} is alive: {nodes}")
    return after


def _can_go_on(changes: PartitionChanges, isr: tuple[NodeId, ...], *, without: NodeId) -> bool:
    return any(node != without and node in changes.available for node in isr)
