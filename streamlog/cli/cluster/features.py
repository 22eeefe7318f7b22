from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.cluster.controller import ask
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, print_pairs, print_table, say

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller

WARNING = (
    "From feature level {level} on no node of an older streamlog can be started again, and there"
    " is no way back. Raise it?"
)


app = typer.Typer(help="Look at the feature level, and raise it.", no_args_is_help=True)


@app.command("ls")
def list_features(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """At which feature level the cluster is, and which ones each node knows."""
    description = ask(servers, lambda controller: controller.describe())
    known = {node.node_id: node.levels for node in description.nodes}
    if as_json:
        print_json({"level": description.level, "level_max": description.level_max, "nodes": known})
        return
    print_pairs(
        [
            ("Feature level", description.level),
            ("The controller knows", f"up to {description.level_max}"),
        ]
    )
    say()
    print_table(
        ("NODE", "STATE", "KNOWS"),
        (
            (
                node.node_id,
                node.words,
                f"{node.levels[0]} to {node.levels[1]}" if node.levels else "has not said",
            )
            for node in description.nodes
        ),
    )


@app.command()
def upgrade(
    level: Annotated[
        int | None, typer.Option(min=1, help="Default: the highest that the controller knows.")
    ] = None,
    yes: Yes = False,
    servers: Servers = SERVERS,
) -> None:
    """Raise the feature level, when all nodes run the new version. There is no way back."""
    wanted = level or ask(servers, _highest)
    if not yes:
        typer.confirm(WARNING.format(level=wanted), abort=True, err=True)
    before = ask(servers, lambda controller: _raise(controller, wanted))
    if before == wanted:
        say(f"the cluster is at feature level {wanted} already")
    else:
        say(f"the cluster is at feature level {wanted}; it was at {before}")


async def _highest(controller: "Controller") -> int:
    return (await controller.describe()).level_max


async def _raise(controller: "Controller", level: int) -> int:
    """The level from before."""
    return int(await controller.operate("cluster.raise_feature_level", level=level))
