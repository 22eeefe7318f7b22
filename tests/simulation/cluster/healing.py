"""Stories in which a node is lost for good, while others come and go: its replicas move to the others."""

from streamlog.metadata.commands import Command, ElectLeader, RebalanceLeaders, TransferController
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.simulation.checkers import Violation
from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.host import Host

HEALING_MS = 2_500
LATE_MS = 400
"""The controller may know so much earlier that a node is fenced than others do."""
LOST_AT_US = (700_000, 1_300_000)
NOTICED_US = 1_400_000
"""A node is fenced by then."""
LOOK_AGAIN_US = 50_000


class OnlyLostNodesAreReplaced:
    """Operators move nothing in these stories, so that every move is one of self-healing."""

    def __init__(self) -> None:
        self._newest: MetadataImage | None = None
        self._seen_us: dict[NodeId, int] = {}
        """When a node was last seen not to be fenced, or to register."""

    def look(self, image: MetadataImage, now_us: int) -> None:
        before = self._newest
        if before is not None and image.offset <= before.offset:
            return
        self._newest = image
        for node_id, node in image.nodes.items():
            known = None if before is None else before.nodes.get(node_id)
            if known is None or known.epoch != node.epoch or not known.fenced:
                self._seen_us[node_id] = now_us
        if before is None:
            return
        for change in image.changes(before):
            if change.old is None or change.new is None:
                continue
            for number, (old, new) in enumerate(
                zip(change.old.partitions, change.new.partitions, strict=True)
            ):
                for node_id in set(new.removing) - set(old.removing):
                    self._check(f"{change.new.name}-{number}", node_id, now_us)

    def _check(self, partition: str, node_id: NodeId, now_us: int) -> None:
        ago_ms = (now_us - self._seen_us[node_id]) // 1_000
        if ago_ms < HEALING_MS - LATE_MS:
            raise Violation(f"{partition} leaves node {node_id}, which was seen {ago_ms} ms ago")


class NodeLost(ClusterWorld):
    """One node does not come back. In the end all partitions have all of their replicas on the others.

    It is lost while all is well, and nothing else befalls the cluster until it is fenced: who is last in sync
    would not come back otherwise.
    """

    NODES = (4, 4, 5)
    TROUBLE_S = (4, 6, 9)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sync = "commit"
        self.cluster = self.cluster.model_copy(update={"self_healing_ms": HEALING_MS})
        self._lost: Host | None = None
        self._replaced = OnlyLostNodesAreReplaced()
        self._boot = self.troubles.boot
        self.troubles.boot = self._boot_unless_lost  # type: ignore[method-assign]
        self._noticed_us = self._until_us
        self.troubles.is_left_out = lambda *_: self.events.now_us < self._noticed_us
        self.events.after(self.rng.randint(*LOST_AT_US), self._lose)

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        return [
            StreamConfig.of(name="a", partitions=2, replicas=3),
            StreamConfig.of(name="b", partitions=2, replicas=2, min_isr=1, encrypted=True),
        ]

    def _boot_unless_lost(self, host: Host) -> None:
        if host is not self._lost:
            self._boot(host)

    def _lose(self) -> None:
        """When others have all that it has."""
        images = [node.metadata.image for node in self.nodes() if node.ready]
        newest = max(images, key=lambda it: it.offset, default=None)
        if (
            newest is None
            or len(self._created) < len(self.configs)
            or not self._all_in_sync(newest)
        ):
            self.events.after(LOOK_AGAIN_US, self._lose)
            return
        host = self.hosts[self.rng.choice(sorted(self.hosts))]
        self.troubles.tell(f"node {host.node_id} is lost for good")
        self._lost = host
        self._noticed_us = self.events.now_us + NOTICED_US
        host.kill()

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if host is not None and host.process is not None and host.process.ready:
            self._replaced.look(host.process.metadata.image, self.events.now_us)

    def _command(self) -> Command | None:
        """No move, and no drain."""
        if not self._created:
            return None
        name = self.rng.choice(sorted(self._created))
        return self.rng.choice(
            (
                RebalanceLeaders(),
                ElectLeader(stream=name, partition=self.rng.randrange(2)),
                TransferController(),
            )
        )

    def _is_well(self) -> bool:
        nodes = self.nodes()
        lost = self._lost
        if lost is None or len(nodes) < len(self.hosts) - 1:
            return False
        if not all(node.ready for node in nodes):
            return False
        images = [node.metadata.image for node in nodes]
        return (
            len({image.offset for image in images}) == 1
            and self._all_in_sync(images[0])
            and self._is_whole(images[0], lost.node_id)
            and self.publishers.done
            and self.observer.all_even(nodes)
        )

    def _is_whole(self, image: MetadataImage, lost: NodeId) -> bool:
        """Without the lost node."""
        return all(
            lost not in partition.replicas and len(partition.replicas) == stream.config.replicas
            for stream in image.streams.values()
            for partition in stream.partitions
        )
