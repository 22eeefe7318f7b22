"""What is wrong with a cluster. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamlog.cli.cluster.description import Description
from streamlog.metadata.condition import DISABLING, DISK

if TYPE_CHECKING:
    from streamlog.client.topology import PartitionInfo, Topology


def findings(description: Description, topology: "Topology") -> list[str]:
    """One line for each thing that a loss of one more node could turn into harm.

    Empty: every node lives and is fit to lead, every voter follows the metadata, and every replica
    is in sync.
    """
    return [*_of_nodes(description), *_of_voters(description), *_of_partitions(topology)]


def _of_nodes(description: Description) -> Iterator[str]:
    for node in description.nodes:
        if node.fenced:
            yield f"node {node.node_id} is not alive"
        elif not node.heard:
            yield f"node {node.node_id} has not told the new controller yet that it is alive"
        for name in (*([DISK] if node.full else ()), *node.unfit):
            yield f"node {node.node_id}: {DISABLING.get(name, name)}"


def _of_voters(description: Description) -> Iterator[str]:
    """A node whose metadata were lost is there, and in sync, before its voice counts again."""
    living = {node.node_id: not node.fenced and node.heard for node in description.nodes}
    lost = description.lost_voters
    following = {replica.node_id for replica in description.replicas}
    for voter in description.voters:
        if voter.node_id not in living:
            yield f"voter {voter.node_id} has never been there"
        elif not (following and living[voter.node_id]):
            continue  # said already, or not known
        elif voter.node_id not in following:
            yield f"voter {voter.node_id} does not follow the metadata yet"
        elif voter.node_id in lost:
            yield f"voter {voter.node_id} has lost its metadata, and may not vote yet"
    for node_id in description.returning:
        yield f"node {node_id} was a voter with metadata that are lost, and does not vote again yet"


def _of_partitions(topology: "Topology") -> Iterator[str]:
    for topic in topology.topics.values():
        for partition in topic.partitions:
            problem = _of_partition(partition)
            if problem is not None:
                yield f"{topic.name}/{partition.partition} {problem}"


def _of_partition(partition: "PartitionInfo") -> str | None:
    if partition.leader < 0:
        members = ", ".join(map(str, partition.isr)) or "none"
        return f"has no leader; in sync: {members}"
    behind = [node for node in partition.replicas if node not in partition.isr]
    if behind:
        nodes = "node" if len(behind) == 1 else "nodes"
        return f"is not in sync on {nodes} {', '.join(map(str, behind))}"
    return None
