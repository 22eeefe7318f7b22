"""What a query will read: for each partition a range of offsets, fixed once, by one plan.

Readers never ask what is newest, so all tasks of a query, and their retries, see the same rows.
"""

import logging
from collections.abc import Mapping
from typing import Final

from streamlog.arrow.filters import EVERYTHING, PushedFilters
from streamlog.arrow.location import Bounds, Location, PartitionRange
from streamlog.arrow.options.read_options import Position, ReadOptions, Times
from streamlog.condition import Condition
from streamlog.errors import ConfigError
from streamlog.model import TopicPartition
from streamlog.wire.special_offsets import EARLIEST, LATEST

logger = logging.getLogger(__name__)

OUTSIDE_OF_LOG: Final = Condition(
    "SL-0281",
    "an offset to read from, or to, is outside of the log",
    "set an offset that is in the log",
    meaning="A read was given an offset that is below the log start or above the high watermark. It "
    "begins, or ends, at the nearest offset that can be read, as its option about data loss says.",
)

Offsets = dict[TopicPartition, int]


def plan_offset_ranges(
    location: Location, options: ReadOptions, pushed: PushedFilters = EVERYTHING
) -> list[PartitionRange]:
    """One range for each partition that the options name, also where it is empty."""
    listing = location.listing(options.subscription)
    names = listing.choose(options.subscription, options.names)
    bounds = location.bounds(names)
    starts = starting_offsets(location, bounds, options)
    ends = _ending_offsets(location, bounds, options)
    for name in names:
        if starts[name] > ends[name]:
            problem = f"{name}: the read would start at {starts[name]} and end at {ends[name]}"
            remedy = "set a start that is not above the end"
            raise ConfigError(options.names.start, problem, remedy)
    ranges = [
        PartitionRange(name, listing.stream_ids[name], starts[name], ends[name]) for name in names
    ]
    return pushed.of(ranges, location)


def starting_offsets(
    location: Location, bounds: Mapping[TopicPartition, Bounds], options: ReadOptions
) -> Offsets:
    """Raises ConfigError where an option asks for what cannot be."""
    if options.starting_times is None:
        return _positions(options.names.start, options.starting, bounds, options)
    names = options.names
    option = names.start_times if isinstance(options.starting_times, dict) else names.start_time
    offsets: Offsets = {}
    for name, found in _at(location, option, options.starting_times, bounds).items():
        here = bounds[name]
        if found is not None and found < here.high_watermark:
            offsets[name] = max(found, here.log_start)
        elif options.late_start == "latest":
            offsets[name] = here.high_watermark
        else:
            problem = f"{name} has no record at or after the time asked for"
            remedy = f"set an earlier time, or {names.late_start}"
            raise ConfigError(option, problem, remedy)
    return offsets


def _ending_offsets(
    location: Location, bounds: Mapping[TopicPartition, Bounds], options: ReadOptions
) -> Offsets:
    if options.ending_times is None:
        return _positions(options.names.end, options.ending, bounds, options)
    names = options.names
    option = names.end_times if isinstance(options.ending_times, dict) else names.end_time
    return {
        name: bounds[name].high_watermark
        if found is None
        else min(max(found, bounds[name].log_start), bounds[name].high_watermark)
        for name, found in _at(location, option, options.ending_times, bounds).items()
    }


def _at(
    location: Location, option: str, times: Times, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int | None]:
    if not isinstance(times, dict):
        assert times is not None
        times = dict.fromkeys(bounds, times)
    _must_name_exactly(option, times, bounds)
    return location.offsets_at(times)


def _positions(
    option: str,
    position: Position,
    bounds: Mapping[TopicPartition, Bounds],
    options: ReadOptions,
) -> Offsets:
    if isinstance(position, dict):
        _must_name_exactly(option, position, bounds)
    offsets: Offsets = {}
    for name, here in bounds.items():
        offset = position[name] if isinstance(position, dict) else position
        if offset == EARLIEST:
            offsets[name] = here.log_start
        elif offset == LATEST:
            offsets[name] = here.high_watermark
        else:
            offsets[name] = _inside(option, name, offset, here, options)
    return offsets


def _must_name_exactly(
    option: str,
    named: Mapping[TopicPartition, int],
    there: Mapping[TopicPartition, Bounds],
) -> None:
    for problem, wrong in (
        ("has no such partition as", sorted(set(named) - set(there))),
        ("says nothing of", sorted(set(there) - set(named))),
    ):
        if wrong:
            listed = ", ".join(map(str, wrong))
            remedy = "name exactly the partitions that are read"
            raise ConfigError(option, f"the read {problem} {listed}", remedy)


def _inside(
    option: str, name: TopicPartition, offset: int, here: Bounds, options: ReadOptions
) -> int:
    """The offset, if it is in the log; else an error, or the nearest one that is."""
    nearest = min(max(offset, here.log_start), here.high_watermark)
    if nearest == offset:
        return offset
    problem = (
        f"{name}: offset {offset} is outside of what can be read,"
        f" [{here.log_start}, {here.high_watermark})"
    )
    if options.fail_on_data_loss:
        tolerate = options.names.tolerate_loss
        remedy = f"set an offset inside, or {tolerate} to read from {nearest}"
        raise ConfigError(option, problem, remedy)
    logger.warning(
        OUTSIDE_OF_LOG,
        extra={"stream": name.stream, "partition": name.partition, "offset": offset},
    )
    return nearest
