"""The verbs about who leads and who keeps what: each becomes a command to the controller."""

from typing import Any

from streamlog.errors import NodeNotFound
from streamlog.jetstream.errors import BAD_REQUEST, NOT_CLUSTERED, ApiRefused
from streamlog.jetstream.requests.fields import Fields, text
from streamlog.jetstream.verbs.stream_info import node_id_of
from streamlog.jetstream.verbs.streams import ManagedMetadata, Streams
from streamlog.jetstream.verbs.succession import PeerChoice, successor, without_peer
from streamlog.metadata.commands import ElectLeader, MovePartition, TransferController


class ClusterVerbs:
    """Every method is one verb."""

    def __init__(self, metadata: ManagedMetadata, streams: Streams) -> None:
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
        """Raises Refused on a node that is alone."""
        if len(self._metadata.image.nodes) < 2:
            raise ApiRefused(NOT_CLUSTERED)
