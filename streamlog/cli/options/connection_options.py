"""How commands reach the nodes: the same options for each that has ``--bootstrap-server``.

A value is that of the option, else that of its variable, else the context's, else the default. A command
does not hand them on from function to function: the function that opens a connection asks for
``chosen_security``, which is that of the command that runs.
"""

import asyncio
import difflib
import os
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from streamlog.cli.options import contexts, running_dev
from streamlog.cli.options.added_options import added_options
from streamlog.cli.options.options import SERVERS_VARIABLE, VARIABLE_PREFIX
from streamlog.errors import ConfigError
from streamlog.model import MECHANISMS

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster
    from streamlog.client.security import ClientLogin, Security


User = Annotated[
    str | None,
    typer.Option("--user", envvar="STREAMLOG_CLIENT_USER", help="As whom to log in to the nodes."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        envvar="STREAMLOG_CLIENT_PASSWORD_FILE",
        help="The password, on the first line of a file; else it is asked for.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="STREAMLOG_CLIENT_TOKEN_FILE",
        help="A token instead of a user: OAUTHBEARER.",
    ),
]
MechanismName = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        envvar="STREAMLOG_CLIENT_MECHANISM",
        help=f"{', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}.",
    ),
]


def chosen_login(
    *,
    user: str | None,
    password_file: Path | None,
    token_file: Path | None,
    mechanism: str | None,
) -> "ClientLogin | None":
    """None: without a login. Raises ConfigError."""
    from streamlog.client.security import ClientLogin, secret_in

    if token_file is not None:
        if user is not None or mechanism not in (None, "OAUTHBEARER"):
            raise ConfigError("--token-file", "a user is given, too", "keep one of them")
        return ClientLogin("OAUTHBEARER", "", secret_in(token_file, "--token-file"))
    if user is None:
        if mechanism is not None or password_file is not None:
            raise ConfigError("--user", "is missing", "say as whom to log in")
        return None
    if mechanism == "OAUTHBEARER":
        raise ConfigError("--mechanism", "OAUTHBEARER needs a token", "set --token-file")
    if password_file is not None:
        return ClientLogin(
            mechanism or MECHANISMS[0], user, secret_in(password_file, "--password-file")
        )
    return ClientLogin(mechanism or MECHANISMS[0], user, _PromptedPassword(user))


class _PromptedPassword:
    """A password that is asked for once, when it is needed."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._password: str | None = None

    def __call__(self) -> str:
        if self._password is None:
            from streamlog.cli.options.password import asked_for

            self._password = asked_for(
                f"Password of {self._user}", confirm=False, option="--password-file"
            )
        return self._password


Tls = Annotated[
    bool,
    typer.Option(
        "--tls",
        envvar="STREAMLOG_CLIENT_TLS",
        help="Speak TLS to the nodes; the system's CAs vouch for them.",
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        envvar="STREAMLOG_CLIENT_TLS_CA", help="Speak TLS; this CA vouches for the nodes."
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        envvar="STREAMLOG_CLIENT_TLS_CERT", help="Our certificate, where nodes want to see one."
    ),
]
TlsKey = Annotated[
    Path | None, typer.Option(envvar="STREAMLOG_CLIENT_TLS_KEY", help="The certificate's key.")
]
TlsKeyPasswordFile = Annotated[
    Path | None,
    typer.Option(envvar="STREAMLOG_CLIENT_TLS_KEY_PASSWORD_FILE", help="A file with its password."),
]
NodeConfig = Annotated[
    Path | None,
    typer.Option(
        "--node-config",
        metavar="FILE",
        help="Come as the node of this configuration does, at its address, instead of all these:"
        " for what is run on its machine.",
    ),
]
TLS: Final = ("tls", "tls_ca", "tls_cert", "tls_key", "tls_key_password_file")
LOGIN: Final = ("user", "password_file", "token_file", "mechanism")

_chosen: ContextVar["Security | None"] = ContextVar("security", default=None)


def chosen_security() -> "Security":
    """Of the command that runs."""
    from streamlog.client.security import NO_SECURITY

    return _chosen.get() or NO_SECURITY


def use_context(ctx: typer.Context, name: str | None) -> str | None:
    """Has what the context says, or else a running `streamlog dev`, be the default of the options.

    Raises ConfigError.
    """
    dev = running_dev.current()
    ctx.default_map = {**({"servers": dev} if dev else {}), **contexts.defaults_of(name)}
    return name


def in_context(
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            envvar=contexts.VARIABLE,
            metavar="NAME",
            is_eager=True,
            callback=use_context,
            autocompletion=lambda incomplete: [
                it for it in contexts.names() if it.startswith(incomplete)
            ],
            help="How to reach the cluster, by the name that `streamlog context add` gave it."
            " Other options and variables win over it.",
        ),
    ] = None,
) -> None:
    """Its parameter is an option of every command that asks nodes or NATS."""


def connection(
    ctx: typer.Context,
    tls: Tls = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_key_password_file: TlsKeyPasswordFile = None,
    user: User = None,
    password_file: PasswordFile = None,
    token_file: TokenFile = None,
    mechanism: MechanismName = None,
    node_config: NodeConfig = None,
) -> tuple[str | None, Any]:
    """Its parameters are options of every command that has ``servers``.

    The servers, where others are meant than the command has been given; and how to reach them. Raises
    ConfigError.
    """
    _check_environment(ctx.command.params)
    if node_config is not None:
        named = [name for name in (*TLS, *LOGIN) if _is_named(ctx, name)]
        if named:
            option = named[0].replace("_", "-")
            raise ConfigError(
                "--node-config", "says already who comes, and how", f"leave out --{option}"
            )
        servers, security = _as_node(node_config)
        return None if _is_named(ctx, "servers") else servers, security
    login = {
        "user": user,
        "password_file": password_file,
        "token_file": token_file,
        "mechanism": mechanism,
    }
    if any(_is_named(ctx, name) for name in login):  # then nothing of the context's login
        login = {name: value if _is_named(ctx, name) else None for name, value in login.items()}
    return None, _security(
        tls=tls,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_key_password_file=tls_key_password_file,
        login=chosen_login(**login),  # type: ignore[arg-type]
    )


def _is_named(ctx: typer.Context, name: str) -> bool:
    """On the command line or in the environment."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


@contextmanager
def connected(given: Mapping[str, Any], arguments: dict[str, Any]) -> Iterator[None]:
    """While a command runs: what it was ``given`` besides its own ``arguments``."""
    servers, security = added_options(connection).callback(**given)
    if servers is not None:
        arguments["servers"] = servers
    before = _chosen.set(security)
    try:
        yield
    finally:
        _chosen.reset(before)


def _check_environment(params: Iterable[Any]) -> None:
    """Raises ConfigError for a variable of ours that no option has: it would change nothing."""
    known = {SERVERS_VARIABLE, *(it.envvar for it in params if it.envvar)}
    for name in sorted(os.environ):
        if name.startswith(VARIABLE_PREFIX) and name not in known:
            endings = [it.removeprefix(VARIABLE_PREFIX) for it in known]
            near = difflib.get_close_matches(name.removeprefix(VARIABLE_PREFIX), endings, 1, 0.5)
            remedy = "docs/commands.md has all of them"
            if near:
                remedy = f"did you mean {VARIABLE_PREFIX}{near[0]}?"
            raise ConfigError(name, "there is no such variable", remedy)


def _as_node(config: Path) -> "tuple[str, Security]":
    """Where clients reach it, and who it is to other nodes. Raises ConfigError."""
    from streamlog.app.security import to_nodes
    from streamlog.cli.doctor.configuration import own_addresses
    from streamlog.config import load_settings
    from streamlog.tls.certificates import Certificates

    settings = load_settings(config)
    return own_addresses(settings), to_nodes(settings, Certificates(settings))


def _security(
    *,
    tls: bool,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_key_password_file: Path | None,
    login: "ClientLogin | None",
) -> "Security":
    """Raises ConfigError."""
    from streamlog.client.security import Security

    if not (tls or tls_ca or tls_cert or tls_key):
        return Security(login=login)
    from streamlog.tls.contexts import File, KeyPair, Trust, client_context
    from streamlog.tls.watched_context import WatchedContext

    for name, given, other, needed in (
        ("--tls-cert", tls_cert, "--tls-key", tls_key),
        ("--tls-key", tls_key, "--tls-cert", tls_cert),
    ):
        if given is not None and needed is None:
            raise ConfigError(name, f"needs {other}", "name both")
    own = None
    if tls_cert is not None and tls_key is not None:
        word = None
        if tls_key_password_file is not None:
            word = File("--tls-key-password-file", tls_key_password_file)
        own = KeyPair(File("--tls-cert", tls_cert), File("--tls-key", tls_key), word)
    trust = Trust(None if tls_ca is None else File("--tls-ca", tls_ca))
    files = (*(own.files if own else ()), *trust.files)
    context = WatchedContext((it.path for it in files), lambda: client_context(own, trust))
    return Security(tls=context.current, login=login)


def cluster_at(servers: str, **options: Any) -> "Cluster":
    """The cluster as the command's caller may see it."""
    from streamlog.client.cluster import Cluster

    return Cluster.at(servers, security=chosen_security(), **options)


T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def operate(servers: str, operation: str, /, **arguments: Any) -> Any:
    """What comes of one operation of ``control``, in JSON's types."""

    async def asked() -> Any:
        async with cluster_at(servers) as cluster:
            return await cluster.operate(operation, arguments)

    return run(asked())
