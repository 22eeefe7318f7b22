"""What a table of settings is, and those about who gets in; ``config`` has the rest."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

ClientAuth = Literal["none", "optional", "required"]


class Section(BaseModel):
    """A table of the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsSection(Section):
    """Certificates of this node and of those who come to it; towards NATS there are ``nats.tls_*``.

    PEM files, which are read again when they change.
    """

    cert: Path | None = None
    """The node's own, with its chain; it shows it to other nodes, too."""
    key: Path | None = None
    key_password_file: Path | None = None
    client_ca: Path | None = None
    """Who vouches for clients and other nodes that come here."""
    client_auth: ClientAuth = "none"
    """Whether those who come must show a certificate."""
    ca: Path | None = None
    """Who vouches for other nodes where this one goes; default ``client_ca``, else the system's."""
    crl: Path | None = None
    """What these have revoked: a list of each of them. Without: nothing is looked up."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    reload_check_ms: Annotated[int, Field(ge=0)] = 5_000
    """How often the files are looked at; 0: at a SIGHUP only."""
    kernel: bool = False
    """Let the kernel encrypt, where it can: then sendfile stays."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key are needed, or neither")
        if self.key_password_file is not None and self.key is None:
            raise ValueError("key_password_file is for a key, and there is none")
        if self.client_auth != "none" and self.client_ca is None:
            raise ValueError(f"client_auth is {self.client_auth!r}, which needs client_ca")
        return self


class SecuritySection(Section):
    """What is to be open although nobody is asked who they are."""

    insecure: bool = False
    """Listen on other addresses than this machine's own without authentication."""
