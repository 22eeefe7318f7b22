"""The tables of a node's configuration file: each setting with its type, its range and its default.

The string below a setting describes it; ``docs/configuration.md`` is made of these strings.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from streamlog.config.units import DAY_MS, GIB, KIB, MIB, TIB
from streamlog.model import KEY_NAME, Mechanism, ScramName

AGE_MS_MAX: Final = 36_500 * DAY_MS
"""The most that anything is kept by its age: a hundred years."""

ClientAuth = Literal["none", "optional", "required"]

Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 lets the system choose."""

SyncPolicy = Literal["commit", "interval", "os"]
"""When to fdatasync: before the ack, every ``sync_interval_ms``, or when the system likes."""

MILLION = 1_000_000


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


def example(value: Any) -> Any:
    """What a setting may look like, for the annotated file: where its default does not show it."""
    return Field(examples=[value])


def _texts_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() | tuple():
            for item in value:
                yield from _texts_in(item)
        case dict():
            yield from _texts_in([*value, *value.values()])


class Section(BaseModel):
    """A table of the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        """No name of a file, of a host or of a user has such a character."""
        if any("\0" in text for text in _texts_in(value)):
            raise ValueError("a text with the character NUL")
        return value

    def contradictions(self) -> Iterator[str]:
        """What its settings say against each other: a sentence each."""
        return iter(())

    @model_validator(mode="after")
    def _check(self) -> Self:
        if found := tuple(self.contradictions()):
            raise ValueError(*found)
        return self


class TlsSection(Section):
    """Certificates of this node and of its clients, as PEM files.

    The node reloads changed files. For the connection to NATS see ``nats.tls_*``.
    """

    cert: Annotated[Path | None, example("/etc/streamlog/node.pem")] = None
    """Certificate of the node with its chain. The node presents it to clients and to other nodes.
    """
    key: Annotated[Path | None, example("/etc/streamlog/node-key.pem")] = None
    """Private key of ``cert``."""
    key_password_file: Annotated[Path | None, example("/etc/streamlog/node-key.password")] = None
    """File with the password of ``key``."""
    client_ca: Annotated[Path | None, example("/etc/streamlog/ca.pem")] = None
    """CA of the certificates of clients and of other nodes that connect to this node."""
    client_auth: ClientAuth = "none"
    """Whether clients and nodes must present a certificate."""
    ca: Annotated[Path | None, example("/etc/streamlog/ca.pem")] = None
    """CA of the certificates of nodes that this node connects to. Default: ``client_ca``, else the
    CAs that the system trusts."""
    crl: Annotated[Path | None, example("/etc/streamlog/crl.pem")] = None
    """Certificate revocation lists, one of each CA. Default: revocation is not checked."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Minimum TLS version."""
    reload_check_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 5_000
    """Interval between checks for changed files; 0: only on SIGHUP."""
    ktls: bool = False
    """Use kernel TLS where it is available, which keeps sendfile."""

    def contradictions(self) -> Iterator[str]:
        if (self.cert is None) != (self.key is None):
            yield "cert and key are needed, or neither"
        if self.key_password_file is not None and self.key is None:
            yield "key_password_file is for a key, and there is none"
        if self.client_auth != "none" and self.client_ca is None:
            yield f"client_auth is {self.client_auth!r}, which needs client_ca"


class SaslSection(Section):
    """Authentication of clients and nodes."""

    mechanisms: Annotated[
        tuple[Mechanism, ...], NoDecode, BeforeValidator(split), example(["SCRAM-SHA-512"])
    ] = ()
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
    node_user: Annotated[str | None, example("node")] = None
    """User name with which nodes log in to other nodes, the same on each node. It is not a user of
    the cluster's metadata."""
    node_password_file: Annotated[Path | None, example("/etc/streamlog/node-password")] = None
    """File with passwords of that user, one per line. Nodes log in with the first one, and accept
    all of them."""
    node_mechanism: ScramName = "SCRAM-SHA-512"
    """Mechanism with which nodes log in. It must be one of ``mechanisms``."""
    node_principals: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(split_lines), example(["CN=node-2,O=Example"])
    ] = ()
    """Principals of certificates that belong to nodes of this cluster, one per line. A certificate
    with the subject of this node's own certificate always belongs to a node."""
    principal_mapping_rules: str = "DEFAULT"
    """Mapping of certificate subjects to principals, in the syntax of Kafka's
    ssl.principal.mapping.rules."""
    bootstrap_file: Annotated[Path | None, example("/etc/streamlog/first-users")] = None
    """Users created by ``streamlog user add --bootstrap``. Each applies while the metadata has no
    user of the same name."""
    oauth_jwks_file: Annotated[Path | None, example("/etc/streamlog/jwks.json")] = None
    """JSON Web Key Set with the keys that sign OAUTHBEARER tokens. The node reloads a changed file.
    """
    oauth_issuer: Annotated[str | None, example("https://id.example.org")] = None
    """Required value of the claim ``iss``."""
    oauth_audience: Annotated[str | None, example("streamlog")] = None
    """Required value of the claim ``aud``."""
    oauth_principal_claim: str = "sub"
    """Claim with the user name."""
    oauth_clock_skew_ms: Annotated[int, Field(ge=0, le=300_000)] = 30_000
    """Tolerated difference between the clocks of the node and of the token issuer."""

    def contradictions(self) -> Iterator[str]:
        if (self.node_user is None) != (self.node_password_file is None):
            yield "node_user and node_password_file belong together"
        if self.node_user is not None and self.node_mechanism not in self.mechanisms:
            yield f"nodes log in by {self.node_mechanism}: add it to mechanisms"
        oauth = (self.oauth_jwks_file, self.oauth_issuer, self.oauth_audience)
        if "OAUTHBEARER" in self.mechanisms and None in oauth:
            yield "OAUTHBEARER needs oauth_jwks_file, oauth_issuer and oauth_audience"
        if "OAUTHBEARER" not in self.mechanisms and oauth != (None, None, None):
            yield "oauth_* are of no use without OAUTHBEARER in mechanisms"


class SecuritySection(Section):
    """Exceptions from mandatory authentication."""

    allow_unauthenticated: bool = False
    """Allow listeners on other addresses than loopback without authentication."""
    permissive: bool = False
    """Accept TLS and logins without requiring them, and enforce no permissions. Only for the time
    in which security is enabled node by node."""


class EncryptionSection(Section):
    """Keys of encrypted streams. Do not store them on the disk that holds the streams."""

    keys: Annotated[
        dict[str, str],
        example({"2026-11": "file:/etc/streamlog/keys/2026-11"}),
    ] = Field(default_factory=dict)
    """Sources of the keys by name: ``file:PATH``, ``env:VARIABLE`` or ``command:PROGRAM
    ARGUMENTS``, which prints the key."""
    active_key: Annotated[str | None, example("2026-11")] = None
    """Name of the key that encrypts new data. The other keys decrypt older data."""

    def contradictions(self) -> Iterator[str]:
        for name in self.keys:
            if not KEY_NAME.fullmatch(name):
                yield f"{name[:80]!r} names no key: take letters, digits and . _ -"
        if self.active_key is not None and self.active_key not in self.keys:
            yield f"active_key is {self.active_key!r}, which is not among keys"
        if self.active_key is None and self.keys:
            yield "there are keys, and active_key does not say which is used"


class AuthorizationSection(Section):
    """Permissions of authenticated clients."""

    super_users: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(split_at_semicolons), example(["User:admin"])
    ] = ()
    """Principals with all permissions except those of nodes, as in ``User:admin``. In the
    environment, separate them by semicolons."""
    rules_file: Annotated[Path | None, example("/etc/streamlog/access.toml")] = None
    """TOML or JSON file with rules in addition to those of the cluster's metadata, the same on
    every node. A denial in either one applies."""
    nkeys: Annotated[
        dict[str, str],
        example({"UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4": "alice"}),
    ] = Field(default_factory=dict)
    """User names by public keys, which begin with U, of clients that sign requests over NATS. A
    client that is not listed has its key as its name."""
    nats_request_info: bool = False
    """Trust the header ``Nats-Request-Info`` of requests over NATS. Set this only if all clients of
    the management API reach it through a service import of another account."""
    signature_window_ms: Annotated[int, Field(ge=1_000, le=600_000)] = 30_000
    """Maximum difference between the time of a signed request over NATS and the node's clock."""
    check_reply_subject: bool = True
    """Require that a signed request over NATS has the reply subject that was signed. Set it to
    ``false`` where NATS changes reply subjects: between accounts, and between clusters by gateways.
    """
    audit_file: Annotated[Path | None, example("/var/log/streamlog/audit.jsonl")] = None
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


Addresses = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)]


PROCESSES_MAX: Final = 256
"""More processes than any machine has cores for."""


class NodeSection(Section):
    """The identity and the data folder of this node."""

    id: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    """Unique number of the node in its cluster."""
    data_dir: Annotated[Path, example("/var/lib/streamlog")]
    """Folder of logs, metadata and checkpoints. Each node needs a folder of its own."""
    processes: Annotated[int, Field(ge=1, le=PROCESSES_MAX)] = 1
    """Number of nodes that ``streamlog serve`` runs on this machine, each a process on a core of its
    own. The first one has ``id``, ``data_dir`` and the ports of this file. Each further one has the
    next id, the next port of each listener, and the folder ``node-ID`` in ``data_dir``. A machine
    keeps one replica of a partition at most."""
    rack: Annotated[str | None, example("eu-1a")] = None
    """Rack or zone of the node, as reported to Kafka clients. Default: none, or with ``processes``
    the name of the machine."""
    event_loop: Literal["auto", "asyncio"] = "auto"
    """Implementation of the event loop. ``auto`` uses uvloop if it is installed."""
    stop_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 20_000
    """Maximum duration of a clean stop. After it the node exits, and the next start recovers as
    after a crash."""


LEAF_SCHEME: Final = "nats-leaf://"


class NatsSection(Section):
    """The connection to NATS, from which messages come."""

    servers: Addresses = ("nats://127.0.0.1:4222",)
    """Addresses of NATS servers: ``nats://`` and ``tls://`` (which requires TLS) to be a client of
    them, ``nats-leaf://`` to be a leafnode of them (port 7422). In the environment, separate addresses by
    commas, and write a comma in a password as ``%2C``. None: the node has no link to NATS, and
    clients connect to ``nats_listen``."""
    user: Annotated[str | None, example("streamlog")] = None
    """User name, with ``password``."""
    password: Annotated[SecretStr | None, example("better in STREAMLOG_NATS__PASSWORD")] = None
    """Password of ``user``. Prefer to set it in the environment."""
    token: Annotated[SecretStr | None, example("better in STREAMLOG_NATS__TOKEN")] = None
    """Token, instead of user and password. Prefer to set it in the environment."""
    nkey_seed: Annotated[Path | None, example("/etc/streamlog/node.nk")] = None
    """File with the seed of an NKey, which begins with SU."""
    credentials: Annotated[Path | None, example("/etc/streamlog/node.creds")] = None
    """File with a JWT and its seed, as written by nsc."""
    tls_ca: Annotated[Path | None, example("/etc/streamlog/nats-ca.pem")] = None
    """CA of the server's certificate. Default: the CAs that the system trusts."""
    tls_cert: Annotated[Path | None, example("/etc/streamlog/node.pem")] = None
    """Client certificate for servers that request one, with ``tls_key``."""
    tls_key: Annotated[Path | None, example("/etc/streamlog/node-key.pem")] = None
    """Private key of ``tls_cert``."""
    tls_server_name: Annotated[str | None, example("nats.example.org")] = None
    """Name in the server's certificate, if it differs from the host in ``servers``."""
    tls_first: bool = False
    """Start TLS before the server's greeting, for servers with ``handshake_first``."""
    domain: str = "streamlog"
    """JetStream domain. The management API answers under ``$JS.<domain>.API``."""
    default_api_prefix: bool = False
    """Also answer under ``$JS.API``. Do not set this in an account that has JetStream."""
    reconnect_backoff_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 250
    """Delay between attempts to connect to a server."""
    reconnect_backoff_max_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 5_000
    """Maximum delay. The delay doubles with each consecutive refusal by the server."""

    @property
    def is_leaf(self) -> bool:
        """The node is a leafnode of the servers."""
        return any(server.startswith(LEAF_SCHEME) for server in self.servers)

    @field_validator("servers")
    @classmethod
    def _check_servers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """A password with a comma would be cut in two, and its second half taken for a host."""
        for first, second in pairwise(value):
            if "://" in first and "@" not in first and "://" not in second and "@" in second:
                raise ValueError("a comma in a password is written %2C")
        return value


class SubjectListsSection(Section):
    """Subjects with wildcards."""

    allow: Annotated[tuple[str, ...] | None, BeforeValidator(split)] = None
    """Allowed subjects. Default: all."""
    deny: Annotated[tuple[str, ...], BeforeValidator(split)] = ()
    """Denied subjects, whatever is allowed."""


class NatsPermissionsSection(Section):
    """Subjects that a user of the NATS port may use."""

    publish: SubjectListsSection = SubjectListsSection()
    """Subjects that it may publish to."""
    subscribe: SubjectListsSection = SubjectListsSection()
    """Subjects that it may subscribe to; ``subject queue`` is about members of that queue group."""
    replies_max: Annotated[int, Field(ge=0, le=MILLION)] = 0
    """Maximum number of messages that it may publish to the reply subject of each message that it
    received, although ``publish`` does not allow that. If not 0, and ``publish.allow`` is not set, it
    may publish nothing else."""
    replies_ttl_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 120_000
    """Time after which a received message can no longer be answered that way."""


class NatsListenAuthSection(Section):
    """Logins of clients of the NATS listener."""

    password_auth: Annotated[bool | None, example(True)] = None
    """Users of the cluster may log in with their passwords. Default: true if ``sasl.mechanisms`` is
    set."""
    allow_plain_without_tls: bool = False
    """Accept passwords, tokens and JWTs of bearers from other machines without TLS, where the network
    can read them."""
    token_file: Annotated[Path | None, example("/etc/streamlog/nats-tokens")] = None
    """File with tokens of 16 or more characters, one per line, in the form of ``http.token_file``. A
    client with one of them has the rights of the user whose name follows the token, after a space."""
    nkey_auth: bool = True
    """Accept the NKeys that ``authorization.nkeys`` or an access rule names."""
    operator: Annotated[str | None, example("/etc/streamlog/operator.jwt")] = None
    """Trusted operator of clients with credentials: a file with its JWT, the JWT, or its public key,
    which begins with O. The node reloads a changed file."""
    operator_signing_keys: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)] = ()
    """Public keys with which the operator signs accounts, in addition to those that its JWT names."""
    account_jwts: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(split), example(["/etc/streamlog/accounts"])
    ] = ()
    """JWTs of the operator's accounts: files, folders, or the JWTs. In a folder the file of an account
    is ``PUBLICKEY.jwt``. The node reloads changed files."""
    account_users: Annotated[
        dict[str, str],
        example({"AAFYEVSTKCTDV3A4JZTGPPTQLJXEQZL5IJZRWOTDPWZUEC5LJBBDVJQW": "billing"}),
    ] = Field(default_factory=dict)
    """User names by public keys of accounts, which begin with A: users of an account that is listed
    have the rights of that user. Other users have the name that ``authorization.nkeys`` gives to their
    key, or their key as their name."""
    permissions: Annotated[
        dict[str, NatsPermissionsSection],
        example({"alice": {"publish": {"allow": ["orders.>"]}}}),
    ] = Field(default_factory=dict)
    """Subjects that users may publish and subscribe to, by user name. ``default`` is for users that are
    not named and whose JWT has no permissions. Not listed: all subjects but ``$SYS.>``."""

    def contradictions(self) -> Iterator[str]:
        if self.operator is None and (self.account_jwts or self.operator_signing_keys):
            yield "account_jwts and operator_signing_keys are of no use without operator"
        if self.operator is None and self.account_users:
            yield "account_users are of no use without operator"
        if self.operator is not None and not self.account_jwts:
            yield "operator needs account_jwts"


class NatsListenSection(NatsListenAuthSection):
    """The node's own NATS port, to which any NATS client may connect."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[Port | None, example(4222)] = None
    """Port to listen on; 0: the system chooses. Default: the node has no NATS port."""
    advertised_host: Annotated[str | None, example("node-1.example.org")] = None
    """Host to which clients connect, as the nodes tell it to clients. Default: ``host``."""
    advertised_port: Annotated[Port | None, example(4222)] = None
    """Port to which clients connect. Default: ``port``."""
    connections_max: Annotated[int, Field(ge=1, le=MILLION)] = 65_536
    """Maximum number of connections. A further client is told so, and closed."""
    connections_per_address_max: Annotated[int, Field(ge=1, le=MILLION)] = 65_536
    """Maximum number of connections from one IP address."""
    payload_bytes_max: Annotated[int, Field(ge=1024, le=64 * MIB)] = MIB
    """Maximum size of a message, its headers included. A larger one closes the connection."""
    control_line_bytes_max: Annotated[int, Field(ge=1024, le=MIB)] = 4 * KIB
    """Maximum length of a line of the protocol: subjects and reply subjects are in it."""
    pending_bytes_max: Annotated[int, Field(ge=MIB, le=TIB)] = 64 * MIB
    """Maximum number of bytes that wait for a client to read them. A client that is further behind is
    closed, as a slow consumer."""
    subscriptions_max: Annotated[int, Field(ge=1, le=100 * MILLION)] = MILLION
    """Maximum number of subscriptions of one connection."""
    write_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 10_000
    """A connection is closed if the client reads nothing for this long while messages wait for it."""
    ping_interval_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 120_000
    """Interval of PINGs to a silent client. A client that leaves two unanswered is closed. The first
    PING comes 2 s after the connection or earlier, whether the client is silent or not."""
    login_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 2_000
    """Maximum duration of the TLS handshake and the login."""
    tls: Annotated[bool | None, example(True)] = None
    """Require TLS. Default: true if ``tls.cert`` is set."""
    tls_first: bool = False
    """Start TLS before the greeting, for clients that are configured so, too."""


class KafkaSection(Section):
    """The listener of the Kafka API."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 9092
    """Port to listen on; 0: the system chooses."""
    advertised_host: Annotated[str | None, example("node-1.example.org")] = None
    """Host of the advertised listener, to which clients connect. Default: ``host``."""
    advertised_port: Annotated[Port | None, example(9092)] = None
    """Port of the advertised listener, to which clients connect. Default: ``port``."""
    connections_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Maximum number of connections. The node closes further connections at once."""
    connections_per_address_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Maximum number of connections from one IP address. All connections through a proxy have the
    address of the proxy."""
    request_bytes_max: Annotated[int, Field(ge=1024, le=GIB)] = 100 * MIB
    """Maximum size of a request. A larger request closes the connection."""
    queued_request_bytes_max: Annotated[int, Field(ge=MIB, le=TIB)] = 512 * MIB
    """Maximum memory of requests that are being received or answered, over all connections. When
    the limit is reached, the client that uses the most loses a connection."""
    queued_request_bytes_per_client_max: Annotated[int, Field(ge=MIB, le=TIB)] = 128 * MIB
    """The same limit for one principal, or for one address without a login. When it is reached, a
    connection of that client is closed."""
    fetch_bytes_max: Annotated[int, Field(ge=1, le=GIB)] = 55 * MIB
    """Maximum size of one fetch response."""
    idle_timeout_ms: Annotated[int, Field(ge=1000, le=DAY_MS)] = 600_000
    """Idle time after which a connection is closed."""
    send_timeout_ms: Annotated[int, Field(ge=1000, le=DAY_MS)] = 60_000
    """A connection is closed if the client reads nothing of its response for this long."""
    unauthenticated_connections_max: Annotated[int, Field(ge=1, le=MILLION)] = 2_000
    """Maximum number of connections that have not completed authentication or sent a first request.
    When the limit is reached, the oldest such connection is closed."""
    handshake_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 10_000
    """Maximum total duration of the TLS handshake, the login and the first request."""
    unauthenticated_request_bytes_max: Annotated[int, Field(ge=1024, le=GIB)] = 64 * KIB
    """Maximum size of a request before the login, if a login is required."""
    tls: Annotated[bool | None, example(True)] = None
    """Require TLS, also between nodes. Default: true if ``tls.cert`` is set."""
    default_partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Partitions of a topic whose CreateTopics request leaves them open (-1). The same on every
    node; the node that takes the request decides."""
    default_replicas: Annotated[int, Field(ge=1, le=5)] = 1
    """Replicas of a topic whose CreateTopics request leaves them open (-1), as Kafka Streams does
    for its own topics. Set 3 where there are three nodes or more, the same on every node."""
    auto_create_topics: bool = False
    """Create a topic that a Kafka client asks for, with ``default_partitions`` and
    ``default_replicas``, if the client lets it be created and may create it. The topic then stores
    what NATS clients publish to its name, too. A misspelt name makes a topic, so it is off."""
    quota_burst_ms: Annotated[int, Field(ge=100, le=30_000)] = 10_000
    """A client may use the quota of this period in one burst."""


class ClusterSection(Section):
    """The metadata quorum, and the detection of failed nodes."""

    id: Annotated[str | None, example("orders-eu")] = None
    """Name of the cluster, the same on every node. Required if there are other voters."""
    voters: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split),
        example(["1@node-1:9092", "2@node-2:9092", "3@node-3:9092"]),
    ] = ()
    """``id@host:port`` of each voter of the metadata quorum, the same on every node. Empty: this
    node runs alone."""
    heartbeat_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 500
    """Interval of heartbeats from a node to the controller, and from the controller to voters. With 30,
    and `pause_tolerance_ms` 300, a silent node is replaced within half a second; that costs each node
    about 5 % of a core."""
    pause_tolerance_ms: Annotated[int | None, Field(ge=0, le=DAY_MS), example(1_000)] = None
    """A node may stand still for this long and no other takes its place. A silent node is replaced
    five heartbeat intervals later, or more where heartbeats come irregularly. Default: a third of
    `session_timeout_ms`."""
    session_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 3_000
    """The controller fences a node without heartbeats for this long at the latest, and other nodes
    lead its partitions. The deletion of a stream waits as long for a node that does not answer."""
    leader_lease_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 2_400
    """A node that does not reach the controller for this long stops acknowledging. Never longer
    than 85 % of the shortest time after which a silent node is replaced."""
    election_timeout_ms: Annotated[int, Field(ge=50, le=DAY_MS)] = 1_500
    """A voter starts an election after this period without a message from the controller at the
    latest."""
    request_timeout_ms: Annotated[int, Field(ge=50, le=DAY_MS)] = 2_000
    """Timeout of requests between voters and to the controller."""
    leader_rebalance_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 30_000
    """Interval at which leaders move back to preferred replicas; 0: only on request."""
    self_healing_ms: Annotated[int, Field(ge=0, le=30 * DAY_MS), example(1_800_000)] = 0
    """A node that is fenced for this long is lost: the controller moves its replicas to other nodes. Set it longer
    than a restart or planned work takes, and the same on every node; 0: replicas wait for the node."""
    stamp_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 300_000
    """Interval at which a running node stamps its data folder. At its start a node recognises a
    copy of the folder that is older than the last stamp."""

    @property
    def pause_ms(self) -> int:
        """``pause_tolerance_ms`` as it counts."""
        if self.pause_tolerance_ms is None:
            return self.session_timeout_ms // 3
        return self.pause_tolerance_ms

    def contradictions(self) -> Iterator[str]:
        if not self.heartbeat_interval_ms < self.leader_lease_ms < self.session_timeout_ms:
            yield "heartbeat_interval_ms < leader_lease_ms < session_timeout_ms is needed"


COPY_BYTES_PER_S_MIN: Final = 64 * KIB
"""Less than that is no limit: a fetch brings a whole batch, however large it is."""


class ReplicationSection(Section):
    """Replication from leaders to followers."""

    replica_lag_time_max_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 10_000
    """A follower that has not caught up for this long leaves the in-sync replicas."""
    fetch_wait_max_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 500
    """Maximum time that a leader waits for records before it answers a fetch."""
    fetch_bytes_max: Annotated[int, Field(ge=64 * KIB, le=GIB)] = 16 * MIB
    """Maximum size of one fetch by a follower."""
    fetch_backoff_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 100
    """Delay before the next fetch after a leader could not be reached."""
    copy_bytes_per_s: Annotated[int, Field(ge=0, le=TIB)] = 0
    """Maximum rate at which the node's replicas that are not in sync copy from their leaders, all together; 0: no
    limit. A replica never gets in sync where more than that is written."""

    def contradictions(self) -> Iterator[str]:
        if 0 < self.copy_bytes_per_s < COPY_BYTES_PER_S_MIN:
            yield f"copy_bytes_per_s is 0, or at least {COPY_BYTES_PER_S_MIN}"


class GroupsSection(Section):
    """Kafka consumer groups. Timeouts have the defaults of Kafka's brokers."""

    offsets_partitions: Annotated[int, Field(ge=1, le=1_000)] = 12
    """Number of partitions of ``__consumer_offsets``. It applies when the stream is created, and
    cannot be changed later."""
    offsets_replicas: Annotated[int, Field(ge=1, le=5)] = 3
    """Replicas of each of these partitions, or the number of nodes if that is smaller."""
    offsets_retention_ms: Annotated[int, Field(ge=1_000, le=AGE_MS_MAX)] = 7 * 86_400_000
    """Retention of committed offsets that no member of their group uses."""
    offsets_retention_check_interval_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 600_000
    """Interval between checks for expired offsets."""
    commit_timeout_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 5_000
    """A commit that takes longer is answered with COORDINATOR_NOT_AVAILABLE."""
    initial_rebalance_delay_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 3_000
    """Time that the first rebalance of an empty group waits for more members."""
    session_timeout_ms_min: Annotated[int, Field(ge=1, le=DAY_MS)] = 6_000
    """Minimum session timeout that a member may request."""
    session_timeout_ms_max: Annotated[int, Field(ge=1, le=DAY_MS)] = 1_800_000
    """Maximum session timeout that a member may request."""
    offset_metadata_bytes_max: Annotated[int, Field(ge=0, le=32 * KIB)] = 4 * KIB
    """Maximum size of the metadata of a committed offset."""
    group_size_max: Annotated[int, Field(ge=1, le=MILLION)] = 1_000
    """Maximum number of members of a group. Further members are rejected with
    GROUP_MAX_SIZE_REACHED."""
    group_bytes_max: Annotated[int, Field(ge=KIB, le=64 * MIB)] = 4 * MIB
    """Maximum memory of the members' metadata of one group. Beyond it members are rejected with
    GROUP_MAX_SIZE_REACHED."""
    groups_bytes_max: Annotated[int, Field(ge=KIB, le=TIB)] = 64 * MIB
    """The same limit for all groups in one partition of ``__consumer_offsets``."""
    consumer_session_timeout_ms: Annotated[int, Field(ge=1_000, le=DAY_MS)] = 45_000
    """Session timeout of members of the consumer protocol (``group.protocol=consumer``)."""
    consumer_heartbeat_interval_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 5_000
    """Heartbeat interval of members of the consumer protocol."""
    consumer_assignors: Annotated[tuple[Literal["uniform", "range"], ...], Field(min_length=1)] = (
        "uniform",
        "range",
    )
    """Server-side assignors that members may ask for. A group whose members ask for none has the first one."""
    consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = (
        "bidirectional"
    )
    """Whether a group with members changes from the classic to the consumer protocol (``upgrade``) and back
    (``downgrade``) while they run. A group without members always changes."""
    share_session_timeout_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = 45_000
    """Session timeout of members of share groups; ``share.session.timeout.ms`` of a group overrides it."""
    share_heartbeat_interval_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 5_000
    """Heartbeat interval of members of share groups; ``share.heartbeat.interval.ms`` of a group overrides it."""
    share_record_lock_duration_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = 30_000
    """Time until a record that a member of a share group has and does not acknowledge is delivered again;
    ``share.record.lock.duration.ms`` of a group overrides it."""
    share_delivery_count_limit: Annotated[int, Field(ge=2, le=10)] = 5
    """Deliveries of a record to a share group before it is given up; ``share.delivery.count.limit`` of a
    group overrides it."""
    share_record_locks_max: Annotated[int, Field(ge=100, le=10_000)] = 2_000
    """Maximum number of records of a partition that are delivered to a share group and not acknowledged;
    ``share.partition.max.record.locks`` of a group overrides it."""
    share_auto_offset_reset: Literal["latest", "earliest"] = "latest"
    """Where a share group begins to read a partition; ``share.auto.offset.reset`` of a group overrides it."""
    share_isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """Whether share groups read records of open and aborted transactions; ``share.isolation.level`` of a group
    overrides it."""
    share_renew_acknowledge: bool = True
    """Members of share groups may renew the locks of their records; ``share.renew.acknowledge.enable`` of a
    group overrides it."""
    share_sessions_max: Annotated[int, Field(ge=1, le=MILLION)] = 2_000
    """Maximum number of share sessions of this node, one for each member that fetches from it."""
    groups_per_partition_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Maximum number of groups in one partition of ``__consumer_offsets``. Further groups are
    rejected with POLICY_VIOLATION."""
    offsets_max: Annotated[int, Field(ge=1, le=100 * MILLION)] = 1_000_000
    """Maximum number of committed offsets in one partition of ``__consumer_offsets``. Further
    offsets are rejected with POLICY_VIOLATION."""
    pending_writes_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Maximum number of records in one partition of ``__consumer_offsets`` that wait for their
    commit. Beyond it requests are answered with COORDINATOR_LOAD_IN_PROGRESS."""

    def contradictions(self) -> Iterator[str]:
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            yield "session_timeout_ms_min <= session_timeout_ms_max is needed"
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            yield "consumer_heartbeat_interval_ms < consumer_session_timeout_ms is needed"
        if self.share_heartbeat_interval_ms >= self.share_session_timeout_ms:
            yield "share_heartbeat_interval_ms < share_session_timeout_ms is needed"


class TransactionsSection(Section):
    """Transactions of Kafka's producers. Times have the defaults of Kafka's brokers."""

    state_partitions: Annotated[int, Field(ge=1, le=1_000)] = 12
    """Number of partitions of ``__transaction_state``. It applies when the stream is created, and
    cannot be changed later."""
    state_replicas: Annotated[int, Field(ge=1, le=5)] = 3
    """Replicas of each of these partitions, or the number of nodes if that is smaller."""
    timeout_ms_max: Annotated[int, Field(ge=1, le=DAY_MS)] = 900_000
    """Maximum ``transaction.timeout.ms`` that a producer may ask for. A transaction that is open for longer
    than its producer has asked for is aborted."""
    id_expiration_ms: Annotated[int, Field(ge=1_000, le=AGE_MS_MAX)] = 7 * 86_400_000
    """A transactional id that is not used for this long is forgotten."""
    write_timeout_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 5_000
    """A change of a transaction that takes longer to be written is answered with COORDINATOR_NOT_AVAILABLE."""
    ids_per_partition_max: Annotated[int, Field(ge=1, le=10 * MILLION)] = 100_000
    """Maximum number of transactional ids in one partition of ``__transaction_state``. Further ids are
    rejected with POLICY_VIOLATION."""
    partitions_per_transaction_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Maximum number of partitions of one transaction. Further partitions are rejected with POLICY_VIOLATION."""
    pending_writes_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Maximum number of records in one partition of ``__transaction_state`` that wait for their
    commit. Beyond it requests are answered with COORDINATOR_LOAD_IN_PROGRESS."""


class ConsumersSection(Section):
    """JetStream consumers."""

    state_partitions: Annotated[int, Field(ge=1, le=1_000)] = 12
    """Number of partitions of ``__consumer_state``. It applies when the stream is created, and
    cannot be changed later."""
    state_replicas: Annotated[int, Field(ge=1, le=5)] = 3
    """Replicas of each of these partitions, or the number of nodes if that is smaller."""
    state_sync: SyncPolicy = "commit"
    """When to call fdatasync for ``__consumer_state``, as ``log.sync``. A confirmed acknowledgement
    waits for it with ``commit``; with ``os`` a power failure of all replicas can lose it, as it can
    with nats-server. It applies when the stream is created."""
    confirm_acks: Literal["kept", "applied"] = "kept"
    """When to confirm an acknowledgement to a client that waits for it: once it is in ``__consumer_state``
    (``kept``), or at once (``applied``), as nats-server with one replica does. Then it is written within 50 ms,
    and a node that fails before that delivers the message again."""
    consumers_per_partition_max: Annotated[int, Field(ge=1, le=10 * MILLION)] = 200_000
    """Maximum number of consumers in one partition of ``__consumer_state``. All consumers of a
    stream are in one partition. Further consumers are rejected."""


class ActivitySection(Section):
    """The internal stream of metadata changes. The settings must be the same on every node."""

    enabled: bool = False
    """Create ``__activity`` and write an event for each metadata change."""
    replicas: Annotated[int, Field(ge=1, le=5)] = 3
    """Replicas of the stream, or the number of nodes if that is smaller."""
    retention_ms: Annotated[int, Field(ge=-1, le=AGE_MS_MAX)] = 30 * 86_400_000
    """Retention when the stream is created; -1: unlimited. Later change ``retention.ms`` of the
    topic."""

    @field_validator("retention_ms")
    @classmethod
    def _check_retention(cls, value: int) -> int:
        if -1 < value < 60_000:
            raise ValueError("at least 60000, or -1 for no limit")
        return value


class HttpSection(Section):
    """The HTTP listener: metrics, health, the JSON API and the console."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 9464
    """Port to listen on; 0: the system chooses."""
    allow_unauthenticated: bool = False
    """The same as ``security.allow_unauthenticated``, for the HTTP listener alone: for probes and
    scrapers without certificates."""
    tls: Annotated[bool | None, example(True)] = None
    """Require TLS. Default: true if ``tls.cert`` or ``http.tls_cert`` is set."""
    tls_cert: Annotated[Path | None, example("/etc/streamlog/http.pem")] = None
    """Certificate of the HTTP listener, with ``tls_key``. Default: ``tls.cert``."""
    tls_key: Annotated[Path | None, example("/etc/streamlog/http-key.pem")] = None
    """Private key of ``tls_cert``."""
    tls_client_auth: Annotated[ClientAuth | None, example("none")] = None
    """Client certificates of the HTTP listener. Default: ``tls.client_auth``."""
    connections_max: Annotated[int, Field(ge=1, le=MILLION)] = 500
    """Maximum number of connections."""
    request_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 10_000
    """Timeout of the TLS handshake and of each request head."""
    idle_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 75_000
    """Idle time after which a keep-alive connection is closed."""
    send_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 60_000
    """A connection is closed if the client reads nothing of its response for this long."""
    token_file: Annotated[Path | None, example("/etc/streamlog/http-tokens")] = None
    """File with tokens of 16 or more characters, one per line. A request with one of them may read
    metrics and status. In the JSON API it has the rights of the user whose name follows the token,
    after a space."""
    basic_auth: bool = False
    """Users with DESCRIBE on the cluster may read metrics and status with their passwords. In the
    JSON API all users have their rights."""
    api_writes: bool = False
    """Clients without a user may make changes over the JSON API, as far as their rights allow."""
    api_requests_max: Annotated[int, Field(ge=0, le=MILLION)] = 64
    """Maximum number of requests of the JSON API at a time."""
    metrics_group_partitions_max: Annotated[int, Field(ge=0, le=MILLION)] = 10_000
    """Maximum number of group-partition pairs for which /metrics exports consumer lag."""
    metrics_partitions_max: Annotated[int, Field(ge=0, le=MILLION)] = 10_000
    """Maximum number of partitions in one response of ``/metrics/partitions``."""
    status_clients_max: Annotated[int, Field(ge=0, le=MILLION)] = 32
    """Maximum number of console pages with live updates."""
    tail_clients_max: Annotated[int, Field(ge=0, le=MILLION)] = 8
    """Maximum number of console pages that follow the newest records of a stream."""
    show_payloads: Literal["auto", "on", "off"] = "auto"
    """Show messages in the console. ``auto``: only if ``host`` is loopback or clients
    authenticate."""
    console_writes: bool = False
    """Offer changes in the console: streams, groups, users, rules, quotas, placement. It makes them
    over the JSON API, with the rights of its client. False: the console is read-only."""
    schemas_dir: Annotated[Path | None, example("/etc/streamlog/schemas")] = None
    """Folder of schemas with which the console decodes messages: ``NAME.avsc`` is an Avro schema,
    ``NAME.desc`` a set of Protobuf descriptors."""

    def contradictions(self) -> Iterator[str]:
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "tls_cert and tls_key are needed, or neither"


class LogSection(Section):
    """Storage of logs. The configuration of a stream overrides the settings that it names."""

    sync: SyncPolicy = "commit"
    """When to call fdatasync. ``commit``: before the ack; ``interval``: every ``sync_interval_ms``;
    ``os``: never, the operating system decides."""
    sync_interval_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 1_000
    """Interval of ``sync = "interval"``. A power failure can lose the records of one interval."""
    segment_bytes: Annotated[int, Field(ge=4 * KIB, le=2**31 - 1)] = 256 * MIB
    """Maximum size of a segment. A batch that does not fit starts a new segment."""
    segment_age_ms: Annotated[int, Field(ge=100, le=AGE_MS_MAX)] = 7 * 86_400_000
    """Maximum age of a segment when a batch is appended. An older segment is closed, and the batch
    starts a new one."""
    index_interval_bytes: Annotated[int, Field(ge=0, le=2**31 - 1)] = 4 * KIB
    """Approximate number of bytes between index entries."""
    idle_close_ms: Annotated[int, Field(ge=0, le=AGE_MS_MAX)] = 0
    """A partition without writes for this long closes its files; 0: never."""
    retention_check_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 10_000
    """Interval at which all logs are checked against their limits. Leaders do not wait for it: they check a log
    when a limit may be exceeded."""
    checkpoint_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 1_000
    """Interval at which checkpoints of committed and synced offsets are written."""
    open_files_max: Annotated[int, Field(ge=0, le=MILLION)] = 0
    """Maximum number of open files over all logs; 0: three quarters of the process limit. If it is
    smaller than the number of partitions in use, an append may have to open its file."""
    scrub_interval_ms: Annotated[int, Field(ge=0, le=AGE_MS_MAX)] = 7 * 86_400_000
    """Interval in which all segments are read and verified; 0: never."""
    scrub_bytes_per_s: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 32 * MIB
    """Maximum read rate of that verification."""
    compaction_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 15_000
    """Interval between checks for logs that need compaction."""
    compaction_bytes_per_s: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 32 * MIB
    """Maximum read rate of compaction. Compaction writes less than it reads."""
    compaction_memory_bytes: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 32 * MIB
    """Memory of the key table of a running compaction. 32 MiB hold about a million keys; more keys
    need several passes."""
    erasure_lag_ms: Annotated[int, Field(ge=0, le=AGE_MS_MAX)] = 3_600_000
    """Delay before erased records are removed from a segment of which less than half is erased."""
    subject_index_bytes: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 512 * MIB
    """Maximum memory of all subject indexes of the node: about 80 bytes and the name for each
    subject, and 1 to 4 bytes for each message. Streams whose index does not fit have no lookups by
    subject."""
    metadata_reserve_bytes: Annotated[int, Field(ge=64 * KIB, le=1024 * MIB)] = 4 * MIB
    """Disk space reserved for metadata while the disk is full. The disk counts as full until this
    much is free again."""
    disk_check_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 1_000
    """Interval between checks of a full disk, and the minimum time for which it counts as full."""
    message_bytes_max: Annotated[int, Field(ge=1, le=64 * MIB)] = MIB
    """Maximum payload size of a NATS message, and maximum size of a Kafka producer's batch."""
    uncompressed_bytes_max: Annotated[int, Field(ge=64 * KIB, le=128 * MIB)] = 32 * MIB
    """Maximum size of a Kafka producer's batch after decompression. A larger batch is rejected with
    MESSAGE_TOO_LARGE."""
    producer_id_expiration_ms: Annotated[int, Field(ge=1_000, le=AGE_MS_MAX)] = 86_400_000
    """The state of an idempotent Kafka producer is removed after this long without writes."""


class TierSection(Section):
    """Tiered storage: sealed segments of streams with ``tiered`` go to an object store. It needs the
    extra ``streamlog[tier]``. Credentials come from the environment or the machine, as the store's own
    tools take them."""

    url: Annotated[str | None, example("s3://bucket/streamlog")] = None
    """The object store and a prefix in it, the same on every node: ``s3://``, ``gs://``, ``az://`` or
    ``file:///folder``. Without it no stream can have ``tiered``."""
    endpoint: Annotated[str | None, example("https://minio.example.com:9000")] = None
    """Address of the store, where it is not the provider's own: a server that speaks S3, a private endpoint, or an
    emulator."""
    cache_bytes_max: Annotated[int, Field(ge=16 * MIB, le=TIB)] = 4 * GIB
    """Maximum size of the local cache of segments that are read back from the store, in the folder
    ``tier-cache`` of ``node.data_dir``."""
    bandwidth_bytes_per_s: Annotated[int, Field(ge=0, le=TIB)] = 0
    """Maximum rate at which the node sends segments to the store; 0: no limit."""
    concurrency: Annotated[int, Field(ge=1, le=64)] = 2
    """Maximum number of segments that the node sends to the store at a time, and again as many that it
    reads back."""
    interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 10_000
    """Interval at which leaders look for closed segments to be sent, and for old ones to be removed."""
    orphan_grace_ms: Annotated[int, Field(ge=1_000, le=AGE_MS_MAX)] = DAY_MS
    """Age from which on an object that no manifest names is removed. A crash leaves such objects."""


class IngestSection(Section):
    """Limits of messages that wait for their commit."""

    read_buffer_bytes: Annotated[int, Field(ge=4 * KIB, le=64 * MIB)] = 512 * KIB
    """Maximum size of one read from a NATS socket, and so the approximate maximum size of a
    batch."""
    in_flight_bytes_max: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 64 * MIB
    """Maximum number of bytes that are appended but not committed, over all partitions. When the
    limit is reached, the node stops reading from NATS."""
    backpressure_timeout_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 1_000
    """Maximum time for which the node stops reading from NATS. After it the node reads on, and
    rejects each message while the limit is exceeded."""
