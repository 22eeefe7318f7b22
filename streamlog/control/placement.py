"""Operations on where partitions are and which node leads them."""

import asyncio
from dataclasses import dataclass
from typing import Final

from streamlog.acl.rules import Operation
from streamlog.control.balance.measurement import MissingNode, cluster_load
from streamlog.control.balance.planner import (
    DISK_LIMIT_PERCENT,
    MOVES_MAX,
    TOLERANCE_PERCENT,
    GoalCost,
    NodeBalance,
    PartitionMove,
    plan_in_steps,
)
from streamlog.control.operation import Operations, operation
from streamlog.errors import InvalidRequest, NodeNotFound, PartlyDone, StreamlogError
from streamlog.fairness import cooperatively, stepwise
from streamlog.metadata.commands import CancelMove, ElectLeader, MovePartition, RebalanceLeaders
from streamlog.metadata.image.metadata_image import MetadataImage, NodeImage, PartitionImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition

SAMPLE_MAX_S: Final = 300.0
"""For which a plan measures rates."""


class NoReplacement(InvalidRequest):
    """No other node is able to keep a partition."""


@dataclass(frozen=True, slots=True)
class ElectedLeader:
    """Who leads the partition now."""

    leader: NodeId
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that is being moved."""

    stream: str
    partition: int
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Balance:
    """What would even out the load of the nodes."""

    moves: tuple[PartitionMove, ...]
    """In their order."""
    nodes: tuple[NodeBalance, ...]
    goals: tuple[GoalCost, ...]
    is_complete: bool
    """False: there is more to move than this plan may; ask again once it is carried out."""
    copied_bytes: int
    missing: tuple[MissingNode, ...]
    left_alone: int
    """Partitions that may not be moved now."""


class PlacementOperations(Operations):
    """All of them need ALTER of the cluster; to list moves, or to plan some, DESCRIBE."""

    group = "placement"

    def _check(self, right: Operation = Operation.ALTER) -> None:
        """Raises ClusterForbidden."""
        if self._access is not None:
            self._access.check_cluster(right)

    @operation("GET /moves")
    async def moves(self) -> tuple[Move, ...]:
        """List the partitions that are being moved."""
        self._check(Operation.DESCRIBE)
        await self._service.freshness.catch_up()
        found: list[Move] = []
        async for name, stream in cooperatively(sorted(self._metadata.image.streams.items())):
            found += (
                Move(name, number, it.replicas, it.adding, it.removing)
                for number, it in enumerate(stream.partitions)
                if it.is_moving
            )
        return tuple(found)

    @operation("GET /balance")
    async def plan_balance(
        self,
        sample_s: float = 5.0,
        moves_max: int = MOVES_MAX,
        disk_limit_percent: int = DISK_LIMIT_PERCENT,
        tolerance_percent: int = TOLERANCE_PERCENT,
    ) -> Balance:
        """Plan the moves that even out the load of the nodes. Nothing is moved.

        The goals, in their order: racks, no disk above ``disk_limit_percent``, disk, bytes in, bytes out, leaders,
        replicas. Rates are measured for ``sample_s`` seconds. A load within ``tolerance_percent`` of the mean is even.
        Nodes that do not answer are ``missing``: what they keep is left alone.
        """
        self._check(Operation.DESCRIBE)
        if not 0.1 <= sample_s <= SAMPLE_MAX_S:
            raise InvalidRequest(f"sample_s: 0.1 to {SAMPLE_MAX_S:g}")
        await self._service.freshness.catch_up()
        before = await self._service.load.everywhere()
        await asyncio.sleep(sample_s)
        after = await self._service.load.everywhere()
        image, known = self._service.image, self._metadata.image.streams
        load = await asyncio.to_thread(cluster_load, image, before, after, known)
        plan = await stepwise(
            plan_in_steps(
                load.nodes,
                load.partitions,
                moves_max=moves_max,
                disk_limit_percent=disk_limit_percent,
                tolerance_percent=tolerance_percent,
            )
        )
        return Balance(
            plan.moves,
            plan.nodes,
            plan.goals,
            plan.is_complete,
            plan.copied_bytes,
            load.missing,
            load.left_alone,
        )

    @operation("POST /streams/{stream}/move", about=("stream", "partition", "replicas"), act=True)
    async def move(self, stream: str, partition: int, replicas: tuple[NodeId, ...]) -> None:
        """Move a partition to other nodes, the first of which is to lead it.

        The old replicas stay until the new ones are in sync.
        """
        self._check()
        command = MovePartition(stream=stream, partition=partition, replicas=replicas)
        await self._metadata.request(command)

    @operation("POST /streams/{stream}/cancel-move", about=("stream", "partition"), act=True)
    async def cancel_move(self, stream: str, partition: int) -> None:
        """Cancel the move of a partition: it stays where it was."""
        self._check()
        await self._metadata.request(CancelMove(stream=stream, partition=partition))

    @operation("POST /streams/{stream}/elect", about=("stream", "partition", "leader"), act=True)
    async def elect(
        self, stream: str, partition: int, leader: NodeId | None = None, unclean: bool = False
    ) -> ElectedLeader:
        """Elect a leader of a partition: the node that is named, or the preferred replica.

        ``unclean`` lets any live replica lead where none of the in-sync replicas is alive: the records that
        it lacks are lost.
        """
        self._check()
        command = ElectLeader(stream=stream, partition=partition, leader=leader, unclean=unclean)
        granted = await self._metadata.request(command)
        return ElectedLeader(NodeId(granted.result["leader"]), int(granted.result["leader_epoch"]))

    @operation("POST /rebalance-leaders", act=True)
    async def rebalance_leaders(self) -> int:
        """Have preferred replicas lead again, everywhere; how many leaders changed."""
        self._check()
        moved = 0
        while True:  # the controller moves a bounded number at a time
            result = (await self._metadata.request(RebalanceLeaders())).result
            moved += int(result["moved"])
            if result["moved"] == 0 or result["left"] == 0:
                return moved

    @operation("POST /streams/{stream}/replace-node", about=("stream", "node"), act=True)
    async def replace_node(self, stream: str, node: NodeId) -> int:
        """Move the partitions of a stream that a node keeps to other nodes; how many there are.

        A rack that has none of the other replicas comes first, then the node that keeps least. The moves go on
        after the answer.
        """
        self._check()
        partitions = self._metadata.image.stream(stream).partitions
        kept = [number for number, it in enumerate(partitions) if node in it.target]
        if not kept:
            raise NodeNotFound(f"node {node} keeps no partition of {stream!r}")
        for done, number in enumerate(kept):
            image = self._metadata.image
            try:
                replicas = without_node(image, image.stream(stream).partition(number), node)
                command = MovePartition(stream=stream, partition=number, replicas=replicas)
                await self._metadata.request(command)
            except StreamlogError as error:
                if not done:
                    raise
                raise PartlyDone(
                    f"partitions {kept[:done]} of {stream!r} are moved; {number}: {error}"
                ) from None
        return len(kept)


def without_node(
    image: MetadataImage, partition: PartitionImage, leaving: NodeId
) -> tuple[NodeId, ...]:
    """The replicas when another node has taken the place of ``leaving``. Raises NodeNotFound,
    NoReplacement.
    """
    target = partition.target
    if leaving not in target:
        raise NodeNotFound(f"node {leaving} does not keep the partition")
    staying = [node_id for node_id in target if node_id != leaving]
    racks = {image.nodes[node_id].rack for node_id in staying if node_id in image.nodes} - {None}
    taken = {image.machine_of(node_id) for node_id in staying}
    others = [
        node
        for node_id, node in sorted(image.nodes.items())
        if node_id not in target and is_able(node) and node.machine_id not in taken
    ]
    if not others:
        raise NoReplacement(f"no other node can take the place of node {leaving}")
    chosen = min(others, key=lambda it: (it.rack in racks, image.load(it.node_id).replicas))
    return tuple(chosen.node_id if node_id == leaving else node_id for node_id in target)


def is_able(node: NodeImage | None) -> bool:
    """It may be given partitions, or lead them."""
    return node is not None and not node.fenced and not node.draining


def needs_election(partition: PartitionImage, *, unclean: bool) -> bool:
    """Whether an election would change its leader."""
    return partition.leader == NO_LEADER if unclean else partition.leader != partition.target[0]


def partitions_that_need_election(image: MetadataImage, *, unclean: bool) -> list[TopicPartition]:
    """Of all streams, by name."""
    return [
        TopicPartition(name, number)
        for name, stream in sorted(image.streams.items())
        for number, partition in enumerate(stream.partitions)
        if needs_election(partition, unclean=unclean)
    ]
