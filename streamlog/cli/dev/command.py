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
        typer.Option("--nats", metavar="URL", help="The nodes are clients of this NATS server."),
    ] = None,
    nats_server: Annotated[
        bool, typer.Option("--nats-server", help="Start a nats-server, too, which has --nats-port.")
    ] = False,
    nats_port: Annotated[int, typer.Option(min=0, max=65535, help=PORT_HELP)] = 4222,
    kafka_port: Annotated[int, typer.Option(min=0, max=65535, help=PORT_HELP)] = 9092,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help=PORT_HELP)] = 9464,
) -> None:
    """Try it out: a node, or several, on this machine, until Ctrl-C. Any NATS client connects to it."""
    from streamlog.cli.dev.dev_cluster import DevCluster
    from streamlog.cli.dev.dev_layout import DevPlan
    from streamlog.errors import ConfigError

    if nats is not None and nats_server:
        raise ConfigError("--nats-server", "contradicts --nats", "keep one of them")
    ports = nats_port, kafka_port, http_port
    plan = DevPlan(data_dir.absolute(), nodes, nats, nats_server, *ports)
    with contextlib.suppress(KeyboardInterrupt):
        code = asyncio.run(DevCluster(plan).run())
        raise typer.Exit(code)
