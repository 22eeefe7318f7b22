"""The verbs about who leads and who keeps what: each becomes a command to the controller."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from streamlog.authz.visibility import Metadata
from streamlog.errors import NodeNotFound
from streamlog.jetstream.errors import (
    BAD_REQUEST,
    NOT_CLUSTERED,
    PEER_NOT_MEMBER,
    PEER_REMAP,
    ApiRefused,
    no_peers,
)
from streamlog.jetstream.requests.fields import Fields, text
from streamlog.jetstream.verbs.stream_info import node_id_of
from streamlog.jetstream.verbs.streams import Streams
from streamlog.metadata.commands import ElectLeader, MovePartition, TransferController
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
    """The in-sync replica that is to lead next. Raises ApiRefused."""
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
    """The replicas when another node has taken the place of ``peer``. Raises ApiRefused.

    A rack that has none of the other replicas comes first, then the node that keeps least.
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


class ClusterVerbs:
    """Every method is one verb."""

    def __init__(self, metadata: Metadata, streams: Streams) -> None:
        self._metadata = metadata
        self._streams = streams

    async def step_down(self, name: str, fields: Fields) -> dict[str, Any]:
        """Another in-sync replica leads partition 0, whose leader is the stream's to JetStream."""
        self.check_clustered()
        stream = await self._streams.stream(name)
        leader = successor(self._metadata.image, stream.partition(0), PeerChoice.of(fields))
        await self._metadata.request(ElectLeader(stream=name, partition=0, leader=leader))
        return {"success": True}

    async def remove_peer(self, name: str, fields: Fields) -> dict[str, Any]:
        """Another node takes the peer's place, in each partition that the peer keeps.

        The move goes on after the answer; the peer keeps its replica until it has ended.
        """
        if not (peer := text(fields, "peer")):
            raise ApiRefused(BAD_REQUEST)
        stream = await self._streams.stream(name)
        kept = [
            number
            for number, partition in enumerate(stream.partitions)
            if node_id_of(peer) in partition.target
        ]
        for number in kept or [0]:  # without_peer says what is wrong with 0
            image = self._metadata.image
            replicas = without_peer(image, image.stream(name).partition(number), peer)
            command = MovePartition(stream=name, partition=number, replicas=replicas)
            await self._metadata.request(command)
        return {"success": True}

    async def meta_step_down(self, _: str, fields: Fields) -> dict[str, Any]:
        """Another voter is the controller."""
        self.check_clustered()
        wanted = PeerChoice.of(fields).preferred
        node_id = node_id_of(wanted) if wanted else None
        if wanted and node_id is None:
            raise NodeNotFound(f"{wanted!r} is not a node")
        await self._metadata.request(TransferController(node_id=node_id))
        return {"success": True}

    def check_clustered(self) -> None:
        """Raises ApiRefused on a node that is alone."""
        if len(self._metadata.image.nodes) < 2:
            raise ApiRefused(NOT_CLUSTERED)
