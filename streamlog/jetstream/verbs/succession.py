"""Who leads or keeps a partition when a node is asked to do so no longer. Pure.

The controller has the last word: it refuses what is not possible any more.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from streamlog.jetstream.errors import PEER_NOT_MEMBER, PEER_REMAP, ApiRefused, no_peers
from streamlog.jetstream.requests.fields import Fields, text
from streamlog.jetstream.verbs.stream_info import node_id_of
from streamlog.metadata.image.metadata_image import MetadataImage, NodeImage, PartitionImage
from streamlog.model import NodeId

NO_SUCCESSOR: Final = no_peers("no replacement peer connected")


class PeerChoice(NamedTuple):
    """JetStream's hint on who is to lead: a node by name, or any that is of a kind."""

    preferred: str = ""
    cluster: str = ""
    tags: Sequence[str] = ()

    @classmethod
    def of(cls, fields: Fields) -> "PeerChoice":
        placement = fields.get("placement") or {}
        return cls(
            text(placement, "preferred"), text(placement, "cluster"), placement.get("tags") or ()
        )


ANYWHERE: Final = PeerChoice()


def successor(
    image: MetadataImage, partition: PartitionImage, wanted: PeerChoice = ANYWHERE
) -> NodeId:
    """The in-sync replica that is to lead next. Raises Refused."""
    if wanted.preferred:
        _check_preferred(partition, wanted.preferred)
    able = [
        node_id
        for node_id in partition.isr
        if node_id != partition.leader and _is_able(image.nodes.get(node_id))
    ]
    if wanted.preferred:
        able = [node_id for node_id in able if node_id == node_id_of(wanted.preferred)]
    elif wanted.tags or wanted.cluster not in ("", image.cluster_id):
        able = []  # no node has tags
    if not able:
        raise ApiRefused(NO_SUCCESSOR)
    return min(able, key=lambda node_id: image.load(node_id).leaders)


def _check_preferred(partition: PartitionImage, preferred: str) -> None:
    node_id = node_id_of(preferred)
    if node_id is None or node_id not in partition.replicas:
        raise ApiRefused(no_peers(f'preferred server "{preferred}" not known'))
    if node_id == partition.leader:
        raise ApiRefused(no_peers(f'preferred server "{preferred}" is already leader'))


def without_peer(image: MetadataImage, partition: PartitionImage, peer: str) -> tuple[NodeId, ...]:
    """The replicas when another node has taken the place of ``peer``. Raises Refused.

    A rack that has none of the other replicas comes first, then whoever keeps least.
    """
    leaving = node_id_of(peer)
    target = partition.target
    if leaving is None or leaving not in target:
        raise ApiRefused(PEER_NOT_MEMBER)
    staying = [node_id for node_id in target if node_id != leaving]
    racks = {image.nodes[node_id].rack for node_id in staying if node_id in image.nodes} - {None}
    others = [
        node
        for node_id, node in sorted(image.nodes.items())
        if node_id not in target and _is_able(node)
    ]
    if not others:
        raise ApiRefused(PEER_REMAP)
    chosen = min(others, key=lambda it: (it.rack in racks, image.load(it.node_id).replicas))
    return tuple(chosen.node_id if node_id == leaving else node_id for node_id in target)


def _is_able(node: NodeImage | None) -> bool:
    return node is not None and not node.fenced and not node.draining
