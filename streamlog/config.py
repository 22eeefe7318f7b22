"""Settings of a node: one TOML file, overridden by ``STREAMLOG_*`` of the environment.

``STREAMLOG_KAFKA__PORT=9093`` sets ``port`` of the table ``[kafka]``. An unknown key or a wrong type is a
:class:`~streamlog.errors.ConfigError` of one line that names the key.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from streamlog.errors import ConfigError

Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 lets the system choose."""

SyncPolicy = Literal["commit", "interval", "os"]
"""``commit``: fdatasync before the ack. ``interval``: every ``sync_interval_ms``. ``os``: when the system likes."""

KIB = 1024
MIB = 1024 * KIB


class Section(BaseModel):
    """A table of the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeSection(Section):
    """Who this node is."""

    id: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    data_dir: Path
    rack: str | None = None


class NatsSection(Section):
    """Where messages come from."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: Path | None = None
    domain: str = "streamlog"
    """The management API answers under ``$JS.<domain>.API``."""
    default_api_prefix: bool = False
    """Answer bare ``$JS.API`` too; never where the account has JetStream."""
    reconnect_wait_ms: Annotated[int, Field(ge=1)] = 250


class KafkaSection(Section):
    """The socket API."""

    host: str = "127.0.0.1"
    port: Port = 9092
    advertised_host: str | None = None
    advertised_port: Port | None = None
    connections_max: Annotated[int, Field(ge=1)] = 10_000
    frame_bytes_max: Annotated[int, Field(ge=1024)] = 100 * MIB
    fetch_bytes_max: Annotated[int, Field(ge=1)] = 55 * MIB
    idle_timeout_ms: Annotated[int, Field(ge=1000)] = 600_000


class HttpSection(Section):
    """Metrics and health."""

    host: str = "127.0.0.1"
    port: Port = 9464


class LogSection(Section):
    """How logs are kept; a stream's own configuration overrides what it names."""

    sync: SyncPolicy = "commit"
    sync_interval_ms: Annotated[int, Field(ge=1)] = 1_000
    segment_bytes: Annotated[int, Field(ge=4 * KIB, le=2**31 - 1)] = 256 * MIB
    segment_age_ms: Annotated[int, Field(ge=100)] = 7 * 86_400_000
    index_interval_bytes: Annotated[int, Field(ge=0)] = 4 * KIB
    retention_check_ms: Annotated[int, Field(ge=10)] = 10_000
    checkpoint_interval_ms: Annotated[int, Field(ge=10)] = 1_000
    open_files_max: Annotated[int, Field(ge=16)] = 1_000
    message_bytes_max: Annotated[int, Field(ge=1, le=64 * MIB)] = MIB


class IngestSection(Section):
    """Limits of what waits for a commit."""

    read_bytes: Annotated[int, Field(ge=4 * KIB)] = 512 * KIB
    """The most that one read of the NATS socket takes, and so roughly the largest batch."""
    inflight_bytes_max: Annotated[int, Field(ge=64 * KIB)] = 64 * MIB
    """Appended and not yet committed, over all partitions. At the limit the node stops reading from NATS ..."""
    stall_ms_max: Annotated[int, Field(ge=0)] = 1_000
    """... for at most this long; then it reads on and refuses each message until there is room."""


class Settings(BaseSettings):
    """Everything about one node."""

    model_config = SettingsConfigDict(
        env_prefix="STREAMLOG_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    node: NodeSection
    nats: NatsSection = NatsSection()
    kafka: KafkaSection = KafkaSection()
    http: HttpSection = HttpSection()
    log: LogSection = LogSection()
    ingest: IngestSection = IngestSection()

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


def load_settings(path: Path) -> Settings:
    """Read ``path`` and the environment. Raises ConfigError, one line, for whatever is wrong."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read ({error.strerror})", "name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not TOML ({error})", "mend the file") from None
    try:
        return Settings(**content)
    except ValidationError as error:
        raise _config_error(error) from None


def _config_error(error: ValidationError) -> ConfigError:
    """The first problem, named by its key as it stands in the file."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "settings"
    if first["type"] == "extra_forbidden":
        return ConfigError(key, "no such key", "remove it or mend its spelling")
    if first["type"] == "missing":
        return ConfigError(key, "is missing", "set it")
    return ConfigError(key, f"{first['input']!r} is wrong ({first['msg']})", "mend the value")
