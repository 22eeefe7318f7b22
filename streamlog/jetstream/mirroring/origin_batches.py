"""Messages of an origin as records of this log. Pure.

A mirror's record has the offset ``sequence - 1`` of its origin, and its time. What is missing between two messages
was deleted there, or does not match the filter. In place of it stands a gap, as compaction leaves one, and at its last
offset an erasure that names the rest, so that it counts as deleted here, too. Nothing names what is missing before
the first message: the log is made to begin behind it. A leader whose log ends with a gap, or with some of its erasures
alone, since the one before it came no further, names that gap with the next one: what comes next at the origin is
behind the offsets that its erasures had.

A source's records are appended as any others, with the header ``Nats-Stream-Source``: which source brought the message
(``StreamOrigin.index_name``), its sequence and its subject there. The log so tells how far each source has come.
Such records go with a purge, or with retention. So each segment has a control record besides, which names the places
of all sources; it takes an offset, and is said again when a segment begins, and before a purge.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.errors import InvalidRequest
from streamlog.jetstream.mirroring.origin_reader import OriginMessage
from streamlog.metadata.stream.stream_config import FIRST_SEQUENCE_MAX
from streamlog.metadata.stream.stream_origin import StreamOrigin
from streamlog.record.batch import PUBLISHED
from streamlog.record.codec import RecordRun
from streamlog.record.compacted import GAP_OFFSETS_MAX, gap
from streamlog.record.erasure import CHUNKS_MAX, erasure_batches
from streamlog.record.offset_set import OffsetSet

SOURCE_HEADER: Final = b"Nats-Stream-Source"
KEY_HEADER: Final = b"Streamlog-Key"
BATCH_BYTES: Final = 512 * 1024
"""A batch ends with the message that reaches this size."""

MISSING_FIRST_MAX: Final = FIRST_SEQUENCE_MAX
"""Sequences before the first message."""
MISSING_BETWEEN_MAX: Final = 2**32
"""Sequences between two messages. The erasures that name them are made in 0.6 s."""

RecordHeaders = list[tuple[bytes, bytes | None]]


class TooManyMissing(InvalidRequest):
    """So many sequences are missing that their place in the log would hold up the node."""


def mirrored_batches(
    messages: Sequence[OriginMessage],
    end_offset: int,
    *,
    leader_epoch: int,
    compression: int = 0,
    is_keyed: bool = False,
    unnamed: OffsetSet | None = None,
) -> Iterator[bytes]:
    """Batches that follow a log that ends at ``end_offset``; of messages that it has, none. ``is_keyed``: a
    record has its subject for a key where its headers name none. ``unnamed``: gaps that the log has and nothing names;
    afterwards, those that are left. Raises TooManyMissing.
    """  # fmt: skip
    unnamed = OffsetSet() if unnamed is None else unnamed
    run = RecordRun(attributes=PUBLISHED)
    first_ms = latest_ms = 0
    base_offset = end_offset

    def sealed() -> bytes:
        return run.seal(
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            timestamp_ms=first_ms,
            max_timestamp_ms=latest_ms,
            compression=compression,
        )

    for it in messages:
        offset = it.sequence - 1
        if offset < end_offset:
            continue
        if run.count and (offset > end_offset or run.size_bytes >= BATCH_BYTES):
            yield sealed()
        if offset > end_offset:
            yield from _missing(end_offset, offset, leader_epoch, it.timestamp_ms, unnamed)
        if not run.count:
            base_offset, first_ms, latest_ms = offset, it.timestamp_ms, it.timestamp_ms
        headers = headers_of(it)
        key = next((value for name, value in headers if name == KEY_HEADER), None)
        if key is None and is_keyed:
            key = it.subject.encode()
        run.append(key, it.data, headers, it.timestamp_ms - first_ms)
        latest_ms = max(latest_ms, it.timestamp_ms)
        end_offset = offset + 1
    if run.count:
        yield sealed()


def first_gap(end: int, *, leader_epoch: int, timestamp_ms: int) -> bytes:
    """In place of all that is before the first message. Raises TooManyMissing."""
    return b"".join(_missing(0, end, leader_epoch, timestamp_ms))


def gap_at_end(start: int, end: int, *, leader_epoch: int, timestamp_ms: int) -> bytes:
    """In place of ``[start, end)``, behind all messages: the last offset stands for the last sequence. Raises
    TooManyMissing.
    """
    batches = [*_missing(start, end - 1, leader_epoch, timestamp_ms)]
    batches += _missing(end - 1, end, leader_epoch, timestamp_ms)
    return b"".join(batches)


def _missing(
    start: int,
    end: int,
    leader_epoch: int,
    timestamp_ms: int,
    unnamed: OffsetSet | None = None,
) -> Iterator[bytes]:
    """In place of ``[start, end)``. ``unnamed``: offsets before it that are to be named, too; afterwards, those for
    which there is no room. Raises TooManyMissing.
    """
    most = MISSING_BETWEEN_MAX if start else MISSING_FIRST_MAX
    if end - start > most:
        raise TooManyMissing(
            f"{end - start} sequences are missing from {start + 1} on, where a log leaves out at most {most}"
        )
    erasures = list[bytes]()
    gap_end = end
    if start:
        before = OffsetSet() if unnamed is None else unnamed
        parts = [*_named(before, start, end).parts(CHUNKS_MAX)]
        gap_end = max(start, end - max(1, len(parts)))
        # A set may need one batch less than that of one offset more.
        parts = [*_named(before, start, gap_end).parts(CHUNKS_MAX)][: end - gap_end]
        parts += [OffsetSet()] * (end - gap_end - len(parts))
        for place, part in enumerate(parts):
            erasures += erasure_batches(
                part,
                base_offset=gap_end + place,
                leader_epoch=leader_epoch,
                timestamp_ms=timestamp_ms,
            )
            before.remove_all(part)
    while start < gap_end:
        until = min(gap_end, start + GAP_OFFSETS_MAX)
        yield gap(start, until, leader_epoch=leader_epoch, max_timestamp_ms=timestamp_ms)
        start = until
    yield from erasures


def _named(before: OffsetSet, start: int, end: int) -> OffsetSet:
    """``before``, and ``[start, end)``."""
    named = OffsetSet.between_ends(start, end)
    named.update(before)
    return named


def sourced_headers(origin: StreamOrigin, message: OriginMessage) -> RecordHeaders:
    """Of a record: those of the message but for what only its first stream was asked, and where it comes from."""
    headers = [
        (name, value)
        for name, value in headers_of(message)
        if not name.startswith(b"Nats-Expected-") and name != SOURCE_HEADER
    ]
    place, filters, made = origin.index_name.split(" ")
    said = f"{place} {message.sequence} {filters} {made} {message.original_subject}"
    if message.identity:
        said += f" {message.identity}"
    return [*headers, (SOURCE_HEADER, said.encode())]


def places_batch(
    places: Mapping[str, "SourcePlace"], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """A control batch that says how far all sources have come: an erasure of nothing, with the headers."""
    headers: RecordHeaders = [] if places else [(SOURCE_HEADER, b"")]
    for it in places.values():
        place, filters, made = it.index_name.split(" ")
        said = f"{place} {it.sequence} {filters} {made} >"
        if it.identity:
            said += f" {it.identity}"
        headers.append((SOURCE_HEADER, said.encode()))
    (batch,) = erasure_batches(
        OffsetSet(),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_ms=timestamp_ms,
        headers=headers,
    )
    return batch


class SourcePlace(NamedTuple):
    """What the header ``Nats-Stream-Source`` says."""

    index_name: str
    sequence: int
    identity: str = ""
    """Of the origin that it is a sequence of; empty: it was not known."""


def source_place(value: bytes) -> SourcePlace | None:
    """None: it is not ours, nor JetStream's."""
    parts = value.decode(errors="replace").split(" ")
    if len(parts) < 5 or not parts[1].isdigit():
        return None
    identity = parts[5] if len(parts) > 5 else ""
    return SourcePlace(f"{parts[0]} {parts[2]} {parts[3]}", int(parts[1]), identity)


def identity_of(stream_id: UUID) -> str:
    """Of a stream of this cluster: as long as will do, since each record of a source has it."""
    return stream_id.hex[:12]


def headers_of(message: OriginMessage) -> RecordHeaders:
    """Of a record: the subject, which a Kafka producer's has not, and the headers of the message."""
    headers: RecordHeaders = [(b"subject", message.subject.encode())] if message.subject else []
    for line in message.header_block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon and name:
            headers.append((name.decode(errors="replace").encode(), value.lstrip(b" ")))
    return headers
