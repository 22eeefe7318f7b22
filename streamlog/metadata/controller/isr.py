"""Grants or refuses ISR changes that leaders propose (AlterPartition). Pure.

The checks are those of Kafka's AlterPartition (KIP-497), with the members' node epochs (KIP-903):
a member that has restarted since the leader heard from it may lack what it had. A member that was
moved away and back lacks it for sure, so the incarnations of the replicas must be the current ones,
too.
"""

from dataclasses import replace

from streamlog.metadata.commands import AlterIsr, IsrChange, IsrVerdict
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.partition_changes import (
    PartitionChanges,
    ReplicaPlace,
    present_node,
)
from streamlog.metadata.controller.reassignment import finished
from streamlog.metadata.image.metadata_image import PartitionImage
from streamlog.model import NodeId


def alter_isr(changes: PartitionChanges, command: AlterIsr) -> Decision:
    """A verdict for each change, in order. Raises StaleNode.

    A change that is in force already is granted again, for its first answer may have been lost. A
    move whose replicas are all in sync by a change ends with it.
    """
    present_node(changes.image, command.node_id, command.node_epoch)
    decided = set[tuple[str, int]]()
    verdicts: list[IsrVerdict] = []
    for change in command.changes:
        key = (change.stream, change.partition)
        verdicts.append("stale" if key in decided else _verdict(changes, command.node_id, change))
        decided.add(key)
    return changes.decision(verdicts=verdicts)


def _verdict(changes: PartitionChanges, leader: NodeId, change: IsrChange) -> IsrVerdict:
    place = _place(changes, change)
    if place is None:
        return "stale"
    known = place.partition
    members = tuple(node for node, _, _ in change.isr)
    if (known.leader, known.leader_epoch) != (leader, change.leader_epoch):
        return "stale"
    if set(members) == set(known.isr) and len(members) == len(known.isr):
        return "granted"
    if known.partition_epoch != change.partition_epoch:
        return "stale"
    if not _may_be_in_sync(changes, known, change):
        return "refused"
    isr = tuple(node for node in known.replicas if node in members)
    changes.put(place, finished(changes, place, replace(known, isr=isr)))
    return "granted"


def _may_be_in_sync(changes: PartitionChanges, known: PartitionImage, change: IsrChange) -> bool:
    members = [node for node, _, _ in change.isr]
    if known.leader not in members or len(set(members)) != len(members):
        return False
    return all(
        node in known.replicas
        and node in changes.available
        and (node not in changes.full or node in known.isr)
        and changes.image.nodes[node].epoch == node_epoch
        and known.incarnation(node) == incarnation
        for node, node_epoch, incarnation in change.isr
    )


def _place(changes: PartitionChanges, change: IsrChange) -> ReplicaPlace | None:
    stream = changes.image.streams.get(change.stream)
    if stream is None or stream.stream_id != change.stream_id:
        return None
    if not 0 <= change.partition < len(stream.partitions):
        return None
    return ReplicaPlace(stream, change.partition, stream.partitions[change.partition])
