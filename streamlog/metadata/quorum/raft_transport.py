"""They carry the core's requests to its peers, and bring back answers, failures and complaints."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from streamlog.errors import NodeUnreachable, NotLetIn, OtherCluster, StreamlogError
from streamlog.metadata.quorum.metadata_replica import MetadataReplica
from streamlog.metadata.quorum.peers import PeerAddress, Peers
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.messages import Answer, Fault, Request, SnapshotId

logger = logging.getLogger(__name__)

PROBES: Final = 4
PROBE_PAUSE_S: Final = 0.005
"""A process that is killed closes its connections and its port one after the other."""


class RaftTransport:
    """Each call is one errand, to be run as a task."""

    def __init__(
        self,
        replica: MetadataReplica,
        peers: Peers,
        *,
        request_timeout_ms: int,
        tell: Callable[[raft.Event], None],
    ) -> None:
        self.complaint = ""
        """What may be why no leader is known; empty if nothing was noticed."""
        self.twin_leads = False
        """Peers were heard to follow a leader of this node's id, which is not this process."""
        self._replica = replica
        self._peers = peers
        self._request_timeout_ms = request_timeout_ms
        self._tell = tell
        self._strangers: dict[NodeId, OtherCluster] = {}
        """Peers that say that they belong to another cluster."""

    @property
    def stranger(self) -> OtherCluster | None:
        """Most of the voters are another cluster's: it is this node that is in the wrong place."""
        if len(self._strangers) <= len(self._replica.voters) // 2:
            return None
        return next(iter(self._strangers.values()))

    async def send(self, peer: NodeId, request: Request) -> None:
        address = self.address_of(peer)
        try:
            if address is None:
                self.complaint = f"node {peer}, which leads, is not one of cluster.voters"
                raise NodeUnreachable(f"node {peer} has no address")
            answer = await self._peers.send(address, peer, request, self._request_timeout_ms)
        except StreamlogError as error:
            logger.debug("peer failed", extra={"node": peer, "error": str(error)})
            if isinstance(error, OtherCluster):
                self._strangers[peer] = error
                self.complaint = str(error)
            elif isinstance(error, NotLetIn):
                self.complaint = str(error)
            if address is not None and await self.is_gone(address, error):
                self._tell(raft.PeerGone(peer))
            self._tell(raft.Failed(peer, request))
        else:
            self._strangers.pop(peer, None)
            self._look_for_faults(peer, answer)
            self._tell(raft.Answered(peer, request, answer))

    def _look_for_faults(self, peer: NodeId, answer: Answer) -> None:
        replica = self._replica
        leads = replica.raft.role is raft.Role.LEADER
        self.twin_leads = answer.leader == replica.key.node_id and not leads
        if answer.fault is Fault.WRONG_VOTERS:
            self.differ(peer)
        elif answer.leader is not None:
            self.complaint = ""

    def differ(self, peer: NodeId) -> None:
        """This node and ``peer`` are configured with different voters, and know no others yet."""
        self.complaint = f"node {peer} has another list of cluster.voters than this node"

    async def is_gone(self, address: PeerAddress, error: StreamlogError) -> bool:
        """Whether nothing listens there; silence says nothing."""
        if not isinstance(error, NodeUnreachable):
            return False
        refused = error.refused
        for _ in range(PROBES):
            if refused:
                return True
            await asyncio.sleep(PROBE_PAUSE_S)
            refused = await self._peers.refuses(address)
        return refused

    async def fetch_snapshot(self, leader: NodeId, snapshot: SnapshotId) -> bytes | None:
        """None where it could not be had."""
        address = self.address_of(leader)
        try:
            if address is None:
                raise NodeUnreachable(f"node {leader} has no address")
            return await self._peers.fetch_snapshot(address, snapshot, self._request_timeout_ms)
        except StreamlogError as error:
            logger.warning("snapshot not fetched", extra={"node": leader, "error": str(error)})
            return None

    def address_of(self, node_id: NodeId) -> PeerAddress | None:
        """As voters, metadata or the configuration tell."""
        replica = self._replica
        voter = replica.voters.by_id.get(node_id)
        if voter is not None:
            return PeerAddress(voter.host, voter.port)
        node = replica.newest.nodes.get(node_id)
        if node is not None and node.has_address:
            return PeerAddress(node.host, node.port)
        configured = replica.configured.by_id.get(node_id)
        return None if configured is None else PeerAddress(configured.host, configured.port)
