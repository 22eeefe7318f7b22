from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.cluster.controller import ask
from streamlog.cli.options.options import SERVERS, PartitionNumber, Servers, StreamName, Yes
from streamlog.cli.output import say
from streamlog.model import NodeId

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller


def elect_leader(
    stream: StreamName,
    partition: PartitionNumber,
    leader: Annotated[
        int | None, typer.Option(min=1, metavar="NODE", help="Default: the preferred replica.")
    ] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Also one that lacks records: they are lost for good.")
    ] = False,
    yes: Yes = False,
    servers: Servers = SERVERS,
) -> None:
    """Have a partition led by another replica."""
    from streamlog.metadata.commands import ElectLeader

    if unclean and not yes:
        question = f"Lose what only the other replicas of {stream}/{partition} have, for ever?"
        typer.confirm(question, abort=True, err=True)
    command = ElectLeader(
        stream=stream,
        partition=partition,
        leader=None if leader is None else NodeId(leader),
        unclean=unclean,
    )
    result = ask(servers, lambda controller: controller.ask(command))
    say(f"node {result['leader']} leads {stream}/{partition} in epoch {result['leader_epoch']}")


def rebalance(servers: Servers = SERVERS) -> None:
    """Have every partition led by its preferred replica, where that one is in sync."""
    moved = ask(servers, _rebalance)
    say(f"{moved} partitions have another leader")


async def _rebalance(controller: "Controller") -> int:
    """The controller moves a bounded number at a time."""
    from streamlog.metadata.commands import RebalanceLeaders

    moved = 0
    while True:
        result = await controller.ask(RebalanceLeaders())
        moved += int(result["moved"])
        if result["moved"] == 0 or result["left"] == 0:
            return moved
