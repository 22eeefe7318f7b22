"""Who leads or keeps a partition when a node is asked to do so no longer. Pure.

The controller has the last word: it refuses what is not possible any more.
"""

from streamlog.admin.errors import NO_PEERS, NOT_CLUSTERED, PEER_NOT_MEMBER, PEER_REMAP, Refused
from streamlog.admin.stream_info import node_id_of
from streamlog.metadata.image import Image, NodeImage, PartitionImage
from streamlog.model import NodeId


def successor(image: Image, partition: PartitionImage, preferred: str = "") -> NodeId:
    """The in-sync replica that is to lead next; ``preferred`` names one. Raises Refused."""
    if len(image.nodes) < 2:
        raise Refused(NOT_CLUSTERED)
    able = [
        node_id
        for node_id in partition.isr
        if node_id != partition.leader and _is_able(image.nodes.get(node_id))
    ]
    if preferred:
        able = [node_id for node_id in able if node_id == node_id_of(preferred)]
    if not able:
        raise Refused(NO_PEERS)
    return min(able, key=lambda node_id: image.load(node_id).leaders)


def without_peer(image: Image, partition: PartitionImage, peer: str) -> tuple[NodeId, ...]:
    """The replicas when another node has taken the place of ``peer``. Raises Refused.

    A rack that has none of the other replicas comes first, then whoever keeps least.
    """
    leaving = node_id_of(peer)
    target = partition.target
    if leaving is None or leaving not in target:
        raise Refused(PEER_NOT_MEMBER)
    staying = [node_id for node_id in target if node_id != leaving]
    racks = {image.nodes[node_id].rack for node_id in staying if node_id in image.nodes} - {None}
    others = [
        node
        for node_id, node in sorted(image.nodes.items())
        if node_id not in target and _is_able(node)
    ]
    if not others:
        raise Refused(PEER_REMAP)
    chosen = min(others, key=lambda it: (it.rack in racks, image.load(it.node_id).replicas))
    return tuple(chosen.node_id if node_id == leaving else node_id for node_id in target)


def _is_able(node: NodeImage | None) -> bool:
    return node is not None and not node.fenced and not node.draining
