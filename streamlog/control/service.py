"""What adapters ask: one object a node."""

from streamlog.authz.visibility import Metadata
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.local_leader import LocalLeader
from streamlog.control.leaders.node_requests import NodeRequests
from streamlog.control.read_barrier import ReadBarrier
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.quorum.peers import Peers
from streamlog.model import NodeId
from streamlog.partition.replica_manager import ReplicaManager


class ControlService:
    """The operations of the whole cluster, asked at this node."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        metadata: Metadata,
        partitions: ReplicaManager,
        peers: Peers,
        lease: Lease | None = None,
    ) -> None:
        """``peers``: connections of its own to other nodes."""
        self.freshness = ReadBarrier(metadata)
        self.nodes = NodeRequests(peers, lambda: metadata.image)
        self.leader = LocalLeader(partitions, lease)
        self.leader.register(self.nodes)
        self.leaders = LeaderRouter(node_id, self.leader, self.nodes, image=lambda: metadata.image)

    def close(self) -> None:
        """No other node is asked any more."""
        self.nodes.close()
