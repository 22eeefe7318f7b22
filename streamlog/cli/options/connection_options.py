"""How commands reach the nodes: the same options for each that has ``--bootstrap-server``.

A command does not hand them on from function to function: the function that opens a connection asks
for ``chosen_security``, which is that of the command that runs.
"""

import difflib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_type_hints

import typer

from streamlog.cli.doctor.configuration import own_address
from streamlog.cli.options import context
from streamlog.cli.options.options import SERVERS, SERVERS_VARIABLE, VARIABLE_PREFIX
from streamlog.client.security import NO_SECURITY, Security
from streamlog.errors import ConfigError
from streamlog.model import MECHANISMS

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster
    from streamlog.client.security import ClientLogin


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
OPTIONS: Final[dict[str, tuple[Any, object]]] = {
    "tls": (Tls, False),
    "tls_ca": (TlsCa, None),
    "tls_cert": (TlsCert, None),
    "tls_key": (TlsKey, None),
    "tls_key_password_file": (TlsKeyPasswordFile, None),
    "user": (User, None),
    "password_file": (PasswordFile, None),
    "token_file": (TokenFile, None),
    "mechanism": (MechanismName, None),
    "node_config": (NodeConfig, None),
}

_chosen: ContextVar[Security] = ContextVar("security", default=NO_SECURITY)


def chosen_security() -> Security:
    """Of the command that runs."""
    return _chosen.get()


def secured(app: typer.Typer) -> None:
    """Gives every command of it that has ``servers`` the options."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            secured(group.typer_instance)
    for command in app.registered_commands:
        callback = command.callback
        if callback is not None and "servers" in inspect.signature(callback).parameters:
            command.callback = _with_options(callback)


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name, default) for name, (_, default) in OPTIONS.items()}
        config = given.pop("node_config")
        _check_environment()
        if config is None:
            security = _security(**given)
            if options.get("servers") == SERVERS and not _names_servers():
                options["servers"] = context.current() or SERVERS
        else:
            servers, security = _as_node(config, given)
            if options.get("servers") in (None, SERVERS):
                options["servers"] = servers
        before = _chosen.set(security)
        try:
            return command(*arguments, **options)
        finally:
            _chosen.reset(before)

    signature = inspect.signature(command)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in OPTIONS.items()
    ]
    hints = get_type_hints(command, include_extras=True)
    run.__annotations__ = hints | {name: kind for name, (kind, _) in OPTIONS.items()}
    parameters = [
        it.replace(annotation=hints.get(it.name, it.annotation))
        for it in signature.parameters.values()
    ]
    run.__signature__ = signature.replace(parameters=[*parameters, *added])  # type: ignore[attr-defined]
    return run


def _check_environment() -> None:
    """Raises ConfigError for a variable of ours that no option has: it would change nothing."""
    known = {SERVERS_VARIABLE}
    for kind, _ in OPTIONS.values():
        (option,) = get_args(kind)[1:]
        if option.envvar is not None:
            known.add(option.envvar)
    for name in sorted(os.environ):
        if name.startswith(VARIABLE_PREFIX) and name not in known:
            endings = [it.removeprefix(VARIABLE_PREFIX) for it in known]
            near = difflib.get_close_matches(name.removeprefix(VARIABLE_PREFIX), endings, 1, 0.5)
            remedy = "docs/commands.md has all of them"
            if near:
                remedy = f"did you mean {VARIABLE_PREFIX}{near[0]}?"
            raise ConfigError(name, "there is no such variable", remedy)


def _names_servers() -> bool:
    """On the command line or in the environment, be it the default that is named."""
    on_line = any(
        it == "--bootstrap-server" or it.startswith("--bootstrap-server=") for it in sys.argv
    )
    return on_line or SERVERS_VARIABLE in os.environ


def _as_node(config: Path, given: Mapping[str, object]) -> tuple[str, Security]:
    """Where clients reach it, and who it is to other nodes. Raises ConfigError."""
    from streamlog.app.security import to_nodes
    from streamlog.config import load_settings
    from streamlog.tls.certificates import Certificates

    for name, (_, default) in OPTIONS.items():
        if given.get(name, default) != default:
            problem = "says already who comes, and how"
            raise ConfigError("--node-config", problem, f"leave out --{name.replace('_', '-')}")
    settings = load_settings(config)
    return own_address(settings), to_nodes(settings, Certificates(settings))


def _security(
    *,
    tls: bool,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_key_password_file: Path | None,
    user: str | None,
    password_file: Path | None,
    token_file: Path | None,
    mechanism: str | None,
) -> Security:
    """Raises ConfigError."""
    login = chosen_login(
        user=user, password_file=password_file, token_file=token_file, mechanism=mechanism
    )
    if not (tls or tls_ca or tls_cert or tls_key):
        return Security(login=login)
    from streamlog.tls.files import File, KeyPair, Trust, client_context
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
