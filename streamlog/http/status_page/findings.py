"""What is wrong right now, in words, with the remedy; the worst first. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from streamlog.errors import EncryptionKeyMissing
from streamlog.http.status_page.cluster_snapshot import ClusterSnapshot
from streamlog.http.status_page.counts import LEADERLESS, UNDER_MIN_ISR, UNDER_REPLICATED
from streamlog.http.status_page.overview import Overview
from streamlog.metadata.image.metadata_image import NodeImage
from streamlog.metadata.nodes.node_condition import (
    DISABLING,
    DISK,
    REMEDIES,
    keep_from_leading,
    told,
)
from streamlog.model import NodeId

CRITICAL: Final = "critical"
WARNING: Final = "warning"
NOTE: Final = "note"
SEVERITIES: Final = (CRITICAL, WARNING, NOTE)

NAMED_MAX: Final = 3
"""Partitions that a sentence names."""
LOOP_LAG_S: Final = 0.5
STARTING: Final = "starting"
"""The role of a node that has not read its metadata yet."""
SAID_ELSEWHERE: Final = frozenset({"cluster", "partitions"})
"""Parts that are not ready of which other findings tell more."""


class Finding(NamedTuple):
    """One line of it is ``what``; ``remedy`` says what to do, where something is to be done."""

    severity: str
    what: str
    remedy: str


def findings(moment: ClusterSnapshot, overview: Overview) -> list[Finding]:
    """Empty where all is well. ``overview``: of the moment's image."""
    found = [
        *_of_quorum(moment),
        *_of_this_node(moment),
        *_of_nodes(moment),
        *_of_partitions(moment, overview),
        *_of_groups(moment),
    ]
    return sorted(found, key=lambda it: SEVERITIES.index(it.severity))


def _of_quorum(it: ClusterSnapshot) -> Iterator[Finding]:
    voters = _listed(it.voters)
    if it.role == STARTING:
        return
    if it.controller is None:
        yield Finding(
            CRITICAL,
            "No controller is known: no leader can be elected, no stream changed, and nothing is "
            "acknowledged for long",
            f"A majority of the voters ({voters}) must run and reach each other: start those that "
            "are down; `streamlog cluster quorum` says which answer",
        )
        for node_id in sorted(it.silent):
            node = it.image.nodes.get(node_id)
            if node is not None and not node.fenced:
                yield Finding(
                    CRITICAL,
                    f"Node {node_id} at {node.host}:{node.port} does not answer this node",
                    "Start it, or see why this node does not reach it",
                )
    elif not it.lease_held and "node" not in it.reasons:
        yield Finding(
            CRITICAL,
            f"Node {it.node_id} (this one) has had no word from the controller, node "
            f"{it.controller}: it acknowledges nothing, committed records are read",
            f"See whether this node reaches node {it.controller}; `streamlog doctor` measures it",
        )
    for voter in it.voters:
        if voter not in it.image.nodes and it.image.nodes:
            yield Finding(
                WARNING,
                f"Voter {voter} has never been there",
                f"Start node {voter}, or take it out with `streamlog cluster remove-voter {voter}`",
            )


def _of_this_node(it: ClusterSnapshot) -> Iterator[Finding]:
    this = f"Node {it.node_id} (this one)"
    for part, reason in it.reasons.items():
        if part == "nats" and "node" in it.reasons:
            continue  # its turn is yet to come, or over
        if part == "nats":
            remedy = it.nats_remedy or "start nats-server, or mend nats.servers; the log says more"
            yield Finding(CRITICAL, f"{this}: {reason}", _begun(remedy))
        elif part == "metadata":
            remedy = "Mend the disk and restart the node; the others go on without it"
            yield Finding(CRITICAL, f"{this} takes no part in the quorum: {reason}", remedy)
        elif part not in SAID_ELSEWHERE and part not in DISABLING:
            yield Finding(NOTE, f"{this} is not ready: {reason}", "Wait; it is said when it lasts")
    for trouble in it.troubles:
        severity = CRITICAL if trouble.is_urgent else WARNING
        yield Finding(severity, f"{this}: {trouble.said}", _begun(trouble.remedy))
    if it.loop_lag_s > LOOP_LAG_S:
        yield Finding(
            WARNING,
            f"{this} answers late, by {it.loop_lag_s:.1f} s: its event loop is blocked",
            "See whether the machine lacks processor time or swaps",
        )
    for is_keyless in (False, True):
        failures = {
            tp: why for tp, why in (it.failures or {}).items() if (tp in it.keyless) == is_keyless
        }
        if not failures:
            continue
        tp, why = next(iter(failures.items()))
        yield Finding(
            CRITICAL,
            f"{_count(len(failures), 'partition')} cannot be written on this node, such as {tp}: "
            f"{why}",
            _begun(EncryptionKeyMissing.remedy)
            if is_keyless
            else "Mend the disk and restart this node; where there are other replicas they lead on",
        )
    if it.damaged:
        yield Finding(
            CRITICAL,
            f"{_count(len(it.damaged), 'partition')} on this node have records that cannot be read,"
            f" such as {it.damaged[0]}",
            "A follower fetches them again by itself; with one replica restore them from a backup, "
            "and look at the disk",
        )


def _of_nodes(it: ClusterSnapshot) -> Iterator[Finding]:
    for node_id, node in sorted(it.image.nodes.items()):
        if node_id == it.node_id and "node" in it.reasons:
            continue  # of before it has registered, or it is said that it is stopping
        yield from _of_node(node_id, node, has_controller=it.controller is not None)
        if node_id != it.node_id:  # what this one knows of itself is said already
            yield from _of_unfit_node(node_id, node)


def _of_node(node_id: NodeId, node: NodeImage, *, has_controller: bool) -> Iterator[Finding]:
    if node.stopping:
        yield Finding(
            WARNING,
            f"Node {node_id} was stopped in order",
            f"Start it at {node.host}; until then one more loss may cost availability",
        )
    elif node.fenced:
        yield Finding(
            CRITICAL,
            f"Node {node_id} at {node.host}:{node.port} is gone",
            f"Start it, or see why it does not reach the controller. If it will not come back: "
            f"`streamlog cluster drain {node_id}`, then `streamlog cluster remove-node {node_id}`"
            if has_controller
            else "Start it: without a controller it cannot be replaced",
        )
    if node.draining:
        yield Finding(
            NOTE,
            f"Node {node_id} is being drained: its replicas move to other nodes",
            f"`streamlog cluster drain {node_id} --undo` keeps it",
        )


def _of_unfit_node(node_id: NodeId, node: NodeImage) -> Iterator[Finding]:
    for name in (*([DISK] if node.full else ()), *node.unfit):
        others = "; others lead in its place where they can" if keep_from_leading([name]) else ""
        yield Finding(
            CRITICAL,
            f"Node {node_id}: {told(name)}{others}",
            f"On node {node_id}: {REMEDIES.get(name, 'see its page and its log')}",
        )


def _of_partitions(it: ClusterSnapshot, overview: Overview) -> Iterator[Finding]:
    total = overview.total
    leaderless = total.leaderless + overview.unled(it.silent)
    gone = [
        node_id for node_id, node in it.image.nodes.items() if node.fenced or node_id in it.silent
    ]
    start = f"Start node {_listed(gone)}" if gone else "See the log of the followers"
    if leaderless:
        yield Finding(
            CRITICAL,
            f"{_count(leaderless, 'partition')} without a leader"
            f"{_such(overview, LEADERLESS, it.silent)}: "
            "nothing is read or written there",
            f"{start}; the last members in sync must come back. Where they will not, "
            "`streamlog cluster elect-leader --help` says what an unclean election loses"
            if it.controller is not None
            else f"{start}; a controller must be there before others can lead",
        )
    under_min = total.under_min_isr
    if under_min:
        yield Finding(
            CRITICAL,
            f"{_count(under_min, 'partition')} with fewer replicas in sync than min_isr"
            f"{_such(overview, UNDER_MIN_ISR)}: writes with acks=all are refused",
            f"{start}; they count again when they have caught up",
        )
    if total.under_replicated:
        yield Finding(
            WARNING,
            f"{_count(total.under_replicated, 'partition')} not in sync on every replica"
            f"{_such(overview, UNDER_REPLICATED)}",
            f"{start}; stop no other node until `streamlog cluster check --wait` says that all is "
            "in sync",
        )


def _of_groups(it: ClusterSnapshot) -> Iterator[Finding]:
    for group in it.groups:
        if group.state == "Dead":
            yield Finding(NOTE, f"Group {group.group_id!r} is dead", "Nothing; it is forgotten")


def _such(overview: Overview, want: str, silent: frozenset[NodeId] = frozenset()) -> str:
    """Some of them by name."""
    names = [f"{tp.stream}/{tp.partition}" for tp in overview.some(want, NAMED_MAX, silent)]
    if len(names) == NAMED_MAX:
        return f", such as {', '.join(names)}"
    return f" ({', '.join(names)})" if names else ""


def _begun(remedy: str) -> str:
    return remedy[:1].upper() + remedy[1:]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _listed(ids: Sequence[NodeId]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"
