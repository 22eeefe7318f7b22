"""Walks over the batches of a segment file, with ``pread`` in bounded pieces."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from streamlog.errors import CorruptBatch
from streamlog.record.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    header_fields,
)

_PLACE: Final = header_fields("base_offset", "batch_length", "magic", "last_offset_delta")
"""The few fields that tell where a batch lies."""

LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES
_SPAN_MAX: Final = 1 << 31
"""Offsets of a segment, whose indexes count them from its base in 32 bits."""
_HEADERS_BYTES: Final = 8 * 1024
_CONTENT_BYTES: Final = 1024 * 1024


class Readable(Protocol):
    """The part of ``disk.DiskFile`` that is needed here."""

    def pread(self, length: int, position: int) -> bytes: ...


class BatchPlace(NamedTuple):
    """A batch in a segment file."""

    position: int
    end_position: int
    base_offset: int
    next_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


class Damage(NamedTuple):
    """Bytes ``[position, end_position)`` which hide the records ``[offset, end_offset)``."""

    position: int
    end_position: int
    offset: int
    end_offset: int
    problem: str


def scan(
    file: Readable, position: int, end: int, offset: int, *, check_crc: bool = True
) -> Iterator[BatchPlace | Damage]:
    """The batches in ``[position, end)``, which should begin with the base offset ``offset``.

    A damage is the last thing to come, and reaches to ``end``: it is not known where the next batch
    starts.
    """
    piece_bytes = _CONTENT_BYTES if check_crc else _HEADERS_BYTES
    piece, start = memoryview(b""), position  # bytes of the file, and where they begin
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(piece):
            piece = memoryview(file.pread(min(piece_bytes, end - position), position))
            start, at = position, 0
            if len(piece) < HEADER_BYTES:
                yield Damage(position, end, offset, offset, f"{end - position} bytes are no header")
                return
        head = HEADER.unpack_from(piece, at)
        base, length, epoch, magic, crc, attributes, last_delta, _, max_timestamp_ms = head[:9]
        stop = position + LENGTH_PREFIX_BYTES + length
        problem = _header_problem((base, length, magic, last_delta), offset, end - position)
        if not problem and check_crc:
            if stop > start + len(piece):
                piece = memoryview(file.pread(min(piece_bytes, end - position), position))
                start, at = position, 0
            if _crc(file, piece[at:], position, stop) != crc:
                problem = "the checksum is wrong"
        if problem:
            yield Damage(position, end, offset, offset, problem)
            return
        offset = base + last_delta + 1
        yield BatchPlace(
            position, stop, base, offset, epoch, max_timestamp_ms, attributes, *head[9:11]
        )
        position = stop


def _header_problem(place: tuple[int, int, int, int], offset: int, room: int) -> str:
    base, length, magic, last_delta = place
    if length < LENGTH_MIN:
        return f"a length of {length} is impossible"
    if LENGTH_PREFIX_BYTES + length > room:
        return f"{LENGTH_PREFIX_BYTES + length} bytes announced, {room} left"
    if magic != MAGIC:
        return f"magic {magic} is not {MAGIC}"
    if base != offset:
        return f"base offset {base} where {offset} should be"
    if last_delta < 0:
        return f"a last offset delta of {last_delta} is impossible"
    return ""


def _crc(file: Readable, piece: memoryview, position: int, stop: int) -> int:
    """Of the batch at ``position``, whose first bytes are in ``piece``; the rest is read."""
    crc = crc32c(piece[CRC_START : stop - position])
    position += len(piece)
    while position < stop:
        data = file.pread(min(_CONTENT_BYTES, stop - position), position)
        if not data:
            return -1
        crc = crc32c(data, crc)
        position += len(data)
    return crc


def is_beginning(file: Readable, position: int, end: int) -> bool:
    """Whether ``[position, end)`` can be what a process left that was killed while it wrote a
    batch: the first bytes of one, whose length reaches past ``end``. Where the checksum fits, the
    batch is whole and its length alone is wrong.
    """
    head = file.pread(min(HEADER_BYTES, end - position), position)
    if len(head) < HEADER_BYTES:
        return True
    _, length, _, magic, crc, *_ = HEADER.unpack(head)
    if magic != MAGIC or LENGTH_PREFIX_BYTES + length <= end - position:
        return False
    return bool(_crc(file, memoryview(head), position, end) != crc)


def tells_its_end(file: Readable, position: int) -> bool:
    """Whether the header of the damaged batch there says twice the same of where it ends: by its
    last offset, and by its count of records, which are dense before they are compacted.
    """
    *_, last_delta, _, _, _, _, _, count = HEADER.unpack(file.pread(HEADER_BYTES, position))
    return bool(count == last_delta + 1)


def scan_past_damage(
    file: Readable, position: int, end: int, offset: int, end_offset: int | None = None
) -> Iterator[BatchPlace | Damage]:
    """Like ``scan``, with checksums, but goes on at the next batch that is whole.

    ``end_offset``, if known, is where the segment must end; what is missing then is a damage
    without bytes.
    """
    while position < end:
        for item in scan(file, position, end, offset):
            if isinstance(item, Damage):
                break
            yield item
            position, offset = item.end_position, item.next_offset
        else:
            break
        position, next_offset = next_whole(file, position, end, offset, end_offset)
        if position == end and end_offset is not None:
            next_offset = max(next_offset, end_offset)
        yield item._replace(end_position=position, end_offset=next_offset)
        offset = next_offset
    if end_offset is not None and offset != end_offset:
        yield Damage(end, end, offset, end_offset, "the records are missing")


def next_whole(
    file: Readable, position: int, end: int, offset: int, end_offset: int | None = None
) -> tuple[int, int]:
    """Position and base offset of the next whole batch after a damaged one.

    If there is none, ``end``, and the damaged one's own next offset if its header can be believed.
    ``end_offset``: as ``scan_past_damage`` has it.
    """
    next_offset, limit = offset, offset + _SPAN_MAX if end_offset is None else end_offset
    head = file.pread(HEADER_BYTES, position)
    if len(head) == HEADER_BYTES:
        base, length, magic, last_delta = _PLACE.unpack_from(head)
        if not _header_problem((base, length, magic, last_delta), offset, end - position):
            next_offset = base + last_delta + 1
        stop = position + LENGTH_PREFIX_BYTES + length
        if position < stop == end:
            return _hidden(file, position + 1, end, next_offset, limit) or (end, next_offset)
        found = _whole_at(file, stop, end, offset, limit) if position < stop < end else None
        if found == next_offset:
            return stop, found
        if found is not None:
            return _hidden(file, position + 1, stop, next_offset, limit) or (stop, found)
    for candidate in _candidates(file, position + 1, end, offset):
        if (found := _whole_at(file, candidate, end, offset, limit)) is not None:
            return candidate, found
    return end, next_offset


def _hidden(
    file: Readable, position: int, end: int, offset: int, limit: int
) -> tuple[int, int] | None:
    """Position and base offset of the whole batch with it, which a wrong length reaches over."""
    for candidate in _candidates(file, position, end, offset):
        if _whole_at(file, candidate, end, offset - 1, limit) == offset:
            return candidate, offset
    return None


def _whole_at(file: Readable, position: int, end: int, offset: int, limit: int) -> int | None:
    """The base offset of the batch at ``position`` if it is whole, comes after ``offset`` and ends
    before ``limit``.

    No checksum covers that number. The next batch, if it is whole and not before ``offset``, either
    bears it out or belies it.
    """
    first = _checked(file, position, end)
    if first is None or first.base_offset <= offset or first.next_offset > limit:
        return None
    second = _checked(file, first.end_position, end)
    if second is not None and offset < second.base_offset < first.next_offset:
        return None
    return first.base_offset


def _checked(file: Readable, position: int, end: int) -> BatchPlace | None:
    """The batch at ``position`` if its checksum is right, whatever its base offset."""
    head = file.pread(HEADER_BYTES, position)
    if position >= end or len(head) < HEADER_BYTES:
        return None
    base: int = _PLACE.unpack_from(head)[0]
    first = next(scan(file, position, end, base))
    return first if isinstance(first, BatchPlace) else None


def _candidates(file: Readable, position: int, end: int, offset: int) -> Iterator[int]:
    """Where a header could begin: the upper half of the base offset, and the magic, are right."""
    upper = [re.escape(half.to_bytes(4, "big")) for half in (offset >> 32, (offset >> 32) + 1)]
    magic = re.escape(bytes([MAGIC]))
    pattern = re.compile(b"(?=(?:" + b"|".join(upper) + b").{12}" + magic + b")", re.DOTALL)
    while position < end:
        piece = file.pread(min(_CONTENT_BYTES, end - position), position)
        for match in pattern.finditer(piece):
            yield position + match.start()
        if position + len(piece) >= end or len(piece) <= HEADER_BYTES:
            return  # the latter where the file is shorter than it should be
        position += len(piece) - HEADER_BYTES


def find_batch(file: Readable, position: int, end: int, offset: int) -> tuple[int, int, int, int]:
    """The batch with ``offset``, or the next: its position, end position, base offset, next offset.

    ``position`` must be where a batch starts. Raises CorruptBatch if there is no such batch before
    ``end``.
    """
    for place in _places(file, position, end):
        if place[3] > offset:
            return place
    raise CorruptBatch(f"no batch with offset {offset} in bytes [{position}, {end})")


def find_boundary(file: Readable, position: int, end: int, limit: int) -> tuple[int, int]:
    """End position and next offset of the last batch that ends at ``limit`` or before; where the
    first does not, its own position and base offset.

    Raises CorruptBatch if there is no batch.
    """
    found = None
    for at, stop, base_offset, next_offset in _places(file, position, end):
        if stop > limit:
            return found or (at, base_offset)
        found = stop, next_offset
        if stop == limit:
            break
    if found is None:
        raise CorruptBatch(f"no batch in bytes [{position}, {end})")
    return found


def _places(file: Readable, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Position, end position, base and next offset of each batch, as cheaply as can be."""
    piece, start = b"", position
    while position < end:
        at = position - start
        if at + _PLACE.size > len(piece):
            piece = file.pread(min(_HEADERS_BYTES, end - position), position)
            start, at = position, 0
            if len(piece) < _PLACE.size:
                raise CorruptBatch(f"{len(piece)} bytes at {position} are no header")
        base, length, magic, last_delta = _PLACE.unpack_from(piece, at)
        stop = position + LENGTH_PREFIX_BYTES + length
        if length < LENGTH_MIN or stop > end or magic != MAGIC or last_delta < 0:
            raise CorruptBatch(f"no batch at position {position}")
        yield position, stop, base, base + last_delta + 1
        position = stop


def base_offset_at(file: Readable, position: int) -> int:
    """The base offset of the batch that starts there; -1 if there is no room for one."""
    head = file.pread(HEADER_BYTES, position)
    return int(HEADER.unpack(head)[0]) if len(head) == HEADER_BYTES else -1
