"""A command is forwarded to the node that leads the metadata quorum, from whichever node was asked.

``MetadataService`` waits for a leader, and carries out what this node can. Here a command is sent, once. What may
have been done is not sent again (RequestTimedOut), unless twice is as good as once: ``REPEATABLE``.
"""

from typing import Final

from streamlog.config import ClusterSection
from streamlog.errors import (
    NoController,
    NodeIdTaken,
    NodeUnreachable,
    RequestTimedOut,
)
from streamlog.metadata.commands import (
    AllocateProducerIds,
    AlterIsr,
    AlterQuota,
    AlterStream,
    AlterTier,
    AwaitApplied,
    Command,
    CreateStream,
    DeleteStream,
    DescribeCluster,
    ExportMetadata,
    Granted,
    Heartbeat,
    PlaceStream,
    RegisterNode,
    ReportLeader,
    SpendNonce,
    StampFolder,
    UpdateStream,
    decode_result,
    encode_command,
)
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.quorum.raft_driver import RaftDriver
from streamlog.model import NodeId

REPEATABLE: Final = (
    Heartbeat,
    RegisterNode,
    StampFolder,
    ReportLeader,
    AlterIsr,
    AlterTier,
    AllocateProducerIds,
    AlterQuota,
    AwaitApplied,
    DescribeCluster,
    ExportMetadata,
)
"""Twice is as good as once."""

CHANGES_OF_STREAMS: Final = (CreateStream, PlaceStream, UpdateStream, AlterStream, DeleteStream)
"""They wait for nodes that may not know of a deletion."""

FREQUENT: Final = (Heartbeat, AlterIsr, SpendNonce)
"""Worth a connection that is kept."""


class CommandForwarder:
    """Sends commands to the controller, or to another node that is to answer them."""

    def __init__(
        self,
        quorum: RaftDriver,
        peers: Peers,
        *,
        node_id: NodeId,
        settings: ClusterSection,
    ) -> None:
        self._quorum = quorum
        self._peers = peers
        self._node_id = node_id
        self._settings = settings
        self._timeout_ms = settings.request_timeout_ms

    async def ask(self, node_id: NodeId | None, command: Command) -> Granted:
        """Have this node carry it out. Raises NoController where it was not heard; NodeIdTaken for
        a registration while another process of this node's id is the controller.
        """
        address = None if node_id is None else self._quorum.address_of(node_id)
        if address is None and self._quorum.twin_leads and isinstance(command, RegisterNode):
            # Only a process that has not registered can be a second one. A controller that has just
            # resigned sees the same: a late answer says that its peer still follows it.
            raise NodeIdTaken(f"node {self._node_id} is alive, and leads the metadata quorum")
        if address is None and node_id is not None:
            text = f"node {node_id}, which leads the metadata quorum, is not in cluster.voters"
            raise NoController(text)
        if address is None or node_id == self._node_id:
            text = "the metadata quorum has no leader that this node knows"
            complaint = self._quorum.complaint
            raise NoController(f"{text}: {complaint}" if complaint else text)
        wait_ms = 0
        if isinstance(command, AwaitApplied):
            wait_ms = command.wait_ms
        elif isinstance(command, CHANGES_OF_STREAMS):  # see ``nodes.stream_deletions``
            wait_ms = self._settings.session_timeout_ms
        try:
            data = await self._peers.command(
                address,
                encode_command(command),
                self._timeout_ms + wait_ms,
                purpose=type(command).__name__ if isinstance(command, FREQUENT) else "",
            )
        except NodeUnreachable as error:
            if error.refused or isinstance(command, REPEATABLE):
                raise NoController(str(error)) from error
            text = f"{error}; whether it was done is not known"
            raise RequestTimedOut(text) from error
        return decode_result(data)
