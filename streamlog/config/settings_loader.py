"""Settings of a node: one TOML file, overridden by ``STREAMLOG_*`` of the environment.

``STREAMLOG_KAFKA__PORT=9093`` sets ``port`` of the table ``[kafka]``. An unknown key or a wrong
type is a :class:`~streamlog.errors.ConfigError` of one line that names the key.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from streamlog.config.node_settings import (
    ActivitySection,
    AuthorizationSection,
    ClientAuth,
    ClusterSection,
    ConsumersSection,
    EncryptionSection,
    GroupsSection,
    HttpSection,
    IngestSection,
    KafkaSection,
    LoggingSection,
    LogSection,
    NatsListenSection,
    NatsSection,
    NodeSection,
    ReplicationSection,
    SaslSection,
    Section,
    SecuritySection,
    TierSection,
    TlsSection,
    TracingSection,
    TransactionsSection,
)
from streamlog.errors import ConfigError

ENV_PREFIX: Final = "STREAMLOG_"
CLIENT_ENV_PREFIX: Final = "STREAMLOG_CLIENT_"
CONTEXT_ENV: Final = "STREAMLOG_CONTEXT"
"""Of what commands are told, not nodes."""
ENV_DELIMITER: Final = "__"
ENV_NODE: Final = f"{ENV_PREFIX}NODE{ENV_DELIMITER}DATA_DIR"
RECONCILE: Final = "correct one of them"
"""The remedy for settings of a section that contradict each other."""
DID_YOU_MEAN: Final = "did you mean "
CLIENT: Final = "client_"
"""What else the environment may have: as whom the commands log in."""
SECRETS: Final = frozenset({"password", "token"})
"""Keys whose values are never shown."""


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
    nats_listen: NatsListenSection = NatsListenSection()
    cluster: ClusterSection = ClusterSection()
    replication: ReplicationSection = ReplicationSection()
    groups: GroupsSection = GroupsSection()
    transactions: TransactionsSection = TransactionsSection()
    consumers: ConsumersSection = ConsumersSection()
    activity: ActivitySection = ActivitySection()
    log: LogSection = LogSection()
    tier: TierSection = TierSection()
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

    @property
    def nats_client_auth(self) -> ClientAuth:
        """Whether clients of the NATS port must present a certificate; without TLS none can."""
        has_tls = self.tls.cert is not None and self.nats_listen.tls is not False
        return self.tls.client_auth if has_tls else "none"

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
    settings, found = _checked(content)
    if settings is not None and not found:
        return settings
    first, *others = found
    first.more = tuple(others)
    raise first


class ReadSettings(NamedTuple):
    """What a file and the environment come to, with all that is wrong with them."""

    mistakes: tuple[ConfigError, ...]
    settings: Settings | None
    """With what is wrong at its default, so that the rest can be looked at; None: it cannot be."""
    doubtful: frozenset[str]
    """Keys that are wrong, or may have been meant by one that is unknown."""


def read_settings(path: Path | None) -> ReadSettings:
    """``load_settings`` for who wants to see every mistake. Raises ConfigError for a file that is
    not TOML, or cannot be read.
    """
    content = _read_file(path) if path else {}
    settings, found = _checked(content)
    if not found:
        return ReadSettings((), settings, frozenset())
    doubtful = {part for error in found for part in _doubtful(error)}
    rest = {
        name: {key: value for key, value in table.items() if key not in doubtful}
        for name, table in content.items()
        if isinstance(table, dict) and name in Settings.model_fields
    }
    if "data_dir" in doubtful or not (ENV_NODE in os.environ or rest.get("node")):
        rest["node"] = {"data_dir": ".", **rest.get("node", {})}
        doubtful.add("data_dir")
    settings, more = _checked(rest)
    hidden = [error for error in more if not _is_about(error, doubtful)]
    at_odds = {error.key for error in more if error.remedy == RECONCILE}
    if settings is None and at_odds:
        doubtful.update(key for name in at_odds for key in rest.get(name, ()))
        settings, _ = _checked({name: it for name, it in rest.items() if name not in at_odds})
    return ReadSettings(_all_of([*found, *hidden]), settings, frozenset(doubtful))


def _checked(content: dict[str, Any]) -> tuple[Settings | None, Sequence[ConfigError]]:
    found = [*_wrong_types(content), *_wrong_variables()]
    settings = None
    try:
        settings = Settings(**content)
        found += _without_messages(settings)
    except ValidationError as error:
        found += (each for problem in error.errors() for each in _config_errors(problem))
    except SettingsError as error:  # a whole section in one variable must be JSON
        found.append(ConfigError(ENV_PREFIX + "*", str(error), "correct the variable"))
    return settings, _all_of(found)


def _without_messages(settings: Settings) -> Iterator[ConfigError]:
    if not settings.nats.servers and settings.nats_listen.port is None:
        problem = "[] is wrong (the node has no NATS port either)"
        yield ConfigError("nats.servers", problem, "name a server, or set nats_listen.port")


def _all_of(found: Sequence[ConfigError]) -> tuple[ConfigError, ...]:
    """Each key once, in the order in which they were found; and each contradiction."""
    each: dict[str, ConfigError] = {}
    for error in found:
        identity = str(error) if error.remedy == RECONCILE else error.key
        each.setdefault(identity, error)
    return tuple(each.values())


def _doubtful(error: ConfigError) -> Iterator[str]:
    """The keys that a mistake is about, without their sections."""
    if error.remedy == RECONCILE:
        return
    for name in (error.key, error.remedy.removeprefix(DID_YOU_MEAN).rstrip("?")):
        parts = name.lower().removeprefix(ENV_PREFIX.lower()).replace(ENV_DELIMITER, ".").split(".")
        yield from parts[1:2]


def _is_about(error: ConfigError, keys: Collection[str]) -> bool:
    """A contradiction with a setting that is wrong may not be one."""
    return not set(re.findall(r"\w+", str(error))).isdisjoint(keys)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise ConfigError(str(path), problem, "name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not TOML ({error})", "correct the file") from None


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
                    yield from _config_errors(problem, name)


def _wrong_variables() -> Iterator[ConfigError]:
    """pydantic-settings passes over what it does not know; a misspelt name must not go unseen."""
    for variable in os.environ:
        if not variable.upper().startswith(ENV_PREFIX) or variable.startswith(
            (CLIENT_ENV_PREFIX, CONTEXT_ENV)
        ):
            continue
        section = variable[len(ENV_PREFIX) :].lower().partition(ENV_DELIMITER)[0]
        if section not in Settings.model_fields and not section.startswith(CLIENT):
            sections = ", ".join(Settings.model_fields)
            remedy = f"write {ENV_PREFIX}<SECTION>__<KEY> with a section of {sections}"
            near = _nearest(variable[len(ENV_PREFIX) :].lower().split(ENV_DELIMITER))
            yield ConfigError(variable, "no such setting", _did_you_mean(near, variable) or remedy)


def _config_errors(problem: ErrorDetails, *section: str) -> Iterator[ConfigError]:
    """A problem, named by its key as it stands in the file or in the environment; of a section all
    that its settings say against each other.
    """
    parts = [*section, *(str(part) for part in problem["loc"])]
    if problem["type"] == "value_error" and len(parts) == 1:
        for said in problem["ctx"]["error"].args:
            yield ConfigError(parts[0], said, RECONCILE)
    else:
        yield _config_error(problem, parts)


def _config_error(problem: ErrorDetails, parts: Sequence[str]) -> ConfigError:
    key = ".".join(parts) or "settings"
    variable = ENV_PREFIX + ENV_DELIMITER.join(parts).upper()
    if variable in os.environ:
        key = variable
    if problem["type"] == "extra_forbidden":
        remedy = _did_you_mean(_nearest(parts), key) or "remove it or correct its spelling"
        return ConfigError(key, "no such key", remedy)
    if problem["type"] == "missing":
        if parts == ["node"]:
            key, variable = "node.data_dir", ENV_NODE
        return ConfigError(key, "is missing", f"set it in the file or as {variable}")
    shown = "the value" if _may_be_secret(parts, problem["input"]) else repr(problem["input"])
    return ConfigError(key, f"{shown} is wrong ({problem['msg']})", "correct the value")


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
        return () if len(keys) > 1 else parts  # what is inside of a value has no near names
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
    return f"{DID_YOU_MEAN}{name}?"


def _may_be_secret(parts: Sequence[str], value: object) -> bool:
    """A table may have one in it, and an address of NATS a password."""
    return not SECRETS.isdisjoint(parts) or isinstance(value, dict) or "@" in str(value)
