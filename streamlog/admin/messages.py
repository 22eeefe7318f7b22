"""One message of a stream: by its sequence, or the last or next one on a subject.

There is no index of subjects: looking for one reads the log, at most ``SCAN_BYTES_MAX`` of it.
"""

import asyncio
import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from streamlog.admin.errors import BAD_REQUEST, NO_MESSAGE, ApiError, Refused, bad_request
from streamlog.admin.fields import Fields, number, text
from streamlog.admin.stream_info import rfc3339
from streamlog.log.slice import FileSlice
from streamlog.metadata.subjects import overlap
from streamlog.record.batch import batches, read_header
from streamlog.record.codec import Record, iter_records

SCAN_BYTES_MAX: Final = 64 * 1024 * 1024
SCAN_BATCHES_MAX: Final = 20_000
"""Both bound one search; what lies beyond is not found, and the answer says so."""
READ_BYTES: Final = 1024 * 1024

SCAN_ENDED: Final = ApiError(
    500,
    10051,
    f"not found in {SCAN_BYTES_MAX >> 20} MiB or {SCAN_BATCHES_MAX} batches, which is as far as a"
    " search by subject goes",
)


class ReadablePartition(Protocol):
    """What is needed of ``partition.owner.Partition``."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    async def read(self, offset: int, max_bytes: int) -> FileSlice: ...


class MessageQuery(NamedTuple):
    """By sequence; the last on ``last``; or the first on ``following`` from the sequence on."""

    sequence: int = 0
    last: str = ""
    following: str = ""

    @classmethod
    def of(cls, fields: Fields) -> "MessageQuery":
        """As clients ask. Raises Refused."""
        last, following = text(fields, "last_by_subj"), text(fields, "next_by_subj")
        query = cls(number(fields, "seq"), last, following)
        if fields.get("batch") or fields.get("max_bytes") or fields.get("multi_last"):
            raise Refused(bad_request("only one message at a time"))
        if fields.get("start_time"):
            raise Refused(bad_request("start_time is not supported"))
        if not any(query) or (last and (query.sequence or following)):
            raise Refused(BAD_REQUEST)
        return query


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A record as the NATS message that it was."""

    subject: str
    sequence: int
    timestamp_ms: int
    header_block: bytes
    """From ``NATS/1.0`` to the empty line; b"" without headers."""
    data: bytes

    def json(self) -> dict[str, Any]:
        message: dict[str, Any] = {
            "subject": self.subject,
            "seq": self.sequence,
            "time": rfc3339(self.timestamp_ms),
        }
        if self.data:
            message["data"] = base64.b64encode(self.data).decode()
        if self.header_block:
            message["hdrs"] = base64.b64encode(self.header_block).decode()
        return message


def direct_headers(stream: str, message: StoredMessage) -> dict[str, str]:
    """The message's own headers, and where it is from."""
    headers: dict[str, str] = {}
    for line in message.header_block.split(b"\r\n")[1:]:
        name, colon, value = line.decode(errors="replace").partition(":")
        if colon:
            headers[name] = value.strip()
    return {
        **headers,
        "Nats-Stream": stream,
        "Nats-Subject": message.subject,
        "Nats-Sequence": str(message.sequence),
        "Nats-Time-Stamp": rfc3339(message.timestamp_ms),
    }


def stored_message(record: Record) -> StoredMessage:
    """The first header is the subject; a second called ``reply`` is the message's reply subject."""
    headers = list(record.headers)
    subject = ""
    if headers and headers[0][0] == "subject":
        subject = (headers.pop(0)[1] or b"").decode(errors="replace")
        if headers and headers[0][0] == "reply":
            headers.pop(0)
    block = b"".join(b"%b: %b\r\n" % (name.encode(), value or b"") for name, value in headers)
    return StoredMessage(
        subject=subject,
        sequence=record.offset + 1,
        timestamp_ms=record.timestamp_ms,
        header_block=b"NATS/1.0\r\n%b\r\n" % block if block else b"",
        data=record.value or b"",
    )


async def find_message(partition: ReadablePartition, query: MessageQuery) -> StoredMessage:
    """Raises Refused if there is none."""
    if query.last:
        return await last_message(partition, query.last)
    if query.following:
        return await next_message(partition, query.following, query.sequence)
    return await message_at(partition, query.sequence)


async def message_at(partition: ReadablePartition, sequence: int) -> StoredMessage:
    """Raises Refused if there is none."""
    offset = sequence - 1
    if not partition.log_start_offset <= offset < partition.high_watermark:
        raise Refused(NO_MESSAGE)
    data = await _read(partition, offset, 1)
    found = await asyncio.to_thread(_first, data, lambda record: record.offset == offset)
    if found is None:
        raise Refused(NO_MESSAGE)
    return found


async def next_message(
    partition: ReadablePartition, pattern: str, from_sequence: int
) -> StoredMessage:
    """The first message at or after ``from_sequence`` whose subject matches."""
    offset = max(from_sequence - 1, partition.log_start_offset)
    scan = _Scan(pattern)
    while offset < partition.high_watermark:
        data = await _read(partition, offset, READ_BYTES)
        from_offset = offset
        for header, _ in batches(data):
            offset = header.next_offset
            scan.count_batch(header.size_bytes)
        if scan.may_match(data):
            found = await asyncio.to_thread(_first, data, scan.wanted(from_offset))
            if found:
                return found
    raise Refused(NO_MESSAGE)


async def last_message(partition: ReadablePartition, pattern: str) -> StoredMessage:
    """The last message whose subject matches; batch by batch from the end."""
    offset = partition.high_watermark - 1
    scan = _Scan(pattern)
    while offset >= partition.log_start_offset:
        data = await _read(partition, offset, 1)
        header = read_header(data)
        scan.count_batch(header.size_bytes)
        if scan.may_match(data):
            wanted = scan.wanted(partition.log_start_offset)
            found = await asyncio.to_thread(_last, data, wanted)
            if found:
                return found
        offset = header.base_offset - 1
        await asyncio.sleep(0)
    raise Refused(NO_MESSAGE)


class _Scan:
    """A search by subject and its bounds."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._literal = None if {"*", ">"} & set(pattern.split(".")) else pattern.encode()
        self._bytes = 0
        self._batches = 0

    def count_batch(self, size_bytes: int) -> None:
        """Raises Refused at the bound."""
        self._bytes += size_bytes
        self._batches += 1
        if self._bytes > SCAN_BYTES_MAX or self._batches > SCAN_BATCHES_MAX:
            raise Refused(SCAN_ENDED)

    def may_match(self, data: bytes) -> bool:
        """False: surely nothing of it does."""
        if self._literal is None or self._literal in data:
            return True
        return any(header.compression for header, _ in batches(data))

    def wanted(self, from_offset: int) -> Callable[[Record], bool]:
        return lambda record: record.offset >= from_offset and self.matches(record)

    def matches(self, record: Record) -> bool:
        if not record.headers or record.headers[0][0] != "subject":
            return False
        subject = record.headers[0][1] or b""
        if self._literal is not None:
            return subject == self._literal
        return overlap(self._pattern, subject.decode(errors="replace"))


async def _read(partition: ReadablePartition, offset: int, max_bytes: int) -> bytes:
    with await partition.read(offset, max_bytes) as part:
        return await asyncio.to_thread(part.read)


def _records(data: bytes) -> Iterable[Record]:
    for _, batch in batches(data):
        yield from iter_records(batch)


def _first(data: bytes, wanted: Callable[[Record], bool]) -> StoredMessage | None:
    return next((stored_message(record) for record in _records(data) if wanted(record)), None)


def _last(data: bytes, wanted: Callable[[Record], bool]) -> StoredMessage | None:
    found = None
    for record in _records(data):
        if wanted(record):
            found = record
    return None if found is None else stored_message(found)
