"""The verbs about who leads and who keeps what: each becomes a command to the controller."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from streamlog.control.control import Control
from streamlog.control.placement import is_able
from streamlog.errors import NodeNotFound
from streamlog.jetstream.errors import (
    BAD_REQUEST,
    NOT_CLUSTERED,
    PEER_NOT_MEMBER,
    ApiRefused,
    no_peers,
)
from streamlog.jetstream.requests.fields import Fields, text
from streamlog.jetstream.verbs.stream_info import node_id_of
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
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
        if node_id != partition.leader and is_able(image.nodes.get(node_id))
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


class ClusterVerbs:
    """Every method is one verb."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def step_down(self, name: str, fields: Fields) -> dict[str, Any]:
        """Another in-sync replica leads partition 0, whose leader is the stream's to JetStream."""
        self.check_clustered()
        stream = await self._control.streams.find(name)
        image = self._control.streams.image
        leader = successor(image, stream.partition(0), PeerChoice.of(fields))
        await self._control.placement.elect(name, 0, leader)
        return {"success": True}

    async def remove_peer(self, name: str, fields: Fields) -> dict[str, Any]:
        """Another node takes the peer's place, in each partition that the peer keeps.

        The move goes on after the answer; the peer keeps its replica until it has ended.
        """
        if not (peer := text(fields, "peer")):
            raise ApiRefused(BAD_REQUEST)
        await self._control.streams.find(name)
        node_id = node_id_of(peer)
        if node_id is None:
            raise ApiRefused(PEER_NOT_MEMBER)
        await self._control.placement.replace_node(name, node_id)
        return {"success": True}

    async def meta_step_down(self, _: str, fields: Fields) -> dict[str, Any]:
        """Another voter is the controller."""
        self.check_clustered()
        wanted = PeerChoice.of(fields).preferred
        node_id = node_id_of(wanted) if wanted else None
        if wanted and node_id is None:
            raise NodeNotFound(f"{wanted!r} is not a node")
        await self._control.cluster.transfer_controller(node_id)
        return {"success": True}

    def check_clustered(self) -> None:
        """Raises ApiRefused on a node that is alone."""
        if len(self._control.streams.image.nodes) < 2:
            raise ApiRefused(NOT_CLUSTERED)
