"""``streamlog stream move`` and ``cancel-move``: which nodes keep a partition."""

from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.cluster.controller import ask
from streamlog.cli.cluster.waiting import wait_until
from streamlog.cli.options.names import StreamName
from streamlog.cli.options.options import (
    SERVERS,
    PartitionNumber,
    Servers,
    Timeout,
    Wait,
)
from streamlog.cli.output import say
from streamlog.errors import ConfigError, StreamlogError
from streamlog.model import NodeId

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller


def move(
    stream: StreamName,
    partition: PartitionNumber,
    nodes: Annotated[
        str, typer.Argument(metavar="NODES", help="1,2,3: the first is preferred as leader.")
    ],
    wait: Wait = False,
    timeout: Timeout = None,
    servers: Servers = SERVERS,
) -> None:
    """Have a partition kept by other nodes; the old ones keep it until the new ones are in sync."""
    target = parse_nodes(nodes)
    ask(servers, lambda controller: _move(controller, stream, partition, target, wait, timeout))
    state = "is kept" if wait else "will be kept"
    say(f"{stream}/{partition} {state} by {', '.join(map(str, target))}")


def cancel_move(stream: StreamName, partition: PartitionNumber, servers: Servers = SERVERS) -> None:
    """Stay with the nodes from before a move that has not ended."""
    ask(
        servers,
        lambda controller: controller.operate(
            "placement.cancel_move", stream=stream, partition=partition
        ),
    )
    say(f"{stream}/{partition} stays where it was")


def parse_nodes(text: str) -> tuple[NodeId, ...]:
    """Of ``1,2,3``. Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ConfigError("NODES", f"{text!r} is no list of nodes", "write 1,2,3")
    return tuple(NodeId(int(part)) for part in parts)


async def _move(
    controller: "Controller",
    stream: str,
    partition: int,
    target: tuple[NodeId, ...],
    wait: bool,
    timeout_s: float | None,
) -> None:
    await controller.operate("placement.move", stream=stream, partition=partition, replicas=target)
    if not wait:
        return

    begun = False  # as far as the node that is asked knows

    async def moved() -> str | None:
        nonlocal begun
        topology = await controller.topology()
        found = topology.topics[stream].partition(partition)
        if found.replicas == target:
            return None
        if not set(target) <= set(found.replicas):
            if begun:
                raise StreamlogError(f"the move of {stream}/{partition} was cancelled")
            return "the move has yet to begin"
        begun = True
        behind = [node for node in target if node not in found.isr]
        if behind:
            return f"node {', '.join(map(str, behind))} is not in sync yet"
        return f"node {', '.join(str(it) for it in found.replicas if it not in target)} goes"

    await wait_until(moved, timeout_s)
