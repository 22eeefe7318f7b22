"""The program ``streamlog``: its commands."""

import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from streamlog import __version__
from streamlog.cli import bench, cluster, group, ledger
from streamlog.cli.backup import commands, restore
from streamlog.cli.dev import command as dev
from streamlog.cli.doctor import command as doctor
from streamlog.cli.messages import log, publish, read
from streamlog.cli.node import health, serve
from streamlog.cli.options.connection_options import secured
from streamlog.cli.output import say
from streamlog.cli.run import run
from streamlog.cli.security import acl, encryption, quota, user
from streamlog.cli.stream import commands as stream

app = typer.Typer(
    name="streamlog",
    help="NATS in, Kafka out, Spark over: durable, totally ordered logs of NATS subjects.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut long names of options to the width of the terminal
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(stream.app, name="stream")
app.add_typer(group.app, name="group")
app.add_typer(cluster.app, name="cluster")
app.add_typer(quota.app, name="quota")
app.add_typer(user.app, name="user")
app.add_typer(acl.app, name="acl")
app.add_typer(log.app, name="log")
app.add_typer(encryption.app, name="encryption")
app.add_typer(ledger.app, name="ledger")
app.add_typer(commands.app, name="backup")
app.add_typer(restore.app, name="restore")
app.add_typer(bench.app, name="bench")
COMMANDS: tuple[Callable[..., Any], ...] = (
    dev.dev, serve.serve, publish.publish, read.read, doctor.doctor, health.health,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
secured(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"streamlog {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command in ``sys.argv``. An error that we know is one line, never a traceback."""
    os.umask(0o077)  # backups, restored folders, keys: what a command writes is for its user alone
    run(app)
