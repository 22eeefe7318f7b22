"""What a query will read: for each partition a range of offsets, fixed once, on the driver.

Executors never ask what is newest, so all tasks of a query, and their retries, see the same rows.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from pyspark_streamlog.folder import DataFolder
from pyspark_streamlog.offsets import EARLIEST, LATEST, Position
from pyspark_streamlog.options import ReadOptions, Subscription
from pyspark_streamlog.partition_files import PartitionFiles
from streamlog.errors import ConfigError, PartitionNotFound, StreamNotFound
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartitionRange:
    """Records of one partition with ``start_offset <= offset < end_offset``."""

    name: TopicPartition
    folder: Path
    start_offset: int
    end_offset: int


@dataclass(frozen=True)
class _Bounds:
    """What of a partition can be read at this moment."""

    name: TopicPartition
    files: PartitionFiles
    log_start: int
    high_watermark: int


def take_snapshot(folder: DataFolder, options: ReadOptions) -> list[PartitionRange]:
    """One range for each partition that the options name, also where it is empty."""
    names = choose_partitions(folder, options.subscription)
    _must_name_exactly("startingOffsets", options.starting, names)
    _must_name_exactly("endingOffsets", options.ending, names)
    ranges = []
    for name in names:
        bounds = _bounds(folder, name)
        start = _start(bounds, options)
        end = _end(bounds, options)
        if start > end:
            problem = f"{name}: the read would start at {start} and end at {end}"
            raise ConfigError("startingOffsets", problem, "set a start that is not above the end")
        ranges.append(PartitionRange(name, folder.partitions[name], start, end))
    return ranges


def choose_partitions(folder: DataFolder, wanted: Subscription) -> list[TopicPartition]:
    """The partitions to read. Raises where something that was named is not there."""
    there = ", ".join(folder.streams) or "none"
    if wanted.names_nothing:
        if len(folder.streams) == 1 and folder.path.name == folder.streams[0]:
            return sorted(folder.partitions)
        remedy = f"set one of subscribe, subscribePattern and assign; streams here: {there}"
        raise ConfigError("subscribe", "no stream is named", remedy)
    for stream in (*wanted.streams, *(name.stream for name in wanted.partitions)):
        if stream not in folder.streams:
            raise StreamNotFound(f"{folder.path} has no stream {stream!r}; it has {there}")
    for name in wanted.partitions:
        if name not in folder.partitions:
            raise PartitionNotFound(f"{folder.path} has no partition {name}")
    names = [name for name in sorted(folder.partitions) if wanted.wants(name)]
    if wanted.pattern is not None:  # as with Kafka, a pattern does not reach for what is internal
        names = [name for name in names if not name.stream.startswith("__")]
    if not names:
        raise StreamNotFound(f"no stream in {folder.path} matches the pattern; it has {there}")
    return names


def _must_name_exactly(option: str, position: Position, names: list[TopicPartition]) -> None:
    if not isinstance(position, dict):
        return
    for problem, wrong in (
        ("has no such partition as", sorted(set(position) - set(names))),
        ("says nothing of", sorted(set(names) - set(position))),
    ):
        if wrong:
            listed = ", ".join(map(str, wrong))
            remedy = "name exactly the partitions that are read"
            raise ConfigError(option, f"the read {problem} {listed}", remedy)


def _bounds(folder: DataFolder, name: TopicPartition) -> _Bounds:
    files = PartitionFiles(folder.partitions[name])
    log_start = max(files.start_offset, folder.log_starts.get(name, 0))
    high_watermark = min(files.end_offset(), folder.high_watermarks.get(name, 0))
    return _Bounds(name, files, log_start, max(log_start, high_watermark))


def _start(bounds: _Bounds, options: ReadOptions) -> int:
    if options.starting_timestamp_ms is not None:
        offset = bounds.files.offset_for_timestamp(
            options.starting_timestamp_ms, bounds.high_watermark
        )
        if offset is not None:
            return max(offset, bounds.log_start)
        if options.late_start == "latest":
            return bounds.high_watermark
        problem = f"{bounds.name} has no record at or after {options.starting_timestamp_ms}"
        remedy = "set an earlier time, or startingOffsetsByTimestampStrategy=latest"
        raise ConfigError("startingTimestamp", problem, remedy)
    offset = _of(options.starting, bounds.name)
    if offset == EARLIEST:
        return bounds.log_start
    return _inside("startingOffsets", offset, bounds, options)


def _end(bounds: _Bounds, options: ReadOptions) -> int:
    if options.ending_timestamp_ms is not None:
        offset = bounds.files.offset_for_timestamp(
            options.ending_timestamp_ms, bounds.high_watermark
        )
        return bounds.high_watermark if offset is None else max(offset, bounds.log_start)
    offset = _of(options.ending, bounds.name)
    if offset == LATEST:
        return bounds.high_watermark
    return _inside("endingOffsets", offset, bounds, options)


def _of(position: Position, name: TopicPartition) -> int:
    return position[name] if isinstance(position, dict) else position


def _inside(option: str, offset: int, bounds: _Bounds, options: ReadOptions) -> int:
    """The offset, if it is in the log; else an error, or the nearest one that is."""
    nearest = min(max(offset, bounds.log_start), bounds.high_watermark)
    if nearest == offset:
        return offset
    problem = (
        f"{bounds.name}: offset {offset} is outside of what can be read,"
        f" [{bounds.log_start}, {bounds.high_watermark})"
    )
    if options.fail_on_data_loss:
        remedy = f"set an offset inside, or failOnDataLoss=false to read from {nearest}"
        raise ConfigError(option, problem, remedy)
    logger.warning(
        "offset outside of the log",
        extra={"stream": bounds.name.stream, "partition": bounds.name.partition, "offset": offset},
    )
    return nearest
