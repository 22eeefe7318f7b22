"""What DescribeCluster answers, as values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from streamlog.errors import CorruptData, NodeNotFound
from streamlog.findings import (
    AffectedPartitions,
    ClusterFacts,
    NodeFacts,
    out_of_sync,
    without_leader,
)
from streamlog.metadata.nodes.healing_status import NOTHING_LOST, HealingStatus

if TYPE_CHECKING:
    from streamlog.client.topology import Topology


class VoterStatus(NamedTuple):
    """A member of the metadata quorum; without a folder's id where it was never heard of."""

    node_id: int
    host: str
    port: int
    directory_id: str | None


class FollowerStatus(NamedTuple):
    """How far a copy of the metadata log is, as the controller knows it."""

    node_id: int
    end_offset: int
    lag: int
    last_fetch_ms: int | None
    directory_id: str | None = None
    """Of the folder that it is in; None where there is no controller."""


class NodeDescription(NamedTuple):
    """A registered node, and what it keeps."""

    node_id: int
    host: str
    port: int
    rack: str | None
    epoch: int
    fenced: bool
    stopping: bool
    """It told before it stopped."""
    draining: bool
    replicas: int
    leaders: int
    full: bool
    """No room on its disk."""
    unfit: tuple[str, ...]
    """What else is wrong with it, by the names of ``metadata.nodes.node_condition``."""
    heard: bool
    """By this controller; otherwise it only counts as alive since it did so for the last one."""
    levels: tuple[int, int] | None
    """The feature levels that it knows; None before the controller has heard them."""
    answers: bool | None = None
    """Where there is no controller: whether the node itself answered; None: there is one."""

    @property
    def words(self) -> str:
        """Its state in a table."""
        life = "fenced" if self.fenced else "live"
        if self.answers is not None:
            life = "answers" if self.answers else "does not answer"
        more = (("draining", self.draining), ("full", self.full))
        ills = tuple(f"{name} trouble" for name in self.unfit)
        return ", ".join((life, *(word for word, applies in more if applies), *ills))


class Description(NamedTuple):
    """The cluster as its controller knows it."""

    controller: int | None
    epoch: int
    high_watermark: int
    voters: tuple[VoterStatus, ...]
    replicas: tuple[FollowerStatus, ...]
    nodes: tuple[NodeDescription, ...]
    level: int
    """The feature level."""
    level_max: int
    """The highest that the controller knows."""
    returning: tuple[int, ...]
    """Nodes that were voters with a folder that is lost, and vote again with the one they have."""
    healing: HealingStatus = NOTHING_LOST

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Raises CorruptData if it is none; what a newer node says beside is passed over."""
        try:
            return cls(
                fields["controller"],
                fields["epoch"],
                fields["high_watermark"],
                tuple(_one(VoterStatus, it) for it in fields["voters"]),
                tuple(_one(FollowerStatus, it) for it in fields["replicas"]),
                tuple(_one(NodeDescription, it) for it in fields["nodes"]),
                fields["level"],
                fields["level_max"],
                tuple(fields["returning"]),
                HealingStatus.of_json(fields.get("self_healing", {})),
            )
        except (KeyError, TypeError) as error:
            raise CorruptData(f"not a description of a cluster: {error!r}") from None

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(voter.node_id for voter in self.voters)

    @property
    def lost_voters(self) -> frozenset[int]:
        """Those that keep the metadata in another folder than the one whose voice counts.

        The old one was lost, and until the new one takes its place the node may not vote.
        """
        folders = {replica.node_id: replica.directory_id for replica in self.replicas}
        return frozenset(
            voter.node_id
            for voter in self.voters
            if voter.directory_id is not None
            and folders.get(voter.node_id) not in (None, voter.directory_id)
        )

    @property
    def silent(self) -> frozenset[int]:
        """Nodes that did not answer, where there is no controller to say who is alive."""
        return frozenset(node.node_id for node in self.nodes if node.answers is False)

    def node(self, node_id: int) -> NodeDescription:
        """Raises NodeNotFound."""
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        raise NodeNotFound(f"the cluster has no node {node_id}")


def without_controller(told: Sequence[Mapping[str, Any]]) -> Description:
    """Of what nodes have told of themselves, of which there is one at least: the one that knows
    most tells of the cluster, and each of how far its own copy of the metadata is.
    """
    most = max(told, key=lambda it: (it["epoch"], it["high_watermark"], it["end_offset"]))
    known = Description.of(most)
    ends = {it["node"]: it["end_offset"] for it in told}
    top = max(ends.values())
    replicas = [FollowerStatus(node, end, top - end, None) for node, end in sorted(ends.items())]
    nodes = [node._replace(answers=node.node_id in ends) for node in known.nodes]
    return known._replace(controller=None, replicas=tuple(replicas), nodes=tuple(nodes))


def cluster_facts(
    it: Description, topology: "Topology", *, besides: int | None = None
) -> ClusterFacts:
    """For the list of findings. ``besides``: a node of which the caller tells what is wrong."""
    partitions = [
        (f"{topic.name}/{partition.partition}", partition)
        for topic in topology.topics.values()
        for partition in topic.partitions
    ]
    leaderless = [
        (name, said)
        for name, partition in partitions
        if (said := without_leader(partition.leader, partition.isr, it.silent)) is not None
    ]
    behind = [
        (name, said)
        for name, partition in partitions
        if (said := out_of_sync(partition.replicas, partition.isr)) is not None
    ]
    following = {replica.node_id for replica in it.replicas}
    return ClusterFacts(
        controller=it.controller,
        voters=it.voter_ids,
        nodes=[
            NodeFacts(
                node.node_id,
                node.host,
                node.port,
                fenced=node.fenced,
                stopping=node.stopping,
                draining=node.draining,
                full=node.full,
                unfit=node.unfit,
                heard=node.heard,
                answers=node.answers,
            )
            for node in it.nodes
            if node.node_id != besides
        ],
        registered={node.node_id for node in it.nodes},
        answering=following if it.controller is None else None,
        followers=following,
        lost_voters=it.lost_voters,
        returning=it.returning,
        healing=it.healing,
        leaderless=AffectedPartitions.all_of(leaderless),
        under_replicated=AffectedPartitions.all_of(behind),
    )


def _one(kind: Any, fields: Mapping[str, Any]) -> Any:
    known = {name: fields[name] for name in kind._fields if name in fields}
    if missing := set(kind._fields) - set(known) - set(kind._field_defaults):
        raise KeyError(*missing)
    return kind(**known)
