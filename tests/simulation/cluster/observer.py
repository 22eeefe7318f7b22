"""Looks at each node after each of its events, and holds it against the promises."""

import uuid
from collections.abc import Callable, Iterable

from streamlog.config import SyncPolicy
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.raft.events import Role
from tests.partition_world import failures_of
from tests.simulation.checkers import Violation
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.partition_checkers import (
    PartitionCheckers,
    Replica,
    Watched,
    replica_of,
)
from tests.simulation.cluster.quorum_checkers import ImagesAgree
from tests.simulation.cluster.quorum_checkers import SingleLeaderPerEpoch as SingleController
from tests.simulation.cluster.settings import CLUSTER_ID


class _Life:
    """One of a node: what has been looked at."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.image_offset = -1
        self.quorum_epoch = -1
        """Of the quorum, when it was last seen to lead it."""
        self.watched: dict[Partition, Watched] = {}


class Observer:
    """All checkers of a cluster. What has not changed since the last event costs next to nothing,
    for there is an event every few microseconds.
    """

    def __init__(self) -> None:
        self.partitions = PartitionCheckers()
        self.controllers = SingleController()
        self.images = ImagesAgree()
        self.lost_tails: dict[tuple[int, uuid.UUID], bool] = {}
        """By node and incarnation: whether what was not synced before may be gone."""
        self._lives: dict[int, _Life] = {}
        """The last one of each node."""
        self.newest = MetadataImage(CLUSTER_ID)
        """Of all that is committed, by whichever node knew of it first."""
        self.sees_image: Callable[[MetadataImage], None] = lambda _image: None
        """Each one that a node comes to know, though it may be old."""

    def look(self, node: ClusterNode) -> None:
        """After an event of that node."""
        if not node.is_built:
            return
        life = self._life_of(node)
        if node.listens:
            self._look_at_quorum(life)
            if node.replica.image.offset > self.newest.offset:
                self.newest = node.replica.image
        image = node.metadata.image
        if image.offset != life.image_offset:
            life.image_offset = image.offset
            self.images.look(node.host.node_id, image)
            self.sees_image(image)
            self._look_at_losses(image, node.sync)
        for partition in node.registry.partitions():
            watched = life.watched.get(partition) or self._watch(life, partition)
            if not partition.closed:
                watched.look(partition)

    def _life_of(self, node: ClusterNode) -> _Life:
        node_id = node.host.node_id
        life = self._lives.get(node_id)
        if life is None or life.node is not node:
            life = self._lives[node_id] = _Life(node)
            self.lost_tails[node_id, node.incarnation] = node.tail_lost
        return life

    def _watch(self, life: _Life, partition: Partition) -> Watched:
        host = life.node.host
        watched = Watched(self.partitions, replica_of(partition), host.node_id, host.life)
        life.watched[partition] = watched
        return watched

    def acknowledged(self, replica: Replica, message_id: str, offset: int) -> None:
        """A publisher was told so."""
        if replica not in self.partitions.forgiven:
            self.partitions.log_of(replica).acknowledged(message_id, offset)

    def look_at_all(self, nodes: Iterable[ClusterNode]) -> None:
        """Who is in sync, as the metadata has it now, has all that is committed, and has purged all
        that was acknowledged as purged. Whoever knows of a damage, and says so, is excused.
        """
        ready = [node for node in nodes if node.ready and not node.stopping]
        for stream in self.newest.streams.values():
            for number, partition in enumerate(stream.partitions):
                replica = Replica(stream.stream_id, number)
                log = self.partitions.logs.get(replica)
                if log is None or replica in self.partitions.forgiven:
                    continue
                for node in ready:
                    if node.host.node_id in partition.isr:
                        self._look_at_member(node, TopicPartition(stream.name, number), replica)

    def _look_at_member(self, node: ClusterNode, tp: TopicPartition, replica: Replica) -> None:
        committed = self.partitions.log_of(replica)
        if tp in failures_of(node.registry):
            return
        held = next((it for it in node.registry.partitions() if it.tp == tp), None)
        if held is not None and (held.is_damaged or self._is_short(held, node)):
            return
        has, start = 0, 0
        if held is not None and replica_of(held) == replica:
            has, start = held.log_end_offset, held.log_start_offset
            stream = self.newest.streams.get(tp.stream)
            tier = None if stream is None else stream.partitions[tp.partition].tier
            if tier is not None:  # whoever leads next knows where the metadata have it begin
                start = max(start, tier.log_start_offset)
        if has < committed.end_offset:
            raise Violation(
                f"node {node.host.node_id} is in sync with {tp} ({replica}) and has {has} of"
                f" {committed.end_offset} committed records"
            )
        if start < committed.purged:
            raise Violation(
                f"node {node.host.node_id} is in sync with {tp} ({replica}) and begins at {start},"
                f" which is purged up to {committed.purged}"
            )

    def _is_short(self, held: Partition, node: ClusterNode) -> bool:
        """And could not say so when it registered, as one can whose machine lost power."""
        return held.following.is_short and not node.tail_lost

    def compare(self, nodes: Iterable[ClusterNode]) -> None:
        """At the end: every replica has all that is committed, and nothing else."""
        for node in nodes:
            for partition in node.registry.partitions():
                replica = replica_of(partition)
                if replica in self.partitions.forgiven:
                    continue
                self._lives[node.host.node_id].watched[partition].compare(partition)
                committed = self.partitions.log_of(replica).end_offset
                if partition.log_end_offset < committed:
                    raise Violation(
                        f"{partition.tp} on node {node.host.node_id} ends at"
                        f" {partition.log_end_offset} of {committed}"
                    )

    def all_even(self, nodes: Iterable[ClusterNode]) -> bool:
        """All replicas of a partition end, and are committed, at the same offset."""
        ends: dict[TopicPartition, int] = {}
        for node in nodes:
            for partition in node.registry.partitions():
                end = partition.log_end_offset
                if ends.setdefault(partition.tp, end) != end or partition.high_watermark != end:
                    return False
        return True

    def _look_at_quorum(self, life: _Life) -> None:
        raft, host = life.node.replica.raft, life.node.host
        if raft.role is Role.LEADER and raft.epoch != life.quorum_epoch:
            life.quorum_epoch = raft.epoch
            self.controllers.leads(raft.epoch, host.node_id, host.life)

    def _look_at_losses(self, image: MetadataImage, default: SyncPolicy) -> None:
        """The last in-sync replica whose unsynced tail is gone has lost what it may lose; nothing
        where all is synced before it is acknowledged.
        """
        for node_id, registered in image.nodes.items():
            lost = self.lost_tails.get((node_id, registered.incarnation))
            if not lost:
                continue
            for stream in image.streams.values():
                if (stream.config.sync or default) == "commit":
                    continue
                for number, partition in enumerate(stream.partitions):
                    if partition.isr in ((node_id,), ()):
                        self.partitions.forgiven.add(Replica(stream.stream_id, number))
