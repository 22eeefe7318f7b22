"""On which nodes replicas go. Pure.

The leader of a new partition goes where fewest partitions are led, those of its stream counting
first. The other replicas go to other machines, without exception, since nodes of one machine are lost
together (``node.processes``); to other racks, as far as there are racks (a node without one is a rack
of its own); and there to the node with the fewest replicas, those of the stream counting first.
Each of these numbers, of a stream or in all, then differs by one at most between nodes that were
alike before.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from streamlog.errors import InvalidRequest, InvalidStreamConfig
from streamlog.metadata.controller.partition_changes import PartitionChanges
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.model import NodeId

Fits = Callable[[NodeId], bool]
"""Whether a node has room for a replica, and may get it."""


def fits_all(_: NodeId) -> bool:
    return True


class Placement:
    """Chooses nodes for the partitions of one stream, each choice knowing of those before it."""

    def __init__(
        self, changes: PartitionChanges, partitions: Sequence[PartitionImage] = ()
    ) -> None:
        self._draft = changes
        self._racks: dict[NodeId, str | NodeId] = {
            node.node_id: node.node_id if node.rack is None else node.rack
            for node in changes.image.nodes.values()
        }
        self._kept: Counter[NodeId] = Counter()
        self._led: Counter[NodeId] = Counter()
        for partition in partitions:
            self._note(partition.target)

    def new_partition(self, replicas: int) -> PartitionImage:
        """All replicas in sync, the first one leads. Raises InvalidStreamConfig."""
        changes = self._draft
        check_room(changes.image, replicas, changes.hosts)

        def cost(node: NodeId) -> tuple[bool, int, int, int, int]:
            return (
                node in changes.full | changes.unfit,
                self._led[node],
                changes.leaders[node],
                self._kept[node],
                changes.replicas[node],
            )

        leader = min(changes.hosts, key=cost)
        nodes = (leader, *self._more((leader,), replicas - 1))
        self._note(nodes)
        return new_partition(nodes, changes.image.leader_epochs_end)

    def more(
        self,
        kept: tuple[NodeId, ...],
        count: int,
        fits: Fits = fits_all,
    ) -> tuple[NodeId, ...]:
        """``count`` nodes beside ``kept``, none of which does not fit. Raises InvalidStreamConfig if there are
        too few.
        """
        nodes = self._more(kept, count, fits)
        self._kept.update(nodes)
        return nodes

    def fewer(self, partition: PartitionImage, count: int) -> tuple[NodeId, ...]:
        """``count`` of the partition's replicas: its leader, those in sync, those with least."""
        changes = self._draft

        def worth(node: NodeId) -> tuple[bool, bool, bool, bool, int]:
            return (
                node != partition.leader,
                node not in partition.isr,
                node not in changes.available,
                node in changes.draining | changes.full,
                changes.replicas[node],
            )

        best = set(sorted(partition.target, key=worth)[:count])
        return tuple(node for node in partition.target if node in best)

    def _more(
        self,
        kept: tuple[NodeId, ...],
        count: int,
        fits: Fits = fits_all,
    ) -> tuple[NodeId, ...]:
        changes = self._draft
        machines = changes.image.machine_of
        taken = {machines(node) for node in kept}
        hosts = [node for node in changes.hosts if fits(node)]
        able = [node for node in hosts if machines(node) not in taken]
        check_room(changes.image, len(kept) + count, hosts, kept)
        racks = Counter(self._racks[node] for node in kept)
        chosen: list[NodeId] = []

        def cost(node: NodeId) -> tuple[int, int, int, int]:
            return (
                racks[self._racks[node]],
                self._kept[node],
                changes.replicas[node],
                -changes.leaders[node],  # the next leader is rather one of the others
            )

        for _ in range(count):
            node = min(able, key=cost)
            able = [it for it in able if machines(it) != machines(node)]
            chosen.append(node)
            racks[self._racks[node]] += 1
        return tuple(chosen)

    def _note(self, replicas: tuple[NodeId, ...]) -> None:
        self._kept.update(replicas)
        self._led[replicas[0]] += 1


def new_partition(nodes: tuple[NodeId, ...], leader_epoch: int) -> PartitionImage:
    """Nothing is written yet, so that all replicas are in sync; the first one leads."""
    return PartitionImage(nodes, nodes[0], leader_epoch, nodes, 0)


def check_room(
    image: MetadataImage, wanted: int, hosts: Sequence[NodeId], kept: Sequence[NodeId] = ()
) -> None:
    """Raises InvalidStreamConfig unless so many replicas, of which some are ``kept``, find machines."""
    machine_of = image.machine_of
    free = {machine_of(node) for node in hosts} - {machine_of(node) for node in kept}
    if wanted <= len(kept) + len(free):
        return
    nodes = {*hosts, *kept}
    machines = len({machine_of(node) for node in nodes})
    if machines == len(nodes):
        can = f"there are {len(nodes)} nodes that can take them"
    else:
        on = "1 machine, which takes one" if machines == 1 else f"{machines} machines, one each"
        can = f"the {len(nodes)} nodes that can take them are on {on}"
    raise InvalidStreamConfig(f"replicas: {wanted} asked for, and {can}")


def check_machines(image: MetadataImage, nodes: Sequence[NodeId]) -> None:
    """Raises InvalidRequest where two of them would be lost with one machine."""
    found: dict[NodeId, NodeId] = {}
    for node in nodes:
        other = found.setdefault(image.machine_of(node), node)
        if other != node:
            raise InvalidRequest(
                f"nodes {other} and {node} are on one machine, which keeps one replica of a partition"
            )
