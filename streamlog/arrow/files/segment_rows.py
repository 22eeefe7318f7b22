"""Rows of one range out of segments, wherever the segments are: segment bytes in, Arrow record batches out."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streamlog.arrow.files.segment_piece import OpenedPieces, SegmentPiece, is_encrypted_at
from streamlog.arrow.files.segment_reader import SegmentFile
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

IsAborted = Callable[[int, int], bool]
"""Of a batch of a transaction, by its producer and its base offset."""


class _Encrypted(Exception):
    """The decoder has got to a batch that has to be opened first."""


class SegmentRows:
    """Segments are read one after the other, in the order of their offsets."""

    def __init__(
        self, range_: PartitionRange, options: ReadOptions, schema: "pa.Schema", openers: Openers
    ) -> None:
        self._range = range_
        self._options = options
        self._schema = schema
        self._openers = openers
        self._is_aborted: IsAborted | None = None
        self._decoder = decoder_for(range_, options, schema)
        self._buffer = bytearray(CHUNK_BYTES)
        self.expected_offset = range_.start_offset
        """All rows below it have been read, or their loss has been told."""

    @property
    def finished(self) -> bool:
        """All of the range has been read."""
        return self._decoder.finished

    @property
    def next_offset(self) -> int:
        """Batches below it have been read or passed over."""
        return self._decoder.next_offset

    def pass_over(self, is_aborted: IsAborted | None) -> None:
        """What of the segments from now on is no row."""
        self._is_aborted = self._decoder.passes_over = is_aborted

    def read(self, segment: SegmentFile, *, sealed: bool) -> Iterator["pa.RecordBatch"]:
        """Its rows, but for the last ones, which come with those of the next segment or with ``rest``.

        Raises CorruptBatch with file and position, EncryptionKeyMissing where a key is needed and not there, and
        FileNotFoundError.
        """
        decoder, opened = self._decoder, None
        if self._openers.of(segment.files, segment.final_path).has_key:
            opened = self._opened_pieces(segment)
        with segment.open() as file:
            size = file.size()
            position = segment.position_before(self.expected_offset, file)
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
                        break
                    self._buffer = bytearray(max(needed, CHUNK_BYTES))
        self.expected_offset = max(self.expected_offset, decoder.next_offset)

    def rest(self) -> Iterator["pa.RecordBatch"]:
        """The rows that have been read and not given."""
        if self._decoder.row_count:
            yield self._take()

    def start_anew(self) -> Iterator["pa.RecordBatch"]:
        """What has been read so far. A batch of a new segment may begin before that ends."""
        yield from self.rest()
        rest = replace(self._range, start_offset=self.expected_offset)
        self._decoder = decoder_for(rest, self._options, self._schema)
        self._decoder.passes_over = self._is_aborted

    def _opened_pieces(self, segment: SegmentFile) -> OpenedPieces:
        return OpenedPieces(
            self._openers.of(segment.files, segment.final_path),
            max(self._range.start_offset, self.expected_offset),
            self._range.end_offset,
            check_crc=self._options.check_crc,
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


def _corrupt(segment: SegmentFile, position: int, error: CorruptBatch) -> CorruptBatch:
    remedy = "a replica that is whole may be read instead, or servers"
    return CorruptBatch(f"{segment.path} at byte {position}: {error}; {remedy}")
