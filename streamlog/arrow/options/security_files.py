"""TLS to the nodes and the login there, from files that lie on every machine that reads or writes.

Options are shown, by Spark in plans and event logs, so an option names a file and never holds a secret.
"""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from streamlog.errors import ConfigError
from streamlog.model import MECHANISMS

if TYPE_CHECKING:
    from streamlog.client.blocking import BlockingCluster
    from streamlog.client.security import ClientLogin, Security

PREFIX: Final = "security."
_FILES: Final = ("ca_file", "cert_file", "key_file", "key_password_file")


@dataclass(frozen=True)
class SecurityFiles:
    """Names of files; what is in them is read where a connection is opened. Raises ConfigError for options that do not
    fit each other.
    """

    tls: bool | None = None
    """None: if one of the next four is given."""
    ca_file: str | None = None
    """Else the system's CAs are trusted."""
    cert_file: str | None = None
    key_file: str | None = None
    key_password_file: str | None = None
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    mechanism: str | None = None
    """None: SCRAM-SHA-512, or OAUTHBEARER with a token."""
    spelling: Literal["snake_case", "camelCase"] = "snake_case"
    """Of the options' names in errors."""

    def __post_init__(self) -> None:
        self._check_tls()
        self._check_login()

    @property
    def has_tls(self) -> bool:
        return any(getattr(self, name) for name in _FILES) if self.tls is None else self.tls

    def cluster(self, servers: str) -> "BlockingCluster":
        """Opens no connection yet. Raises ConfigError."""
        from streamlog.client.blocking import BlockingCluster

        return BlockingCluster.at(servers, tls=self.context(), login=self.login())

    def login(self) -> "ClientLogin | None":
        """None: no login; a certificate may still identify the client."""
        from streamlog.client.security import ClientLogin, secret_in

        if self.token_file is not None:
            secret = secret_in(Path(self.token_file), self._option("token_file"))
            return ClientLogin("OAUTHBEARER", "", secret)
        if self.user is None or self.password_file is None:
            return None
        secret = secret_in(Path(self.password_file), self._option("password_file"))
        return ClientLogin(self._mechanism, self.user, secret)

    def context(self) -> ssl.SSLContext | None:
        """None: in the clear. Raises ConfigError where a file is missing or of no use."""
        if not self.has_tls:
            return None
        context = ssl.create_default_context()
        if self.ca_file is not None:
            with self._naming("ca_file", self.ca_file):
                context.load_verify_locations(self.ca_file)
        if self.cert_file is not None:
            assert self.key_file is not None
            with self._naming("cert_file", self.cert_file):
                context.load_cert_chain(self.cert_file, self.key_file, self._password)
        return context

    @property
    def _mechanism(self) -> str:
        default = MECHANISMS[0] if self.token_file is None else "OAUTHBEARER"
        return (self.mechanism or default).strip().upper()

    def _password(self) -> bytes:
        if self.key_password_file is None:
            remedy = f"set {self._option('key_password_file')}"
            raise self._error("key_file", "the key is encrypted", remedy)
        with self._naming("key_password_file", self.key_password_file):
            return Path(self.key_password_file).read_bytes().strip()

    def _check_tls(self) -> None:
        if self.tls is False:
            for name in _FILES:
                if getattr(self, name) is not None:
                    raise self._error(name, f"{self._option('tls')} is false", "remove one of them")
        for needing, needed in (("cert_file", "key_file"), ("key_password_file", "cert_file")):
            if getattr(self, needing) is not None and getattr(self, needed) is None:
                raise self._error(needing, f"{self._option(needed)} is missing", "set it, too")

    def _check_login(self) -> None:
        mechanism = self._mechanism
        if mechanism not in MECHANISMS:
            remedy = f"set {' or '.join(MECHANISMS)}"
            raise self._error("mechanism", f"{mechanism!r} is wrong", remedy)
        if self.user is None and self.password_file is None and self.token_file is None:
            if self.mechanism is not None:
                problem = f"{self._option('user')} or {self._option('token_file')} is missing"
                raise self._error("mechanism", problem, "say as whom to log in")
        elif mechanism == "OAUTHBEARER":
            if self.token_file is None or self.user is not None or self.password_file is not None:
                wanted = self._option("token_file")
                problem = f"OAUTHBEARER wants {wanted}, and neither user nor password"
                raise self._error("mechanism", problem, "set only that")
        elif self.token_file is not None:
            problem = f"{mechanism} has no use for it"
            raise self._error("token_file", problem, "remove it, or set OAUTHBEARER")
        elif self.user is None or self.password_file is None:
            missing = "user" if self.user is None else "password_file"
            raise self._error(missing, "is missing", "set it, too")

    def _option(self, name: str) -> str:
        if self.spelling == "camelCase":
            first, *others = name.split("_")
            name = first + "".join(it.capitalize() for it in others)
        return PREFIX + name

    def _error(self, name: str, problem: str, remedy: str) -> ConfigError:
        return ConfigError(self._option(name), problem, remedy)

    @contextlib.contextmanager
    def _naming(self, name: str, path: str) -> Iterator[None]:
        """Turns what goes wrong with a file into an error that names it, and nothing that is in it."""
        try:
            yield
        except OSError as error:  # of which ssl.SSLError is one
            problem = f"{path} cannot be used here ({error.strerror or type(error).__name__})"
            remedy = "put the right file there, on every machine that reads or writes"
            raise self._error(name, problem, remedy) from None


def cluster_by(security: "SecurityFiles | Security", servers: str) -> "BlockingCluster":
    """Opens no connection yet. Raises ConfigError."""
    from streamlog.client.blocking import BlockingCluster

    if isinstance(security, SecurityFiles):
        return security.cluster(servers)
    return BlockingCluster.at(servers, tls=security.tls(), login=security.login)
