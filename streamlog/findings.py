"""What is wrong right now, in words, with the remedy: the one list of it. Pure.

The console, ``cluster check`` and ``doctor`` gather facts, each from where it stands, and ask
``cluster_findings`` and ``readiness_findings`` what follows from them, so that they cannot
contradict each other. ``doctor`` adds what it measures on its machine as findings of the same type.
What is wrong has the code of a condition (``streamlog/condition.py``), as in the log and in alerts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.condition import CRITICAL, NOTE, SEVERITIES, WARNING, Condition, Severity
from streamlog.errors import ConfigError
from streamlog.metadata.nodes.healing_status import (
    NOTHING_LOST,
    SELF_HEALING,
    SELF_HEALING_STUCK,
    HealingStatus,
)
from streamlog.metadata.nodes.node_condition import (
    CONDITIONS,
    DISABLING,
    DISK,
    LEASE_LOST,
    METADATA_FAILED,
    NATS_GONE,
    NODE_GONE,
    NODE_UNFIT,
    PARTITION_OFFLINE,
    keep_from_leading,
    told,
)
from streamlog.model import NO_LEADER

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
    code: str = ""
    """Of its condition; empty where nothing is wrong, or it could not be looked at."""
    meaning: str = ""
    """Of its condition: what it is, and what follows from it."""

    @classmethod
    def of(
        cls,
        condition: Condition,
        area: str,
        what: str,
        remedy: str = "",
        *,
        severity: Severity | None = None,
        measured: dict[str, float] | None = None,
        details: tuple[str, ...] = (),
        **facts: object,
    ) -> "Finding":
        """``what`` says it with all that is known. ``remedy``: a better one than the condition's,
        which is filled in with ``facts``.
        """
        remedy = remedy or condition.remedy_for(facts)
        severity = severity or condition.severity
        return cls(
            area, severity, what, remedy, measured, details, condition.code, condition.meaning
        )


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
    healing: HealingStatus = NOTHING_LOST
    """Nothing where the observer does not know."""


NO_CONTROLLER: Final = Condition(
    "SL-0102",
    "no controller is known",
    "a majority of the voters must run and reach each other: start those that are down; `streamlog "
    "cluster quorum` says which answer",
    meaning="No majority of the voters agrees on a controller. No leader can be elected, no stream "
    "changed, and nothing is acknowledged for long.",
    severity=CRITICAL,
    runbook="runbooks/lost-quorum.md",
)
NODE_STOPPED: Final = Condition(
    "SL-0104",
    "node was stopped in order",
    "start it at {host}; until then one more loss may cost availability",
    meaning="A node told the cluster before it stopped.",
)
NODE_NOT_REPORTED: Final = Condition(
    "SL-0107",
    "node has not reported to the new controller yet",
    "wait; it counts as gone if it does not report within cluster.session_timeout_ms",
    meaning="The controller is new, and knows of the node from the controller before it.",
)
NODE_DRAINING: Final = Condition(
    "SL-0108",
    "node is being drained",
    "`streamlog cluster drain {node} --undo` keeps it",
    meaning="The replicas of the node move to other nodes, so that it can be removed.",
    severity=NOTE,
    runbook="runbooks/add-and-remove-nodes.md",
)
VOTER_MISSING: Final = Condition(
    "SL-0109",
    "voter has never been there",
    "start node {voter}, or take it out with `streamlog cluster remove-voter {voter}`",
    meaning="A node that is named as a voter has not registered. It counts when a majority is "
    "needed.",
)
VOTER_BEHIND: Final = Condition(
    "SL-0110",
    "voter does not count yet",
    "wait; until its vote counts, the loss of another voter may stop the cluster",
    meaning="A voter does not follow the metadata yet, or has lost its metadata and may not vote "
    "until it has them again.",
    runbook="runbooks/replace-a-node.md",
)
NODE_NOT_READY: Final = Condition(
    "SL-0111",
    "node is not ready",
    "wait; a warning is logged if it lasts",
    meaning="The node is starting, stopping or catching up.",
    severity=NOTE,
)
LEADERLESS: Final = Condition(
    "SL-0201",
    "partitions without a leader",
    "start the nodes that were in sync last: `streamlog cluster check` names them",
    meaning="No replica in sync is alive, or its node does not answer. Nothing is read or written "
    "there.",
    severity=CRITICAL,
    runbook="runbooks/no-leader.md",
)
UNDER_MIN_ISR: Final = Condition(
    "SL-0202",
    "partitions with fewer replicas in sync than min_isr",
    "bring the other replicas back; they count again when they have caught up",
    meaning="Writes with acks=all are refused. Reads go on.",
    severity=CRITICAL,
)
UNDER_REPLICATED: Final = Condition(
    "SL-0203",
    "partitions not in sync on every replica",
    "stop no other node until `streamlog cluster check --wait` says that all is in sync",
    meaning="Some replicas are behind, or their nodes are gone.",
)
SETTING_WRONG: Final = Condition(
    "SL-0801",
    "a setting is wrong",
    "correct the setting that is named",
    meaning="The node, or the command, cannot use a setting or a file that it names. The node does "
    "not start.",
    severity=CRITICAL,
)
GROUP_DEAD: Final = Condition(
    "SL-0515",
    "group is dead",
    "nothing; it is forgotten",
    meaning="The group was deleted, or all of its offsets have expired.",
    severity=NOTE,
)


def cluster_findings(it: ClusterFacts) -> list[Finding]:
    """The worst first; nothing ``BAD`` where every node is alive and fit to lead, every voter
    follows the metadata, and every replica is in sync.
    """
    return worst_first(
        (
            *_of_controller(it),
            *(found for node in it.nodes for found in _of_node(node, it)),
            *_of_healing(it.healing),
            *_of_voters(it),
            *_of_partitions(it),
            *(_found(GROUP_DEAD, f"Group {group_id!r} is dead") for group_id in it.dead_groups),
        )
    )


_PARTS: Final[Mapping[str, Condition]] = {
    **{name: CONDITIONS[name] for name in DISABLING},
    "nats": NATS_GONE,
    "metadata": METADATA_FAILED,
    "cluster": LEASE_LOST,
    "partitions": PARTITION_OFFLINE,
}
"""By the parts of ``/readyz``; of others the node is starting, stopping or catching up."""


def condition_of_part(part: str) -> Condition:
    """Of a part of ``/readyz`` that gives a reason."""
    return _PARTS.get(part) or NODE_NOT_READY


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
        condition = condition_of_part(part)
        said = f"{who} is not ready: {reason}"
        remedy = ""
        if part == "nats":
            said = f"{who}: {reason}"
            remedy = nats_remedy or "start nats-server, or correct nats.servers; the log says more"
        elif part == "metadata":
            said = f"{who} takes no part in the quorum: {reason}"
        elif part in DISABLING:
            said = f"{who}: {reason}"
        severity: Severity = NOTE if condition is NODE_NOT_READY else CRITICAL
        remedy = sentence(remedy or condition.remedy)
        yield Finding.of(condition, NODE, said, remedy, severity=severity)


def wrong_setting(error: ConfigError, area: str) -> Finding:
    return Finding.of(SETTING_WRONG, area, f"{error.key}: {error.problem}", error.remedy)


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
    yield _found(
        NO_CONTROLLER,
        f"No controller is known:{who} no leader can be elected, no stream changed, and nothing is "
        "acknowledged for long",
        f"a majority of the voters ({listed(it.voters)}) must run and reach each other: start those"
        " that are down; `streamlog cluster quorum` says which answer",
    )


def _of_node(node: NodeFacts, it: ClusterFacts) -> Iterator[Finding]:
    number = node.node_id
    place = f"Node {number} at {node.host}:{node.port}"
    if node.answers is False:
        remedy = "start it, or see why it is not reached from here"
        yield _found(NODE_GONE, f"{place} does not answer", remedy)
    elif node.answers is None and node.stopping:
        yield _found(NODE_STOPPED, f"Node {number} was stopped in order", host=node.host)
    elif node.answers is None and node.fenced:
        yield _found(
            NODE_GONE,
            f"{place} is gone",
            "start it, or see why it does not reach the controller. If it will not come back: "
            f"`streamlog cluster drain {number}`, then `streamlog cluster remove-node {number}`"
            if it.controller is not None
            else "start it: without a controller it cannot be replaced",
        )
    elif node.answers is None and not node.heard:
        yield _found(NODE_NOT_REPORTED, f"{place} has not reported to the new controller yet")
    if node.draining:
        said = f"Node {number} is being drained: its replicas move to other nodes"
        yield _found(NODE_DRAINING, said, node=number)
    for name in (*([DISK] if node.full else ()), *node.unfit):
        others = "; others lead in its place where they can" if keep_from_leading([name]) else ""
        condition = CONDITIONS.get(name, NODE_UNFIT)
        yield _found(
            condition,
            f"Node {number}: {told(name)}{others}",
            f"on node {number}: {condition.remedy}",
            severity=CRITICAL,
        )


def _of_healing(it: HealingStatus) -> Iterator[Finding]:
    if not it.lost:
        return
    lost = f"{'Node' if len(it.lost) == 1 else 'Nodes'} {listed(it.lost)}: lost for long"
    if it.too_many:
        yield _found(SELF_HEALING_STUCK, f"{lost}; so many are not replaced")
        return
    if it.moving or it.waiting:
        move = "moves" if it.moving == 1 else "move"
        said = f"{counted(it.moving, 'partition')} {move} to other nodes, {it.waiting:,} wait"
        yield _found(SELF_HEALING, f"{lost}; {said}", severity=NOTE)
    if it.leaderless:
        have = "has" if it.leaderless == 1 else "have"
        said = f"{counted(it.leaderless, 'partition')} {have} no leader"
        yield _found(SELF_HEALING_STUCK, f"{lost}; {said}")
    if it.without_room:
        find = "finds" if it.without_room == 1 else "find"
        said = f"{counted(it.without_room, 'partition')} {find} no room"
        yield _found(SELF_HEALING_STUCK, f"{lost}; {said}")


def _of_voters(it: ClusterFacts) -> Iterator[Finding]:
    """A node whose metadata were lost is alive, and in sync, before its vote counts again."""
    living = {node.node_id for node in it.nodes if not node.fenced and node.heard}
    for voter in sorted(it.voters):
        if voter not in it.registered:
            if it.registered and it.controller is not None:
                yield _found(VOTER_MISSING, f"Voter {voter} has never been there", voter=voter)
        elif not it.followers or voter not in living or it.controller is None:
            continue  # reported already, or not known
        elif voter not in it.followers:
            yield _found(VOTER_BEHIND, f"Voter {voter} does not follow the metadata yet")
        elif voter in it.lost_voters:
            said = f"Voter {voter} has lost its metadata, and may not vote yet"
            yield _found(VOTER_BEHIND, said)
    if it.controller is None:
        return
    for node_id in it.returning:
        said = (
            f"Node {node_id} was a voter with metadata that are lost, and does not vote again yet"
        )
        yield _found(VOTER_BEHIND, said)


def _of_partitions(it: ClusterFacts) -> Iterator[Finding]:
    gone = [node.node_id for node in it.nodes if node.fenced or node.answers is False]
    start = f"start node {listed(gone)}" if gone else "see the log of the followers"
    if it.leaderless.number:
        yield _affecting(
            LEADERLESS,
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
            UNDER_MIN_ISR,
            it.under_min_isr,
            "with fewer replicas in sync than min_isr",
            ": writes with acks=all are refused",
            f"{start}; they count again when they have caught up",
        )
    if it.under_replicated.number:
        yield _affecting(
            UNDER_REPLICATED,
            it.under_replicated,
            "not in sync on every replica",
            "",
            f"{start}; {UNDER_REPLICATED.remedy}",
        )


def _affecting(
    condition: Condition, affected: AffectedPartitions, problem: str, harm: str, remedy: str
) -> Finding:
    names = ", ".join(name for name, _ in affected.known[:NAMED_MAX])
    some = f", such as {names}" if affected.number > NAMED_MAX else f" ({names})" if names else ""
    return Finding.of(
        condition,
        CLUSTER,
        f"{counted(affected.number, 'partition')} {problem}{some}{harm}",
        sentence(remedy),
        details=tuple(f"{name} {said}" for name, said in affected.known),
    )


def _found(
    condition: Condition,
    what: str,
    remedy: str = "",
    *,
    severity: Severity | None = None,
    **facts: object,
) -> Finding:
    """About the cluster."""
    remedy = sentence(remedy or condition.remedy_for(facts))
    return Finding.of(condition, CLUSTER, what, remedy, severity=severity)
