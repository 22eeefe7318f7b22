"""Record batches into the buffers of Arrow columns in plain Python, which the compiled decoder is
held to. Both raise the same error for the same bytes.
"""

import struct
from array import array
from collections.abc import Collection, Iterator
from typing import NamedTuple, NoReturn

import crc32c

from streamlog.errors import CorruptBatch
from streamlog.record.columns import Part
from streamlog.record.compiled.columns import DATA_BYTES_MAX, ROW_BYTES, TIMESTAMP_MS_MAX
from streamlog.record.compression import UNCOMPRESSED_BYTES_MAX, Compression, decompress

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_BYTES = 12
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class _Cut(Exception):
    """A varint or a length runs past the end of what holds it."""


class _Cursor:
    """A place in bytes, and the end that it may not pass."""

    def __init__(self, data: memoryview, place: int, end: int) -> None:
        self.data = data
        self.place = place
        self.end = end

    def varlong(self) -> int:
        raw = shift = 0
        while True:
            if self.place >= self.end or shift > 63 or (shift == 63 and self.data[self.place] > 1):
                raise _Cut
            byte = self.data[self.place]
            self.place += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7

    def varint(self) -> int:
        value = self.varlong()
        if not -INT32_MAX - 1 <= value <= INT32_MAX:
            raise _Cut
        return value

    def value(self) -> bytes | None:
        length = self.varint()
        if length < -1 or length > self.end - self.place:
            raise _Cut
        if length < 0:
            return None
        self.place += length
        return bytes(self.data[self.place - length : self.place])


class _Offsets:
    """Arrow's int32 offsets with a validity bitmap."""

    def __init__(self) -> None:
        self.validity = bytearray()
        self.ends = array("i", [0])
        self.null_count = 0

    def append(self, end: int, *, valid: bool) -> None:
        row = len(self.ends) - 1
        if row % 8 == 0:
            self.validity.append(0)
        if valid:
            self.validity[-1] |= 1 << row % 8
        else:
            self.null_count += 1
        self.ends.append(end)


class _BytesColumn:
    """A column of type binary, or of type string if ``append_text`` is used."""

    def __init__(self) -> None:
        self.offsets = _Offsets()
        self.data = bytearray()

    def append(self, value: bytes | None) -> None:
        self.data += value or b""
        self.offsets.append(len(self.data), valid=value is not None)

    def append_text(self, value: bytes | None) -> None:
        self.append(None if value is None else value.decode("utf-8", "replace").encode())

    def parts(self) -> Part:
        return self.offsets.null_count, self.offsets.validity, self.offsets.ends, self.data


class _Rows:
    """What is waiting for ``take``."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.key = _BytesColumn()
        self.value = _BytesColumn()
        self.subject = _BytesColumn()
        self.headers = _Offsets()
        self.header_keys = _BytesColumn()
        self.header_values = _BytesColumn()
        self.offsets = array("q")
        self.timestamps = array("q")
        self.types = array("i")

    def part(self, column: str) -> dict[str, Part]:
        """A column by its name; that of headers comes in three pieces."""
        if column == "headers":
            return {
                "headers": (self.headers.null_count, self.headers.validity, self.headers.ends, b""),
                "headers.key": self.header_keys.parts(),
                "headers.value": self.header_values.parts(),
            }
        if column in ("key", "value", "subject"):
            text: _BytesColumn = getattr(self, column)
            return {column: text.parts()}
        names = {"offset": self.offsets, "timestamp": self.timestamps, "timestampType": self.types}
        return {column: (0, None, None, names[column])}


class _Batch(NamedTuple):
    """The batch that is being decoded."""

    cursor: _Cursor
    base_timestamp: int
    append_timestamp: int
    log_append_time: bool


class ColumnDecoder:
    """Record batches in, buffers of the wanted columns out; see ``streamlog.record.columns``."""

    COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "subject", "headers")

    def __init__(
        self,
        columns: Collection[str],
        *,
        start_offset: int = 0,
        end_offset: int = INT64_MAX,
        check_crc: bool = True,
        rows_max: int = 65_536,
        bytes_max: int = 4 << 20,
    ) -> None:
        self._columns = [name for name in self.COLUMNS if name in columns]
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._check_crc = check_crc
        self._rows_max = max(1, rows_max)
        self._bytes_max = min(max(1, bytes_max), DATA_BYTES_MAX)
        self.next_offset = 0
        self.finished = start_offset >= end_offset
        self._batch: _Batch | None = None
        self._batch_end = 0
        self._base_offset = 0
        self._previous_delta = self._last_delta = -1
        self._records_left = 0  # 0 between batches
        self._rows = _Rows()
        self.feed(b"")

    @property
    def row_count(self) -> int:
        return self._rows.count

    def feed(self, buffer: bytes | bytearray | memoryview) -> None:
        """The next bytes; they begin with a batch. What is left of the last ones is forgotten."""
        if self._records_left:
            raise ValueError("the last buffer is not decoded yet")
        self._view = memoryview(buffer).cast("B")
        self.position = 0

    @property
    def bytes_needed(self) -> int:
        """How many bytes, from ``position`` on, the next step needs at least."""
        if len(self._view) - self.position < LENGTH_BYTES:
            return HEADER.size
        length: int = struct.unpack_from(">i", self._view, self.position + 8)[0]
        return max(HEADER.size, LENGTH_BYTES + length)

    def decode(self) -> bool:
        """Go on until a ``take`` is due (True) or all whole batches are used up (False)."""
        while not self.finished:
            if self._records_left == 0 and not self._begin_batch():
                return False
            if self._records_left and self._decode_records():
                return True
        return False

    def take(self) -> tuple[int, dict[str, Part]]:
        """The rows so far: their number, and each wanted column in its parts."""
        rows = self._rows
        self._rows = _Rows()
        columns: dict[str, Part] = {}
        for name in self._columns:
            columns |= rows.part(name)
        return rows.count, columns

    def _corrupt(self, problem: str) -> NoReturn:
        raise CorruptBatch(f"record batch at offset {self._base_offset}: {problem}")

    def _begin_batch(self) -> bool:
        """Read the header at ``position``. False if the batch is cut. No records: it is skipped."""
        available = len(self._view) - self.position
        if available < HEADER.size:
            return False
        header = HEADER.unpack_from(self._view, self.position)
        self._base_offset, length, _, magic = header[:4]
        self._last_delta = header[6]
        size = LENGTH_BYTES + length
        if magic != 2:
            self._corrupt("its magic is not 2")
        if size < HEADER.size:
            self._corrupt("its length is too small")
        if self._last_delta < 0 or self._base_offset > INT64_MAX - INT32_MAX - 1:
            self._corrupt("its offsets are impossible")
        if self._base_offset < self.next_offset:
            self._corrupt("its offset is below that of the batch before it")
        if self._base_offset >= self._end_offset:
            self.finished = True
            return True
        if size > available:
            return False
        self._open_batch(header, self.position, self.position + size)
        return True

    def _open_batch(self, header: tuple[int, ...], start: int, end: int) -> None:
        """Check what the header says of the records, and make them ready to be decoded."""
        crc, attributes, _, base_timestamp, append_timestamp = header[4:9]
        count = header[12]
        self._batch_end = end
        if self._base_offset + self._last_delta < self._start_offset:
            self._end_batch()
            return
        if self._check_crc and crc32c.crc32c(self._view[start + 21 : end]) != crc:
            self._corrupt("its checksum is wrong")
        if not 0 <= count <= self._last_delta + 1:
            self._corrupt("its record count is impossible")
        if attributes & 0x20 or count == 0:  # a control batch is the log's own, not the user's
            self._end_batch()
            return
        if attributes & 0x4000:
            self._corrupt("it is encrypted")
        records = self._view[start + HEADER.size : end]
        if attributes & 0x07:
            records = self._decompress(attributes & 0x07, records)
        if not records:
            self._corrupt("a record runs past its end")
        cursor = _Cursor(records, 0, len(records))
        self._batch = _Batch(cursor, base_timestamp, append_timestamp, bool(attributes & 0x08))
        self._previous_delta = -1
        self._records_left = count

    def _decompress(self, codec: int, records: memoryview) -> memoryview:
        try:
            codec = Compression.of_attributes(codec)
            return memoryview(decompress(codec, records, bytes_max=UNCOMPRESSED_BYTES_MAX))
        except CorruptBatch as error:
            self._corrupt(str(error))

    def _end_batch(self) -> None:
        self._records_left = 0
        self._batch = None
        self.position = self._batch_end
        self.next_offset = self._base_offset + self._last_delta + 1
        if self.next_offset >= self._end_offset:
            self.finished = True

    def _decode_records(self) -> bool:
        """Rows until the batch ends (False) or there are enough of them (True)."""
        batch = self._batch
        assert batch is not None
        cursor = batch.cursor
        while self._records_left:
            if self._rows.count >= self._rows_max or self._rows.bytes >= self._bytes_max:
                return True
            record = self._record(cursor)
            if self._rows.count and self._rows.bytes + record.end - record.place > DATA_BYTES_MAX:
                return True
            record.place += 1  # attributes of a record: none are defined
            try:
                timestamp_delta, delta = record.varlong(), record.varint()
            except _Cut:
                self._corrupt("a record is cut")
            if not self._previous_delta < delta <= self._last_delta:
                self._corrupt("a record's offset is impossible")
            offset = self._base_offset + delta
            if offset >= self._end_offset:
                self._end_batch()
                return False
            if offset >= self._start_offset:
                self._append_row(batch, record, offset, timestamp_delta)
            self._previous_delta = delta
            cursor.place = record.end
            self._records_left -= 1
        if cursor.place != cursor.end:
            self._corrupt("bytes follow its last record")
        self._end_batch()
        return False

    def _record(self, cursor: _Cursor) -> _Cursor:
        """The record at the cursor, which itself stays where it is."""
        record = _Cursor(cursor.data, cursor.place, cursor.end)
        try:
            length = record.varint()
        except _Cut:
            length = 0
        if not 0 < length <= record.end - record.place:
            self._corrupt("a record runs past its end")
        record.end = record.place + length
        return record

    def _append_row(
        self, batch: _Batch, record: _Cursor, offset: int, timestamp_delta: int
    ) -> None:
        try:
            key, value = record.value(), record.value()
        except _Cut:
            self._corrupt("a record is cut")
        rows = self._rows
        if "key" in self._columns:
            rows.key.append(key)
            rows.bytes += len(key or b"")
        if "value" in self._columns:
            rows.value.append(value)
            rows.bytes += len(value or b"")
        if "subject" in self._columns or "headers" in self._columns:
            self._append_headers(record)
        timestamp = batch.append_timestamp
        if not batch.log_append_time:
            timestamp = (batch.base_timestamp + timestamp_delta + 2**63) % 2**64 - 2**63
        if "timestamp" in self._columns:
            if not -TIMESTAMP_MS_MAX <= timestamp <= TIMESTAMP_MS_MAX:
                self._corrupt("a timestamp is impossible")
            rows.timestamps.append(timestamp * 1000)
        rows.offsets.append(offset)
        rows.types.append(batch.log_append_time)
        rows.bytes += ROW_BYTES
        rows.count += 1

    def _append_headers(self, record: _Cursor) -> None:
        """The first one named ``subject`` is that column; all of them are ``headers``."""
        rows = self._rows
        want_headers = "headers" in self._columns
        subject: bytes | None = None
        found = False
        for name, value in self._headers(record):
            if want_headers:
                rows.header_keys.append_text(name)
                rows.header_values.append(value)
                rows.bytes += ROW_BYTES + len(name) + len(value or b"")
            if not found and name == b"subject":
                subject, found = value, True
                if not want_headers:
                    break
        if "subject" in self._columns:
            rows.subject.append_text(subject)
            rows.bytes += len(subject or b"")
        if want_headers:
            count = len(rows.header_keys.offsets.ends) - 1
            rows.headers.append(count, valid=count > rows.headers.ends[-1])

    def _headers(self, record: _Cursor) -> Iterator[tuple[bytes, bytes | None]]:
        try:
            count = record.varint()
        except _Cut:
            count = -1
        if not 0 <= count <= record.end - record.place:
            self._corrupt("a record is cut")
        for _ in range(count):
            try:
                name, value = record.value(), record.value()
            except _Cut:
                self._corrupt("a header is cut")
            if name is None:
                self._corrupt("a header is cut")
            yield name, value
