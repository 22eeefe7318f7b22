from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.cluster.controller import ask
from streamlog.cli.cluster.waiting import wait_until
from streamlog.cli.options.options import SERVERS, Json, NodeNumber, Servers, Timeout, Wait, Yes
from streamlog.cli.output import print_json, print_table, say
from streamlog.model import NodeId

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller


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
    from streamlog.metadata.commands import DrainNode

    await controller.ask(DrainNode(node_id=NodeId(node), undo=undo))
    if undo or not wait:
        return

    async def drained() -> str | None:
        left = (await controller.describe()).node(node).replicas
        return f"{left} replicas are left on node {node}" if left else None

    await wait_until(drained, timeout_s)


def remove_node(node: NodeNumber, yes: Yes = False, servers: Servers = SERVERS) -> None:
    """Forget a node that keeps nothing and does not vote. Stop it first."""
    from streamlog.metadata.commands import RemoveNode

    if not yes:
        typer.confirm(f"Forget node {node}?", abort=True, err=True)
    command = RemoveNode(node_id=NodeId(node))
    ask(servers, lambda controller: controller.ask(command))
    say(f"node {node} is forgotten")
