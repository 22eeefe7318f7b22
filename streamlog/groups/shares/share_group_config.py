"""The configs of a share group, as ``kafka-configs --entity-type groups`` sets them. Pure.

A config that a group does not have is the node's setting. Configs stay when the group is deleted, as in Kafka.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from streamlog.config import GroupsSection
from streamlog.errors import InvalidRequest

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE
)
NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigRange(NamedTuple):
    """Of a config that is a number; both ends are inclusive."""

    low: int
    high: int


class GroupConfig(NamedTuple):
    """A config that a group may have."""

    setting: str
    """The node's setting that is its default."""
    kind: ConfigRange | tuple[str, ...] | None
    """A range, the texts that it may be, or None: it is checked by itself."""
    meaning: str


READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"

GROUP_CONFIGS: Final[Mapping[str, GroupConfig]] = {
    "share.auto.offset.reset": GroupConfig(
        "share_auto_offset_reset",
        None,
        "Where a group begins to read a partition: latest, earliest, or by_duration:<ISO 8601 duration>.",
    ),
    "share.delivery.count.limit": GroupConfig(
        "share_delivery_count_limit",
        ConfigRange(2, 10),
        "Deliveries of a record before it is given up.",
    ),
    "share.heartbeat.interval.ms": GroupConfig(
        "share_heartbeat_interval_ms",
        ConfigRange(100, 3_600_000),
        "Heartbeat interval of the members.",
    ),
    "share.isolation.level": GroupConfig(
        "share_isolation_level",
        (READ_UNCOMMITTED, READ_COMMITTED),
        "Whether records of open and aborted transactions are delivered.",
    ),
    "share.partition.max.record.locks": GroupConfig(
        "share_record_locks_max",
        ConfigRange(100, 10_000),
        "Records of a partition that are delivered and not acknowledged.",
    ),
    "share.record.lock.duration.ms": GroupConfig(
        "share_record_lock_duration_ms",
        ConfigRange(1_000, 3_600_000),
        "Time until a record that is not acknowledged is delivered again.",
    ),
    "share.renew.acknowledge.enable": GroupConfig(
        "share_renew_acknowledge",
        ("true", "false"),
        "Whether members may renew the locks of records.",
    ),
    "share.session.timeout.ms": GroupConfig(
        "share_session_timeout_ms", ConfigRange(1_000, 3_600_000), "Session timeout of the members."
    ),
}


class ShareSettings(NamedTuple):
    """What holds for a group."""

    auto_offset_reset: str
    delivery_count_limit: int
    heartbeat_interval_ms: int
    isolation_level: str
    record_locks_max: int
    record_lock_duration_ms: int
    renew_acknowledge: bool
    session_timeout_ms: int


def default_of(name: str, settings: GroupsSection) -> str:
    """As text, of a node with these settings."""
    value = getattr(settings, GROUP_CONFIGS[name].setting)
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(configs: Mapping[str, str], settings: GroupsSection) -> ShareSettings:
    """Of a group with these configs, at a node with these settings."""
    texts = {it: configs.get(it, default_of(it, settings)) for it in GROUP_CONFIGS}
    return ShareSettings(
        texts["share.auto.offset.reset"],
        int(texts["share.delivery.count.limit"]),
        int(texts["share.heartbeat.interval.ms"]),
        texts["share.isolation.level"],
        int(texts["share.partition.max.record.locks"]),
        int(texts["share.record.lock.duration.ms"]),
        texts["share.renew.acknowledge.enable"] == "true",
        int(texts["share.session.timeout.ms"]),
    )


def check_config(name: str, text: str) -> None:
    """Raises InvalidRequest."""
    config = GROUP_CONFIGS.get(name)
    if config is None:
        raise InvalidRequest(f"{name}: groups have no such config, only {', '.join(GROUP_CONFIGS)}")
    if isinstance(config.kind, ConfigRange):
        if (
            not re.fullmatch(r"\d{1,10}", text)
            or not config.kind.low <= int(text) <= config.kind.high
        ):
            low, high = config.kind
            raise InvalidRequest(f"{name}: {text[:40]!r} is no number from {low} to {high}")
    elif config.kind is None:
        reset_of(text)
    elif text not in config.kind:
        raise InvalidRequest(f"{name}: {text[:40]!r} is none of {', '.join(config.kind)}")


def check_together(configs: Mapping[str, str], settings: GroupsSection) -> None:
    """Raises InvalidRequest where the configs contradict each other."""
    found = settings_of(configs, settings)
    if found.heartbeat_interval_ms >= found.session_timeout_ms:
        raise InvalidRequest("share.heartbeat.interval.ms < share.session.timeout.ms is needed")


def reset_of(text: str) -> int | None:
    """The age in ms from which on records are read; None: all (earliest), -1: none (latest). Raises InvalidRequest."""
    if text == LATEST:
        return -1
    if text == EARLIEST:
        return None
    said = f"share.auto.offset.reset: {text[:40]!r} is none of latest, earliest, by_duration:<duration>"
    if not text.startswith(_BY_DURATION):
        raise InvalidRequest(said)
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION))
    if found is None or not any(found.groups()):
        raise InvalidRequest(f"{said}; a duration is like PT1H30M")
    days, hours, minutes, seconds, fraction = (it or "0" for it in found.groups())
    whole_s = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole_s * 1000 + int(fraction.ljust(9, "0")) // 1_000_000
