"""TLS to the nodes and the login there, from files that lie on the driver and on every executor.

Spark shows options in plans and event logs, so an option names a file and never holds a secret.
"""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_streamlog.options.option_map import OptionMap
from streamlog.errors import ConfigError
from streamlog.model import MECHANISMS

if TYPE_CHECKING:
    from streamlog.client.security import ClientLogin


@dataclass(frozen=True)
class Security:
    """Names of files; what is in them is read where a connection is opened."""

    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password_file: str | None = None
    mechanism: str | None = None
    """None: no login."""
    user: str = ""
    secret_option: str = ""
    """The option that named the file of the password, or token."""
    secret_file: str = ""

    @classmethod
    def of(cls, given: OptionMap) -> "Security":
        """Raises ConfigError."""
        files = {
            name: given.text(f"security.{name}")
            for name in ("caFile", "certFile", "keyFile", "keyPasswordFile")
        }
        tls = given.boolean("security.tls", default=any(files.values()))
        if not tls:
            for name, value in files.items():
                if value is not None:
                    option = f"security.{name}"
                    raise ConfigError(option, "security.tls is false", "remove one of them")
        for needing, needed in (("certFile", "keyFile"), ("keyPasswordFile", "certFile")):
            if files[needing] is not None and files[needed] is None:
                problem = f"security.{needed} is missing"
                raise ConfigError(f"security.{needing}", problem, "set it, too")
        return cls(
            tls,
            files["caFile"],
            files["certFile"],
            files["keyFile"],
            files["keyPasswordFile"],
            *_login(given),
        )

    def login(self) -> "ClientLogin | None":
        """None: no login; a certificate may still identify the client."""
        from streamlog.client.security import ClientLogin, secret_in

        if self.mechanism is None:
            return None
        secret = secret_in(Path(self.secret_file), self.secret_option)
        return ClientLogin(self.mechanism, self.user, secret)

    def context(self) -> ssl.SSLContext | None:
        """None: in the clear. Raises ConfigError where a file is missing or of no use."""
        if not self.tls:
            return None
        context = ssl.create_default_context()
        if self.ca_file is not None:
            with _naming("security.caFile", self.ca_file):
                context.load_verify_locations(self.ca_file)
        if self.cert_file is not None:
            assert self.key_file is not None
            with _naming("security.certFile", self.cert_file):
                context.load_cert_chain(self.cert_file, self.key_file, self._password)
        return context

    def _password(self) -> bytes:
        if self.key_password_file is None:
            problem = "the key is encrypted"
            raise ConfigError("security.keyFile", problem, "set security.keyPasswordFile")
        with _naming("security.keyPasswordFile", self.key_password_file):
            return Path(self.key_password_file).read_bytes().strip()


def _login(given: OptionMap) -> tuple[str | None, str, str, str]:
    """Mechanism, user, the option that names a file, and the file. Raises ConfigError."""
    user, token_file = given.text("security.user"), given.text("security.tokenFile")
    password_file = given.text("security.passwordFile")
    default = "OAUTHBEARER" if token_file is not None else MECHANISMS[0]
    mechanism = (given.text("security.mechanism") or default).strip().upper()
    if mechanism not in MECHANISMS:
        remedy = f"set {' or '.join(MECHANISMS)}"
        raise ConfigError("security.mechanism", f"{mechanism!r} is wrong", remedy)
    if user is None and password_file is None and token_file is None:
        if given.text("security.mechanism") is not None:
            problem = "security.user or security.tokenFile is missing"
            raise ConfigError("security.mechanism", problem, "say as whom to log in")
        return None, "", "", ""
    if mechanism == "OAUTHBEARER":
        if token_file is None or user is not None or password_file is not None:
            problem = "OAUTHBEARER wants security.tokenFile, and neither user nor password"
            raise ConfigError("security.mechanism", problem, "set only that")
        return mechanism, "", "security.tokenFile", token_file
    if token_file is not None:
        problem = f"{mechanism} has no use for it"
        raise ConfigError("security.tokenFile", problem, "remove it, or set OAUTHBEARER")
    if user is None or password_file is None:
        missing = "security.user" if user is None else "security.passwordFile"
        raise ConfigError(missing, "is missing", "set it, too")
    return mechanism, user, "security.passwordFile", password_file


@contextlib.contextmanager
def _naming(option: str, path: str) -> Iterator[None]:
    """Turns what goes wrong with a file into an error that names it, and nothing that is in it."""
    try:
        yield
    except OSError as error:  # of which ssl.SSLError is one
        problem = f"{path} cannot be used here ({error.strerror or type(error).__name__})"
        remedy = "put the right file there, on the driver and on every executor"
        raise ConfigError(option, problem, remedy) from None
