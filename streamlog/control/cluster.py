"""Operations on nodes, on the metadata quorum and on the cluster as a whole."""

import asyncio
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from streamlog.acl.rules import Operation
from streamlog.control.messages.ordered_read import PassageQuery
from streamlog.control.operation import Operations, operation
from streamlog.errors import (
    InvalidRequest,
    NoController,
    NodeUnreachable,
    RequestTimedOut,
    StorageFailed,
)
from streamlog.fairness import cooperatively
from streamlog.findings import (
    AffectedPartitions,
    ClusterFacts,
    NodeFacts,
    cluster_findings,
    out_of_sync,
    without_leader,
)
from streamlog.metadata.commands import (
    AddVoter,
    DescribeCluster,
    DrainNode,
    ExportMetadata,
    RaiseLevel,
    RemoveNode,
    RemoveVoter,
    TransferController,
)
from streamlog.metadata.nodes.healing_status import HealingStatus
from streamlog.metadata.stream.stream_config import ACTIVITY_STREAM
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.partition import Partition

EVENTS_MAX: Final = 1_000
"""In one list."""
ANSWER_TIMEOUT_S: Final = 2.0
"""For a node that is asked whether it is there."""


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """A node, and what it keeps."""

    node: NodeId
    host: str
    port: int
    rack: str | None
    fenced: bool
    """It leads nothing: the controller does not hear it, or not yet."""
    stopping: bool
    draining: bool
    full: bool
    """It has no room on its disk."""
    unfit: tuple[str, ...]
    """What else keeps it from its work."""
    replicas: int
    leaders: int


class NodeStorage(NamedTuple):
    """The data folder of a node, and its disk."""

    path: str
    total_bytes: int
    free_bytes: int


AFFECTED_MAX: Final = 1_000
"""Partitions that a finding names."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and what to do."""

    code: str
    """Of its condition, as in logs, alerts and the documentation."""
    area: str
    severity: str
    what: str
    remedy: str
    details: tuple[str, ...]
    """A line for each partition that it is about."""


def _facts(
    described: Mapping[str, Any],
    leaderless: AffectedPartitions,
    behind: AffectedPartitions,
    answering: Collection[NodeId] | None,
) -> ClusterFacts:
    """``described``: as ``describe`` returns it. ``answering``: where there is no controller."""
    folders = {it["node_id"]: it["directory_id"] for it in described["replicas"]}
    voters = {it["node_id"]: it["directory_id"] for it in described["voters"]}
    is_led = described["controller"] is not None
    names = ("node_id", "host", "port", "fenced", "stopping", "draining", "full", "unfit", "heard")
    return ClusterFacts(
        controller=described["controller"],
        voters=voters.keys(),
        nodes=[
            NodeFacts(
                **{name: it[name] for name in names},
                answers=None if answering is None else it["node_id"] in answering,
            )
            for it in described["nodes"]
        ],
        answering=answering,
        registered={it["node_id"] for it in described["nodes"]},
        followers=folders.keys() if is_led else None,
        lost_voters={
            voter
            for voter, folder in voters.items()
            if folder is not None and folders.get(voter) not in (None, folder)
        },
        returning=described["returning"],
        healing=HealingStatus.of_json(described.get("self_healing", {})),
        leaderless=leaderless,
        under_replicated=behind,
    )


class ClusterOperations(Operations):
    """To describe it needs DESCRIBE of the cluster, all else ALTER."""

    group = "cluster"

    def _check(self, right: Operation = Operation.ALTER) -> None:
        """Raises ClusterForbidden."""
        if self._access is not None:
            self._access.check_cluster(right)

    @operation("GET /cluster")
    async def describe(self, local: bool = False) -> dict[str, Any]:
        """Describe the quorum and the nodes, as the controller knows them; ``local``: as this node does."""
        self._check(Operation.DESCRIBE)
        return await self._described(local=local)

    async def _described(self, *, local: bool = False) -> dict[str, Any]:
        granted = await self._metadata.take(DescribeCluster(local=local), forwarded=False)
        return dict(granted.result)

    async def storage(self) -> tuple[NodeStorage, Iterator[Partition]]:
        """What the disk of this very node has, and the partitions on it that the caller may know of, in no order.
        Needs DESCRIBE of the cluster. Raises StorageFailed.
        """
        self._check(Operation.DESCRIBE)
        path = self._service.data_dir
        try:
            usage = await asyncio.to_thread(shutil.disk_usage, path)
        except OSError as error:
            raise StorageFailed(f"{path}: {error.strerror or error}") from None
        here = self._service.partitions.partitions()
        known = self._metadata.image.streams
        storage = NodeStorage(str(path.absolute()), usage.total, usage.free)
        return storage, (it for it in here if it.tp.stream in known)

    @operation("POST /cluster/export", act=True)
    async def export(self) -> str:
        """Export all that is committed of the metadata, as a snapshot. The credentials of users are in it.

        It changes nothing; the audit log has it because of the credentials.
        """
        self._check()
        granted = await self._metadata.take(ExportMetadata(), forwarded=False)
        return str(granted.result["snapshot"])

    @operation("GET /findings")
    async def findings(self) -> tuple[Problem, ...]:
        """List what is wrong with the cluster right now and what to do about it, the worst first.

        Partitions are those of streams that the caller may know of. Where there is no controller, the node asks
        which other nodes answer.
        """
        self._check(Operation.DESCRIBE)
        answering: set[NodeId] | None = None
        try:
            described = await self._described()
        except (NoController, NodeUnreachable, RequestTimedOut):
            described = {**await self._described(local=True), "controller": None}
            answering = await self._answering()
        silent = set() if answering is None else set(self._metadata.image.nodes) - answering
        leaderless, behind = await self._affected(silent)
        found = cluster_findings(_facts(described, leaderless, behind, answering))
        return tuple(
            Problem(it.code, it.area, it.severity, it.what, it.remedy, it.details) for it in found
        )

    async def _answering(self) -> set[NodeId]:
        """This node, and the others that answer it."""
        others = set(self._metadata.image.nodes) - {self._service.node_id}
        found = await self._service.nodes.answering(others, timeout_s=ANSWER_TIMEOUT_S)
        return found | {self._service.node_id}

    async def _affected(
        self, silent: AbstractSet[NodeId]
    ) -> tuple[AffectedPartitions, AffectedPartitions]:
        """Without a leader that answers, and not in sync."""
        leaderless, behind = list[tuple[str, str]](), list[tuple[str, str]]()
        async for name, stream in cooperatively(self._metadata.image.streams.items()):
            for number, it in enumerate(stream.partitions):
                for found, said in (
                    (leaderless, without_leader(it.leader, it.isr, silent)),
                    (behind, out_of_sync(it.replicas, it.isr)),
                ):
                    if said is not None:
                        found.append((f"{name}/{number}", said))
        first, second = (
            AffectedPartitions(len(it), sorted(it)[:AFFECTED_MAX]) for it in (leaderless, behind)
        )
        return first, second

    @operation("GET /nodes")
    async def nodes(self) -> tuple[RegisteredNode, ...]:
        """List the registered nodes, with their state and how much they keep."""
        self._check(Operation.DESCRIBE)
        await self._service.freshness.catch_up()
        image = self._metadata.image
        return tuple(
            RegisteredNode(
                node_id,
                it.host,
                it.port,
                it.rack,
                it.fenced,
                it.stopping,
                it.draining,
                it.full,
                it.unfit,
                image.load(node_id).replicas,
                image.load(node_id).leaders,
            )
            for node_id, it in sorted(image.nodes.items())
        )

    @operation("GET /events")
    async def events(self, limit: int = 100) -> tuple[dict[str, Any], ...]:
        """List the last changes of the metadata, the oldest first. Needs READ of the stream ``__activity``.

        There are none where ``activity.enabled`` is off.
        """
        if not 1 <= limit <= EVENTS_MAX:
            raise InvalidRequest(f"limit: 1 to {EVENTS_MAX}")
        if self._access is not None:
            self._access.check_topic(Operation.READ, ACTIVITY_STREAM)
        if ACTIVITY_STREAM not in self._metadata.image.streams:
            return ()
        query = PassageQuery(last=limit, limit=limit)
        found = await self._service.leaders.passage(TopicPartition(ACTIVITY_STREAM, 0), query)
        return tuple(json.loads(it.data) for it in found.messages)

    @operation("POST /nodes/{node}/drain", about=("node",), act=True)
    async def drain(self, node: NodeId, undo: bool = False) -> None:
        """Have a node lead nothing and get no new partitions; ``undo``: have it take part again."""
        self._check()
        await self._metadata.request(DrainNode(node_id=node, undo=undo))

    @operation("DELETE /nodes/{node}", about=("node",), act=True)
    async def remove_node(self, node: NodeId) -> None:
        """Remove a node that keeps nothing and is not alive."""
        self._check()
        await self._metadata.request(RemoveNode(node_id=node))

    @operation("POST /voters/{node}", about=("node",), act=True)
    async def add_voter(self, node: NodeId) -> None:
        """Have a node vote in the metadata quorum."""
        self._check()
        await self._metadata.request(AddVoter(node_id=node))

    @operation("DELETE /voters/{node}", about=("node",), act=True)
    async def remove_voter(self, node: NodeId) -> None:
        """Have a node vote no more in the metadata quorum."""
        self._check()
        await self._metadata.request(RemoveVoter(node_id=node))

    @operation("POST /controller/transfer", about=("node",), act=True)
    async def transfer_controller(self, node: NodeId | None = None) -> None:
        """Have another voter be the controller: the one that is named, or any."""
        self._check()
        await self._metadata.request(TransferController(node_id=node))

    @operation("POST /features", about=("level",), act=True)
    async def raise_feature_level(self, level: int) -> int:
        """Raise the feature level of the cluster, and return the one before. It cannot be lowered again."""
        self._check()
        return int((await self._metadata.request(RaiseLevel(level=level))).result["before"])
