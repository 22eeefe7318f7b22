"""What nodes carry: each tells what it has counted, twice; the difference gives the rates.

A node counts all that it keeps. What is written to a partition is how far its log has grown: in bytes, or,
where retention or compaction took something from it meanwhile, in records of the log's mean size. What is read of it
is what its leader has read from the log for others: consumers, followers, and the node's own tasks. Reads that a
follower serves are not counted.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from streamlog.clock import clock_s
from streamlog.control.balance.planner import DISK_LIMIT_PERCENT, NodeResources, PartitionLoad
from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.errors import CorruptData, StorageFailed, StreamlogError
from streamlog.fairness import cooperatively
from streamlog.metadata.controller.self_healing import DiskRoom
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.partition.replica_manager import ReplicaManager

DiskUsage = Callable[[Path], tuple[int, int, int]]
"""The bytes of a disk: all, used, free."""
LOAD_TIMEOUT_S: Final = 5.0
"""For the answer of one node."""
_REQUEST: Final = "LOAD"


class ReplicaCounts(NamedTuple):
    """A replica at one time."""

    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    read_bytes: int
    """Since the node opened it."""


class NodeCounts(NamedTuple):
    """What a node keeps, at one time."""

    time_ms: int
    """By a clock of its own."""
    disk_total_bytes: int
    disk_used_bytes: int
    partitions: Mapping[TopicPartition, ReplicaCounts]

    def json(self) -> dict[str, Any]:
        """What ``of_json`` reads."""
        kept = [[*tp, *it] for tp, it in self.partitions.items()]
        return {**self._asdict(), "partitions": kept}

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        """Raises CorruptData for what is none."""
        try:
            return cls(
                int(fields["time_ms"]),
                int(fields["disk_total_bytes"]),
                int(fields["disk_used_bytes"]),
                {
                    TopicPartition(str(stream), int(number)): ReplicaCounts(*map(int, counts))
                    for stream, number, *counts in fields["partitions"]
                },
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"another node's load does not decode: {error!r}") from None


@dataclass(frozen=True, slots=True)
class MissingNode:
    """A node that does not tell what it carries. What it keeps is left alone."""

    node: NodeId
    reason: str


class ClusterCounts(NamedTuple):
    """What the nodes of a cluster keep, at one time."""

    nodes: Mapping[NodeId, NodeCounts]
    missing: tuple[MissingNode, ...]


class LoadCounters:
    """This node's counts, and those of others, which are asked for them."""

    def __init__(
        self,
        node_id: NodeId,
        partitions: ReplicaManager,
        nodes: NodeRequests,
        *,
        image: Callable[[], MetadataImage],
        data_dir: Path,
        disk_usage: DiskUsage = shutil.disk_usage,
    ) -> None:
        self._disk_usage = disk_usage
        self._node_id = node_id
        self._partitions = partitions
        self._nodes = nodes
        self._image = image
        self._data_dir = data_dir

    def register(self) -> None:
        """Have other nodes' requests answered."""
        self._nodes.register(_REQUEST, self._answer)

    async def here(self) -> NodeCounts:
        """Of this node. Raises StorageFailed."""
        try:
            _, used, free = await asyncio.to_thread(self._disk_usage, self._data_dir)
        except OSError as error:
            raise StorageFailed(f"{self._data_dir}: {error.strerror or error}") from None
        found: dict[TopicPartition, ReplicaCounts] = {}
        async for it in cooperatively(self._partitions.partitions()):
            if not it.closed:
                told = it.statistics()
                found[it.tp] = ReplicaCounts(
                    told.local_log_start_offset,
                    told.log_end_offset,
                    told.size_bytes,
                    it.reader.read_bytes,
                )
        # As ``df`` has it: what is kept for the superuser counts neither as free nor as used.
        return NodeCounts(int(clock_s() * 1000), used + free, used, found)

    async def room(self) -> DiskRoom:
        """Of all nodes that answer."""
        counts = (await self.everywhere()).nodes
        return disk_room(self._image(), counts)

    async def everywhere(self) -> ClusterCounts:
        """Of all nodes that answer."""
        nodes = self._image().nodes
        asked = sorted(it.node_id for it in nodes.values() if not it.fenced)
        missing = [MissingNode(it, "it is not alive") for it in sorted(set(nodes) - set(asked))]
        found: dict[NodeId, NodeCounts] = {}
        answers = await asyncio.gather(*map(self._of, asked))
        for node_id, answer in zip(asked, answers, strict=True):
            if isinstance(answer, NodeCounts):
                found[node_id] = answer
            else:
                missing.append(MissingNode(node_id, answer))
        return ClusterCounts(found, tuple(missing))

    async def _of(self, node_id: NodeId) -> NodeCounts | str:
        """Or why they are not known."""
        try:
            if node_id == self._node_id:
                return await self.here()
            answer = await self._nodes.ask(node_id, _REQUEST, {}, timeout_s=LOAD_TIMEOUT_S)
            return NodeCounts.of_json(answer.fields)
        except StreamlogError as error:
            return str(error)

    async def _answer(self, _: Fields) -> NodeAnswer:
        return NodeAnswer((await self.here()).json())


class ClusterLoad(NamedTuple):
    """For the planner. ``left_alone``: partitions that it may not move."""

    nodes: list[NodeResources]
    partitions: list[PartitionLoad]
    missing: tuple[MissingNode, ...]
    left_alone: int


def cluster_load(
    image: MetadataImage, before: ClusterCounts, after: ClusterCounts, known: Collection[str]
) -> ClusterLoad:
    """``known``: streams that may be moved.

    A partition is left alone while it moves, is not in sync everywhere, has other replicas than its stream asks
    for, or is kept by a node that is drained or does not tell.
    """
    counts = {it: after.nodes[it] for it in after.nodes if it in before.nodes and it in image.nodes}
    missing = {it.node: it for it in (*before.missing, *after.missing)}
    steady = {it for it in counts if not image.nodes[it].draining}
    loads: list[PartitionLoad] = []
    for name, stream in sorted(image.streams.items()):
        for number, partition in enumerate(stream.partitions):
            tp, leader = TopicPartition(name, number), partition.leader
            size = bytes_in = bytes_out = 0
            if leader in counts and tp in counts[leader].partitions:
                now = counts[leader].partitions[tp]
                then = before.nodes[leader].partitions.get(tp)
                size = now.size_bytes
                if then is not None:
                    passed_ms = max(1, counts[leader].time_ms - before.nodes[leader].time_ms)
                    bytes_in = grown_bytes(then, now) * 1000 // passed_ms
                    bytes_out = max(0, now.read_bytes - then.read_bytes) * 1000 // passed_ms
            kept = (leader, *(it for it in partition.replicas if it != leader))
            movable = name in known and _is_at_rest(stream, partition) and steady >= set(kept)
            loads.append(
                PartitionLoad(
                    name,
                    number,
                    partition.replicas if leader == NO_LEADER else kept,
                    size,
                    bytes_in,
                    bytes_out,
                    movable,
                )
            )
    return ClusterLoad(
        _resources(image, counts),
        loads,
        tuple(missing[it] for it in sorted(missing)),
        sum(not it.movable for it in loads),
    )


def disk_room(
    image: MetadataImage,
    counts: Mapping[NodeId, NodeCounts],
    limit_percent: int = DISK_LIMIT_PERCENT,
) -> DiskRoom:
    """What may still be copied to each node before its disk is fuller than that."""
    known = {node_id: it for node_id, it in counts.items() if node_id in image.nodes}
    return DiskRoom(
        {
            it.node: it.disk_total_bytes * limit_percent // 100 - it.disk_used_bytes
            for it in _resources(image, known)
        },
        {
            node_id: {tp: replica.size_bytes for tp, replica in it.partitions.items()}
            for node_id, it in known.items()
        },
    )


def grown_bytes(before: ReplicaCounts, after: ReplicaCounts) -> int:
    """What was written between the two."""
    records = after.log_end_offset - before.log_end_offset
    if records <= 0:
        return 0
    grown = after.size_bytes - before.size_bytes
    if grown > 0 and after.log_start_offset == before.log_start_offset:
        return grown
    return after.size_bytes * records // max(1, after.log_end_offset - after.log_start_offset)


def _is_at_rest(stream: StreamImage, partition: PartitionImage) -> bool:
    return (
        not partition.is_moving
        and partition.leader != NO_LEADER
        and set(partition.isr) == set(partition.replicas)
        and len(partition.replicas) == stream.config.replicas
        and not stream.config.is_restoring
    )


def _resources(image: MetadataImage, counts: Mapping[NodeId, NodeCounts]) -> list[NodeResources]:
    """Nodes of one machine share its disk: each has a part of the room, and of what others have there."""
    shares = Counter(image.machine_of(node_id) for node_id in counts)
    own = Counter[NodeId]()
    sizes = {it: sum(p.size_bytes for p in told.partitions.values()) for it, told in counts.items()}
    for node_id, size in sizes.items():
        own[image.machine_of(node_id)] += size
    found: list[NodeResources] = []
    for node_id, told in sorted(counts.items()):
        node = image.nodes[node_id]
        share, machine = shares[node.machine_id], node.machine_id
        others = max(0, told.disk_used_bytes - own[machine])
        found.append(
            NodeResources(
                node_id,
                node.rack,
                machine,
                told.disk_total_bytes // share,
                others // share + sizes[node_id],
                takes=not (node.draining or node.full or node.unfit or node.stopping),
                carries=not node.draining,
            )
        )
    return found
