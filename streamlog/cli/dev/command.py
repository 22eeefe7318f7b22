import asyncio
import contextlib
from pathlib import Path
from typing import Annotated

import typer

PORT_HELP = "Of the first node; others take the next ones. 0: free ones."


def dev(
    nodes: Annotated[int, typer.Option(min=1, max=9, help="How many; all of them vote.")] = 1,
    data_dir: Annotated[Path, typer.Option(help="Everything is kept below it.")] = Path("data"),
    nats: Annotated[
        str | None,
        typer.Option("--nats-server", help="Use this NATS server instead of an embedded one."),
    ] = None,
    nats_port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 4222,
    kafka_port: Annotated[int, typer.Option(min=0, max=65535, help=PORT_HELP)] = 9092,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help=PORT_HELP)] = 9464,
) -> None:
    """Try it out: a nats-server and a node, or several, on this machine, until Ctrl-C."""
    from streamlog.cli.dev.dev_cluster import DevCluster
    from streamlog.cli.dev.dev_layout import DevPlan

    plan = DevPlan(data_dir.absolute(), nodes, nats, nats_port, kafka_port, http_port)
    with contextlib.suppress(KeyboardInterrupt):
        code = asyncio.run(DevCluster(plan).run())
        raise typer.Exit(code)
