"""Arguments that name what a cluster has, and what the Tab key offers for them.

The key asks the cluster. It never waits long, and never says what is wrong.
"""

import contextlib
import io
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster

TIMEOUT_S: Final = 1.0
"""For all of it. A cluster that needs longer is not asked by a key that is pressed."""
OFFERED_MAX: Final = 1_000
"""Groups that are offered."""
INTERNAL: Final = "__"

Offer = tuple[str, str]
"""A word and what is shown beside it."""


def streams(ctx: typer.Context, incomplete: str) -> list[Offer]:
    async def ask(cluster: "Cluster") -> list[Offer]:
        topics = (await cluster.topology()).topics
        return [
            (name, f"{len(it.partitions)} partitions")
            for name, it in sorted(topics.items())
            if not name.startswith(INTERNAL)
        ]

    return _offered(ctx, incomplete, ask)


def groups(ctx: typer.Context, incomplete: str) -> list[Offer]:
    async def ask(cluster: "Cluster") -> list[Offer]:
        page = await cluster.operate("groups.list", {"limit": OFFERED_MAX})
        return [(it["group"], it["state"]) for it in page["groups"]]

    return _offered(ctx, incomplete, ask)


def nodes(ctx: typer.Context, incomplete: str) -> list[Offer]:
    async def ask(cluster: "Cluster") -> list[Offer]:
        found = (await cluster.topology([])).nodes
        return [(str(number), found[number].address) for number in sorted(found)]

    return _offered(ctx, incomplete, ask)


def _offered(
    ctx: typer.Context, incomplete: str, ask: Callable[["Cluster"], Awaitable[list[Offer]]]
) -> list[Offer]:
    import asyncio

    async def asked(servers: str, security: Any) -> list[Offer]:
        from streamlog.client.cluster import Cluster

        async with asyncio.timeout(TIMEOUT_S):
            async with Cluster.at(servers, security=security) as cluster:
                return await ask(cluster)

    with contextlib.redirect_stderr(io.StringIO()):
        try:
            place = _place(ctx)
            found = [] if place is None else asyncio.run(asked(*place))
        except (Exception, SystemExit):  # the line that is typed stays as it is
            return []
    return [it for it in found if it[0].startswith(incomplete)]


def _place(ctx: typer.Context) -> tuple[str, Any] | None:
    """Where the command that is typed would go; None: it would have to ask for a password."""
    from streamlog.cli.options.added_options import added_options
    from streamlog.cli.options.connection_options import connection
    from streamlog.cli.options.options import SERVERS, SERVERS_VARIABLE

    given = {it.name: ctx.params.get(it.name) for it in added_options(connection).params}
    if given["user"] and not given["password_file"] and not given["node_config"]:
        return None
    named = ctx.params.get("servers") or os.environ.get(SERVERS_VARIABLE) or SERVERS
    with ctx.scope(cleanup=False):
        servers, security = added_options(connection).callback(**given)
    return servers or named, security


StreamName = Annotated[
    str,
    typer.Argument(metavar="STREAM", help="The stream's name.", autocompletion=streams),
]
NodeNumber = Annotated[
    int,
    typer.Argument(min=1, metavar="NODE", help="The node's id.", autocompletion=nodes),
]
GroupName = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="The group's name (group.id).", autocompletion=groups),
]
