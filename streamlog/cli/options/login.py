"""As whom the commands go to the nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.errors import ConfigError
from streamlog.model import MECHANISMS

if TYPE_CHECKING:
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
    """None: as nobody. Raises ConfigError."""
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
    return ClientLogin(mechanism or MECHANISMS[0], user, _Asked(user))


class _Asked:
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
