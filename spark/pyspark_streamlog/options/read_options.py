"""The options of a read, checked before anything is read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pyspark_streamlog.options.duration import parse_duration_ms
from pyspark_streamlog.options.offset_options import parse_offsets, parse_times
from pyspark_streamlog.options.option_map import OptionMap
from pyspark_streamlog.options.option_names import check_names
from pyspark_streamlog.options.security_options import parse_security
from pyspark_streamlog.options.subscription_options import parse_subscription
from streamlog.arrow.options.encryption_keys import KeySources
from streamlog.arrow.options.read_options import (
    BATCH_BYTES,
    BATCH_BYTES_MAX,
    BATCH_ROWS,
    FETCH_BYTES,
    FETCH_BYTES_MAX,
    FETCH_RETRIES,
    FETCH_RETRIES_MAX,
    FETCH_TIMEOUT_MS,
    FetchOptions,
    OptionNames,
    Position,
    ReadOptions,
    Times,
)
from streamlog.arrow.options.store_options import StoreOptions
from streamlog.errors import ConfigError
from streamlog.wire.special_offsets import EARLIEST, LATEST

TRIGGER_DELAY_MS: Final = 15 * 60_000
SPARK_NAMES: Final = OptionNames(
    streams="subscribe",
    name_streams="set one of subscribe, subscribePattern and assign",
    start="startingOffsets",
    start_time="startingTimestamp",
    start_times="startingOffsetsByTimestamp",
    late_start="startingOffsetsByTimestampStrategy=latest",
    end="endingOffsets",
    end_time="endingTimestamp",
    end_times="endingOffsetsByTimestamp",
    tolerate_loss="failOnDataLoss=false",
)
KEYS_OPTION: Final = "encryption.keys"


@dataclass(frozen=True)
class TriggerLimits:
    """How much a micro-batch may hold, and how little it may wait for. None: no limit."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    bytes_max: int | None = None
    delay_max_ms: int = TRIGGER_DELAY_MS
    """So long ``offsets_min`` is waited for."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ReadOptions):
    """What a read was asked to do. Travels to the executors."""

    include_headers: bool
    tasks_min: int
    task_bytes_max: int | None
    """None: by how much there is to read."""
    filter_pushdown: bool = False
    limits: TriggerLimits = field(default_factory=TriggerLimits)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> "SourceOptions":
        """Raises ConfigError."""
        given = OptionMap(options)
        servers = given.text("servers")
        store = given.text("store")
        check_names(
            given.names(),
            streaming=streaming,
            from_servers=servers is not None,
            from_store=store is not None,
        )
        given.word("isolationLevel", ("committed",), "committed")
        return cls(
            path=_path(given),
            servers=servers,
            store=_store(store, given.text("store.endpoint")),
            subscription=parse_subscription(given),
            starting=_starting(given, streaming=streaming),
            ending=_ending(given),
            starting_times=_times(given, "starting"),
            ending_times=_times(given, "ending"),
            late_start=_late_start(given),
            include_headers=includes_headers(options),
            tasks_min=given.integer("minPartitions", 1),
            task_bytes_max=given.optional_integer("maxBytesPerPartition"),
            fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
            check_crc=given.boolean("checkCrc", default=True),
            batch_rows=given.integer("batchRows", BATCH_ROWS),
            batch_bytes=given.integer("batchBytes", BATCH_BYTES, most=BATCH_BYTES_MAX),
            filter_pushdown=given.boolean("filterPushdown", default=False),
            limits=_limits(given),
            fetch=FetchOptions(
                given.integer("fetchMaxBytes", FETCH_BYTES, most=FETCH_BYTES_MAX),
                given.integer("fetchTimeoutMs", FETCH_TIMEOUT_MS),
                given.integer("fetchRetries", FETCH_RETRIES, least=0, most=FETCH_RETRIES_MAX),
            ),
            security=parse_security(given),
            keys=_keys(given),
            names=SPARK_NAMES,
        )


def includes_headers(options: Mapping[str, str]) -> bool:
    """All that the schema hangs on, of any kind of read."""
    return OptionMap(options).boolean("includeHeaders", default=False)


def _keys(given: OptionMap) -> KeySources:
    """``NAME=SOURCE``, by commas; by lines, if there are several lines."""
    text = given.text(KEYS_OPTION)
    if text is None:
        return KeySources(option=KEYS_OPTION)
    parts = re.split("\n" if "\n" in text.strip() else ",", text)
    return KeySources.of([part for part in parts if part.strip()], KEYS_OPTION)


def _store(url: str | None, endpoint: str | None) -> StoreOptions | None:
    if url is not None:
        return StoreOptions(url, endpoint, "store", "store.endpoint")
    if endpoint is not None:
        raise ConfigError("store.endpoint", "store is missing", "name its URL, too")
    return None


def _path(given: OptionMap) -> str | None:
    path, servers = given.text("path"), given.text("servers")
    if path is None and servers is None:
        remedy = "name the nodes (host:port,...), or with path a node's data folder"
        raise ConfigError("servers", "is missing, and so is path", remedy)
    if path is not None and servers is not None:
        raise ConfigError("servers", "path is given, too", "keep one of them")
    return path


def _starting(given: OptionMap, *, streaming: bool) -> Position:
    default = "latest" if streaming else "earliest"
    position = parse_offsets("startingOffsets", given.text("startingOffsets") or default)
    if streaming:
        return position
    if position == LATEST or (isinstance(position, dict) and LATEST in position.values()):
        problem = "a batch read cannot start at the latest offset: it would read nothing"
        raise ConfigError("startingOffsets", problem, "set earliest or offsets")
    return position


def _ending(given: OptionMap) -> Position:
    position = parse_offsets("endingOffsets", given.text("endingOffsets") or "latest")
    if position == EARLIEST or (isinstance(position, dict) and EARLIEST in position.values()):
        problem = "a read cannot end at the earliest offset: it would read nothing"
        raise ConfigError("endingOffsets", problem, "set latest or offsets")
    return position


def _times(given: OptionMap, end: str) -> Times:
    """One time for all wins over one for each partition."""
    timestamp_ms = given.optional_integer(f"{end}Timestamp", least=0)
    name = f"{end}OffsetsByTimestamp"
    text = given.text(name)
    times = None if text is None else parse_times(name, text)
    return times if timestamp_ms is None else timestamp_ms


def _late_start(given: OptionMap) -> Literal["error", "latest"]:
    name = "startingOffsetsByTimestampStrategy"
    return "latest" if given.word(name, ("error", "latest"), "error") == "latest" else "error"


def _limits(given: OptionMap) -> TriggerLimits:
    limits = TriggerLimits(
        given.optional_integer("maxOffsetsPerTrigger"),
        given.optional_integer("minOffsetsPerTrigger"),
        given.optional_integer("maxBytesPerTrigger"),
        parse_duration_ms("maxTriggerDelay", given.text("maxTriggerDelay") or "15m"),
    )
    least, most = limits.offsets_min, limits.offsets_max
    if least is not None and most is not None and least > most:
        problem = f"{least} is above maxOffsetsPerTrigger, {most}"
        raise ConfigError("minOffsetsPerTrigger", problem, "set it no higher")
    if given.text("maxTriggerDelay") is not None and least is None:
        problem = "it says how long minOffsetsPerTrigger is waited for, which is missing"
        raise ConfigError("maxTriggerDelay", problem, "set that, too")
    return limits
