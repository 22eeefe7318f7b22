"""The way from here to each node: is it reached where it says it is, and how long does it take."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator
from statistics import median
from typing import TYPE_CHECKING, Final

from streamlog.cli.cluster.description import cluster_facts
from streamlog.cli.doctor.configuration import voters_of
from streamlog.condition import CRITICAL, NOTE, WARNING, Condition, Severity
from streamlog.findings import (
    CLUSTER,
    NODE,
    SETTING_WRONG,
    Finding,
    cluster_findings,
    sentence,
)
from streamlog.metadata.nodes.node_condition import CONDITIONS, DAMAGED, LOST, NODE_GONE, told

if TYPE_CHECKING:
    from streamlog.cli.cluster.description import Description
    from streamlog.client.security import Security
    from streamlog.client.topology import NodeInfo, Topology
    from streamlog.config import Settings

AREA: Final = "network"
ROUNDS: Final = 5
SLOW_S: Final = 0.050
REACHED: Final = ("ok", "warning")

OTHER_CLUSTER: Final = Condition(
    "SL-0824",
    "the node that answers belongs to another cluster",
    "correct cluster.id, cluster.voters or --bootstrap-server",
    meaning="The addresses of the settings lead to nodes with another cluster.id.",
    severity=CRITICAL,
)
NETWORK_SLOW: Final = Condition(
    "SL-0825",
    "the way to a node is slow",
    "acks with acks=all wait for followers: keep nodes near each other",
    meaning="A new connection to a node takes longer than 50 ms.",
)


async def examine(settings: "Settings", servers: str, timeout_s: float) -> AsyncIterator[Finding]:
    """Voters of the settings, and all nodes that the cluster knows, at their advertised address;
    as this node, with its certificate and its login.
    """
    from streamlog.errors import StreamlogError

    try:
        security = _security(settings)
    except StreamlogError as error:
        remedy = "correct [tls] and [sasl]; docs/security.md"
        yield Finding.of(SETTING_WRONG, AREA, str(error), remedy)
        return
    topology, description = await _cluster(servers, timeout_s, security)
    if topology is None:
        yield Finding.of(
            NODE_GONE,
            AREA,
            f"no node answers at {servers}: only the addresses of cluster.voters are tried",
            "start a node, or name one by --bootstrap-server",
            severity=WARNING,
        )
    asked: dict[tuple[str, int], list[str]] = {}
    for node_id, place in voters_of(settings):
        asked.setdefault(place, []).append(f"voter {node_id}")
    if topology is not None:
        for node in topology.nodes.values():
            asked.setdefault((node.host, node.port), []).append(f"node {node.node_id}")
    results = await asyncio.gather(
        *(_reach(place, names, settings, timeout_s, security) for place, names in asked.items())
    )
    reached = {place for place, it in zip(asked, results, strict=True) if it.severity in REACHED}
    if topology is not None:
        for finding in _identity(settings, topology, reached, description):
            yield finding
    for result in results:
        yield result


def _security(settings: "Settings") -> "Security":
    """As nodes come to nodes. Raises ConfigError."""
    from streamlog.app.security import to_nodes
    from streamlog.tls.certificates import Certificates

    return to_nodes(settings, Certificates(settings))


async def _cluster(
    servers: str, timeout_s: float, security: "Security"
) -> "tuple[Topology | None, Description | None]":
    """The cluster as clients see it, and as the controller does; None for what is not answered."""
    from streamlog.cli.cluster.controller import Controller
    from streamlog.client.cluster import Cluster
    from streamlog.errors import StreamlogError

    topology: Topology | None = None
    try:
        async with Cluster.at(
            servers, timeout_ms=round(timeout_s * 1000), security=security
        ) as cluster:
            controller = Controller(cluster)
            topology = await controller.topology()
            if await controller.has_controller():
                return topology, await controller.describe()
            return topology, await controller.describe_without_controller()
    except StreamlogError:
        return topology, None


def _identity(
    settings: "Settings",
    topology: "Topology",
    reached: Collection[tuple[str, int]],
    description: "Description | None",
) -> Iterator[Finding]:
    """``reached``: places that answered; which nodes count as alive is the controller's knowledge,
    which is old where there is none.
    """
    ours, theirs = settings.cluster.id, topology.cluster_id
    if ours is not None and theirs != ours:
        said = f"the node that answers belongs to cluster {theirs!r}, not {ours!r}"
        yield Finding.of(OTHER_CLUSTER, AREA, said)
        return
    mine: NodeInfo | None = topology.nodes.get(settings.node.id)  # type: ignore[call-overload]
    nodes = topology.nodes.values()
    here = sum((node.host, node.port) in reached for node in nodes)
    where = f"this one at {mine.address}" if mine else f"node {settings.node.id} is not among them"
    said = f"{here} of the {len(nodes)} nodes of cluster {theirs} are reached, {where}"
    if here == len(nodes):
        yield Finding(AREA, "ok", said)
    else:
        yield Finding.of(NODE_GONE, AREA, said, "start the others", severity=WARNING)
    if description is not None:
        yield from _of_this_node(settings.node.id, description)
        facts = cluster_facts(description, topology, besides=settings.node.id)
        for finding in cluster_findings(facts):
            yield finding._replace(area=CLUSTER)


def _of_this_node(node_id: int, description: "Description") -> Iterator[Finding]:
    """Damage that the node reports to the cluster. Other conditions of it are found in their areas."""
    for node in description.nodes:
        for name in node.unfit if node.node_id == node_id else ():
            if name in {DAMAGED, LOST}:
                condition, said = CONDITIONS[name], f"Node {node_id}: {told(name)}"
                yield Finding.of(condition, NODE, said, sentence(condition.remedy))


async def _reach(
    place: tuple[str, int],
    names: list[str],
    settings: "Settings",
    timeout_s: float,
    security: "Security",
) -> Finding:
    """The first exchange agrees on versions: a server that passes it is a node, or Kafka."""
    from streamlog.client.connection import Connection
    from streamlog.errors import StreamlogError

    host, port = place
    who = f"{', '.join(dict.fromkeys(names))} at {host}:{port}"
    took: list[float] = []
    try:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            connection = await Connection.open(
                host, port, timeout_ms=round(timeout_s * 1000), security=security
            )
            took.append(time.perf_counter() - began)
            connection.close()
    except StreamlogError as error:
        own = any(name.endswith(f" {settings.node.id}") for name in names)
        runs, remedy = await _why_unreached(place, str(error), timeout_s)
        is_down = own and not runs  # it may be meant to be
        severity: Severity = NOTE if is_down else CRITICAL
        return Finding.of(NODE_GONE, AREA, f"{who}: {error}", remedy, severity=severity)
    middle = median(took)
    said = f"{who} is reached in {middle * 1000:.1f} ms ({max(took) * 1000:.1f} ms at worst)"
    measured = {"connect_median_seconds": middle, "connect_max_seconds": max(took)}
    if middle > SLOW_S:
        return Finding.of(NETWORK_SLOW, AREA, said, measured=measured)
    return Finding(AREA, "ok", said, "", measured)


async def _why_unreached(place: tuple[str, int], said: str, timeout_s: float) -> tuple[bool, str]:
    """Whether something listens there all the same, and what to do."""
    if "TLS: " in said:
        return True, "see the certificates of that node and the CA of this one: docs/security.md"
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(*place)
    except (OSError, UnicodeError, TimeoutError):
        remedy = (
            "start the node, if it is not meant to be down; see its kafka.host, the firewall, and "
            "that the name leads to its machine"
        )
        return False, remedy
    writer.close()
    return True, (
        "something listens there and does not answer as a node: see whether the process hangs or is"
        " stopped (its log, `ps`, the machine's load), and whether it wants TLS or a login"
    )
