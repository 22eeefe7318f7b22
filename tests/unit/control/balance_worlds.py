"""Clusters for the planner of a balance, and what comes of a plan."""

from collections import Counter
from collections.abc import Iterable, Sequence

from streamlog.control.balance.planner import (
    BalancePlan,
    NodeResources,
    PartitionLoad,
)
from streamlog.model import NodeId

DISK_BYTES = 1_000_000_000


def nodes_of(*racks: str | None, used_bytes: Sequence[int] = ()) -> list[NodeResources]:
    """Node i + 1 is in ``racks[i]``."""
    used = [*used_bytes, *[0] * len(racks)]
    return [
        NodeResources(NodeId(i), rack, NodeId(i), DISK_BYTES, used[i - 1])
        for i, rack in enumerate(racks, start=1)
    ]


def partition(
    number: int, *replicas: int, size: int = 0, bytes_in: int = 0, bytes_out: int = 0
) -> PartitionLoad:
    kept = tuple(map(NodeId, replicas))
    return PartitionLoad("orders", number, kept, size, bytes_in, bytes_out)


def with_sizes(
    nodes: Iterable[NodeResources], partitions: Iterable[PartitionLoad]
) -> list[NodeResources]:
    """The disks have what the partitions have, beside what they have already."""
    sizes = Counter[NodeId]()
    for it in partitions:
        for node in it.replicas:
            sizes[node] += it.size_bytes
    return [it._replace(disk_used_bytes=it.disk_used_bytes + sizes[it.node]) for it in nodes]


def after(partitions: Iterable[PartitionLoad], plan: BalancePlan) -> list[PartitionLoad]:
    """The partitions once the plan is carried out."""
    moved = {(it.stream, it.partition): it.after for it in plan.moves}
    return [
        it._replace(replicas=moved.get((it.stream, it.partition), it.replicas)) for it in partitions
    ]
