"""Stories in which silence is short: heartbeats are frequent, and a silent node is fenced soon, whereas its disk, its
clock and its network are as bad as in other stories. No node is fenced that may still act as the leader.
"""

from streamlog.metadata.commands import Command, TransferController
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId
from tests.simulation.checkers import Violation
from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.node import ClusterNode


class LeaseEndsBeforeTheSession:
    """A node that is fenced holds no lease: what is not appended, such as deliveries to consumers, only the lease
    keeps from being done twice.
    """

    def __init__(self) -> None:
        self._newest: MetadataImage | None = None
        self._fenced: dict[NodeId, int] = {}
        """Nodes that were let in and are fenced now, with the registration."""

    def look(self, node: ClusterNode, nodes: list[ClusterNode]) -> None:
        """After an event of ``node``."""
        if not _takes_part(node):
            return
        image = node.metadata.image
        if self._newest is None or image.offset > self._newest.offset:
            self._note(self._newest, image)
            self._newest = image
            for each in nodes:
                self._check(each)
        else:
            self._check(node)

    def _note(self, before: MetadataImage | None, image: MetadataImage) -> None:
        for node_id, node in image.nodes.items():
            known = None if before is None else before.nodes.get(node_id)
            if not node.fenced or node.stopping:
                self._fenced.pop(node_id, None)
            elif known is not None and not known.fenced and known.epoch == node.epoch:
                self._fenced[node_id] = node.epoch

    def _check(self, node: ClusterNode) -> None:
        node_id = node.host.node_id
        if not _takes_part(node) or self._fenced.get(node_id) != node.metadata.node_epoch:
            return
        before, Host.current = Host.current, node.host
        try:
            left_s = node.metadata.lease.left_s
        finally:
            Host.current = before
        if left_s > 0:
            raise Violation(f"node {node_id} is fenced and has a lease of {left_s * 1000:.0f} ms")


class SilentNodes(ClusterWorld):
    """A silent node is fenced after 360 ms, a silent controller given up after 300."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cluster = self.cluster.model_copy(
            update={"heartbeat_interval_ms": 60, "pause_tolerance_ms": 120}
        )
        self._leases = LeaseEndsBeforeTheSession()

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if host is not None and host.process is not None:
            self._leases.look(host.process, self.nodes())


class ControllersMove(SilentNodes):
    """The controller is moved again and again: the one before lives, and may hold a lease of its own."""

    def _command(self) -> Command | None:
        return TransferController() if self._created else None


def _takes_part(node: ClusterNode) -> bool:
    return node.ready and node.metadata.node_epoch >= 0
