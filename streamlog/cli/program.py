"""The program ``streamlog``: its commands, each imported when it is asked for.

A command imports what it needs, which for most is a client, its protocols and the settings. So the
names and the first lines of help stand here, and ``--version``, ``--help`` and a completed word
import none of the commands.

``run`` prints a known error as a line, never as a traceback. It prints all mistakes of a
configuration at once, a line for each.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from streamlog import __version__
from streamlog.cli.output import say
from streamlog.errors import ConfigError, StreamlogError


def run(app: Callable[[], object]) -> None:
    """Run the command in ``sys.argv``."""
    try:
        app()
    except BaseExceptionGroup as group:
        known = group.subgroup(StreamlogError)
        if known is None:
            raise
        _fail(_first(known))
    except StreamlogError as error:
        _fail(error)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: BaseException) -> None:
    for each in (error, *(error.more if isinstance(error, ConfigError) else ())):
        text = " ".join(str(each).split()) or type(each).__name__
        say(f"streamlog: {text}", to_stderr=True)
    sys.exit(2 if isinstance(error, ConfigError) else 1)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class CommandPlace(NamedTuple):
    """Where a command is, or a group of them, and the first line of its help."""

    module: str
    name: str
    help: str


COMMANDS: Final[dict[str, CommandPlace]] = {
    "dev": CommandPlace(
        "dev.command",
        "dev",
        "Try it out: a node, or several, on this machine, until Ctrl-C. Any NATS client connects to it.",
    ),
    "serve": CommandPlace(
        "node.serve",
        "serve",
        "Run one node, or the nodes of node.processes, until told to stop (Ctrl-C, SIGTERM).",
    ),
    "config": CommandPlace(
        "node.config", "app", "Write a node's configuration file, and check it."
    ),
    "publish": CommandPlace(
        "messages.publish", "publish", "Publish to a subject, as any NATS client would."
    ),
    "consume": CommandPlace(
        "messages.consume",
        "consume",
        "Print a stream's records: values as they are, or each record as a line of JSON.",
    ),
    "export": CommandPlace(
        "messages.export",
        "export",
        "Write a stream's records into files: Parquet, lines of JSON or CSV.",
    ),
    "import": CommandPlace(
        "messages.import_files",
        "import_files",
        "Write records of files into a stream, each once, also after an interruption.",
    ),
    "lake": CommandPlace(
        "lake.commands",
        "app",
        "Write a stream into an Apache Iceberg table, exactly once, and maintain the table.",
    ),
    "doctor": CommandPlace(
        "doctor.command",
        "doctor",
        "Look at settings, certificates, limits, disk, node, NATS, network, clocks;"
        " say what to do.",
    ),
    "explain": CommandPlace("explain", "explain", "Say what a code means, and what to do."),
    "health": CommandPlace(
        "node.health",
        "health",
        "Is the node on this machine alive? For probes of containers; exit code 1 if it is not.",
    ),
    "stream": CommandPlace("stream.commands", "app", "Make, look at, change and remove streams."),
    "group": CommandPlace(
        "group", "app", "Look at consumer groups, and change what they committed."
    ),
    "transaction": CommandPlace(
        "transaction",
        "app",
        "Look at transactions of Kafka's producers, and abort what is left open.",
    ),
    "cluster": CommandPlace("cluster", "app", "Look at the cluster, and change its nodes."),
    "top": CommandPlace(
        "top",
        "top",
        "What the cluster does right now: rates of nodes and streams, the busiest first; lags of"
        " groups.",
    ),
    "context": CommandPlace("context", "app", "Keep how to reach clusters, each by a name."),
    "quota": CommandPlace(
        "security.quota", "app", "Look at and set what Kafka clients may use, on each node."
    ),
    "user": CommandPlace("security.user", "app", "Who may log in by a password."),
    "acl": CommandPlace(
        "security.acl",
        "app",
        "Who may do what with streams, groups, transactional ids and the cluster.",
    ),
    "log": CommandPlace(
        "messages.log",
        "app",
        "Look into the files of a log; no node is needed, and none is disturbed.",
    ),
    "encryption": CommandPlace(
        "security.encryption", "app", "Make keys for encrypted streams, and see what needs which."
    ),
    "ledger": CommandPlace(
        "ledger", "app", "Order a stream into hash-chained blocks, the same on every node."
    ),
    "backup": CommandPlace(
        "backup.commands", "app", "Take backups, look at them, and restore what they have."
    ),
    "bench": CommandPlace("bench", "app", "Measure your own cluster."),
}


class ImportedCommands(Mapping[str, Any]):
    """The commands by name; one is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _imported(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Program(TyperGroup):
    """Its help and the completion of its first word come from ``COMMANDS`` alone."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = ImportedCommands()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in COMMANDS.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from typer.core import CompletionItem  # type: ignore[attr-defined]

        if incomplete[:1] == "-":
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=place.help)
            for name, place in COMMANDS.items()
            if name.startswith(incomplete)
        ]


@cache
def _imported(name: str) -> Any:
    """Raises KeyError."""
    place = COMMANDS[name]
    found = getattr(import_module(f"streamlog.cli.{place.module}"), place.name)
    group = _typer()
    if isinstance(found, typer.Typer):
        group.add_typer(found, name=name)
    else:
        group.command(name)(found)
    group.callback()(lambda: None)  # else typer would make one command the whole group
    commands: dict[str, Any] = typer.main.get_command(group).commands  # type: ignore[attr-defined]
    _equip(commands[name])
    return commands[name]


def _equip(command: Any) -> None:
    """Gives it, and all below it, the options that follow from the parameters that it has."""
    for inner in getattr(command, "commands", {}).values():
        _equip(inner)
    names = {it.name for it in command.params if not (it.name == "servers" and it.default is None)}
    if names & {"servers", "creds"}:  # doctor logs in as its node does, wherever it asks
        from streamlog.cli.options.added_options import add_options
        from streamlog.cli.options.connection_options import connected, connection, in_context

        if "servers" in names:
            add_options(command, connection, connected)
        add_options(command, in_context)
    if "as_json" in names:
        from streamlog.cli.options.added_options import add_options
        from streamlog.cli.options.document_format import chosen_format, in_format

        add_options(command, in_format, chosen_format)


def _typer(**options: Any) -> typer.Typer:
    return typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its tables cut long names of options to the width of the terminal
        **options,
    )


app = _typer(
    name="streamlog",
    cls=Program,
    help="NATS in, Kafka out, Spark over: durable, totally ordered logs of NATS subjects.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
