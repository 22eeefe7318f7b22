"""The list of findings from what this node knows of its cluster and of itself. Pure."""

from collections.abc import Iterator
from typing import Final

from streamlog.condition import CRITICAL, RECORDS_DAMAGED, WARNING, Condition, Severity
from streamlog.errors import EncryptionKeyMissing
from streamlog.findings import (
    NODE,
    AffectedPartitions,
    ClusterFacts,
    Finding,
    NodeFacts,
    cluster_findings,
    counted,
    out_of_sync,
    readiness_findings,
    sentence,
    without_leader,
    worst_first,
)
from streamlog.http.console.cluster_snapshot import ClusterSnapshot
from streamlog.http.console.overview import (
    LEADERLESS,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    Overview,
)
from streamlog.metadata.nodes.node_condition import DISABLING, LEASE_LOST, PARTITION_OFFLINE

LOOP_BLOCKED: Final = Condition(
    "SL-0005",
    "event loop was blocked",
    "see whether the machine lacks processor time, or swaps",
    meaning="The node did nothing else for the time that is named: it answers late, and may count "
    "as gone.",
)

LOOP_LAG_S: Final = 0.5
STARTING: Final = "starting"
"""The role of a node that has not read its metadata yet."""
TOLD_ELSEWHERE: Final = frozenset({"cluster", "partitions", *DISABLING})
"""Parts that are not ready of which other findings tell more."""
NAMED_MAX: Final = 4
"""Partitions of one kind that are looked up: one more than a sentence names."""


def findings(it: ClusterSnapshot, overview: Overview) -> list[Finding]:
    """Empty where all is well. ``overview``: of the snapshot's image."""
    return worst_first((*_of_this_node(it), *cluster_findings(cluster_facts(it, overview))))


def cluster_facts(it: ClusterSnapshot, overview: Overview) -> ClusterFacts:
    nodes = []
    for node_id, node in sorted(it.image.nodes.items()):
        if node_id == it.node_id and "node" in it.reasons:
            continue  # of before it has registered, or it is said that it is stopping
        is_other = node_id != it.node_id  # what this one knows of itself is said already
        nodes.append(
            NodeFacts(
                node_id,
                node.host,
                node.port,
                fenced=node.fenced,
                stopping=node.stopping,
                draining=node.draining,
                full=is_other and node.full,
                unfit=node.unfit if is_other else (),
                answers=False if node_id in it.silent and not node.fenced else None,
            )
        )
    is_starting = it.role == STARTING
    total = overview.total
    return ClusterFacts(
        controller=it.node_id if is_starting else it.controller,
        voters=() if is_starting else it.voters,
        nodes=nodes,
        registered=it.image.nodes.keys(),
        answering={it.node_id, *(other for other, answers in it.answers.items() if answers)}
        if it.answers
        else None,
        leaderless=_affected(
            it, overview, LEADERLESS, total.leaderless + overview.unled(it.silent)
        ),
        under_min_isr=_affected(it, overview, UNDER_MIN_ISR, total.under_min_isr),
        under_replicated=_affected(it, overview, UNDER_REPLICATED, total.under_replicated),
        healing=it.healing,
        dead_groups=[group.group_id for group in it.groups if group.state == "Dead"],
    )


def _affected(it: ClusterSnapshot, overview: Overview, want: str, count: int) -> AffectedPartitions:
    """With some by name."""
    known = []
    for tp in overview.some(want, NAMED_MAX, it.silent) if count else ():
        partition = it.image.streams[tp.stream].partitions[tp.partition]
        said = (
            without_leader(partition.leader, partition.isr, it.silent)
            if want == LEADERLESS
            else out_of_sync(partition.replicas, partition.isr)
        )
        known.append((f"{tp.stream}/{tp.partition}", said or ""))
    return AffectedPartitions(count, known)


def _of_this_node(it: ClusterSnapshot) -> Iterator[Finding]:
    this = f"Node {it.node_id} (this one)"
    if (
        it.role != STARTING
        and it.controller is not None
        and not it.lease_held
        and "node" not in it.reasons
    ):
        yield Finding.of(
            LEASE_LOST,
            NODE,
            f"{this} has had no word from the controller, node {it.controller}: it acknowledges "
            "nothing, committed records are read",
            f"See whether this node reaches node {it.controller}; `streamlog doctor` measures it",
        )
    yield from readiness_findings(
        this, it.reasons, nats_remedy=it.nats_remedy, besides=TOLD_ELSEWHERE
    )
    for trouble in it.troubles:
        severity: Severity = CRITICAL if trouble.is_urgent else WARNING
        said, remedy = f"{this}: {trouble.said}", sentence(trouble.condition.remedy)
        yield Finding.of(trouble.condition, NODE, said, remedy, severity=severity)
    if it.loop_lag_s > LOOP_LAG_S:
        said = f"{this} answers late, by {it.loop_lag_s:.1f} s: its event loop is blocked"
        yield Finding.of(LOOP_BLOCKED, NODE, said, sentence(LOOP_BLOCKED.remedy))
    for is_keyless in (False, True):
        failures = {
            tp: why for tp, why in (it.failures or {}).items() if (tp in it.keyless) == is_keyless
        }
        if not failures:
            continue
        tp, why = next(iter(failures.items()))
        yield Finding.of(
            PARTITION_OFFLINE,
            NODE,
            f"{counted(len(failures), 'partition')} cannot be written on this node, such as {tp}: "
            f"{why}",
            sentence(EncryptionKeyMissing.remedy)
            if is_keyless
            else "Repair the disk and restart this node; other replicas, if any, lead in its place",
        )
    if it.damaged:
        yield Finding.of(
            RECORDS_DAMAGED,
            NODE,
            f"{counted(len(it.damaged), 'partition')} on this node have records that cannot be "
            f"read, such as {it.damaged[0]}",
            sentence(RECORDS_DAMAGED.remedy),
        )
