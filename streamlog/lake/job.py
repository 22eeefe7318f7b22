"""A job that writes a stream into a table: what it is told, what it knows, and the loop of one without Spark.

A round: look at the log, fix the ranges to read, have them written into data files, commit files and position at once.
The table is the job's only memory. A job that is killed anywhere is begun again from the table's position; the files
that it had not committed belong to no snapshot, and ``maintain`` removes them.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from streamlog.arrow.location import Bounds, Location, PartitionRange
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.range_reader import open_location
from streamlog.errors import ConfigError
from streamlog.lake.catalog import TableName
from streamlog.lake.columns.schema_columns import columns_by
from streamlog.lake.columns.table_columns import TableColumns, dead_letter_schema
from streamlog.lake.data_files import WrittenRange
from streamlog.lake.position import OffsetRange, TablePosition, next_ranges
from streamlog.lake.range_writer import RangeWriter
from streamlog.lake.table import PATIENCE_S, LakeTable, commit_written, patiently
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)

TASK_BYTES: Final = 128 << 20
COMMIT_BYTES: Final = 512 << 20
INTERVAL_S: Final = 5.0
TABLE_SCHEMA: Final = "table_schema"
"""The setting of a stream that has the schema of its values."""
LOOK_S: Final = 1.0
"""Between two looks at the log while a job waits."""


@dataclass(frozen=True)
class JobOptions:
    """Of a job, with or without Spark."""

    stream: str
    read: ReadOptions
    """Where the stream is; its subscription names this stream alone."""
    table: TableName
    columns: TableColumns | None = None
    """None: by the stream's setting ``table_schema``, also when it is changed while the job goes on."""
    period: str = "none"
    """The table is partitioned by it, if it is made."""
    location: str | None = None
    table_properties: Mapping[str, str] = field(default_factory=dict)
    task_bytes: int = TASK_BYTES
    commit_bytes: int = COMMIT_BYTES
    """About as much of the log is read before a commit, if there is as much."""
    interval_s: float = INTERVAL_S
    """Between the beginnings of two commits, where the table has caught up."""
    patience_s: float = PATIENCE_S

    @property
    def loss_allowed(self) -> bool:
        return not self.read.fail_on_data_loss


@dataclass(frozen=True)
class TableCommit:
    """What one commit has brought."""

    position: TablePosition
    row_count: int
    dead_count: int
    byte_count: int
    seconds: float


class JobObserver:
    """Is told what a job does; this one is not interested."""

    def opened(self, position: TablePosition) -> None: ...

    def looked(self, bounds: Mapping[int, Bounds]) -> None:
        """At the log."""

    def committed(self, it: TableCommit) -> None: ...


class LakeJob:
    """The side of a job that knows the table. ``open`` comes first."""

    def __init__(
        self,
        options: JobOptions,
        observer: JobObserver | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self._monotonic = monotonic
        self.observer = observer or JobObserver()
        self._table: LakeTable | None = None
        self._dead: LakeTable | None = None
        self._positions: tuple[TablePosition, TablePosition] | None = None
        self._setting = ""
        self._told_s = 0.0
        """When the setting was asked for."""

    @property
    def position(self) -> TablePosition:
        if self._positions is None:
            raise ConfigError("job", "it has not been opened", "call open")
        return self._positions[0]

    def open(self) -> RangeWriter:
        """Makes the tables if they are not there, and reads where they are. Raises PositionError where they are of
        another stream.
        """
        options = self.options
        with open_location(options.read) as location:
            stream_id, _ = look(location, options)
            self._setting = self._told_setting(location)
        columns = columns_by(self._setting) if options.columns is None else options.columns
        self._table = LakeTable.at(options.table, patience_s=options.patience_s)
        self._dead = LakeTable.at(options.table.dead_letters, patience_s=options.patience_s)
        columns = columns.of_table(self._table.column_names())
        self._table.ensure(
            columns.schema(),
            time_column=columns.time_column,
            period=options.period,
            location=options.location,
            properties=options.table_properties,
        )
        dead_target, dead_position = None, None
        if columns.has_dead_letters:
            self._dead.ensure(dead_letter_schema(), period=options.period)
            dead_target, dead_position = self._dead.target(), self._dead.position()
        empty = TablePosition(options.stream, stream_id)
        position = (self._table.position() or empty).of_stream(options.stream, stream_id)
        dead = (dead_position or empty).of_stream(options.stream, stream_id)
        self._positions = (position, dead)
        self.observer.opened(position)
        return RangeWriter(options.read, columns, self._table.target(), dead_target, dead.ends)

    def is_outdated(self, location: Location) -> bool:
        """The stream's schema is another one than at the last ``open``, which is to be called again. It is asked for
        once in the interval of commits; in between the answer is no.
        """
        if self._monotonic() - self._told_s < self.options.interval_s:
            return False
        return self._told_setting(location) != self._setting

    def _told_setting(self, location: Location) -> str:
        """Nodes before feature level 3 tell none."""
        if self.options.columns is not None:
            return ""
        self._told_s = self._monotonic()
        return str(location.settings(self.options.stream).get(TABLE_SCHEMA, ""))

    def commit(self, written: Sequence[WrittenRange]) -> None:
        """Raises TakenOver and CatalogUnavailable, after which the job is to be opened again."""
        if self._table is None or self._dead is None or self._positions is None:
            raise ConfigError("job", "it has not been opened", "call open")
        if all(it.range_.start_offset == it.range_.end_offset for it in written):
            moved = any(
                it.range_.end_offset != self.position.ends.get(it.range_.partition, 0)
                for it in written
            )
            if not moved:
                return
        begun = time.monotonic()
        for it in written:
            self.position.of_stream(self.options.stream, it.stream_id)
        self._positions = commit_written(
            self._table,
            self._dead,
            self._positions,
            written,
            loss_allowed=self.options.loss_allowed,
        )
        self.observer.committed(
            TableCommit(
                self.position,
                sum(it.row_count for it in written),
                sum(it.dead_count for it in written),
                sum(it.byte_count for it in written),
                time.monotonic() - begun,
            )
        )


def look(location: Location, options: JobOptions) -> tuple[str, dict[int, Bounds]]:
    """The stream's id, and the bounds of its partitions. Raises StreamNotFound."""
    wanted = options.read.subscription
    listing = location.listing(wanted)
    names = listing.choose(wanted, options.read.names)
    bounds = location.bounds(names)
    stream_id = next((listing.stream_ids[name] for name in names), "")
    return stream_id, {name.partition: bounds[name] for name in names}


def run_without_spark(job: LakeJob, *, once: bool, wait: Callable[[float], bool]) -> None:
    """In this process, one piece after the other. ``once``: up to what was committed when it began. ``wait`` so many
    seconds; it says whether to stop.
    """
    options = job.options
    writer = job.open()
    ceiling: dict[int, int] | None = None
    while True:
        begun = time.monotonic()
        with open_location(options.read) as location:
            stream_id, bounds = look(location, options)
            job.position.of_stream(options.stream, stream_id)
            job.observer.looked(bounds)
            if job.is_outdated(location):
                writer = job.open()
            if once and ceiling is None:
                ceiling = {number: it.high_watermark for number, it in bounds.items()}
            ranges = next_ranges(
                job.position,
                {number: (it.log_start, it.high_watermark) for number, it in bounds.items()},
                loss_allowed=options.loss_allowed,
            )
            tasks = cut(location, _below(ranges, ceiling), stream_id, options)
        if tasks:
            job.commit([patiently(partial(writer.write, it), options.patience_s) for it in tasks])
        elif once:
            return
        left_s = 0.0 if tasks and once else options.interval_s - (time.monotonic() - begun)
        until = time.monotonic() + max(0.0, left_s)
        while not wait(min(LOOK_S, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                break
            with open_location(options.read) as location:
                job.observer.looked(look(location, options)[1])
        else:
            return


def cut(
    location: Location, ranges: Iterable[OffsetRange], stream_id: str, options: JobOptions
) -> list[PartitionRange]:
    """Tasks of one commit: the first of each partition, the second of each, and so on, until there is enough."""
    whole = [
        PartitionRange(
            TopicPartition(options.stream, it.partition), stream_id, it.start_offset, it.end_offset
        )
        for it in ranges
        if it.start_offset < it.end_offset
    ]
    pieces = location.cut(whole, options.task_bytes, 1)
    seen: Counter[int] = Counter()
    turns = []
    for it in pieces:
        turns.append((seen[it.name.partition], it))
        seen[it.name.partition] += 1
    turns.sort(key=lambda pair: pair[0])
    return [it for _, it in turns[: max(1, options.commit_bytes // options.task_bytes)]]


def _below(ranges: Iterable[OffsetRange], ceiling: Mapping[int, int] | None) -> list[OffsetRange]:
    if ceiling is None:
        return list(ranges)
    return [
        OffsetRange(
            it.partition,
            it.start_offset,
            max(it.start_offset, min(it.end_offset, ceiling.get(it.partition, it.start_offset))),
        )
        for it in ranges
    ]
