"""What a table of settings is, and those about who gets in; ``config`` has the rest."""

import json
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from streamlog.model import KEY_NAME, Mechanism, ScramName

DAY_MS: Final = 86_400_000
"""The most that anything is waited for, and the longest interval at which something is done."""
AGE_MS_MAX: Final = 36_500 * DAY_MS
"""The most that anything is kept by its age: a hundred years."""

ClientAuth = Literal["none", "optional", "required"]


def split(value: object) -> object:
    """A list in the environment is written with commas, or as JSON where commas belong to it."""
    if isinstance(value, str):
        value = _listed(value, ",")
    return tuple(value) if isinstance(value, list) else value


def split_at_semicolons(value: object) -> object:
    """As above for names of principals, which may have commas: ``User:CN=a,O=b;User:Jane Doe``,
    as in Kafka's ``super.users``.
    """
    if isinstance(value, str):
        value = _listed(value, ";")
    return tuple(value) if isinstance(value, list) else value


def _listed(text: str, separator: str) -> object:
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a list in JSON: {error}") from None
    return [item.strip() for item in text.split(separator)]


def split_lines(value: object) -> object:
    """As above for what has commas of its own."""
    if isinstance(value, str):
        value = [line.strip() for line in value.splitlines() if line.strip()]
    return tuple(value) if isinstance(value, list) else value


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
    reload_check_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 5_000
    """How often the files are looked at; 0: at a SIGHUP only."""
    ktls: bool = False
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


class SaslSection(Section):
    """How clients and nodes prove who they are."""

    mechanisms: Annotated[tuple[Mechanism, ...], NoDecode, BeforeValidator(split)] = ()
    """What is offered; none: whoever connects is believed."""
    allow_plain_without_tls: bool = False
    """Offer PLAIN where everybody on the way may read the passwords."""
    session_lifetime_ms: Annotated[int, Field(ge=0, le=AGE_MS_MAX)] = 0
    """Then a client has to log in again; 0: never, but for tokens, which have an end."""
    failure_delay_ms: Annotated[int, Field(ge=0, le=10_000)] = 250
    """A login that fails is told so later by this; then the connection is closed."""
    failures_per_address_max: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    """In a minute; then no login from there is looked at until the minute is over."""
    node_user: str | None = None
    """As whom nodes log in to nodes, the same on each. It is no user of the cluster's metadata."""
    node_password_file: Path | None = None
    """Its passwords, one a line: nodes log in with the first, and let in who has any of them."""
    node_mechanism: ScramName = "SCRAM-SHA-512"
    node_principals: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_lines)] = ()
    """Which names out of certificates are nodes of this cluster, one a line; whose subject is this
    node's own is one always.
    """
    principal_mapping_rules: str = "DEFAULT"
    """Which name a certificate's subject stands for, as Kafka's ssl.principal.mapping.rules."""
    bootstrap_file: Path | None = None
    """Users made by ``streamlog user add --bootstrap``, for while the metadata has none of the
    name.
    """
    oauth_jwks_file: Path | None = None
    """A JSON Web Key Set: whose signatures tokens of OAUTHBEARER have to bear. Read anew when it
    changes.
    """
    oauth_issuer: str | None = None
    oauth_audience: str | None = None
    oauth_principal_claim: str = "sub"
    oauth_clock_skew_ms: Annotated[int, Field(ge=0, le=300_000)] = 30_000
    """By so much the clock of whoever issues tokens may differ."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.node_user is None) != (self.node_password_file is None):
            raise ValueError("node_user and node_password_file belong together")
        if self.node_user is not None and self.node_mechanism not in self.mechanisms:
            raise ValueError(f"nodes log in by {self.node_mechanism}: add it to mechanisms")
        oauth = (self.oauth_jwks_file, self.oauth_issuer, self.oauth_audience)
        if "OAUTHBEARER" in self.mechanisms and None in oauth:
            raise ValueError("OAUTHBEARER needs oauth_jwks_file, oauth_issuer and oauth_audience")
        if "OAUTHBEARER" not in self.mechanisms and oauth != (None, None, None):
            raise ValueError("oauth_* are of no use without OAUTHBEARER in mechanisms")
        return self


class SecuritySection(Section):
    """What is to be open although nobody is asked who they are."""

    allow_unauthenticated: bool = False
    """Listen on other addresses than this machine's own without authentication."""
    permissive: bool = False
    """TLS and logins are taken, and neither is demanded, nor any right: only for the time in which
    they are turned on node by node."""


class EncryptionSection(Section):
    """The keys to encrypted streams. They do not belong on the disk that the streams are on."""

    keys: dict[str, str] = Field(default_factory=dict)
    """Where each key is, by its name: ``file:PATH``, ``env:VARIABLE`` or ``command:PROGRAM
    ARGUMENTS``, which prints it."""
    active_key: str | None = None
    """The name of the one that is used for what is written from now on; the others are for what was
    written by them."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.keys:
            if not KEY_NAME.fullmatch(name):
                raise ValueError(f"{name[:80]!r} names no key: take letters, digits and . _ -")
        if self.active_key is not None and self.active_key not in self.keys:
            raise ValueError(f"active_key is {self.active_key!r}, which is not among keys")
        if self.active_key is None and self.keys:
            raise ValueError("there are keys, and active_key does not say which is used")
        return self


class AuthorizationSection(Section):
    """Who may do what, once clients have to prove who they are."""

    super_users: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_semicolons)] = ()
    """As in ``User:admin``: they may do everything but what only nodes may. In the environment they
    are divided by semicolons."""
    rules_file: Path | None = None
    """Rules beside those of the cluster's metadata, the same on every node; TOML or JSON. They
    count together: what either denies is denied."""
    nkeys: dict[str, str] = Field(default_factory=dict)
    """Names of those who sign requests over NATS, by their public keys, which begin with U; whoever
    is not named here has the key as a name."""
    nats_request_info: bool = False
    """Believe what the header ``Nats-Request-Info`` says of who asks over NATS. Only where all who
    may publish to the management API do so through a service import of another account."""
    node_secret_file: Path | None = None
    """What nodes sign with that they ask of each other over NATS, the same on each: lines of 16 or
    more characters, the first of which is signed with. Default: ``sasl.node_password_file``."""
    signature_window_ms: Annotated[int, Field(ge=1_000, le=600_000)] = 30_000
    """How old, or how far ahead, a signed request over NATS may be."""
    check_reply_subject: bool = True
    """A signed request counts with the reply subject alone that it was signed with. ``false`` where
    NATS changes reply subjects on their way: between accounts, and between clusters by gateways."""
    audit_file: Path | None = None
    """Where the audit log goes beside the node's log: a line of JSON for each event."""
    audit_lines_per_s: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Of refusals, and as many of attempts at which nothing was done; the number of those that were
    not told is told. Acts are always told."""

    @field_validator("super_users")
    @classmethod
    def _check_super_users(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            kind, colon, name = each.partition(":")
            if not (kind and colon and name):
                raise ValueError(f"{each!r}: write kind and name, as in User:admin")
        return value


class LoggingSection(Section):
    """What the node says about itself, on standard error."""

    format: Literal["json", "console"] = "json"
    """One line of JSON for each event, or the same for human eyes."""
    level: Literal["debug", "info", "warning", "error"] = "info"


class TracingSection(Section):
    """Spans of the way of some batches, by OpenTelemetry; needs ``streamlog[otel]``."""

    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of the batches that are appended; 0: nothing is traced, and nothing is paid for it."""
    batches_per_s_max: Annotated[int, Field(ge=1, le=1_000)] = 10
    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    """Of a collector that takes OTLP over HTTP."""
