"""Nodes and partitions as clients are told of them."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.metadata.image import Image, PartitionImage
from streamlog.model import NO_LEADER, NodeId
from streamlog.server.context import Context
from streamlog.wire.control import Message

OPERATIONS_UNKNOWN: Final = -(2**31)


def shown_nodes(context: Context) -> Iterable[Message]:
    """Those that are alive, and always this one, although it may still be fenced.

    Clients forget the nodes that are not listed: librdkafka that is told of none at all, while a
    whole cluster starts, never asks again.
    """
    own, nodes = context.node_id, context.metadata.image.nodes
    if own not in nodes:
        host, port = context.address()
        yield {"node_id": own, "host": host, "port": port, "rack": None}
    for node_id, node in sorted(nodes.items()):
        if node_id == own or not node.fenced:
            yield {"node_id": node_id, "host": node.host, "port": node.port, "rack": node.rack}


def shown_controller(context: Context) -> int:
    """Where clients send what changes streams; any node would take it."""
    found = context.metadata.controller_id
    return context.node_id if found is None else found


def shown_partition(
    index: int, partition: PartitionImage, live: AbstractSet[NodeId]
) -> dict[str, Any]:
    leaderless = partition.leader == NO_LEADER
    return {
        "error_code": ErrorCode.leader_not_available if leaderless else ErrorCode.none,
        "partition_index": index,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [it for it in partition.replicas if it not in live],
    }


def live_nodes(image: Image) -> AbstractSet[NodeId]:
    return {it.node_id for it in image.nodes.values() if not it.fenced}
