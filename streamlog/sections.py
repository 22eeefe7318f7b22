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
    """Certificates of this node and of its clients, as PEM files.

    The node reloads changed files. For the connection to NATS see ``nats.tls_*``.
    """

    cert: Path | None = None
    """Certificate of the node with its chain. The node presents it to clients and to other nodes.
    """
    key: Path | None = None
    """Private key of ``cert``."""
    key_password_file: Path | None = None
    """File with the password of ``key``."""
    client_ca: Path | None = None
    """CA of the certificates of clients and of other nodes that connect to this node."""
    client_auth: ClientAuth = "none"
    """Whether clients and nodes must present a certificate."""
    ca: Path | None = None
    """CA of the certificates of nodes that this node connects to. Default: ``client_ca``, else the
    CAs that the system trusts."""
    crl: Path | None = None
    """Certificate revocation lists, one of each CA. Default: revocation is not checked."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Minimum TLS version."""
    reload_check_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 5_000
    """Interval between checks for changed files; 0: only on SIGHUP."""
    ktls: bool = False
    """Use kernel TLS where it is available, which keeps sendfile."""

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
    """Authentication of clients and nodes."""

    mechanisms: Annotated[tuple[Mechanism, ...], NoDecode, BeforeValidator(split)] = ()
    """Offered mechanisms. None: clients are not authenticated by SASL."""
    allow_plain_without_tls: bool = False
    """Offer PLAIN on connections without TLS, where the network can read the passwords."""
    session_lifetime_ms: Annotated[int, Field(ge=0, le=AGE_MS_MAX)] = 0
    """Time after which a client must log in again (KIP-368); 0: never, except when a token expires.
    """
    failure_delay_ms: Annotated[int, Field(ge=0, le=10_000)] = 250
    """Delay before a failed login is answered and the connection is closed."""
    failures_per_address_max: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    """Maximum number of failed logins from one address in a minute. Beyond it logins from that
    address are not checked until the minute is over."""
    node_user: str | None = None
    """User name with which nodes log in to other nodes, the same on each node. It is not a user of
    the cluster's metadata."""
    node_password_file: Path | None = None
    """File with passwords of that user, one per line. Nodes log in with the first one, and accept
    all of them."""
    node_mechanism: ScramName = "SCRAM-SHA-512"
    """Mechanism with which nodes log in. It must be one of ``mechanisms``."""
    node_principals: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_lines)] = ()
    """Principals of certificates that belong to nodes of this cluster, one per line. A certificate
    with the subject of this node's own certificate always belongs to a node."""
    principal_mapping_rules: str = "DEFAULT"
    """Mapping of certificate subjects to principals, in the syntax of Kafka's
    ssl.principal.mapping.rules."""
    bootstrap_file: Path | None = None
    """Users created by ``streamlog user add --bootstrap``. Each applies while the metadata has no
    user of the same name."""
    oauth_jwks_file: Path | None = None
    """JSON Web Key Set with the keys that sign OAUTHBEARER tokens. The node reloads a changed file.
    """
    oauth_issuer: str | None = None
    """Required value of the claim ``iss``."""
    oauth_audience: str | None = None
    """Required value of the claim ``aud``."""
    oauth_principal_claim: str = "sub"
    """Claim with the user name."""
    oauth_clock_skew_ms: Annotated[int, Field(ge=0, le=300_000)] = 30_000
    """Tolerated difference between the clocks of the node and of the token issuer."""

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
    """Exceptions from mandatory authentication."""

    allow_unauthenticated: bool = False
    """Allow listeners on other addresses than loopback without authentication."""
    permissive: bool = False
    """Accept TLS and logins without requiring them, and enforce no permissions. Only for the time
    in which security is enabled node by node."""


class EncryptionSection(Section):
    """Keys of encrypted streams. Do not store them on the disk that holds the streams."""

    keys: dict[str, str] = Field(default_factory=dict)
    """Sources of the keys by name: ``file:PATH``, ``env:VARIABLE`` or ``command:PROGRAM
    ARGUMENTS``, which prints the key."""
    active_key: str | None = None
    """Name of the key that encrypts new data. The other keys decrypt older data."""

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
    """Permissions of authenticated clients."""

    super_users: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_semicolons)] = ()
    """Principals with all permissions except those of nodes, as in ``User:admin``. In the
    environment, separate them by semicolons."""
    rules_file: Path | None = None
    """TOML or JSON file with rules in addition to those of the cluster's metadata, the same on
    every node. A denial in either one applies."""
    nkeys: dict[str, str] = Field(default_factory=dict)
    """User names by public keys, which begin with U, of clients that sign requests over NATS. A
    client that is not listed has its key as its name."""
    nats_request_info: bool = False
    """Trust the header ``Nats-Request-Info`` of requests over NATS. Set this only if all clients of
    the management API reach it through a service import of another account."""
    node_secret_file: Path | None = None
    """File with the secrets that sign requests between nodes over NATS, the same on each node:
    lines of 16 or more characters. Nodes sign with the first one. Default:
    ``sasl.node_password_file``."""
    signature_window_ms: Annotated[int, Field(ge=1_000, le=600_000)] = 30_000
    """Maximum difference between the time of a signed request over NATS and the node's clock."""
    check_reply_subject: bool = True
    """Require that a signed request over NATS has the reply subject that was signed. Set it to
    ``false`` where NATS changes reply subjects: between accounts, and between clusters by gateways.
    """
    audit_file: Path | None = None
    """File of the audit log, with one JSON line for each event. The node's log has these events,
    too."""
    audit_lines_per_s: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Maximum number of logged refusals per second, and of logged failed attempts. The number of
    suppressed lines is logged. Completed acts are always logged."""

    @field_validator("super_users")
    @classmethod
    def _check_super_users(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            kind, colon, name = each.partition(":")
            if not (kind and colon and name):
                raise ValueError(f"{each!r}: write kind and name, as in User:admin")
        return value


class LoggingSection(Section):
    """The log of the node, on standard error."""

    format: Literal["json", "console"] = "json"
    """One line of JSON for each event, or readable text."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of logged events."""


class TracingSection(Section):
    """OpenTelemetry spans of sampled batches; needs ``streamlog[otel]``."""

    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Ratio of appended batches that are traced; 0: tracing is off and costs nothing."""
    batches_per_s_max: Annotated[int, Field(ge=1, le=1_000)] = 10
    """Maximum number of traced batches per second."""
    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    """OTLP endpoint of the collector, over HTTP."""
