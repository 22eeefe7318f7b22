"""Reads one range of one partition on an executor, out of a folder that a node may be writing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamlog.arrow.data_loss import report_loss
from streamlog.arrow.files.partition_folder import PartitionFiles
from streamlog.arrow.files.segment_rows import SegmentRows
from streamlog.arrow.files.stream_folder import Roots
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.options.encryption_keys import Openers
from streamlog.arrow.options.read_options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


class FileReader:
    """Gives the rows of ``range_`` once. Not to be used again."""

    def __init__(self, range_: PartitionRange, options: ReadOptions, schema: "pa.Schema") -> None:
        assert options.path is not None
        self._path = options.path
        self._range = range_
        self._options = options
        self._openers = Openers(options.keys)
        self._rows = SegmentRows(range_, options, schema, self._openers)

    def read(self) -> Iterator["pa.RecordBatch"]:
        """Raises CorruptBatch with file and position, DataLoss if that was asked for, and
        EncryptionKeyMissing where a key is needed and not there.
        """
        roots, end, rows = Roots.of(self._path, self._openers), self._range.end_offset, self._rows
        files = roots.partition(self._range.name)
        if not self._is_same_stream(files):
            self._lost_before(end, "the stream was deleted, and perhaps created again")
            return
        rows.pass_over(files.transactions().has_aborted)
        segment = files.segment_from(rows.expected_offset)
        while not rows.finished:
            is_end = segment is None or segment.base_offset >= end
            following = end if segment is None or is_end else segment.base_offset
            if following > rows.expected_offset:
                # A folder that changed while it was listed or read tells of holes that are none.
                fresh = roots.partition(self._range.name)
                if not fresh.has_sealed_as(files):
                    yield from rows.start_anew()
                    files, segment = fresh, fresh.segment_from(rows.expected_offset)
                    continue
            if segment is None or is_end:
                break
            self._lost_before(segment.base_offset, f"{segment.path} is the next segment")
            try:
                yield from rows.read(segment, sealed=segment != files.segments[-1])
            except FileNotFoundError:
                # Retention took it, or compaction made one of several: the folder tells.
                yield from rows.start_anew()
                files = roots.partition(self._range.name)
                segment = files.segment_from(rows.expected_offset)
                continue
            segment = files.segment_after(segment, rows.expected_offset)
        yield from rows.rest()
        if not rows.finished:
            follows = segment is not None and f"{segment.path} is the next segment"
            self._lost_before(end, follows or "the log ends there")

    def _is_same_stream(self, files: PartitionFiles) -> bool:
        found, planned = files.stream_id(), self._range.stream_id
        return bool(files.segments) and planned in ("", found)

    def _lost_before(self, offset: int, why: str) -> None:
        """Account for rows that should have come before ``offset`` and did not."""
        rows, end = self._rows, min(offset, self._range.end_offset)
        first, rows.expected_offset = rows.expected_offset, max(rows.expected_offset, end)
        if first < end:
            report_loss(self._range.name, first, end, why, self._options)
