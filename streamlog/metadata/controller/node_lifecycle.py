"""Nodes come, go, and are forgotten. Pure.

What is noted of a node itself is the last record of a decision: after a crash in the middle of a
long one the cause is still there, and the rest is decided again. A decision about very many
partitions comes in portions (``Decision.unfinished``); only the last of them notes the node. The
caller leaves the node out of ``live`` until then.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from streamlog.errors import InvalidRequest, NodeIdTaken, StaleNode
from streamlog.metadata.commands import (
    FenceNode,
    Heartbeat,
    RegisterNode,
    RemoveNode,
    StampFolder,
    StopNode,
)
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.election import (
    give_up_offline,
    give_way,
    hand_over,
    revived,
    without,
)
from streamlog.metadata.controller.partition_changes import (
    PartitionChanges,
    ReplicaPlace,
    available_nodes,
    cautious_changes,
    known_node,
    places_where,
    present_node,
)
from streamlog.metadata.image.metadata_image import MetadataImage, NodeImage
from streamlog.metadata.image.records import (
    MetadataRecord,
    NodeFenced,
    NodeFull,
    NodePlaced,
    NodeRegistered,
    NodeRemoved,
    NodeStamped,
    NodeUnfit,
)
from streamlog.metadata.nodes.node_condition import keep_from_leading
from streamlog.model import NO_LEADER, NodeId


def register(
    image: MetadataImage,
    command: RegisterNode,
    live: AbstractSet[NodeId],
    heard_of: AbstractSet[NodeId] | None = None,
) -> Decision:
    """A process has started; what was before it is over. Raises NodeIdTaken.

    It begins fenced, and outside of every ISR in which another member can lead on. Its copies are
    not to be trusted if its folder is another one or an older copy of what it had, nor, where the
    sync policy allows for it, if it may have lost its unsynced tail: then it leaves every ISR that
    has another member at all. As the last member it stays in spite of a lost tail or an older copy,
    for there is nothing better; and it goes with its folder, so that the partition waits for an
    operator. All are told: ``tail_lost``, ``data_lost``.

    Out of the ISR, an older copy is the same as the folder of a node that has been away since the
    copy was made. Raises NodeIdTaken also for an older copy while the node is alive: that is a
    clone, and the original must not make room for it.
    """
    known = image.nodes.get(command.node_id)
    if known is not None and known.incarnation == command.incarnation:
        return Decision(result=_registered(known.epoch, [], [], older=False))
    wiped = known is not None and known.directory_id not in (None, command.directory_id)
    older = not wiped and known is not None and _is_older(known, command)
    if wiped and command.node_id in available_nodes(image, live):
        raise NodeIdTaken(f"node {command.node_id} is alive, with another data folder")
    heard = live if heard_of is None else heard_of
    if older and command.node_id in available_nodes(image, heard):
        raise NodeIdTaken(f"node {command.node_id} is alive, with a newer copy of this data folder")
    changes = cautious_changes(image, live, heard_of, without=command.node_id)
    tail_lost, data_lost = list[ReplicaPlace](), list[ReplicaPlace]()
    for place in _places_in_sync(image, command.node_id):
        if changes.is_full:
            return changes.portion()
        alone = place.partition.isr == (command.node_id,)
        synced = place.stream.config.sync_by(command.sync) == "commit"
        torn = older or (command.tail_lost and not synced)
        if alone and (wiped or torn):
            (data_lost if wiped else tail_lost).append(place)
        else:
            keep_last = not wiped and (alone or not torn)
            changes.put(place, without(changes, place, command.node_id, keep_last=keep_last))
    for place in (*tail_lost, *data_lost):  # told with the last portion, and so not before it
        changes.put(place, without(changes, place, command.node_id, keep_last=not wiped))
    node_epoch = image.offset + len(changes.records)
    noted = NodeRegistered(
        node_id=command.node_id, incarnation=command.incarnation, host=command.host,
        port=command.port, rack=command.rack, directory_id=command.directory_id, fenced=True,
    )  # fmt: skip
    placed = []
    if command.machine is not None:
        placed.append(NodePlaced(node_id=command.node_id, machine=command.machine))
    lost = _named(tail_lost), _named(data_lost)
    return changes.decision(noted, *placed, **_registered(node_epoch, *lost, older=older))


def heartbeat(
    image: MetadataImage,
    command: Heartbeat,
    live: AbstractSet[NodeId],
    heard_of: AbstractSet[NodeId] | None = None,
) -> Decision:
    """A fenced node that has applied its own registration is one of the living again.

    Partitions that only waited for it are led. One without room gives way to those that have some,
    and one that is unfit to lead hands over to those that are well, as often as it says so. Raises
    StaleNode.
    """
    node = present_node(image, command.node_id, command.node_epoch)
    returns = node.fenced and not node.stopping and command.offset > node.epoch
    if node.fenced and not returns:
        return Decision(result={"fenced": True})
    changes = cautious_changes(image, live, heard_of)
    changes.available |= {node.node_id}
    noted: list[MetadataRecord] = []
    if command.full != node.full:
        changes.full ^= {node.node_id}
        noted.append(NodeFull(node_id=node.node_id, full=command.full))
    if command.unfit != node.unfit:
        others = changes.unfit - {node.node_id}
        changes.unfit = others | {node.node_id} if keep_from_leading(command.unfit) else others
        noted.append(NodeUnfit(node_id=node.node_id, unfit=command.unfit))
    if not returns:
        give_up_offline(changes, node.node_id, command.offline)
        if command.full:
            give_way(changes, node.node_id, but=command.offline)
        elif keep_from_leading(command.unfit):
            hand_over(changes, node.node_id, but=command.offline)
        return changes.decision(*noted, fenced=False)
    _return(changes, node.node_id, frozenset(command.offline))
    noted.append(NodeFenced(node_id=node.node_id, fenced=False))
    return changes.decision(*noted, fenced=False)


def _return(changes: PartitionChanges, node: NodeId, offline: AbstractSet[tuple[str, int]]) -> None:
    """What only waited for ``node`` is led, as many as one decision may change; the others are
    with ``revive_leaderless``.
    """
    if not changes.image.leaderless:
        return
    for name, number in sorted(offline):
        stream = changes.image.streams.get(name)
        if stream is None or not 0 <= number < len(stream.partitions):
            continue
        partition = stream.partitions[number]
        if partition.leader != NO_LEADER or node not in partition.replicas:
            continue
        place = ReplicaPlace(stream, number, partition)
        if len(partition.isr) > 1:
            changes.put(place, without(changes, place, node, keep_last=False))
    for place in places_where(
        changes.image, lambda it: it.leader == NO_LEADER and node in it.replicas
    ):
        if changes.is_full:
            break
        is_offline = (place.stream.name, place.number) in offline
        if not is_offline or len(place.partition.isr) <= 1:
            changes.put(place, revived(changes, place, place.partition))


def stamp(image: MetadataImage, command: StampFolder) -> Decision:
    """Copies of the data folder that were made before are older ones from now on.

    Raises StaleNode, also where the process goes on from an older copy, as a machine does that is
    set back with its memory.
    """
    node = present_node(image, command.node_id, command.node_epoch)
    wanted = command.stamps[-1]
    if node.stamp == wanted:
        return Decision()
    if node.stamp not in command.stamps:
        raise StaleNode(f"node {node.node_id} goes on from an older copy of its data folder")
    return Decision((NodeStamped(node_id=node.node_id, stamp=wanted),))


def fence(
    image: MetadataImage,
    command: FenceNode,
    live: AbstractSet[NodeId],
    heard_of: AbstractSet[NodeId] | None = None,
) -> Decision:
    """The node's session is over: others lead. Raises StaleNode."""
    node = present_node(image, command.node_id, command.node_epoch)
    if node.fenced:
        return Decision()
    changes = cautious_changes(image, live, heard_of, without=node.node_id)
    return _left(changes, node, stopping=False)


def stop(
    image: MetadataImage,
    command: StopNode,
    live: AbstractSet[NodeId],
    heard_of: AbstractSet[NodeId] | None = None,
) -> Decision:
    """Goodbye: others lead, and no late heartbeat brings the node back. Raises StaleNode."""
    node = present_node(image, command.node_id, command.node_epoch)
    if node.stopping:
        return Decision()
    changes = cautious_changes(image, live, heard_of, without=node.node_id)
    return _left(changes, node, stopping=True)


def remove_node(image: MetadataImage, command: RemoveNode) -> Decision:
    """Raises NodeNotFound; InvalidRequest while the node keeps something, or votes."""
    node = known_node(image, command.node_id)
    replicas = image.load(node.node_id).replicas
    if replicas:
        raise InvalidRequest(f"node {node.node_id} keeps {replicas} replicas; drain it first")
    if node.node_id in image.voters.ids | image.returning:
        raise InvalidRequest(f"node {node.node_id} is a voter; remove it from the voters first")
    return Decision((NodeRemoved(node_id=node.node_id),))


def _left(changes: PartitionChanges, node: NodeImage, *, stopping: bool) -> Decision:
    for place in _places_in_sync(changes.image, node.node_id):
        if changes.is_full:
            return changes.portion()
        changes.put(place, without(changes, place, node.node_id))
    return changes.decision(NodeFenced(node_id=node.node_id, fenced=True, stopping=stopping))


def _places_in_sync(image: MetadataImage, node_id: NodeId) -> Iterator[ReplicaPlace]:
    """Those that it leads first: publishers wait for another leader there."""
    yield from places_where(image, lambda it: it.leader == node_id)
    yield from places_where(image, lambda it: it.leader != node_id and node_id in it.isr)


def _is_older(known: NodeImage, command: RegisterNode) -> bool:
    """The data folder lacks the last stamp of the node that is known.

    Not so where the node is known from a backup only: its folder was made with the cluster.
    """
    return known.has_address and known.stamp not in command.stamps


def _named(found: list[ReplicaPlace]) -> list[list[str | int]]:
    return [[place.stream.name, place.number] for place in found]


def _registered(
    node_epoch: int,
    tail_lost: list[list[str | int]],
    data_lost: list[list[str | int]],
    *,
    older: bool,
) -> dict[str, object]:
    return {
        "node_epoch": node_epoch,
        "tail_lost": tail_lost,
        "data_lost": data_lost,
        "older_copy": older,
    }
