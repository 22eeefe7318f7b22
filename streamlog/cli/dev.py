import asyncio
import contextlib
from pathlib import Path
from typing import Annotated

import typer

from streamlog.errors import ConfigError

PORT_HELP = "0: a free one."


def dev(
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 1,
    data_dir: Annotated[Path, typer.Option(help="Everything is kept below it.")] = Path("data"),
    nats: Annotated[
        str | None, typer.Option(help="Use this NATS server instead of an embedded one.")
    ] = None,
    nats_port: Annotated[int, typer.Option(min=0, max=65535, help=PORT_HELP)] = 4222,
    kafka_port: Annotated[int, typer.Option(min=0, max=65535, help=PORT_HELP)] = 9092,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help=PORT_HELP)] = 9464,
) -> None:
    """Try it out: a nats-server and a node on this machine, until Ctrl-C."""
    if nodes != 1:
        raise ConfigError("--nodes", f"not yet: one node, not {nodes}", "leave it out")
    from streamlog.cli.dev_cluster import DevCluster, DevPlan

    plan = DevPlan(data_dir.absolute(), nats, nats_port, kafka_port, http_port)
    with contextlib.suppress(KeyboardInterrupt):
        code = asyncio.run(DevCluster(plan).run())
        raise typer.Exit(code)
