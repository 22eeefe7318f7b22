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
    """Who this node is."""

    id: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    data_dir: Path
    rack: str | None = None
    event_loop: Literal["auto", "asyncio"] = "auto"
    """``auto``: uvloop where there is one."""
    stop_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 20_000
    """A stop that takes longer is cut short: the next start then recovers as after a crash."""


class NatsSection(Section):
    """Where messages come from."""

    servers: Addresses = ("nats://127.0.0.1:4222",)
    """With ``tls://`` nothing is said in the clear. In the environment they are divided by commas;
    a comma in a password is written ``%2C``."""
    user: str | None = None
    """With ``password``."""
    password: SecretStr | None = None
    """Better in the environment."""
    token: SecretStr | None = None
    """Instead of user and password; better in the environment."""
    nkey_seed: Path | None = None
    """A file with the seed of an NKey, which begins with SU."""
    credentials: Path | None = None
    """A file with a JWT and its seed, as nsc writes it."""
    tls_ca: Path | None = None
    """Of the server's certificate, instead of the CAs that the system trusts."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_server_name: str | None = None
    """What the server's certificate is for, where that is not the host in ``servers``."""
    tls_first: bool = False
    """TLS before the server's greeting, as its ``handshake_first`` wants it."""
    domain: str = "streamlog"
    """The management API answers under ``$JS.<domain>.API``."""
    default_api_prefix: bool = False
    """Answer bare ``$JS.API`` too; never where the account has JetStream."""
    reconnect_backoff_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 250
    """Between attempts to reach a server ..."""
    reconnect_backoff_max_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 5_000
    """... twice as long after each refusal in a row, but no longer."""

    @field_validator("servers")
    @classmethod
    def _check_servers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """A password with a comma would be cut in two, and its second half taken for a host."""
        for first, second in pairwise(value):
            if "://" in first and "@" not in first and "://" not in second and "@" in second:
                raise ValueError("a comma in a password is written %2C")
        return value


class KafkaSection(Section):
    """The socket API."""

    host: str = "127.0.0.1"
    port: Port = 9092
    advertised_host: str | None = None
    advertised_port: Port | None = None
    connections_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    connections_per_address_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Of clients that come from one address; all that come through a proxy come from its own."""
    request_bytes_max: Annotated[int, Field(ge=1024, le=GIB)] = 100 * MIB
    queued_request_bytes_max: Annotated[int, Field(ge=MIB, le=TIB)] = 512 * MIB
    """Of requests that have come in part or are being answered, over all connections. Beyond it the
    client that holds the most loses a connection."""
    queued_request_bytes_per_client_max: Annotated[int, Field(ge=MIB, le=TIB)] = 128 * MIB
    """Of these, of one principal, or of one address where nobody has logged in; one too much is
    closed."""
    fetch_bytes_max: Annotated[int, Field(ge=1, le=GIB)] = 55 * MIB
    idle_timeout_ms: Annotated[int, Field(ge=1000, le=DAY_MS)] = 600_000
    send_timeout_ms: Annotated[int, Field(ge=1000, le=DAY_MS)] = 60_000
    """A client that takes nothing of its answer for so long is cut off."""
    unauthenticated_connections_max: Annotated[int, Field(ge=1, le=MILLION)] = 2_000
    """Connections that have not said yet who they are, or what they want. Beyond it, who has been
    one for longest makes room."""
    handshake_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 10_000
    """For the TLS handshake, the login and the first request together."""
    unauthenticated_request_bytes_max: Annotated[int, Field(ge=1024, le=GIB)] = 64 * KIB
    """Of requests before a login, where one is needed."""
    tls: bool | None = None
    """Nothing is said in the clear, also between nodes; by default so where ``tls.cert`` is set."""
    quota_burst_ms: Annotated[int, Field(ge=100, le=30_000)] = 10_000
    """What a client that has a quota may use in so long, it may use at once."""


class ClusterSection(Section):
    """The metadata quorum, and how it notices that a node is gone."""

    id: str | None = None
    """The same on every node; needed where there are voters beside this node."""
    voters: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)] = ()
    """``id@host:port`` of each, the same on every node; empty: this node alone, by itself."""
    heartbeat_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 500
    """How often a node tells the controller that it is alive."""
    session_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 3_000
    """A node that is not heard of for so long is fenced: others lead in its place."""
    leader_lease_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 2_400
    """A node that does not hear from the controller for so long stops acknowledging."""
    election_timeout_ms: Annotated[int, Field(ge=50, le=DAY_MS)] = 1_000
    """A voter that does not hear of a quorum leader for one to two of these stands for election."""
    request_timeout_ms: Annotated[int, Field(ge=50, le=DAY_MS)] = 2_000
    """Between voters, and to the controller."""
    leader_rebalance_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 30_000
    """How often leaders are moved back to preferred replicas; 0: only when asked to."""
    stamp_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 300_000
    """How often a running node stamps its data folder. A copy of the folder that was made before
    the last stamp is recognised when a node starts on it."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.heartbeat_interval_ms < self.leader_lease_ms < self.session_timeout_ms:
            raise ValueError(
                "heartbeat_interval_ms < leader_lease_ms < session_timeout_ms is needed"
            )
        return self


class ReplicationSection(Section):
    """How followers keep up with leaders."""

    replica_lag_time_max_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 10_000
    """A follower that has not been caught up for so long leaves the in-sync replicas."""
    fetch_wait_max_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 500
    """How long a leader may let a fetch wait for records."""
    fetch_bytes_max: Annotated[int, Field(ge=64 * KIB, le=GIB)] = 16 * MIB
    fetch_backoff_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 100
    """The pause after a leader could not be reached."""


class GroupsSection(Section):
    """Kafka consumer groups; times as Kafka's brokers have them by default."""

    offsets_partitions: Annotated[int, Field(ge=1, le=1_000)] = 12
    """Of ``__consumer_offsets``, when it is made; a group belongs to one. Never changed later."""
    offsets_replicas: Annotated[int, Field(ge=1, le=5)] = 3
    """Of each of these; as many as there are nodes, where that is less."""
    offsets_retention_ms: Annotated[int, Field(ge=1_000, le=AGE_MS_MAX)] = 7 * 86_400_000
    """How long offsets are kept that no member of their group stands for any more."""
    offsets_retention_check_interval_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 600_000
    """How often such offsets are looked for."""
    commit_timeout_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 5_000
    """A commit that takes longer is answered with COORDINATOR_NOT_AVAILABLE."""
    initial_rebalance_delay_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 3_000
    """How long the first member of a group waits for more of them."""
    session_timeout_ms_min: Annotated[int, Field(ge=1, le=DAY_MS)] = 6_000
    session_timeout_ms_max: Annotated[int, Field(ge=1, le=DAY_MS)] = 1_800_000
    """A member that asks for another session time-out is refused."""
    offset_metadata_bytes_max: Annotated[int, Field(ge=0, le=32 * KIB)] = 4 * KIB
    """Of the text that goes with a committed offset."""
    group_size_max: Annotated[int, Field(ge=1, le=MILLION)] = 1_000
    """Of one group; more are refused with GROUP_MAX_SIZE_REACHED."""
    group_bytes_max: Annotated[int, Field(ge=KIB, le=64 * MIB)] = 4 * MIB
    """Of what the members of one group have us keep; beyond it likewise."""
    groups_bytes_max: Annotated[int, Field(ge=KIB, le=TIB)] = 64 * MIB
    """Of that in one partition of ``__consumer_offsets``, over all its groups; likewise."""
    groups_per_partition_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """In one partition of ``__consumer_offsets``; more are refused with POLICY_VIOLATION."""
    offsets_max: Annotated[int, Field(ge=1, le=100 * MILLION)] = 1_000_000
    """Committed offsets there, of all its groups; beyond it likewise."""
    pending_writes_max: Annotated[int, Field(ge=1, le=MILLION)] = 10_000
    """Records there that wait for their commit; beyond it COORDINATOR_LOAD_IN_PROGRESS."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            raise ValueError("session_timeout_ms_min <= session_timeout_ms_max is needed")
        return self


class ActivitySection(Section):
    """The stream of what becomes of the metadata; the same on every node."""

    enabled: bool = False
    """``__activity`` is made, and told by whichever node leads it."""
    replicas: Annotated[int, Field(ge=1, le=5)] = 3
    """As many as there are nodes, where that is less."""
    retention_ms: Annotated[int, Field(ge=-1, le=AGE_MS_MAX)] = 30 * 86_400_000
    """When it is made; -1: for ever. Changed later like any topic's ``retention.ms``."""

    @field_validator("retention_ms")
    @classmethod
    def _check_retention(cls, value: int) -> int:
        if -1 < value < 60_000:
            raise ValueError("at least 60000, or -1 for no limit")
        return value


class HttpSection(Section):
    """Metrics, health, and the status page."""

    host: str = "127.0.0.1"
    port: Port = 9464
    allow_unauthenticated: bool = False
    """As ``security.allow_unauthenticated``, for this port alone: for probes and scrapers without certificates.
    """
    tls: bool | None = None
    """By default where ``tls.cert``, or ``tls_cert`` here, is set."""
    tls_cert: Path | None = None
    """Instead of ``tls.cert``, with ``tls_key``."""
    tls_key: Path | None = None
    tls_client_auth: ClientAuth | None = None
    """Instead of ``tls.client_auth``."""
    connections_max: Annotated[int, Field(ge=1, le=MILLION)] = 500
    request_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 10_000
    """For the TLS handshake, and for each request until its head is there."""
    idle_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 75_000
    """So long a connection may rest until its next request."""
    send_timeout_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = 60_000
    """A client that takes nothing of an answer for so long is cut off."""
    token_file: Path | None = None
    """Tokens, one a line, of 16 or more characters: who has one may read metrics and status."""
    basic_auth: bool = False
    """Users may read metrics and status by their passwords, with DESCRIBE on the cluster."""
    metrics_group_partitions_max: Annotated[int, Field(ge=0, le=MILLION)] = 10_000
    """Of so many a scrape tells the lag; see ``groups.progress``."""
    metrics_partitions_max: Annotated[int, Field(ge=0, le=MILLION)] = 10_000
    """Of so many ``/metrics/partitions`` tells at once."""
    status_clients_max: Annotated[int, Field(ge=0, le=MILLION)] = 32
    """Status pages that are kept up to date at once; more are asked to come later."""
    tail_clients_max: Annotated[int, Field(ge=0, le=MILLION)] = 8
    """Likewise of those that show the newest records of a stream."""
    show_payloads: Literal["auto", "on", "off"] = "auto"
    """Whether the status page shows payloads; ``auto``: only where ``host`` is loopback."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key are needed, or neither")
        return self


class LogSection(Section):
    """How logs are kept; a stream's own configuration overrides what it names."""

    sync: SyncPolicy = "commit"
    """When to fdatasync: ``commit``: before the ack; ``interval``; ``os``: when it likes."""
    sync_interval_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 1_000
    """With ``sync = "interval"``: how much a power cut may take."""
    segment_bytes: Annotated[int, Field(ge=4 * KIB, le=2**31 - 1)] = 256 * MIB
    """A batch that would make a segment larger goes into a new one."""
    segment_age_ms: Annotated[int, Field(ge=100, le=AGE_MS_MAX)] = 7 * 86_400_000
    """A batch that comes so long after a segment's first one goes into a new one."""
    index_interval_bytes: Annotated[int, Field(ge=0, le=2**31 - 1)] = 4 * KIB
    """One index entry for about so many bytes."""
    idle_close_ms: Annotated[int, Field(ge=0, le=AGE_MS_MAX)] = 0
    """A partition that nobody has written to for so long closes its files; 0: never."""
    retention_check_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 10_000
    """How often it is looked whether segments are past their limits."""
    checkpoint_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 1_000
    """How often it is noted what is committed, and what is synced."""
    open_files_max: Annotated[int, Field(ge=0, le=MILLION)] = 0
    """Over all logs; 0: three quarters of what the process may have open. With fewer than there are
    partitions in use, an append may have to open its file."""
    scrub_interval_ms: Annotated[int, Field(ge=0, le=AGE_MS_MAX)] = 7 * 86_400_000
    """How often all segments are read and checked; 0: never."""
    scrub_bytes_per_s: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 32 * MIB
    compaction_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 15_000
    """How often it is looked whether a compacted log is worth a cleaning."""
    compaction_bytes_per_s: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 32 * MIB
    """The most that cleanings read; they write less."""
    compaction_memory_bytes: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 32 * MIB
    """For the table of keys of the one cleaning that runs, a million keys in 32 MiB: with more of
    them it takes several."""
    erasure_lag_ms: Annotated[int, Field(ge=0, le=AGE_MS_MAX)] = 3_600_000
    """After how long erased records are taken out of the files, where less than half of a segment
    is erased."""
    subject_index_bytes: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 512 * MIB
    """For all indexes of subjects of the node together: about 80 bytes and the name for a subject,
    and 1 to 4 bytes for a message. What does not fit has no lookups by subject."""
    metadata_reserve_bytes: Annotated[int, Field(ge=64 * KIB, le=1024 * MIB)] = 4 * MIB
    """Kept aside for the metadata of a full disk, which has room again when as much is free."""
    disk_check_interval_ms: Annotated[int, Field(ge=10, le=DAY_MS)] = 1_000
    """How often a full disk is looked at; and the least time that it counts as full."""
    message_bytes_max: Annotated[int, Field(ge=1, le=64 * MIB)] = MIB
    """Of a NATS message's payload, or of a Kafka producer's batch."""
    uncompressed_bytes_max: Annotated[int, Field(ge=64 * KIB, le=128 * MIB)] = 32 * MIB
    """Of a Kafka producer's batch once it is decompressed; a larger one is refused with
    MESSAGE_TOO_LARGE."""
    producer_id_expiration_ms: Annotated[int, Field(ge=1_000, le=AGE_MS_MAX)] = 86_400_000
    """An idempotent Kafka producer that has not written for so long is forgotten."""


class IngestSection(Section):
    """Limits of what waits for a commit."""

    read_buffer_bytes: Annotated[int, Field(ge=4 * KIB, le=64 * MIB)] = 512 * KIB
    """The most that one read of the NATS socket takes, and so roughly the largest batch."""
    in_flight_bytes_max: Annotated[int, Field(ge=64 * KIB, le=TIB)] = 64 * MIB
    """Appended, not yet committed, over all partitions. At the limit the node stops reading ..."""
    backpressure_timeout_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 1_000
    """... for at most this long; then it reads on and refuses each message until there is room."""


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
