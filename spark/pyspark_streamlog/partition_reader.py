"""Reads one range of one partition on an executor: segment bytes in, Arrow record batches out."""

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark_streamlog.options import ReadOptions
from pyspark_streamlog.partition_files import PartitionFiles, Segment
from pyspark_streamlog.snapshot import PartitionRange
from streamlog.errors import CorruptBatch, CorruptData
from streamlog.record.columns import ColumnDecoder, arrow_batch

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1 << 20
"""One read of a segment; more where one batch is larger."""


class DataLoss(CorruptData):
    """Records that the plan counted on are not there any more."""


class PartitionReader:
    """Gives the rows of ``range_`` once. Not to be used again."""

    def __init__(self, range_: PartitionRange, options: ReadOptions, schema: "pa.Schema") -> None:
        self._range = range_
        self._schema = schema
        self._fail_on_data_loss = options.fail_on_data_loss
        self._decoder = ColumnDecoder(
            schema.names,
            start_offset=range_.start_offset,
            end_offset=range_.end_offset,
            check_crc=options.check_crc,
            rows_max=options.batch_rows,
            bytes_max=options.batch_bytes,
        )
        # All rows below it have been read, or their loss has been told.
        self._expected_offset = range_.start_offset
        self._buffer = bytearray(CHUNK_BYTES)

    def read(self) -> Iterator["pa.RecordBatch"]:
        """Raises CorruptBatch with file and position, and DataLoss if that was asked for."""
        files = PartitionFiles(self._range.folder)
        segments = files.segments_between(self._range.start_offset, self._range.end_offset)
        for segment in segments:
            sealed = segment != files.segments[-1]
            self._lost_before(segment.base_offset, f"{segment.path} is the next segment")
            try:
                yield from self._read_segment(segment, sealed=sealed)
            except FileNotFoundError:
                continue  # retention took it; the next segment, or the end, tells what was lost
            self._expected_offset = max(self._expected_offset, self._decoder.next_offset)
        if self._decoder.row_count:
            yield self._take()
        self._lost_before(self._range.end_offset, "the log ends there")

    def _read_segment(self, segment: Segment, *, sealed: bool) -> Iterator["pa.RecordBatch"]:
        decoder = self._decoder
        with segment.open() as file:
            size = file.size()
            position = segment.position_before(self._range.start_offset)
            while position < size and not decoder.finished:
                count = os.preadv(file.fileno(), [self._buffer], position)
                decoder.feed(memoryview(self._buffer)[:count])
                yield from self._decode(segment, position)
                position += decoder.position
                if decoder.position == 0 and not decoder.finished:
                    needed = decoder.bytes_needed
                    if position + needed > size:
                        self._torn(segment, position, sealed=sealed)
                        return
                    self._buffer = bytearray(max(needed, CHUNK_BYTES))

    def _decode(self, segment: Segment, position: int) -> Iterator["pa.RecordBatch"]:
        try:
            while self._decoder.decode():
                yield self._take()
        except CorruptBatch as error:
            where = f"{segment.path} at byte {position + self._decoder.position}"
            raise CorruptBatch(f"{where}: {error}") from None

    def _take(self) -> "pa.RecordBatch":
        name = self._range.name
        return arrow_batch(self._decoder.take(), self._schema, name.stream, name.partition)

    def _torn(self, segment: Segment, position: int, *, sealed: bool) -> None:
        """A cut batch is what a crash leaves at the end of a log, but nowhere else."""
        if sealed:
            problem = "the segment ends inside a batch, though another segment follows"
            raise CorruptBatch(f"{segment.path} at byte {position}: {problem}")

    def _lost_before(self, offset: int, why: str) -> None:
        """Account for rows that should have come before ``offset`` and did not."""
        end = min(offset, self._range.end_offset)
        first, self._expected_offset = self._expected_offset, max(self._expected_offset, end)
        if first >= end:
            return
        name = self._range.name
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{name}: offsets [{first}, {end}) were there when the query was planned and are"
                f" not now; {why}; set failOnDataLoss=false to go on without them"
            )
        logger.warning(
            "records lost",
            extra={"stream": name.stream, "partition": name.partition, "offset": first, "end": end},
        )
