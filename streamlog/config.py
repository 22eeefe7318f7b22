"""Settings of a node: one TOML file, overridden by ``STREAMLOG_*`` of the environment.

``STREAMLOG_KAFKA__PORT=9093`` sets ``port`` of the table ``[kafka]``. An unknown key or a wrong
type is a :class:`~streamlog.errors.ConfigError` of one line that names the key.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from streamlog.errors import ConfigError
from streamlog.sections import (
    AGE_MS_MAX,
    DAY_MS,
    AuthorizationSection,
    ClientAuth,
    EncryptionSection,
    LoggingSection,
    SaslSection,
    Section,
    SecuritySection,
    TlsSection,
    TracingSection,
    split,
)

Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 lets the system choose."""

SyncPolicy = Literal["commit", "interval", "os"]
"""When to fdatasync: before the ack, every ``sync_interval_ms``, or when the system likes."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB
MILLION = 1_000_000
ENV_PREFIX: Final = "STREAMLOG_"
CLIENT_ENV_PREFIX: Final = "STREAMLOG_CLIENT_"
"""Of what commands are told, not nodes."""
ENV_DELIMITER: Final = "__"
CLIENT: Final = "client_"
"""What else the environment may have: as whom the commands log in."""
SECRETS: Final = frozenset({"password", "token"})
"""Keys whose values are never shown."""


Addresses = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split), Field(min_length=1)]


class NodeSection(Section):
    """The identity and the data folder of this node."""

    id: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    """Unique number of the node in its cluster."""
    data_dir: Path
    """Folder of logs, metadata and checkpoints. Each node needs a folder of its own."""
    rack: str | None = None
    """Rack or zone of the node, as reported to Kafka clients."""
    event_loop: Literal["auto", "asyncio"] = "auto"
    """Implementation of the event loop. ``auto`` uses uvloop if it is installed."""
    stop_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 20_000
    """Maximum duration of a clean stop. After it the node exits, and the next start recovers as
    after a crash."""


class NatsSection(Section):
    """The connection to NATS, from which messages come."""

    servers: Addresses = ("nats://127.0.0.1:4222",)
    """Addresses of NATS servers. ``tls://`` requires TLS. In the environment, separate addresses by
    commas, and write a comma in a password as ``%2C``."""
    user: str | None = None
    """User name, with ``password``."""
    password: SecretStr | None = None
    """Password of ``user``. Prefer to set it in the environment."""
    token: SecretStr | None = None
    """Token, instead of user and password. Prefer to set it in the environment."""
    nkey_seed: Path | None = None
    """File with the seed of an NKey, which begins with SU."""
    credentials: Path | None = None
    """File with a JWT and its seed, as written by nsc."""
    tls_ca: Path | None = None
    """CA of the server's certificate. Default: the CAs that the system trusts."""
    tls_cert: Path | None = None
    """Client certificate for servers that request one, with ``tls_key``."""
    tls_key: Path | None = None
    """Private key of ``tls_cert``."""
    tls_server_name: str | None = None
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

    @field_validator("servers")
    @classmethod
    def _check_servers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """A password with a comma would be cut in two, and its second half taken for a host."""
        for first, second in pairwise(value):
            if "://" in first and "@" not in first and "://" not in second and "@" in second:
                raise ValueError("a comma in a password is written %2C")
        return value


class KafkaSection(Section):
    """The listener of the Kafka API."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 9092
    """Port to listen on; 0: the system chooses."""
    advertised_host: str | None = None
    """Host that clients connect to. Default: ``host``."""
    advertised_port: Port | None = None
    """Port that clients connect to. Default: ``port``."""
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
    tls: bool | None = None
    """Require TLS, also between nodes. Default: true if ``tls.cert`` is set."""
    quota_burst_ms: Annotated[int, Field(ge=100, le=30_000)] = 10_000
    """A client may use the quota of this period in one burst."""


class ClusterSection(Section):
    """The metadata quorum, and the detection of failed nodes."""

    id: str | None = None
    """Name of the cluster, the same on every node. Required if there are other voters."""
    voters: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)] = ()
    """``id@host:port`` of each voter of the metadata quorum, the same on every node. Empty: this
    node runs alone."""
    heartbeat_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 500
    """Interval of heartbeats from a node to the controller."""
    session_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 3_000
    """The controller fences a node without heartbeats for this long, and other nodes lead its
    partitions."""
    leader_lease_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 2_400
    """A node that does not reach the controller for this long stops acknowledging."""
    election_timeout_ms: Annotated[int, Field(ge=50, le=DAY_MS)] = 1_000
    """A voter starts an election after one to two times this period without a message from the
    controller."""
    request_timeout_ms: Annotated[int, Field(ge=50, le=DAY_MS)] = 2_000
    """Timeout of requests between voters and to the controller."""
    leader_rebalance_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 30_000
    """Interval at which leaders move back to preferred replicas; 0: only on request."""
    stamp_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 300_000
    """Interval at which a running node stamps its data folder. At its start a node recognises a
    copy of the folder that is older than the last stamp."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.heartbeat_interval_ms < self.leader_lease_ms < self.session_timeout_ms:
            raise ValueError(
                "heartbeat_interval_ms < leader_lease_ms < session_timeout_ms is needed"
            )
        return self


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
    groups_per_partition_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Maximum number of groups in one partition of ``__consumer_offsets``. Further groups are
    rejected with POLICY_VIOLATION."""
    offsets_max: Annotated[int, Field(ge=1, le=100 * MILLION)] = 1_000_000
    """Maximum number of committed offsets in one partition of ``__consumer_offsets``. Further
    offsets are rejected with POLICY_VIOLATION."""
    pending_writes_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Maximum number of records in one partition of ``__consumer_offsets`` that wait for their
    commit. Beyond it requests are answered with COORDINATOR_LOAD_IN_PROGRESS."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            raise ValueError("session_timeout_ms_min <= session_timeout_ms_max is needed")
        return self


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
    """The HTTP listener: metrics, health and the status page."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 9464
    """Port to listen on; 0: the system chooses."""
    allow_unauthenticated: bool = False
    """The same as ``security.allow_unauthenticated``, for the HTTP listener alone: for probes and
    scrapers without certificates."""
    tls: bool | None = None
    """Require TLS. Default: true if ``tls.cert`` or ``http.tls_cert`` is set."""
    tls_cert: Path | None = None
    """Certificate of the HTTP listener, with ``tls_key``. Default: ``tls.cert``."""
    tls_key: Path | None = None
    """Private key of ``tls_cert``."""
    tls_client_auth: ClientAuth | None = None
    """Client certificates of the HTTP listener. Default: ``tls.client_auth``."""
    connections_max: Annotated[int, Field(ge=1, le=MILLION)] = 500
    """Maximum number of connections."""
    request_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 10_000
    """Timeout of the TLS handshake and of each request head."""
    idle_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 75_000
    """Idle time after which a keep-alive connection is closed."""
    send_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 60_000
    """A connection is closed if the client reads nothing of its response for this long."""
    token_file: Path | None = None
    """File with tokens of 16 or more characters, one per line. A request with one of them may read
    metrics and status."""
    basic_auth: bool = False
    """Users with DESCRIBE on the cluster may read metrics and status with their passwords."""
    metrics_group_partitions_max: Annotated[int, Field(ge=0, le=MILLION)] = 10_000
    """Maximum number of group-partition pairs for which /metrics exports consumer lag."""
    metrics_partitions_max: Annotated[int, Field(ge=0, le=MILLION)] = 10_000
    """Maximum number of partitions in one response of ``/metrics/partitions``."""
    status_clients_max: Annotated[int, Field(ge=0, le=MILLION)] = 32
    """Maximum number of status pages with live updates."""
    tail_clients_max: Annotated[int, Field(ge=0, le=MILLION)] = 8
    """Maximum number of status pages that show the newest records of a stream."""
    show_payloads: Literal["auto", "on", "off"] = "auto"
    """Show payloads on the status page. ``auto``: only if ``host`` is loopback or clients
    authenticate."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key are needed, or neither")
        return self


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
    """Interval between checks for segments that have exceeded retention."""
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


class IngestSection(Section):
    """Limits of messages that wait for their commit."""

    read_buffer_bytes: Annotated[int, Field(ge=4 * KIB, le=64 * MIB)] = 512 * KIB
    """Maximum size of one read from the NATS socket, and so the approximate maximum size of a
    batch."""
    in_flight_bytes_max: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 64 * MIB
    """Maximum number of bytes that are appended but not committed, over all partitions. When the
    limit is reached, the node stops reading from NATS."""
    backpressure_timeout_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 1_000
    """Maximum time for which the node stops reading from NATS. After it the node reads on, and
    rejects each message while the limit is exceeded."""


class Settings(BaseSettings):
    """Everything about one node."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER, extra="forbid", frozen=True
    )

    node: NodeSection
    nats: NatsSection = NatsSection()
    kafka: KafkaSection = KafkaSection()
    sasl: SaslSection = SaslSection()
    authorization: AuthorizationSection = AuthorizationSection()
    http: HttpSection = HttpSection()
    cluster: ClusterSection = ClusterSection()
    replication: ReplicationSection = ReplicationSection()
    groups: GroupsSection = GroupsSection()
    activity: ActivitySection = ActivitySection()
    log: LogSection = LogSection()
    ingest: IngestSection = IngestSection()
    logging: LoggingSection = LoggingSection()
    tracing: TracingSection = TracingSection()
    tls: TlsSection = TlsSection()
    security: SecuritySection = SecuritySection()
    encryption: EncryptionSection = EncryptionSection()

    @property
    def authentication_known(self) -> bool:
        """There are ways to prove who one is."""
        return bool(self.sasl.mechanisms) or self.tls.client_auth == "required"

    @property
    def authentication_on(self) -> bool:
        """Clients and nodes have to prove who they are."""
        return self.authentication_known and not self.security.permissive

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose content is passed as keyword arguments."""
        return env_settings, init_settings


def load_settings(path: Path | None) -> Settings:
    """Read ``path``, if there is one, and the environment.

    Raises ConfigError for whatever is wrong: the first thing, with all others as its ``more``.
    """
    content = _read_file(path) if path else {}
    found = [*_wrong_types(content), *_wrong_variables()]
    try:
        settings = Settings(**content)
    except ValidationError as error:
        found += map(_config_error, error.errors())
    except SettingsError as error:  # a whole section in one variable must be JSON
        found.append(ConfigError(ENV_PREFIX + "*", str(error), "mend the variable"))
    if not found:
        return settings
    raise _all_of(found)


def _all_of(found: Sequence[ConfigError]) -> ConfigError:
    """Each key once, in the order in which they were found."""
    first, *others = {error.key: error for error in (*found, *reversed(found))}.values()
    first.more = tuple(others)
    return first


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise ConfigError(str(path), problem, "name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not TOML ({error})", "mend the file") from None


def _wrong_types(content: dict[str, Any]) -> Iterator[ConfigError]:
    """A file has types, so ``port = "9092"`` is wrong there; the environment has only text."""
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if name not in content or not (isinstance(section, type) and issubclass(section, Section)):
            continue
        try:
            section.model_validate_json(json.dumps(content[name], default=str), strict=True)
        except ValidationError as error:
            for problem in error.errors():
                if problem["type"] != "missing":  # it may be in the environment
                    yield _config_error(problem, name)


def _wrong_variables() -> Iterator[ConfigError]:
    """pydantic-settings passes over what it does not know; a misspelt name must not go unseen."""
    for variable in os.environ:
        if not variable.upper().startswith(ENV_PREFIX) or variable.startswith(CLIENT_ENV_PREFIX):
            continue
        section = variable[len(ENV_PREFIX) :].lower().partition(ENV_DELIMITER)[0]
        if section not in Settings.model_fields and not section.startswith(CLIENT):
            sections = ", ".join(Settings.model_fields)
            remedy = f"write {ENV_PREFIX}<SECTION>__<KEY> with a section of {sections}"
            near = _nearest(variable[len(ENV_PREFIX) :].lower().split(ENV_DELIMITER))
            yield ConfigError(variable, "no such setting", _did_you_mean(near, variable) or remedy)


def _config_error(problem: ErrorDetails, *section: str) -> ConfigError:
    """A problem, named by its key as it stands in the file or in the environment."""
    parts = [*section, *(str(part) for part in problem["loc"])]
    key = ".".join(parts) or "settings"
    variable = ENV_PREFIX + ENV_DELIMITER.join(parts).upper()
    if variable in os.environ:
        key = variable
    if problem["type"] == "extra_forbidden":
        remedy = _did_you_mean(_nearest(parts), key) or "remove it or mend its spelling"
        return ConfigError(key, "no such key", remedy)
    if problem["type"] == "missing":
        return ConfigError(key, "is missing", f"set it in the file or as {variable}")
    shown = "the value" if _may_be_secret(parts, problem["input"]) else repr(problem["input"])
    return ConfigError(key, f"{shown} is wrong ({problem['msg']})", "mend the value")


def _nearest(parts: Sequence[str]) -> Sequence[str]:
    """The section and the key whose names are nearest to unknown ones; empty: there are none."""
    known = {
        name: list(section.model_fields)
        for name, field in Settings.model_fields.items()
        if isinstance(section := field.annotation, type) and issubclass(section, Section)
    }
    section_name, *keys = parts
    if section_name not in known:
        sections = difflib.get_close_matches(section_name, list(known), 1)
        return [*sections, *_nearest([*sections, *keys])[1:]] if sections else ()
    if not keys or keys[0] in known[section_name]:
        return parts
    if found := difflib.get_close_matches(keys[0], known[section_name], 1):
        return [section_name, *found]
    others = (name for name, its in known.items() if keys[0] in its)
    return next(([name, keys[0]] for name in others), ())


def _did_you_mean(near: Sequence[str], instead_of: str) -> str:
    """As the environment or the file spells it, whichever has the unknown one."""
    if not near:
        return ""
    is_variable = instead_of.startswith(ENV_PREFIX)
    name = ENV_PREFIX + ENV_DELIMITER.join(near).upper() if is_variable else ".".join(near)
    return f"did you mean {name}?"


def _may_be_secret(parts: list[str], value: object) -> bool:
    """A table may have one in it, and an address of NATS a password."""
    return not SECRETS.isdisjoint(parts) or isinstance(value, dict) or "@" in str(value)
