from typing import Annotated, Final

import typer

from streamlog.cli.options.connection_options import operate
from streamlog.cli.options.options import SERVERS, Json, Servers
from streamlog.cli.output import print_json, print_table, say

app = typer.Typer(
    help="Look at and set what Kafka clients may use, on each node.", no_args_is_help=True
)

PRODUCER, CONSUMER, REQUESTS = "producer_byte_rate", "consumer_byte_rate", "request_rate"
KEYS: Final = (PRODUCER, CONSUMER, REQUESTS)

Client = Annotated[
    str | None, typer.Argument(metavar="[CLIENT_ID]", help="As the client calls itself.")
]
Default = Annotated[
    bool, typer.Option("--default", help="For each client id that has no quota of its own.")
]


@app.command("ls")
def list_quotas(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """All quotas."""
    quotas = [
        (row["client_id"], {key: it for key, it in row["quota"].items() if it is not None})
        for row in operate(servers, "quotas.list")
    ]
    if as_json:
        print_json([{"client_id": client_id, **values} for client_id, values in quotas])
        return
    print_table(
        ("CLIENT", "PRODUCES B/S", "FETCHES B/S", "REQUESTS/S"),
        (
            ("(default)" if client_id is None else client_id, *(_shown(values, k) for k in KEYS))
            for client_id, values in quotas
        ),
    )


@app.command("set")
def set_quota(
    client_id: Client = None,
    default: Default = False,
    produce: Annotated[
        float | None,
        typer.Option("--producer-byte-rate", min=1, help="Bytes of Produce requests a second."),
    ] = None,
    fetch: Annotated[
        float | None,
        typer.Option("--consumer-byte-rate", min=1, help="Bytes of fetched records a second."),
    ] = None,
    requests: Annotated[
        float | None, typer.Option("--request-rate", min=0.001, help="Requests a second.")
    ] = None,
    servers: Servers = SERVERS,
) -> None:
    """Limit a client. What is not given stays as it is."""
    _check_named(client_id, default)
    given = {PRODUCER: produce, CONSUMER: fetch, REQUESTS: requests}
    values: dict[str, float | None] = {key: it for key, it in given.items() if it is not None}
    if not values:
        raise typer.BadParameter(
            "name a limit: --producer-byte-rate, --consumer-byte-rate or --request-rate"
        )
    operate(servers, "quotas.alter", client_id=client_id, values=values)
    say(f"{_named(client_id)} may use that much of each node from now on")


@app.command("rm")
def remove(client_id: Client = None, default: Default = False, servers: Servers = SERVERS) -> None:
    """End all limits of a client."""
    _check_named(client_id, default)
    operate(servers, "quotas.alter", client_id=client_id, values=dict.fromkeys(KEYS))
    say(f"{_named(client_id)} has no quota any more")


def _check_named(client_id: str | None, default: bool) -> None:
    if (client_id is None) != default:
        raise typer.BadParameter("name a client id, or --default")


def _named(client_id: str | None) -> str:
    return "a client without a quota of its own" if client_id is None else f"client {client_id}"


def _shown(values: dict[str, float], key: str) -> object:
    value = values.get(key)
    return int(value) if value is not None and value == int(value) else value
