import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from streamlog.authn.scram import ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN
from streamlog.cli.options.connection_options import cluster_at
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.options.password import new_password
from streamlog.cli.output import print_json, print_table, say
from streamlog.errors import InvalidRequest

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster

app = typer.Typer(help="Who may log in by a password.", no_args_is_help=True)

T = TypeVar("T")

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
    from streamlog.client.users import list_users

    users = _ask(servers, list_users)
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
    _ask(servers, lambda cluster: _check_new(cluster, name))
    password = new_password(name, new_password_file)
    _ask(servers, lambda cluster: _set(cluster, name, password, iterations))
    say(f"user {name} may log in")


@app.command()
def passwd(
    name: Name,
    new_password_file: NewPasswordFile = None,
    iterations: Iterations = ITERATIONS,
    servers: Servers = SERVERS,
) -> None:
    """Another password for a user. Who is logged in stays so; the old one is good for no more."""
    _ask(servers, lambda cluster: _check_there(cluster, name))
    password = new_password(name, new_password_file)
    _ask(servers, lambda cluster: _set(cluster, name, password, iterations))
    say(f"user {name} has another password")


@app.command("rm")
def remove(name: Name, yes: Yes = False, servers: Servers = SERVERS) -> None:
    """A user may log in no more."""
    from streamlog.client.users import remove_user

    _ask(servers, lambda cluster: _check_there(cluster, name))
    if not yes:
        typer.confirm(f"Remove user {name}?", abort=True, err=True)
    _ask(servers, lambda cluster: remove_user(cluster, name))
    say(f"user {name} is removed; connections that stand go on until their sessions end")


async def _check_new(cluster: "Cluster", name: str) -> None:
    from streamlog.client.users import list_users

    if name in await list_users(cluster, name):
        text = f"there is a user {name!r}; `streamlog user passwd {name}` sets another password"
        raise InvalidRequest(text)


async def _check_there(cluster: "Cluster", name: str) -> None:
    from streamlog.client.users import list_users

    if name not in await list_users(cluster, name):
        raise InvalidRequest(
            f"there is no user {name!r}; `streamlog user ls` names those there are"
        )


async def _set(cluster: "Cluster", name: str, password: str, iterations: int) -> None:
    from streamlog.client.users import set_password

    await set_password(cluster, name, password, iterations)


def _write(path: Path, name: str, password: str, iterations: int) -> None:
    import secrets

    from streamlog.authn.scram import Scram, credential_of, salted_password
    from streamlog.metadata.image.credential import Credentials, StoredCredential, check_user_name
    from streamlog.metadata.nodes.bootstrap_users import add_bootstrap_user

    check_user_name(name)
    credentials: Credentials = {}
    for scram in Scram:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(scram, password, salt, iterations)
        stored = StoredCredential.of(credential_of(scram, salted, salt, iterations))
        credentials[scram.value] = stored
    add_bootstrap_user(path, name, credentials)


def _ask(servers: str, question: Callable[["Cluster"], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with cluster_at(servers) as cluster:
            return await question(cluster)

    return asyncio.run(asked())
