"""Reads one range of one partition on an executor: segment bytes in, Arrow record batches out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streamlog.arrow.data_loss import report_loss
from streamlog.arrow.files.partition_folder import PartitionFiles
from streamlog.arrow.files.segment_piece import OpenedPieces, SegmentPiece, is_encrypted_at
from streamlog.arrow.files.segment_reader import SegmentFile
from streamlog.arrow.files.stream_folder import Roots
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.options.encryption_keys import Openers
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.row_decoder import decoder_for
from streamlog.errors import CorruptBatch, CorruptFile
from streamlog.record.columns import arrow_batch

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES: Final = 1 << 20
"""One read of a segment; more where one batch is larger."""


class _Encrypted(Exception):
    """The decoder has got to a batch that has to be opened first."""


class FileReader:
    """Gives the rows of ``range_`` once. Not to be used again."""

    def __init__(self, range_: PartitionRange, options: ReadOptions, schema: "pa.Schema") -> None:
        assert options.path is not None
        self._path = options.path
        self._range = range_
        self._schema = schema
        self._options = options
        self._decoder = decoder_for(range_, options, schema)
        # All rows below it have been read, or their loss has been told.
        self._expected_offset = range_.start_offset
        self._buffer = bytearray(CHUNK_BYTES)
        self._openers = Openers(options.keys)

    def read(self) -> Iterator["pa.RecordBatch"]:
        """Raises CorruptBatch with file and position, DataLoss if that was asked for, and
        EncryptionKeyMissing where a key is needed and not there.
        """
        roots, end = Roots.of(self._path, self._openers), self._range.end_offset
        files = roots.partition(self._range.name)
        if not self._is_same_stream(files):
            self._lost_before(end, "the stream was deleted, and perhaps created again")
            return
        self._transactions = files.transactions()
        self._decoder.passes_over = self._transactions.has_aborted
        segment = files.segment_from(self._expected_offset)
        while not self._decoder.finished:
            is_end = segment is None or segment.base_offset >= end
            following = end if segment is None or is_end else segment.base_offset
            if following > self._expected_offset:
                # A folder that changed while it was listed or read tells of holes that are none.
                fresh = roots.partition(self._range.name)
                if not fresh.has_sealed_as(files):
                    yield from self._start_anew()
                    files, segment = fresh, fresh.segment_from(self._expected_offset)
                    continue
            if segment is None or is_end:
                break
            self._lost_before(segment.base_offset, f"{segment.path} is the next segment")
            try:
                yield from self._read_segment(segment, sealed=segment != files.segments[-1])
            except FileNotFoundError:
                # Retention took it, or compaction made one of several: the folder tells.
                yield from self._start_anew()
                files = roots.partition(self._range.name)
                segment = files.segment_from(self._expected_offset)
                continue
            self._expected_offset = max(self._expected_offset, self._decoder.next_offset)
            segment = files.segment_after(segment, self._expected_offset)
        if self._decoder.row_count:
            yield self._take()
        if not self._decoder.finished:
            follows = segment is not None and f"{segment.path} is the next segment"
            self._lost_before(end, follows or "the log ends there")

    def _is_same_stream(self, files: PartitionFiles) -> bool:
        found, planned = files.stream_id(), self._range.stream_id
        return bool(files.segments) and planned in ("", found)

    def _start_anew(self) -> Iterator["pa.RecordBatch"]:
        """What has been read so far. A batch of a new segment may begin before that ends."""
        if self._decoder.row_count:
            yield self._take()
        rest = replace(self._range, start_offset=self._expected_offset)
        self._decoder = decoder_for(rest, self._options, self._schema)
        self._decoder.passes_over = self._transactions.has_aborted

    def _read_segment(self, segment: SegmentFile, *, sealed: bool) -> Iterator["pa.RecordBatch"]:
        decoder, opened = self._decoder, None
        if self._openers.of(segment.files, segment.final_path).has_key:
            opened = self._opened_pieces(segment)
        with segment.open() as file:
            size = file.size()
            position = segment.position_before(self._expected_offset, file)
            while position < size and not decoder.finished:
                count = file.read_into(self._buffer, position)
                piece = SegmentPiece(memoryview(self._buffer)[:count], position)
                if opened is not None:
                    piece = self._opened(segment, opened, piece)
                decoder.feed(piece.data)
                try:
                    yield from self._decode(segment, piece)
                except _Encrypted:  # from here on, for all we know
                    opened = self._opened_pieces(segment)
                    position = piece.position(decoder.position)
                    continue
                position = piece.position(decoder.position)
                if decoder.position == 0 and not decoder.finished:
                    needed = decoder.bytes_needed
                    if position + needed > size:
                        self._torn(segment, position, sealed=sealed)
                        return
                    self._buffer = bytearray(max(needed, CHUNK_BYTES))

    def _opened_pieces(self, segment: SegmentFile) -> OpenedPieces:
        range_, options = self._range, self._options
        return OpenedPieces(
            self._openers.of(segment.files, segment.final_path),
            max(range_.start_offset, self._expected_offset),
            range_.end_offset,
            check_crc=options.check_crc,
        )

    def _opened(
        self, segment: SegmentFile, opened: OpenedPieces, piece: SegmentPiece
    ) -> SegmentPiece:
        try:
            return opened.piece(memoryview(piece.data), piece.at)
        except CorruptBatch as error:
            raise _corrupt(segment, piece.at, error) from None
        except CorruptFile:
            with segment.open():  # else it went, and its key with it
                raise

    def _decode(self, segment: SegmentFile, piece: SegmentPiece) -> Iterator["pa.RecordBatch"]:
        decoder = self._decoder
        try:
            while decoder.decode():
                yield self._take()
        except CorruptBatch as error:
            if not piece.is_opened and is_encrypted_at(piece.data, decoder.position):
                raise _Encrypted from None
            raise _corrupt(segment, piece.position(decoder.position), error) from None

    def _take(self) -> "pa.RecordBatch":
        name = self._range.name
        return arrow_batch(self._decoder.take(), self._schema, name.stream, name.partition)

    def _torn(self, segment: SegmentFile, position: int, *, sealed: bool) -> None:
        """A cut batch is what a crash leaves at the end of a log, but nowhere else."""
        if sealed:
            problem = "the segment ends inside a batch, though another segment follows"
            raise CorruptBatch(f"{segment.path} at byte {position}: {problem}")

    def _lost_before(self, offset: int, why: str) -> None:
        """Account for rows that should have come before ``offset`` and did not."""
        end = min(offset, self._range.end_offset)
        first, self._expected_offset = self._expected_offset, max(self._expected_offset, end)
        if first < end:
            report_loss(self._range.name, first, end, why, self._options)


def _corrupt(segment: SegmentFile, position: int, error: CorruptBatch) -> CorruptBatch:
    remedy = "a replica that is whole may be read instead, or servers"
    return CorruptBatch(f"{segment.path} at byte {position}: {error}; {remedy}")
