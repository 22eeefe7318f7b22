"""The commands of ``streamlog context``: how to reach clusters, each by a name."""

from pathlib import Path
from typing import Annotated, Any

import typer

from streamlog.cli.options import contexts
from streamlog.cli.options.options import Json, Yes
from streamlog.cli.output import print_json, print_pairs, print_table, say
from streamlog.errors import ConfigError
from streamlog.model import MECHANISMS

app = typer.Typer(help="Keep how to reach clusters, each by a name.", no_args_is_help=True)


def _complete(incomplete: str) -> list[str]:
    return [it for it in contexts.names() if it.startswith(incomplete)]


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The context's name.", autocompletion=_complete)
]


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The context's name.")],
    bootstrap_server: Annotated[
        str | None,
        typer.Option(help="The socket API of any node: host:port, several by commas."),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS to the nodes.")] = False,
    tls_ca: Annotated[Path | None, typer.Option(help="This CA vouches for the nodes.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Our certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
    tls_key_password_file: Annotated[
        Path | None, typer.Option(help="A file with the key's password.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="As whom to log in to the nodes.")] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(help="A file with the password. It stays there; the context names the file."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file with a token.")] = None,
    mechanism: Annotated[str | None, typer.Option(help=", ".join(MECHANISMS))] = None,
    nats_server: Annotated[str | None, typer.Option(help="Where NATS is, for publish.")] = None,
    creds: Annotated[Path | None, typer.Option(help="A NATS credentials file.")] = None,
    description: Annotated[str | None, typer.Option(help="Text that is shown with it.")] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace one that is there.")] = False,
) -> None:
    """Keep how to reach a cluster. Commands use it by --context, or after `context use`."""
    given: dict[str, Any] = {
        "description": description,
        "bootstrap_server": bootstrap_server,
        "tls": tls or None,
        "tls_ca": tls_ca,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_key_password_file": tls_key_password_file,
        "user": user,
        "password_file": password_file,
        "token_file": token_file,
        "mechanism": mechanism,
        "nats_server": nats_server,
        "creds": creds,
    }
    if name in contexts.names() and not force:
        raise ConfigError("NAME", f"there is a context {name!r} already", "add --force")
    context = {
        key: str(value.expanduser().absolute()) if isinstance(value, Path) else value
        for key, value in given.items()
        if value is not None
    }
    path = contexts.write(name, context)
    if use:
        contexts.use(name)
    say(f"context {name} is in {path}{', and in use' if use else ''}")


@app.command("ls")
def list_contexts(as_json: Json = False) -> None:
    """All contexts. The one in use has an asterisk."""
    current, found = contexts.current(), {it: contexts.read(it) for it in contexts.names()}
    if as_json:
        print_json([{"name": it, "current": it == current, **found[it]} for it in found])
        return
    print_table(
        ("", "CONTEXT", "NODES", "NATS", "USER", "DESCRIPTION"),
        (
            (
                "*" if name == current else " ",
                name,
                it.get("bootstrap_server"),
                it.get("nats_server"),
                it.get("user"),
                it.get("description"),
            )
            for name, it in found.items()
        ),
    )


@app.command()
def use(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Left out: none is in use.", autocompletion=_complete
        ),
    ] = None,
) -> None:
    """Use a context where no other is asked for."""
    contexts.use(name)
    say("no context is in use" if name is None else f"context {name} is in use")


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Left out: that in use.", autocompletion=_complete),
    ] = None,
    as_json: Json = False,
) -> None:
    """One context: what commands take from it."""
    wanted = name or contexts.current()
    if wanted is None:
        raise ConfigError("NAME", "is missing, and no context is in use", "name one")
    found = {"name": wanted, **contexts.read(wanted)}
    if as_json:
        print_json(found)
    else:
        print_pairs(found.items())


@app.command("rm")
def remove(name: Name, yes: Yes = False) -> None:
    """Forget a context. Files that it names stay."""
    contexts.read(name)
    if not yes:
        typer.confirm(f"Forget context {name}?", abort=True, err=True)
    contexts.remove(name)
    say(f"context {name} is forgotten")
