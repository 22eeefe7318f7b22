from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.authn.scram import ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN
from streamlog.cli.options.connection_options import operate
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.options.password import new_password
from streamlog.cli.output import print_json, print_table, say
from streamlog.errors import InvalidRequest

if TYPE_CHECKING:
    from streamlog.metadata.image.credential import Credentials

app = typer.Typer(help="Who may log in by a password.", no_args_is_help=True)

SALT_BYTES = 24

Name = Annotated[str, typer.Argument(metavar="NAME", help="As the user logs in.")]
NewPasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--new-password-file",
        metavar="FILE",
        help="The user's password, on the first line of a file, - for the standard input; else it"
        " is asked for.",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="How much work it is to try a password."
    ),
]


@app.command("ls")
def list_users(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """All users that have a password."""
    users = _users(servers)
    if as_json:
        print_json([{"user": name, "mechanisms": it} for name, it in users.items()])
        return
    print_table(
        ("USER", "LOGS IN BY", "ITERATIONS"),
        (
            (name, ", ".join(by), ", ".join(map(str, dict.fromkeys(by.values()))))
            for name, by in users.items()
        ),
    )


@app.command()
def add(
    name: Name,
    new_password_file: NewPasswordFile = None,
    iterations: Iterations = ITERATIONS,
    bootstrap: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the user into this file instead, for sasl.bootstrap_file of the nodes: no"
            " node is asked, and none needs to run.",
        ),
    ] = None,
    servers: Servers = SERVERS,
) -> None:
    """A new user, who may log in by any of the password mechanisms that the nodes offer."""
    if bootstrap is not None:
        _write(bootstrap, name, new_password(name, new_password_file), iterations)
        say(f"user {name} is in {bootstrap}: set sasl.bootstrap_file to it, and start the node")
        return
    if name in _users(servers):
        text = f"there is a user {name!r}; `streamlog user passwd {name}` sets another password"
        raise InvalidRequest(text)
    _set_password(servers, name, new_password(name, new_password_file), iterations)
    say(f"user {name} may log in")


@app.command()
def passwd(
    name: Name,
    new_password_file: NewPasswordFile = None,
    iterations: Iterations = ITERATIONS,
    servers: Servers = SERVERS,
) -> None:
    """Another password for a user. Who is logged in stays so; the old one is good for no more."""
    _check_there(servers, name)
    _set_password(servers, name, new_password(name, new_password_file), iterations)
    say(f"user {name} has another password")


@app.command("rm")
def remove(name: Name, yes: Yes = False, servers: Servers = SERVERS) -> None:
    """A user may log in no more."""
    _check_there(servers, name)
    if not yes:
        typer.confirm(f"Remove user {name}?", abort=True, err=True)
    operate(servers, "users.delete", name=name)
    say(f"user {name} is removed; connections that stand go on until their sessions end")


def _users(servers: str) -> dict[str, dict[str, int]]:
    """By name, the mechanisms that each may log in by, with their iterations."""
    return {it["name"]: it["iterations"] for it in operate(servers, "users.list")}


def _check_there(servers: str, name: str) -> None:
    """Raises InvalidRequest."""
    if name not in _users(servers):
        raise InvalidRequest(
            f"there is no user {name!r}; `streamlog user ls` names those there are"
        )


def _set_password(servers: str, name: str, password: str, iterations: int) -> None:
    """The password stays here: what is sent is no more than what nodes keep of it."""
    credentials = {
        mechanism: stored.model_dump()
        for mechanism, stored in _credentials(password, iterations).items()
    }
    operate(servers, "users.alter", name=name, changed=credentials, removed=())


def _write(path: Path, name: str, password: str, iterations: int) -> None:
    from streamlog.metadata.image.credential import check_user_name
    from streamlog.metadata.nodes.bootstrap_users import add_bootstrap_user

    check_user_name(name)
    add_bootstrap_user(path, name, _credentials(password, iterations))


def _credentials(password: str, iterations: int) -> "Credentials":
    """For every mechanism."""
    import secrets

    from streamlog.authn.scram import Scram, credential_of, salted_password
    from streamlog.metadata.image.credential import StoredCredential

    found: Credentials = {}
    for scram in Scram:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(scram, password, salt, iterations)
        stored = StoredCredential.of(credential_of(scram, salted, salt, iterations))
        found[scram.value] = stored
    return found
