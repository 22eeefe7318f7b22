"""What is wrong with a cluster. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamlog.cli.cluster.description import Description
from streamlog.metadata.nodes.node_condition import DISK, told

if TYPE_CHECKING:
    from streamlog.client.topology import PartitionInfo, Topology


def findings(description: Description, topology: "Topology") -> list[str]:
    """One line for each thing that a loss of one more node could turn into harm.

    Empty: every node lives and is fit to lead, every voter follows the metadata, and every replica
    is in sync.
    """
    silent = description.silent
    return [
        *_of_controller(description),
        *_of_nodes(description),
        *_of_voters(description),
        *_of_partitions(topology, silent),
    ]


def _of_controller(description: Description) -> Iterator[str]:
    if description.controller is not None:
        return
    voters = description.voter_ids
    here = {replica.node_id for replica in description.replicas} & voters
    yield (
        f"there is no controller: {len(here)} of {len(voters)} voters answer, and"
        f" {len(voters) // 2 + 1} are needed; nothing is acknowledged or changed meanwhile"
    )


def _of_nodes(description: Description) -> Iterator[str]:
    for node in description.nodes:
        if node.answers is not None:
            if not node.answers:
                yield f"node {node.node_id} at {node.host}:{node.port} does not answer"
        elif node.fenced:
            yield f"node {node.node_id} is not alive"
        elif not node.heard:
            yield f"node {node.node_id} has not told the new controller yet that it is alive"
        for name in (*([DISK] if node.full else ()), *node.unfit):
            yield f"node {node.node_id}: {told(name)}"


def _of_voters(description: Description) -> Iterator[str]:
    """A node whose metadata were lost is there, and in sync, before its voice counts again."""
    if description.controller is None:
        return  # who follows whom is known to a controller alone
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


def _of_partitions(topology: "Topology", silent: frozenset[int]) -> Iterator[str]:
    for topic in topology.topics.values():
        for partition in topic.partitions:
            problem = _of_partition(partition, silent)
            if problem is not None:
                yield f"{topic.name}/{partition.partition} {problem}"


def _of_partition(partition: "PartitionInfo", silent: frozenset[int]) -> str | None:
    if partition.leader in silent:
        return f"is led by node {partition.leader}, which does not answer"
    if partition.leader < 0:
        members = ", ".join(map(str, partition.isr)) or "none"
        return f"has no leader; in sync: {members}"
    behind = [node for node in partition.replicas if node not in partition.isr]
    if behind:
        nodes = "node" if len(behind) == 1 else "nodes"
        return f"is not in sync on {nodes} {', '.join(map(str, behind))}"
    return None
