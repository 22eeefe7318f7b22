"""What is wrong right now, in words, with the remedy: the one list of it. Pure.

The console, ``cluster check`` and ``doctor`` gather facts, each from where it stands, and ask
``cluster_findings`` and ``readiness_findings`` what follows from them, so that they cannot
contradict each other. ``doctor`` adds what it measures on its machine as findings of the same type.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from streamlog.metadata.nodes.node_condition import (
    DISABLING,
    DISK,
    REMEDIES,
    keep_from_leading,
    told,
)
from streamlog.model import NO_LEADER

Severity = Literal["critical", "warning", "note", "skipped", "ok"]

CRITICAL: Final = "critical"
WARNING: Final = "warning"
NOTE: Final = "note"
SKIPPED: Final = "skipped"
"""It could not be looked at."""
OK: Final = "ok"
SEVERITIES: Final = (CRITICAL, WARNING, NOTE, SKIPPED, OK)
"""The worst first."""
BAD: Final = frozenset({CRITICAL, WARNING})
"""The cluster is not well: stop no other node."""

CLUSTER: Final = "cluster"
NODE: Final = "node"

NAMED_MAX: Final = 3
"""Partitions that a sentence names."""


class Finding(NamedTuple):
    """One line of it is ``what``; ``remedy`` says what to do, where something is to be done."""

    area: str
    """What was looked at."""
    severity: Severity
    what: str
    remedy: str = ""
    measured: dict[str, float] | None = None
    """In base units, by name."""
    details: tuple[str, ...] = ()
    """A line for each partition that it is about, as far as they are known."""


class NodeFacts(NamedTuple):
    """What is known of a registered node."""

    node_id: int
    host: str
    port: int
    fenced: bool = False
    stopping: bool = False
    """It told before it stopped."""
    draining: bool = False
    full: bool = False
    unfit: Sequence[str] = ()
    """What it tells of itself, by the names of ``metadata.nodes.node_condition``."""
    heard: bool = True
    """By this controller; otherwise it only counts as alive since it did so for the last one."""
    answers: bool | None = None
    """Where there is no controller: whether the node itself answers; None: it was not asked."""


class AffectedPartitions(NamedTuple):
    """How many partitions have a problem, and some of them or all: name, and a line on it."""

    number: int
    known: Sequence[tuple[str, str]]

    @classmethod
    def all_of(cls, known: Sequence[tuple[str, str]]) -> "AffectedPartitions":
        return cls(len(known), known)


NO_PARTITIONS: Final = AffectedPartitions(0, ())


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What one observer knows of the cluster."""

    controller: int | None
    voters: Collection[int]
    nodes: Sequence[NodeFacts]
    """Without those of which the observer knows more than the cluster does."""
    registered: Collection[int]
    """All nodes that there are."""
    answering: Collection[int] | None = None
    """Where there is no controller: the nodes that answer; None: not known."""
    followers: Collection[int] | None = None
    """Nodes that follow the metadata; None: not known, as to all but the controller."""
    lost_voters: Collection[int] = ()
    """Voters that keep the metadata in another folder than the one that may vote."""
    returning: Collection[int] = ()
    """Nodes that were voters with a folder that is lost."""
    leaderless: AffectedPartitions = NO_PARTITIONS
    under_min_isr: AffectedPartitions = NO_PARTITIONS
    under_replicated: AffectedPartitions = NO_PARTITIONS
    dead_groups: Sequence[str] = ()


def cluster_findings(it: ClusterFacts) -> list[Finding]:
    """The worst first; nothing ``BAD`` where every node is alive and fit to lead, every voter
    follows the metadata, and every replica is in sync.
    """
    return worst_first(
        (
            *_of_controller(it),
            *(found for node in it.nodes for found in _of_node(node, it)),
            *_of_voters(it),
            *_of_partitions(it),
            *(
                Finding(CLUSTER, NOTE, f"Group {group_id!r} is dead", "Nothing; it is forgotten")
                for group_id in it.dead_groups
            ),
        )
    )


def readiness_findings(
    who: str, reasons: Mapping[str, str], *, nats_remedy: str = "", besides: Collection[str] = ()
) -> Iterator[Finding]:
    """Why a node is not ready. ``reasons``: of ``/readyz``; ``besides``: parts of which other
    findings tell more.
    """
    for part, reason in reasons.items():
        if part in besides:
            continue
        if part == "nats" and "node" in reasons:
            continue  # the node connects to NATS last, and is starting or stopping
        if part == "nats":
            remedy = nats_remedy or "start nats-server, or correct nats.servers; the log says more"
            yield Finding(NODE, CRITICAL, f"{who}: {reason}", sentence(remedy))
        elif part == "metadata":
            remedy = "Repair the disk and restart the node; the others go on without it"
            said = f"{who} takes no part in the quorum: {reason}"
            yield Finding(NODE, CRITICAL, said, remedy)
        elif part in DISABLING:
            yield Finding(NODE, CRITICAL, f"{who}: {reason}", sentence(REMEDIES[part]))
        elif part in ("cluster", "partitions"):
            yield Finding(
                NODE, CRITICAL, f"{who} is not ready: {reason}", "See its page and its log"
            )
        else:
            remedy = "Wait; a warning is logged if it lasts"
            yield Finding(NODE, NOTE, f"{who} is not ready: {reason}", remedy)


def without_leader(
    leader: int, isr: Sequence[int], silent: Collection[int] = frozenset()
) -> str | None:
    """A line on a partition that no client can read or write, after its name."""
    if leader in silent:
        return f"is led by node {leader}, which does not answer"
    return f"has no leader; in sync: {listed(isr)}" if leader == NO_LEADER else None


def out_of_sync(replicas: Sequence[int], isr: Collection[int]) -> str | None:
    """A line on a partition with replicas that are behind, after its name."""
    behind = [node_id for node_id in replicas if node_id not in isr]
    if not behind:
        return None
    nodes = "node" if len(behind) == 1 else "nodes"
    return f"is not in sync on {nodes} {', '.join(map(str, behind))}"


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda it: SEVERITIES.index(it.severity))


def sentence(remedy: str) -> str:
    return remedy[:1].upper() + remedy[1:]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"


def _of_controller(it: ClusterFacts) -> Iterator[Finding]:
    if it.controller is not None:
        return
    who = ""
    if it.answering is not None:
        here = len(set(it.voters) & set(it.answering))
        who = (
            f" {here} of {len(it.voters)} voters answer, and {len(it.voters) // 2 + 1} are needed;"
        )
    yield Finding(
        CLUSTER,
        CRITICAL,
        f"No controller is known:{who} no leader can be elected, no stream changed, and nothing is "
        "acknowledged for long",
        f"A majority of the voters ({listed(it.voters)}) must run and reach each other: start those"
        " that are down; `streamlog cluster quorum` says which answer",
    )


def _of_node(node: NodeFacts, it: ClusterFacts) -> Iterator[Finding]:
    place = f"Node {node.node_id} at {node.host}:{node.port}"
    if node.answers is False:
        yield Finding(
            CLUSTER,
            CRITICAL,
            f"{place} does not answer",
            "Start it, or see why it is not reached from here",
        )
    elif node.answers is None and node.stopping:
        yield Finding(
            CLUSTER,
            WARNING,
            f"Node {node.node_id} was stopped in order",
            f"Start it at {node.host}; until then one more loss may cost availability",
        )
    elif node.answers is None and node.fenced:
        yield Finding(
            CLUSTER,
            CRITICAL,
            f"{place} is gone",
            f"Start it, or see why it does not reach the controller. If it will not come back: "
            f"`streamlog cluster drain {node.node_id}`, then `streamlog cluster remove-node "
            f"{node.node_id}`"
            if it.controller is not None
            else "Start it: without a controller it cannot be replaced",
        )
    elif node.answers is None and not node.heard:
        yield Finding(
            CLUSTER,
            WARNING,
            f"{place} has not reported to the new controller yet",
            "Wait; it counts as gone if it does not report within cluster.session_timeout_ms",
        )
    if node.draining:
        yield Finding(
            CLUSTER,
            NOTE,
            f"Node {node.node_id} is being drained: its replicas move to other nodes",
            f"`streamlog cluster drain {node.node_id} --undo` keeps it",
        )
    for name in (*([DISK] if node.full else ()), *node.unfit):
        others = "; others lead in its place where they can" if keep_from_leading([name]) else ""
        yield Finding(
            CLUSTER,
            CRITICAL,
            f"Node {node.node_id}: {told(name)}{others}",
            f"On node {node.node_id}: {REMEDIES.get(name, 'see its page and its log')}",
        )


def _of_voters(it: ClusterFacts) -> Iterator[Finding]:
    """A node whose metadata were lost is alive, and in sync, before its vote counts again."""
    wait = "Wait; until its vote counts, the loss of another voter may stop the cluster"
    living = {node.node_id for node in it.nodes if not node.fenced and node.heard}
    for voter in sorted(it.voters):
        if voter not in it.registered:
            if it.registered and it.controller is not None:
                yield Finding(
                    CLUSTER,
                    WARNING,
                    f"Voter {voter} has never been there",
                    f"Start node {voter}, or take it out with `streamlog cluster remove-voter "
                    f"{voter}`",
                )
        elif not it.followers or voter not in living or it.controller is None:
            continue  # reported already, or not known
        elif voter not in it.followers:
            yield Finding(CLUSTER, WARNING, f"Voter {voter} does not follow the metadata yet", wait)
        elif voter in it.lost_voters:
            yield Finding(
                CLUSTER, WARNING, f"Voter {voter} has lost its metadata, and may not vote yet", wait
            )
    if it.controller is None:
        return
    for node_id in it.returning:
        said = (
            f"Node {node_id} was a voter with metadata that are lost, and does not vote again yet"
        )
        yield Finding(CLUSTER, WARNING, said, wait)


def _of_partitions(it: ClusterFacts) -> Iterator[Finding]:
    gone = [node.node_id for node in it.nodes if node.fenced or node.answers is False]
    start = f"Start node {listed(gone)}" if gone else "See the log of the followers"
    if it.leaderless.number:
        yield _affecting(
            CRITICAL,
            it.leaderless,
            "without a leader",
            ": nothing is read or written there",
            f"{start}; the last members in sync must come back. Where they will not, "
            "`streamlog cluster elect-leader --help` says what an unclean election loses"
            if it.controller is not None
            else f"{start}; a controller must be there before others can lead",
        )
    if it.under_min_isr.number:
        yield _affecting(
            CRITICAL,
            it.under_min_isr,
            "with fewer replicas in sync than min_isr",
            ": writes with acks=all are refused",
            f"{start}; they count again when they have caught up",
        )
    if it.under_replicated.number:
        yield _affecting(
            WARNING,
            it.under_replicated,
            "not in sync on every replica",
            "",
            f"{start}; stop no other node until `streamlog cluster check --wait` says that all is "
            "in sync",
        )


def _affecting(
    severity: Severity, affected: AffectedPartitions, problem: str, harm: str, remedy: str
) -> Finding:
    names = ", ".join(name for name, _ in affected.known[:NAMED_MAX])
    some = f", such as {names}" if affected.number > NAMED_MAX else f" ({names})" if names else ""
    return Finding(
        CLUSTER,
        severity,
        f"{counted(affected.number, 'partition')} {problem}{some}{harm}",
        remedy,
        details=tuple(f"{name} {said}" for name, said in affected.known),
    )
