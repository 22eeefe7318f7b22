"""Options that several commands share."""

from typing import Annotated

import typer

NatsUrl = Annotated[
    str, typer.Option("--nats", envvar="NATS_URL", help="Where NATS is; may carry a user.")
]
Domain = Annotated[str, typer.Option("--domain", help="The management API's domain.")]
Servers = Annotated[
    str, typer.Option("--servers", help="The socket API of any node: host:port, several by commas.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

NATS_URL = "nats://127.0.0.1:4222"
DOMAIN = "streamlog"
SERVERS = "127.0.0.1:9092"
