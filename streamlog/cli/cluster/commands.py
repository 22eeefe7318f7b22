"""The commands of ``streamlog cluster``. Those of the quorum have a module of their own."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamlog.cli.cluster import balance, features, force, quorum
from streamlog.cli.cluster.controller import ask
from streamlog.cli.cluster.description import cluster_facts
from streamlog.cli.cluster.waiting import wait_until
from streamlog.cli.options import names
from streamlog.cli.options.names import NodeNumber, StreamName
from streamlog.cli.options.options import (
    SERVERS,
    Json,
    PartitionNumber,
    Servers,
    Timeout,
    Wait,
    Yes,
)
from streamlog.cli.output import print_findings, print_json, print_pairs, print_table, say
from streamlog.errors import RequestTimedOut
from streamlog.findings import BAD, Finding, cluster_findings
from streamlog.model import NodeId

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller
    from streamlog.client.topology import Topology


NO_CONTROLLER: Final = NodeId(-1)


def info(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """Nodes, streams, and who leads what."""
    topology, is_decided = ask(servers, _look)
    if not is_decided:
        topology = topology._replace(controller=NO_CONTROLLER)
    if as_json:
        print_json(_as_json(topology))
        return
    if topology.controller == NO_CONTROLLER:
        controller = (
            "none: leaders and in-sync replicas are as the last one knew them; "
            "`streamlog cluster check` says who answers"
        )
    else:
        controller = f"node {topology.controller}"
    print_pairs([("Cluster", topology.cluster_id), ("Controller", controller)])
    say()
    print_table(
        ("NODE", "ADDRESS", "RACK"),
        ((node.node_id, node.address, node.rack) for node in topology.nodes.values()),
    )
    say()
    print_table(
        ("STREAM", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"),
        (
            (
                topic.name,
                it.partition,
                None if it.leader < 0 else it.leader,
                it.leader_epoch,
                it.replicas,
                it.isr,
            )
            for topic in topology.topics.values()
            for it in topic.partitions
        ),
    )


async def _look(controller: "Controller") -> "tuple[Topology, bool]":
    """And whether there is a controller."""
    return await controller.topology(), await controller.has_controller()


def _as_json(topology: "Topology") -> dict[str, object]:
    return {
        "cluster_id": topology.cluster_id,
        "controller": topology.controller,
        "nodes": [node._asdict() for node in topology.nodes.values()],
        "streams": [
            {
                "name": topic.name,
                "stream_id": topic.topic_id,
                "partitions": [it._asdict() for it in topic.partitions],
            }
            for topic in topology.topics.values()
        ],
    }


SHOWN_WHILE_WAITING = 3


def check(
    wait: Wait = False,
    timeout: Timeout = None,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Is every node alive and well, every replica in sync? Exit code 1 if not: stop no other."""
    found = ask(servers, lambda controller: _find(controller, wait, timeout))
    well = not _bad(found)
    if as_json:
        print_json({"well": well, "findings": [it._asdict() for it in found]})
    else:
        if well:
            say("every node is alive and well, every replica is in sync")
        print_findings(found)
    if not well:
        raise typer.Exit(1)


async def _find(controller: "Controller", wait: bool, timeout_s: float | None) -> list[Finding]:
    found: list[Finding] = []

    async def whole() -> str | None:
        nonlocal found
        facts = cluster_facts(await controller.describe(), await controller.topology())
        found = cluster_findings(facts)
        bad = _bad(found)
        more = len(bad) - SHOWN_WHILE_WAITING
        shown = "; ".join(it.what for it in bad[:SHOWN_WHILE_WAITING])
        return f"{shown}; and {more} more" if more > 0 else shown or None

    if not wait:
        await whole()
        return found
    try:
        await wait_until(whole, timeout_s)
    except RequestTimedOut:
        if not found:  # no node could be asked
            raise
    return found


def _bad(found: list[Finding]) -> list[Finding]:
    return [it for it in found if it.severity in BAD]


def nodes(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """Every node that has registered: is it alive, and what does it keep?"""
    description = ask(servers, lambda controller: controller.describe())
    if as_json:
        voters = description.voter_ids
        print_json([{**it._asdict(), "voter": it.node_id in voters} for it in description.nodes])
        return
    print_table(
        ("NODE", "ADDRESS", "RACK", "STATE", "VOTES", "REPLICAS", "LEADS"),
        (
            (
                node.node_id,
                f"{node.host}:{node.port}",
                node.rack,
                node.words,
                "yes" if node.node_id in description.voter_ids else "no",
                node.replicas,
                node.leaders,
            )
            for node in description.nodes
        ),
    )


def drain(
    node: NodeNumber,
    undo: Annotated[bool, typer.Option("--undo", help="Place replicas on it again.")] = False,
    wait: Wait = False,
    timeout: Timeout = None,
    servers: Servers = SERVERS,
) -> None:
    """Move everything off a node, and place nothing on it."""
    ask(servers, lambda controller: _drain(controller, node, undo, wait, timeout))
    if undo:
        say(f"node {node} takes replicas again")
    elif wait:
        say(f"node {node} keeps nothing any more")
    else:
        say(f"node {node} is being drained; `streamlog cluster nodes` shows what is left")


async def _drain(
    controller: "Controller", node: int, undo: bool, wait: bool, timeout_s: float | None
) -> None:
    await controller.operate("cluster.drain", node=node, undo=undo)
    if undo or not wait:
        return

    async def drained() -> str | None:
        left = (await controller.describe()).node(node).replicas
        return f"{left} replicas are left on node {node}" if left else None

    await wait_until(drained, timeout_s)


def remove_node(node: NodeNumber, yes: Yes = False, servers: Servers = SERVERS) -> None:
    """Forget a node that keeps nothing and does not vote. Stop it first."""
    if not yes:
        typer.confirm(f"Forget node {node}?", abort=True, err=True)
    ask(servers, lambda controller: controller.operate("cluster.remove_node", node=node))
    say(f"node {node} is forgotten")


def elect_leader(
    stream: StreamName,
    partition: PartitionNumber,
    leader: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NODE",
            help="Default: the preferred replica.",
            autocompletion=names.nodes,
        ),
    ] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Also one that lacks records: they are lost for good.")
    ] = False,
    yes: Yes = False,
    servers: Servers = SERVERS,
) -> None:
    """Have a partition led by another replica."""
    if unclean and not yes:
        question = f"Lose what only the other replicas of {stream}/{partition} have, for ever?"
        typer.confirm(question, abort=True, err=True)
    result = ask(
        servers,
        lambda controller: controller.operate(
            "placement.elect", stream=stream, partition=partition, leader=leader, unclean=unclean
        ),
    )
    say(f"node {result['leader']} leads {stream}/{partition} in epoch {result['leader_epoch']}")


def rebalance(servers: Servers = SERVERS) -> None:
    """Have every partition led by its preferred replica, where that one is in sync."""
    moved = ask(servers, lambda controller: controller.operate("placement.rebalance_leaders"))
    say(f"{moved} partitions have another leader")


app = typer.Typer(help="Look at the cluster, and change its nodes.", no_args_is_help=True)

for command in (
    info,
    check,
    nodes,
    drain,
    remove_node,
    elect_leader,
    rebalance,
    balance.balance,
    quorum.quorum,
    quorum.transfer_controller,
    quorum.add_voter,
    quorum.remove_voter,
    force.recover_quorum,
):
    app.command()(command)
app.add_typer(features.app, name="features")
