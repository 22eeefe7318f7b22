from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamlog.cli.cluster.controller import ask
from streamlog.cli.cluster.waiting import wait_until
from streamlog.cli.options.names import NodeNumber
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, print_pairs, print_table, say

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller
    from streamlog.cli.cluster.description import Description

TRANSFER_TIMEOUT_S: Final = 10.0


def quorum(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """Who decides, who votes, and how far every copy of the metadata is."""
    description = ask(servers, lambda controller: controller.describe())
    if as_json:
        print_json(_as_json(description))
        return
    print_pairs(
        [
            ("Controller", _controller(description)),
            ("Epoch", description.epoch),
            ("Committed", description.high_watermark),
        ]
    )
    say()
    print_table(
        ("NODE", "ROLE", "ADDRESS", "END", "LAG", "LAST FETCH MS", "DIRECTORY"), rows(description)
    )


def transfer_controller(
    node: Annotated[
        int | None,
        typer.Argument(min=1, metavar="[NODE]", help="Default: the voter most caught up."),
    ] = None,
    servers: Servers = SERVERS,
) -> None:
    """Have another voter be the controller."""
    controller = ask(servers, lambda asked: _move_controller(asked, node))
    say(f"the controller is node {controller}")


def add_voter(node: NodeNumber, servers: Servers = SERVERS) -> None:
    """Have a node vote: it must be alive and follow the metadata closely."""
    ask(servers, lambda controller: controller.operate("cluster.add_voter", node=node))
    say(f"node {node} votes; add it to cluster.voters of every node's file")


def remove_voter(node: NodeNumber, yes: Yes = False, servers: Servers = SERVERS) -> None:
    """Have a node vote no longer; it goes on keeping replicas."""
    if not yes:
        typer.confirm(f"Take node {node}'s vote away?", abort=True, err=True)
    ask(servers, lambda controller: controller.operate("cluster.remove_voter", node=node))
    say(f"node {node} votes no longer; take it out of cluster.voters of every node's file")


async def _move_controller(controller: "Controller", node: int | None) -> int:
    before = (await controller.describe()).controller
    await controller.operate("cluster.transfer_controller", node=node)
    now = before

    async def moved() -> str | None:
        nonlocal now
        now = (await controller.describe()).controller
        done = now is not None and (now != before if node is None else now == node)
        return None if done else f"the controller is still node {now}"

    await wait_until(moved, TRANSFER_TIMEOUT_S)
    assert now is not None
    return now


def _controller(description: "Description") -> str:
    if description.controller is not None:
        return f"node {description.controller}"
    voters = description.voter_ids
    here = sum(replica.node_id in voters for replica in description.replicas)
    needed = len(voters) // 2 + 1
    return f"none: {here} of {len(voters)} voters answer, {needed} are needed"


def rows(description: "Description") -> Iterator[tuple[object, ...]]:
    """Voters first, then those that only follow."""
    lost, followers = description.lost_voters, {it.node_id: it for it in description.replicas}
    for voter in description.voters:
        follower = followers.pop(voter.node_id, None)
        role = "controller" if voter.node_id == description.controller else "voter"
        if voter.node_id in lost:
            role = "voter, metadata lost"
        place = (voter.node_id, role, f"{voter.host}:{voter.port}")
        if follower is None:
            yield (*place, None, None, None, voter.directory_id)
        else:
            lags = (follower.end_offset, follower.lag, follower.last_fetch_ms)
            yield (*place, *lags, voter.directory_id)
    for other in followers.values():
        lags = (other.end_offset, other.lag, other.last_fetch_ms)
        role = "voter soon, metadata lost" if other.node_id in description.returning else "observer"
        yield (other.node_id, role, None, *lags, None)


def _as_json(description: "Description") -> dict[str, Any]:
    return {
        "controller": description.controller,
        "epoch": description.epoch,
        "high_watermark": description.high_watermark,
        "voters": [it._asdict() for it in description.voters],
        "returning": list(description.returning),
        "replicas": [it._asdict() for it in description.replicas],
    }
