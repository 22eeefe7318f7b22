import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_streamlog.options.read_options import SourceOptions
from pyspark_streamlog.source.checkpoint_offsets import StreamOffsets
from pyspark_streamlog.source.micro_batch import (
    Loss,
    Present,
    advanced,
    backlog,
    limited,
    losses,
    planned,
    tasks_of,
    with_cuts,
)
from pyspark_streamlog.source.schema import arrow_schema_of
from pyspark_streamlog.source.worker_heap import freeze_loaded_modules
from streamlog.arrow.data_loss import RECORDS_LOST, DataLoss, report_loss
from streamlog.arrow.location import Location, PartitionRange
from streamlog.arrow.offset_ranges import starting_offsets
from streamlog.arrow.range_reader import open_location, rows_of
from streamlog.errors import StreamNotFound
from streamlog.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class StreamlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: one of these lives in a process of the driver as long as the query does;
    pickled copies read on executors.

    The location is looked at again in each micro-batch: streams and partitions come and go.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema_of(schema)
        self._ceiling: StreamOffsets | None = None  # what was there when AvailableNow began
        self._moved_at = time.monotonic()  # when a batch last had rows
        self._present: Present | None = None  # as last seen
        self._cut: list[PartitionRange] = []  # the tasks of the last plan, with where they are read

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as below
        """Where a query without a checkpoint begins."""
        with open_location(self._options) as location:
            now = self._look(location, may_be_gone=False)
            starts = starting_offsets(location, now.bounds, self._options)
        return StreamOffsets(starts, _ids(now)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Whether there is any: Spark's own limits know one number, ours are looked at together."""
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with open_location(self._options) as location:
            now = self._look(location, may_be_gone=not self._options.fail_on_data_loss)
        self._ceiling = StreamOffsets(now.latest(), _ids(now))

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Raises DataLoss, and whatever keeps the location from being looked at: nothing that cannot
        be seen just now is taken to be gone.
        """
        begin = StreamOffsets.from_json(self.initialOffset() if start is None else start)
        with open_location(self._options) as location:
            now = self._look(location, may_be_gone=not self._options.fail_on_data_loss)
            for loss in losses(begin, now):
                self._report(loss)
            ranges = backlog(begin, now, self._ceiling)
            if not isinstance(limit, ReadAllAvailable):
                ranges = self._limited(ranges, location)
            end = advanced(begin, ranges)
            if end is begin and start is not None:
                return start
            options = self._options
            tasks = location.cut(planned(begin, end), options.task_bytes_max, options.tasks_min)
        self._moved_at = time.monotonic()
        self._cut = tasks
        return with_cuts(end, tasks).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the query's progress: how far behind it is."""
        now = self._present
        return None if now is None else StreamOffsets(now.latest(), _ids(now)).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The same tasks whenever it is asked for these offsets."""
        until = StreamOffsets.from_json(end)
        ranges = planned(StreamOffsets.from_json(start), until)
        with open_location(self._options) as location:
            firsts = self._first_readable(ranges, location)
            tasks = [
                task
                for it in ranges
                for task in tasks_of(it, until.cuts.get(it.name, ()), firsts[it.name])
            ]
            cut = {replace(it, stored=None): it for it in self._cut}
            self._cut = []  # copies for executors do not need it
            if not all(it in cut for it in tasks):  # it is no batch that was just planned here
                cut = dict(zip(tasks, location.placed(tasks), strict=True))
        return [InputPartition(cut[it]) for it in tasks]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        if partition.value is not None:
            freeze_loaded_modules()
            yield from rows_of(partition.value, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has it; nodes keep no state of a query."""

    def stop(self) -> None:
        """Nothing is open between two calls."""

    def _look(self, location: Location, *, may_be_gone: bool) -> Present:
        """``may_be_gone``: streams that are named and not there are passed over."""
        wanted = self._options.subscription
        listing = location.listing(wanted)
        try:
            names = listing.choose(wanted, self._options.names)
        except StreamNotFound:
            if not may_be_gone:
                raise
            names = [name for name in sorted(listing.stream_ids) if wanted.wants(name)]
        ids = {name: listing.stream_ids[name] for name in names}
        self._present = Present(ids, location.bounds(names))
        return self._present

    def _limited(self, ranges: list[PartitionRange], location: Location) -> list[PartitionRange]:
        limits = self._options.limits
        waited_ms = (time.monotonic() - self._moved_at) * 1000
        if limits.offsets_min is not None and self._ceiling is None:
            there = sum(it.end_offset - it.start_offset for it in ranges)
            if there < limits.offsets_min and waited_ms < limits.delay_max_ms:
                return [replace(it, end_offset=it.start_offset) for it in ranges]
        sizes = location.bytes_between(ranges) if limits.bytes_max is not None else {}
        return limited(ranges, limits.offsets_max, limits.bytes_max, sizes)

    def _first_readable(
        self, ranges: list[PartitionRange], location: Location
    ) -> dict[TopicPartition, int]:
        """Where what is left of each range begins: the plan may be an old one's, that is carried
        out again. What is lost is reported.
        """
        ids = location.listing(self._options.subscription).stream_ids
        there = [it for it in ranges if it.name in ids and it.stream_id in ("", ids[it.name])]
        bounds = location.bounds([it.name for it in there])
        firsts = {}
        for it in ranges:
            first, why = it.end_offset, "the stream was deleted, and perhaps created again"
            if it in there:
                first = min(max(bounds[it.name].log_start, it.start_offset), it.end_offset)
                why = f"the log starts at {bounds[it.name].log_start} now"
            if first > it.start_offset:
                self._report(Loss(it.name, it.start_offset, first, why))
            firsts[it.name] = first
        return firsts

    def _report(self, loss: Loss) -> None:
        fail = self._options.fail_on_data_loss
        if loss.first < loss.end:
            report_loss(loss.name, loss.first, loss.end, loss.why, self._options)
        elif fail:
            raise DataLoss(
                f"{loss.name}: what follows offset {loss.first} cannot be read; {loss.why};"
                " set failOnDataLoss=false to go on without it"
            )
        else:
            logger.warning(
                RECORDS_LOST.logged_as(f"records lost: {loss.name}: {loss.why}"),
                extra={"stream": loss.name.stream, "partition": loss.name.partition},
            )


def _ids(now: Present) -> dict[str, str]:
    return {name.stream: stream_id for name, stream_id in now.stream_ids.items()}
