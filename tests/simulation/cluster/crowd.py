"""Stories of very many nodes, and of nodes with very many partitions."""

from unittest.mock import patch

from streamlog.metadata.controller import partition_changes
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.raft.events import Role
from tests.simulation.checkers import Violation
from tests.simulation.cluster import settings
from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.swarm import SwarmWorld

VOTERS = 3
PUBLISHED = 5
"""Streams that messages come to."""
KILLED = 10
CALM_MS = 1_400
"""Longer than a session."""


class CrowdWorld(ClusterWorld):
    """A stream for each node. Some nodes die together, the controller among them: one election, no node
    but these is fenced, and all is well again.
    """

    NODES = (100,)
    TROUBLE_S = (4,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cluster = settings.cluster_section(VOTERS)
        self.troubles.kinds = []
        self._killed: set[int] = set()
        self._epoch = 0
        """The controller's, before the blow."""

    def run(self) -> None:
        with patch.object(self.troubles, "begin", self._begin):
            super().run()
        if not self._killed:
            raise Violation("nobody was killed")
        epochs = {node.replica.raft.epoch for node in self.nodes()}
        if epochs != {self._epoch + 1}:
            raise Violation(f"epoch {self._epoch} before the blow, and {epochs} after it")
        for node in self.nodes():
            is_new = node.metadata.node_epoch > self._known[node.host.node_id]
            if is_new != (node.host.node_id in self._killed):
                raise Violation(f"node {node.host.node_id} has registered again")

    def _begin(self) -> None:
        self.events.after(self._until_us - self.events.now_us, lambda: None)
        self._strike_when_calm()

    def _strike_when_calm(self) -> None:
        if not self._is_well_so_far():
            self.events.after(100_000, self._strike_when_calm)
            return
        self._known = {node.host.node_id: node.metadata.node_epoch for node in self.nodes()}
        (controller,) = [it for it in self.nodes() if it.replica.raft.role is Role.LEADER]
        self._epoch = controller.replica.raft.epoch
        observers = [node_id for node_id in self.hosts if node_id > VOTERS]
        chosen = [
            controller.host.node_id,
            *self.rng.sample(observers, max(1, len(observers) // KILLED)),
        ]
        self._killed = set(chosen)
        for node_id in chosen:
            self.troubles.kill(self.hosts[node_id], down_us=self.rng.randint(500, CALM_MS) * 1_000)

    def _is_well_so_far(self) -> bool:
        nodes = self.nodes()
        return (
            len(nodes) == len(self.hosts)
            and all(node.ready for node in nodes)
            and len(self._created) == len(self.configs)
            and self._all_in_sync(nodes[0].metadata.image)
        )

    def _is_well(self) -> bool:
        return bool(self._killed) and super()._is_well()

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        return [StreamConfig.of(name=f"s{it}", partitions=1, replicas=3) for it in range(nodes)]

    def _is_created(self, stream: StreamImage) -> None:
        if stream.name in self._created:
            return
        self._created.add(stream.name)
        if len(self._created) <= PUBLISHED:
            self.publishers.publish_to(stream)

    def _operate(self) -> None:
        """Nobody does."""


class SmallCrowdWorld(CrowdWorld):
    NODES = (8,)


class SmallPortionsWorld(SwarmWorld):
    """A node's partitions are taken from it one by one, and anything may come in between."""

    def run(self) -> None:
        with patch.object(partition_changes, "PORTION", 1):
            super().run()
