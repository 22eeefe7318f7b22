"""Looks at each node after each of its events, and holds it against the promises."""

import uuid
from collections.abc import Iterable

from streamlog.metadata.image import Image
from streamlog.model import TopicPartition
from streamlog.partition.owner import Partition
from streamlog.raft.events import Role
from tests.simulation.checkers import Violation
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.partition_checkers import PartitionCheckers, Replica, Watched
from tests.simulation.cluster.quorum_checkers import ImagesAgree
from tests.simulation.cluster.quorum_checkers import SingleLeaderPerEpoch as SingleController


class Observer:
    """All checkers of a cluster."""

    def __init__(self) -> None:
        self.partitions = PartitionCheckers()
        self.controllers = SingleController()
        self.images = ImagesAgree()
        self.lost_tails: dict[tuple[int, uuid.UUID], bool] = {}
        """By node and incarnation: whether what was not synced before may be gone."""
        self._watched: dict[tuple[Replica, int], tuple[object, Watched]] = {}
        self._image_offsets: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._streams: dict[str, Replica] = {}

    def look(self, node: ClusterNode) -> None:
        """After an event of that node."""
        if not node.is_built:
            return
        node_id = node.host.node_id
        self.lost_tails[node_id, node.incarnation] = node.tail_lost
        self._look_at_quorum(node)
        image = node.metadata.image
        if image.offset != self._image_offsets.get(node_id):
            self._image_offsets[node_id] = image.offset
            self.images.look(node_id, image)
            self._look_at_losses(image, node)
        for partition in node.registry.partitions():
            if not partition.closed:
                self._look_at(node, partition, image)

    def acknowledged(self, tp: TopicPartition, message_id: str, offset: int) -> None:
        """A publisher was told so."""
        replica = self._replica(tp)
        if replica not in self.partitions.forgiven:
            self.partitions.log_of(replica).acknowledged(message_id, offset)

    def compare(self, nodes: Iterable[ClusterNode]) -> None:
        """At the end: every replica has all that is committed, and nothing else."""
        for node in nodes:
            for partition in node.registry.partitions():
                replica = self._replica_of(node.metadata.image, partition.tp)
                if replica is None or replica in self.partitions.forgiven:
                    continue
                _, watched = self._watched[replica, node.host.node_id]
                watched.compare(partition._log)
                committed = self.partitions.log_of(replica).end_offset
                if partition.log_end_offset < committed:
                    raise Violation(
                        f"{partition.tp} on node {node.host.node_id} ends at"
                        f" {partition.log_end_offset} of {committed}"
                    )

    def all_even(self, nodes: Iterable[ClusterNode]) -> bool:
        """All replicas of a partition end, and are committed, at the same offset."""
        ends: dict[TopicPartition, set[int]] = {}
        for node in nodes:
            for partition in node.registry.partitions():
                found = ends.setdefault(partition.tp, set())
                found |= {partition.log_end_offset, partition.high_watermark}
        return all(len(found) == 1 for found in ends.values())

    def _look_at_quorum(self, node: ClusterNode) -> None:
        if not node.listens:
            return
        raft, node_id = node.replica.raft, node.host.node_id
        if raft.role is Role.LEADER and raft.epoch != self._epochs.get(node_id):
            self._epochs[node_id] = raft.epoch
            self.controllers.leads(raft.epoch, node_id, node.host.life)

    def _look_at(self, node: ClusterNode, partition: Partition, image: Image) -> None:
        tp = partition.tp
        replica = self._replica_of(image, tp)
        if replica is None or replica in self.partitions.forgiven:
            return
        key = (replica, node.host.node_id)
        known = self._watched.get(key)
        if known is None or known[0] is not partition:
            watched = Watched(self.partitions, replica, node.host.node_id, node.host.life)
            self._watched[key] = known = (partition, watched)
        known[1].look(
            partition._log,
            high_watermark=partition.high_watermark,
            leader_epoch=partition.leader_epoch if partition.is_leader else -1,
        )

    def _look_at_losses(self, image: Image, node: ClusterNode) -> None:
        """The last in-sync replica whose unsynced tail is gone has lost what it may lose."""
        for node_id, registered in image.nodes.items():
            lost = self.lost_tails.get((node_id, registered.incarnation))
            if not lost:
                continue
            for stream in image.streams.values():
                for number, partition in enumerate(stream.partitions):
                    if partition.isr in ((node_id,), ()):
                        self.partitions.forgiven.add(Replica(stream.stream_id, number))

    def _replica(self, tp: TopicPartition) -> Replica:
        return self._streams[f"{tp}"]

    def _replica_of(self, image: Image, tp: TopicPartition) -> Replica | None:
        stream = image.streams.get(tp.stream)
        if stream is None:
            return None
        return self._streams.setdefault(f"{tp}", Replica(stream.stream_id, tp.partition))
