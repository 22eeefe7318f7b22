"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

NATS_URL = "nats://127.0.0.1:4222"
DOMAIN = "streamlog"
SERVERS = "127.0.0.1:9092"
VARIABLE_PREFIX = "STREAMLOG_CLIENT_"
"""Of the environment variables of commands that ask nodes; a node's settings have another one."""
SERVERS_VARIABLE = f"{VARIABLE_PREFIX}BOOTSTRAP_SERVER"

NatsUrl = Annotated[
    str,
    typer.Option(
        "--nats-server",
        envvar="NATS_URL",
        help="Where NATS is. For login and TLS: NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_NKEY,"
        " NATS_CA, NATS_CERT, NATS_KEY.",
    ),
]
Credentials = Annotated[
    str | None, typer.Option("--creds", envvar="NATS_CREDS", help="A NATS credentials file.")
]
Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        envvar=SERVERS_VARIABLE,
        help="The socket API of any node: host:port, several by commas. Where it is left out and"
        " `streamlog dev` runs: all of its nodes.",
    ),
]
OneNode = Annotated[
    int | None,
    typer.Option("--node", min=1, metavar="ID", help="Of the nodes of node.processes, this one."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is done.")]
Timeout = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="With --wait: not longer; what began goes on."),
]
Backup = Annotated[Path, typer.Argument(metavar="BACKUP", help="The backup's folder.")]
NewStreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]
PartitionNumber = Annotated[
    int, typer.Argument(min=0, metavar="PARTITION", help="Which one, from 0.")
]
