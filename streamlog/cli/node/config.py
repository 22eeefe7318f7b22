"""``streamlog config``: write a node's configuration file, and check one."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from streamlog.cli.options.options import Json
from streamlog.cli.output import print_findings, print_json, say
from streamlog.condition import CRITICAL
from streamlog.errors import ConfigError
from streamlog.findings import BAD

app = typer.Typer(help="Write a node's configuration file, and check it.", no_args_is_help=True)

HEAD: Final = """\
# The configuration of one streamlog node. Lines with `#` and no blank after it are settings at
# their defaults; remove the `#` to change one. STREAMLOG_<SECTION>__<KEY> in the environment
# overrides a key: STREAMLOG_KAFKA__PORT=9093. `streamlog config check FILE` checks the file.
"""
NODE_FILE: Final = Path("node.toml")
STDOUT: Final = Path("-")

Chosen = dict[tuple[str, str], Any]


@app.command()
def init(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; -: standard output.")
    ] = NODE_FILE,
    data_dir: Annotated[
        Path, typer.Option(help="Folder of logs, metadata and checkpoints.")
    ] = Path("data"),
    node_id: Annotated[
        int, typer.Option("--id", min=1, help="Unique number of the node in its cluster.")
    ] = 1,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", help="Listener of the Kafka API."),
    ] = None,
    advertised: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address under which clients and other nodes reach it."
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Listener of metrics and console."),
    ] = None,
    nats: Annotated[
        list[str] | None,
        typer.Option("--nats-server", help="Address of a NATS server. May be repeated."),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option(help="Name of the cluster, the same on every node.")
    ] = None,
    voters: Annotated[
        list[str] | None,
        typer.Option(
            "--voter",
            metavar="ID@HOST:PORT",
            help="Voter of the metadata quorum. Repeat it for each, the same on every node.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write an annotated configuration file: all settings, with those chosen here set."""
    from streamlog.config.description import annotated_file

    chosen: Chosen = {
        ("node", "id"): node_id,
        ("node", "data_dir"): data_dir,
        **_address("kafka", "", "--kafka", kafka),
        **_address("kafka", "advertised_", "--advertised", advertised),
        **_address("http", "", "--http", http),
    }
    for key, value in (
        (("nats", "servers"), nats), (("cluster", "id"), cluster_id), (("cluster", "voters"), voters),
    ):  # fmt: skip
        if value:
            chosen[key] = value
    _check(chosen)
    text = annotated_file(chosen, HEAD)
    if file == STDOUT:
        say(text, end="")
        return
    _write(file, text, force=force)
    say(f"{file} is written: all settings, with their defaults as comments")
    _print_next_steps(file, chosen)


@app.command()
def check(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The file; none: the environment alone."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail as well.")] = False,
    as_json: Json = False,
) -> None:
    """Report every mistake in a configuration file and in the files that it names.

    Run it as the node's user, with the node's environment. Exit code 1 if a node would not start, or
    not work, with it. No port is opened, and no secret is shown.
    """
    from streamlog.cli.doctor.configuration import examine_file

    found = examine_file(file).findings
    is_well = not any(it.severity in (BAD if strict else (CRITICAL,)) for it in found)
    if as_json:
        print_json({"well": is_well, "findings": [it._asdict() for it in found]})
    else:
        print_findings(found)
    if not is_well:
        raise typer.Exit(1)


def _address(section: str, prefix: str, option: str, text: str | None) -> Chosen:
    if text is None:
        return {}
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(option, f"{text!r} is no address", "write host:port")
    return {(section, f"{prefix}host"): host.strip("[]"), (section, f"{prefix}port"): int(port)}


def _check(chosen: Chosen) -> None:
    """Raises ConfigError for a value that no node takes."""
    from pydantic import ValidationError

    from streamlog.config import Settings
    from streamlog.metadata.quorum.voter_sets import configured_voters

    if voters := chosen.get(("cluster", "voters")):
        configured_voters(voters)
    tables: dict[str, dict[str, Any]] = {}
    for (name, key), value in chosen.items():
        tables.setdefault(name, {})[key] = value
    for name, table in tables.items():
        section: Any = Settings.model_fields[name].annotation
        try:
            section.model_validate(table)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, (name, *first["loc"])))
            shown = "the value" if name == "nats" else repr(first["input"])  # it may have a login
            problem = f"{shown} is wrong ({first['msg']})"
            raise ConfigError(key, problem, "correct the option") from None


def _write(file: Path, text: str, *, force: bool) -> None:
    """Raises ConfigError. A file that is there is replaced whole, or not at all."""
    written = file.with_name(f"{file.name}.new") if force else file
    try:
        with written.open("w" if force else "x") as opened:
            opened.write(text)
        if force:
            written.replace(file)
    except FileExistsError:
        raise ConfigError(str(file), "is there already", "name another file, or --force") from None
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise ConfigError(str(file), problem, "name a file in a folder of yours") from None


def _print_next_steps(file: Path, chosen: Chosen) -> None:
    from streamlog.cli.doctor.configuration import examine_file

    if wrong := [it for it in examine_file(file).findings if it.severity in BAD]:
        say("\nCorrect this first:")
        print_findings(wrong)
    own = f"{chosen['node', 'id']}@"
    say("\nNext:")
    say(f"  streamlog config check {file}")
    say(f"  streamlog serve --config {file}")
    if others := [it for it in chosen.get(("cluster", "voters"), ()) if not it.startswith(own)]:
        say(f"  the same, with its own --id and --advertised, on {', '.join(others)}")
