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
    """Those that are alive, and always this one, although it may still be fenced. All of them while
    no majority is alive, for then a cluster is starting, rather than that nodes have gone.

    Clients forget the nodes that are not listed: librdkafka that is told of none at all never asks
    again (confluentinc/librdkafka#5301), and one that is told of one alone hangs on its life.
    """
    own, image = context.node_id, context.metadata.image
    if own not in image.nodes:
        host, port = context.address()
        yield {"node_id": own, "host": host, "port": port, "rack": None}
    live = live_nodes(image)
    is_whole = 2 * len(live) > len(image.nodes)
    for node_id, node in sorted(image.nodes.items()):
        if node_id == own or node_id in live or not is_whole:
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
