"""The advertised listeners of nodes, and the partitions with their leaders, as answers show them."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from streamlog.kafka.cluster_view import ClusterView
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.leaders import CurrentLeader, NodeEndpoint


def shown_nodes(view: ClusterView) -> Iterable[Message]:
    """Those that are alive, and always this one, although it may still be fenced. All of them while
    no majority is alive, for then a cluster is starting, rather than that nodes have gone.

    Clients forget the nodes that are not listed: librdkafka that is told of none at all never asks
    again (confluentinc/librdkafka#5301), and one that is told of one alone hangs on its life.
    """
    own, image = view.node_id, view.metadata.image
    if own not in image.nodes:
        host, port = view.address()
        yield {"node_id": own, "host": host, "port": port, "rack": None}
    live = live_nodes(image)
    is_whole = 2 * len(live) > len(image.nodes)
    for node_id, node in sorted(image.nodes.items()):
        if node_id == own or node_id in live or not is_whole:
            yield {"node_id": node_id, "host": node.host, "port": node.port, "rack": node.rack}


def shown_controller(view: ClusterView) -> int:
    """Where clients send what changes streams; any node would take it."""
    found = view.metadata.controller_id
    return view.node_id if found is None else found


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


def current_leader(tp: TopicPartition, image: MetadataImage) -> CurrentLeader | None:
    """As the image has it, so that who asked another node need not ask for it (KIP-951)."""
    stream = image.streams.get(tp.stream)
    if stream is None or not 0 <= tp.partition < len(stream.partitions):
        return None
    found = stream.partitions[tp.partition]
    return None if found.leader == NO_LEADER else CurrentLeader(found.leader, found.leader_epoch)


def endpoints(leaders: Iterable[CurrentLeader | None], image: MetadataImage) -> list[NodeEndpoint]:
    """Where they are reached."""
    node_ids = sorted({NodeId(it.leader_id) for it in leaders if it is not None})
    nodes = (image.nodes.get(node_id) for node_id in node_ids)
    return [NodeEndpoint(it.node_id, it.host, it.port, it.rack) for it in nodes if it is not None]


def live_nodes(image: MetadataImage) -> AbstractSet[NodeId]:
    return {it.node_id for it in image.nodes.values() if not it.fenced}
