"""Some of a stream's settings changed, the others as they are. Pure.

The controller does this on its newest configuration, so that of two clients that change different settings
at once, at different nodes, neither undoes what the other has done.
"""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.inert_configs import INERT_CONFIGS
from streamlog.metadata.stream.setting_type import NO_LIMIT, StreamSetting
from streamlog.metadata.stream.settings_translation import BY_NAME, value_of_text
from streamlog.metadata.stream.stream_config import StreamConfig

Operation = Literal["set", "reset", "append", "subtract"]


class SettingChange(BaseModel):
    """One setting, by its name in ``settings_translation``, or in ``inert_configs``; values are texts, as in
    topic configs.

    ``reset``: to the default; ``append`` and ``subtract``: members of a list, separated by commas.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    setting: str
    operation: Operation = "set"
    text: str = ""


def altered(config: StreamConfig, changes: Iterable[SettingChange]) -> StreamConfig:
    """``config`` after ``changes``, checked as a whole. Raises InvalidStreamConfig, InvalidSubject.

    Defaults that depend on other settings go along with these: that of ``min_isr`` with the
    replicas, that of the duplicate window with the retention, which it is never longer than.
    """
    settings = config.model_dump()
    defaults = defaults_of(config)
    for name in ("min_isr", "duplicate_window_ms"):
        if settings[name] == getattr(defaults, name):
            del settings[name]
    named: set[str] = set()
    for change in changes:
        if change.setting in INERT_CONFIGS:
            _apply_inert(settings, change)
            continue
        row = BY_NAME.get(change.setting)
        if row is None:
            raise InvalidStreamConfig(f"{change.setting}: no such setting")
        named.add(row.name)
        _apply(settings, config, row, change)
    if "duplicate_window_ms" not in named:
        _shorten_window(settings)
    return StreamConfig.of(**settings)


def defaults_of(config: StreamConfig) -> StreamConfig:
    """What a stream of this name and size is set to where its settings say nothing else; but the
    retention by age, on which another default depends, is as it is.
    """
    return StreamConfig.of(
        name=config.name,
        partitions=config.partitions,
        replicas=config.replicas,
        retention_ms=config.retention_ms,
    )


def _apply_inert(settings: dict[str, Any], change: SettingChange) -> None:
    configs: dict[str, str] = dict(settings.get("inert_configs", {}))
    row = INERT_CONFIGS[change.setting]
    if change.operation == "reset":
        configs.pop(row.name, None)
    elif change.operation == "set":
        configs[row.name] = row.check(change.text)
    elif row.kind != "list":
        raise InvalidStreamConfig(f"{row.name}: is no list; set it instead")
    else:
        known = [it for it in configs.get(row.name, row.default).split(",") if it]
        given = [part.strip() for part in change.text.split(",")]
        if change.operation == "append":
            known += [it for it in given if it not in known]
        else:
            known = [it for it in known if it not in given]
        configs[row.name] = row.check(",".join(known))
    settings["inert_configs"] = configs


def _apply(
    settings: dict[str, Any], config: StreamConfig, row: StreamSetting, change: SettingChange
) -> None:
    if change.operation == "reset":
        settings.pop(row.name, None)
        return
    if change.operation == "set":
        settings[row.name] = value_of_text(row, change.text)
        return
    if not row.is_list:
        raise InvalidStreamConfig(f"{row.kafka or row.name}: is no list; set it instead")
    known = row.form.to_text(settings.get(row.name, getattr(config, row.name))).split(",")
    given = [part.strip() for part in change.text.split(",")]
    if change.operation == "append":
        parts = [*known, *(part for part in given if part not in known)]
    else:
        parts = [part for part in known if part not in given]
    if not parts:
        raise InvalidStreamConfig(f"{row.kafka or row.name}: nothing would be left of it")
    settings[row.name] = value_of_text(row, ",".join(parts))


def _shorten_window(settings: dict[str, Any]) -> None:
    window_ms, retention_ms = settings.get("duplicate_window_ms"), settings.get("retention_ms")
    if window_ms is not None and retention_ms not in (None, NO_LIMIT):
        settings["duplicate_window_ms"] = max(100, min(window_ms, retention_ms))
