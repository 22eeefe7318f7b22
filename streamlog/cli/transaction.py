"""``streamlog transaction``: what transactional producers have open, and how to end it."""

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from streamlog.cli.options.connection_options import operate
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, print_pairs, print_table, say

app = typer.Typer(
    help="Look at transactions of Kafka's producers, and abort what is left open.",
    no_args_is_help=True,
)

PAGE = 1_000
OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
TransactionalId = Annotated[
    str,
    typer.Argument(metavar="TRANSACTIONAL_ID", help="As the producer has it (transactional.id)."),
]


@app.command("ls")
def list_transactions(
    state: Annotated[
        str,
        typer.Option(
            "--state", help="Only those in it: Ongoing, PrepareCommit, CompleteAbort, ..."
        ),
    ] = "",
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """All transactional ids: state, producer, and for how long a transaction has been open."""
    found: list[dict[str, object]] = []
    while True:
        page = operate(servers, "transactions.list", offset=len(found), limit=PAGE, state=state)
        found += page["transactions"]
        if len(found) >= page["total"] or not page["transactions"]:
            break
    if as_json:
        print_json(found)
    else:
        print_table(
            ("TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "OPEN FOR"),
            (
                (
                    it["transactional_id"],
                    it["state"],
                    it["producer_id"],
                    it["producer_epoch"],
                    _open_for(it["state"], it["started_ms"]),
                )
                for it in found
            ),
        )
    if page["missing_nodes"]:
        say(
            "some transactional ids are not listed; `streamlog cluster check` says what is away",
            to_stderr=True,
        )
        raise typer.Exit(1)


@app.command("info")
def info(name: TransactionalId, servers: Servers = SERVERS, as_json: Json = False) -> None:
    """One transactional id: its producer, and the partitions of its open transaction."""
    found = operate(servers, "transactions.describe", transactional_id=name)
    if as_json:
        print_json(found)
        return
    coordinator = found["coordinator"]
    print_pairs(
        [
            ("Transactional id", found["transactional_id"]),
            ("State", found["state"]),
            ("Coordinator", None if coordinator is None else f"node {coordinator}"),
            ("Producer", found["producer_id"]),
            ("Epoch", found["producer_epoch"]),
            ("Time-out", f"{found['timeout_ms'] / 1000:g} s"),
            ("Began", _time(found["started_ms"])),
            ("Changed", _time(found["updated_ms"])),
        ]
    )
    if found["partitions"]:
        say()
        print_table(
            ("STREAM", "PARTITION"), ((it["stream"], it["partition"]) for it in found["partitions"])
        )


@app.command("abort")
def abort(name: TransactionalId, yes: Yes = False, servers: Servers = SERVERS) -> None:
    """Abort the open transaction. Its producer is fenced: it can do nothing more, and has to be started again."""
    if not yes:
        typer.confirm(
            f"Abort the transaction of {name!r}, and fence its producer?", abort=True, err=True
        )
    operate(servers, "transactions.abort", transactional_id=name)
    say(f"the transaction of {name!r} is aborted")


def _open_for(state: object, started_ms: object) -> str | None:
    if state not in OPEN or not isinstance(started_ms, int):
        return None
    return f"{max(0.0, time.time() - started_ms / 1000):.1f} s"


def _time(ms: int | None) -> str | None:
    return (
        None
        if ms is None
        else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    )
