"""The options of the data source, checked before anything is read.

An option that is not in the table is refused by its name, as is one that has no meaning for a batch
read of files: a misspelt option that is silently ignored reads the wrong rows.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pyspark_streamlog.offsets import EARLIEST, LATEST, Position, parse_assignment, parse_offsets
from streamlog.errors import ConfigError
from streamlog.model import TopicPartition

NAMES: Final = (
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "minPartitions",
    "maxBytesPerPartition",
    "failOnDataLoss",
    "checkCrc",
    "batchRows",
    "batchBytes",
)

REFUSED: Final = {
    "servers": "reading over the socket API is not there yet; use path",
    "fetchMaxBytes": "it belongs to servers, which is not there yet; remove it",
    "fetchTimeoutMs": "it belongs to servers, which is not there yet; remove it",
    "fetchRetries": "it belongs to servers, which is not there yet; remove it",
    "maxOffsetsPerTrigger": "it belongs to streaming, which is not there yet; remove it",
    "minOffsetsPerTrigger": "it belongs to streaming, which is not there yet; remove it",
    "maxTriggerDelay": "it belongs to streaming, which is not there yet; remove it",
    "maxBytesPerTrigger": "it belongs to streaming, which is not there yet; remove it",
    "startingOffsetsByTimestamp": "it is not there yet; use startingTimestamp",
    "endingOffsetsByTimestamp": "it is not there yet; use endingTimestamp",
    "filterPushdown": "it is not there yet; use startingOffsets and endingOffsets",
    "isolationLevel": "there are no transactions, all that is read is committed; remove it",
}

MIB: Final = 1 << 20


@dataclass(frozen=True)
class Subscription:
    """Which partitions to read: by stream, by pattern or one by one. None: the only stream."""

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def wants(self, name: TopicPartition) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, name.stream) is not None
        return name.stream in self.streams or name in self.partitions

    @property
    def names_nothing(self) -> bool:
        return not self.streams and not self.partitions and self.pattern is None


@dataclass(frozen=True)
class ReadOptions:
    """What a batch read was asked to do. Travels to the executors."""

    path: str
    subscription: Subscription
    starting: Position
    ending: Position
    starting_timestamp_ms: int | None
    ending_timestamp_ms: int | None
    late_start: Literal["error", "latest"]
    """What to do where no record is as late as ``starting_timestamp_ms``."""
    include_headers: bool
    tasks_min: int
    task_bytes_max: int
    fail_on_data_loss: bool
    check_crc: bool
    batch_rows: int
    batch_bytes: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "ReadOptions":
        """Spark's options, whose names it does not keep apart by case. Raises ConfigError."""
        given = _Given(options)
        return cls(
            path=given.path(),
            subscription=_subscription(given),
            starting=_starting(given),
            ending=_ending(given),
            starting_timestamp_ms=given.integer("startingTimestamp", None, least=0),
            ending_timestamp_ms=given.integer("endingTimestamp", None, least=0),
            late_start=_late_start(given),
            include_headers=given.boolean("includeHeaders", default=False),
            tasks_min=given.integer("minPartitions", 1) or 1,
            task_bytes_max=given.integer("maxBytesPerPartition", 128 * MIB) or 1,
            fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
            check_crc=given.boolean("checkCrc", default=True),
            batch_rows=given.integer("batchRows", 65_536) or 1,
            batch_bytes=given.integer("batchBytes", 4 * MIB, most=64 * MIB) or 1,
        )


class _Given:
    """The options by their names in lower case, all of them known."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in NAMES}
        for name in sorted(self._options):
            if name not in known:
                raise _unknown(name)

    def text(self, name: str) -> str | None:
        value = self._options.get(name.lower())
        if value is not None and not value.strip():
            raise ConfigError(name, "is empty", "set it or remove it")
        return value

    def path(self) -> str:
        path = self.text("path")
        if path is None:
            remedy = "name a node's data folder, its streams folder, or one stream's folder"
            raise ConfigError("path", "is missing", remedy)
        return path

    def boolean(self, name: str, *, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise ConfigError(name, f"{value!r} is wrong", "set true or false")
        return value == "true"

    def integer(
        self, name: str, default: int | None, *, least: int = 1, most: int = 2**63 - 1
    ) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            remedy = f"set a whole number from {least} to {most}"
            raise ConfigError(name, f"{text!r} is wrong", remedy)
        return value


def _unknown(name: str) -> ConfigError:
    for refused, reason in REFUSED.items():
        if refused.lower() == name:
            problem, remedy = reason.split("; ")
            return ConfigError(refused, problem, remedy)
    if name.startswith("security."):
        return ConfigError(name, "it belongs to servers, which is not there yet", "remove it")
    near = difflib.get_close_matches(name, [n.lower() for n in NAMES], 1, 0.7)
    meant = [known for known in NAMES if known.lower() in near]
    remedy = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(NAMES)}"
    return ConfigError(name, "the source streamlog has no such option", remedy)


def _subscription(given: _Given) -> Subscription:
    names = ("subscribe", "subscribePattern", "assign")
    named = [name for name in names if given.text(name) is not None]
    if len(named) > 1:
        raise ConfigError(named[1], f"{named[0]} is given, too", "keep one of them")
    streams = (given.text("subscribe") or "").split(",")
    pattern = given.text("subscribePattern")
    assigned = given.text("assign")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            problem = f"{pattern!r} is not a regular expression ({error})"
            raise ConfigError("subscribePattern", problem, "mend it") from None
    return Subscription(
        tuple(name.strip() for name in streams if name.strip()),
        pattern,
        () if assigned is None else parse_assignment("assign", assigned),
    )


def _starting(given: _Given) -> Position:
    position = parse_offsets("startingOffsets", given.text("startingOffsets") or "earliest")
    if position == LATEST or (isinstance(position, dict) and LATEST in position.values()):
        problem = "a batch read cannot start at the latest offset: it would read nothing"
        raise ConfigError("startingOffsets", problem, "set earliest or offsets")
    return position


def _ending(given: _Given) -> Position:
    position = parse_offsets("endingOffsets", given.text("endingOffsets") or "latest")
    if position == EARLIEST or (isinstance(position, dict) and EARLIEST in position.values()):
        problem = "a read cannot end at the earliest offset: it would read nothing"
        raise ConfigError("endingOffsets", problem, "set latest or offsets")
    return position


def _late_start(given: _Given) -> Literal["error", "latest"]:
    name = "startingOffsetsByTimestampStrategy"
    value = given.text(name) or "error"
    if value == "latest":
        return "latest"
    if value != "error":
        raise ConfigError(name, f"{value!r} is wrong", "set error or latest")
    return "error"
