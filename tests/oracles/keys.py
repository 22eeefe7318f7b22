"""The table of keys in plain Python, which the compiled one is held to.

A record is a length, attributes, the deltas of its time and offset, key and value, each with a
length of its own, -1 for null, and headers; all lengths and deltas are varints.
"""

import hashlib
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.errors import CorruptBatch
from streamlog.record.compiled.keys import SEED_BYTES, Sifted
from streamlog.record.compression import Buffer
from tests.oracles.codec import get_varint, put_varint

DELTA_END: Final = 2**63
_HASH_BYTES: Final = 16
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_32_BITS: Final = 0xFFFFFFFF


class _Span(NamedTuple):
    """Where a record lies in its batch, and what it says of itself."""

    start: int
    time_start: int
    """After the length and the attributes."""
    delta_start: int
    end: int
    time_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


class KeyOffsets:
    """The last offset of each of ``keys_max`` keys at most, of which 16 bytes of hash are kept.

    The hash depends on ``seed``: nobody who does not know it can write two keys that pass for one.
    """

    BYTES_FOR_KEY: Final = 200

    def __init__(self, keys_max: int, seed: bytes) -> None:
        if keys_max < 1 or len(seed) != SEED_BYTES:
            raise ValueError(f"{keys_max} keys and a seed of {len(seed)} bytes cannot be")
        self._keys_max = keys_max
        self._seed = seed
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, body: Buffer, count: int, base_offset: int, from_offset: int) -> int:
        """Take in an opened batch's ``count`` records from ``from_offset`` on; -1, or the offset of
        the first for which there is no room. Raises CorruptBatch.
        """
        for span in _spans(memoryview(body), count):
            offset = base_offset + span.offset_delta
            if span.key is None or offset < from_offset:
                continue
            digest = self._hash(span.key)
            if digest not in self._offsets and len(self._offsets) >= self._keys_max:
                return offset
            self._offsets[digest] = max(offset, self._offsets.get(digest, -1))
        return -1

    def sift(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        upper_offset: int,
        *,
        drop_tombstones: bool = False,
        shift_ms: int = 0,
    ) -> Sifted:
        """Leave out each record below ``upper_offset`` that is not the last of its key, and, if
        asked to, tombstones. ``shift_ms`` is added to the deltas of all times, as far as they go.

        A record without a key stays. Raises CorruptBatch.
        """
        view, out = memoryview(body), bytearray()
        kept = tombstones = 0
        for span in _spans(view, count):
            offset = base_offset + span.offset_delta
            is_tombstone = span.key is not None and not span.has_value
            if span.key is not None and offset < upper_offset:
                last = self._offsets.get(self._hash(span.key), -1)
                if last > offset or (is_tombstone and drop_tombstones):
                    continue
            kept += 1
            tombstones += is_tombstone
            if shift_ms:
                _put_shifted(out, view, span, shift_ms)
            else:
                out += view[span.start : span.end]
        changed = shift_ms or kept < count
        return Sifted(bytes(out) if changed else None, kept, tombstones)

    def _hash(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, digest_size=_HASH_BYTES, key=self._seed).digest()


def place_of(body: Buffer, count: int, offset_delta: int) -> tuple[int, int] | None:
    """Where the record with that delta begins among an opened batch's records, and where it ends.

    None: there is none. Raises CorruptBatch.
    """
    spans = _spans(memoryview(body), count)
    return next(((it.start, it.end) for it in spans if it.offset_delta == offset_delta), None)


def marks_of(body: Buffer, count: int, step: int) -> bytes | None:
    """Where every ``step``-th record begins, and where the last one ends; None: not dense, or not
    sound.
    """
    try:
        spans = list(_spans(memoryview(body), count))
    except CorruptBatch:
        return None
    if not spans or step <= 0 or [it.offset_delta for it in spans] != list(range(count)):
        return None
    marks = [it.start for it in spans[::step]]
    return array("I", [*marks, spans[-1].end]).tobytes()


def keyless_of(body: Buffer, count: int, most: int) -> tuple[int, list[int]]:
    """How many of an opened batch's records have no key, and the places of the first ``most`` of them. Raises
    CorruptBatch.
    """
    spans = enumerate(_spans(memoryview(body), count))
    places = [place for place, span in spans if span.key is None]
    return len(places), places[:most]


def without(body: Buffer, count: int, erased: bytes) -> Sifted:
    """Leave out those of an opened batch's records whose offset delta's bit is 1 in ``erased``; a
    bit beyond its end is 0, the lowest bit of a byte comes first. Raises CorruptBatch.
    """
    view, out = memoryview(body), bytearray()
    kept = tombstones = 0
    for span in _spans(view, count):
        place, bit = divmod(span.offset_delta, 8)
        if 0 <= place < len(erased) and erased[place] >> bit & 1:
            continue
        kept += 1
        tombstones += span.key is not None and not span.has_value
        out += view[span.start : span.end]
    return Sifted(bytes(out) if kept < count else None, kept, tombstones)


def _put_shifted(out: bytearray, view: memoryview, span: _Span, shift_ms: int) -> None:
    time = bytearray()
    put_varint(time, min(max(span.time_delta + shift_ms, -DELTA_END), DELTA_END - 1))
    put_varint(out, 1 + len(time) + span.end - span.delta_start)
    out += view[span.time_start - 1 : span.time_start]
    out += time
    out += view[span.delta_start : span.end]


def _spans(view: memoryview, count: int) -> Iterator[_Span]:
    position = 0
    for _ in range(count):
        start = position
        length, position = get_varint(view, position)
        end = position + length
        if length <= 0 or end > len(view):
            raise CorruptBatch(f"record of {length} bytes where {len(view) - position} are left")
        yield _span(view[:end], start, position + 1)
        position = end
    if position != len(view):
        raise CorruptBatch(f"{len(view) - position} bytes follow the last record")


def _span(view: memoryview, start: int, time_start: int) -> _Span:
    time_delta, delta_start = get_varint(view, time_start)
    offset_delta, position = get_varint(view, delta_start)
    size, position = get_varint(view, position)
    if size < -1 or size > len(view) - position:
        raise CorruptBatch(f"field of {size} bytes where {len(view) - position} are left")
    key = None if size < 0 else bytes(view[position : position + size])
    value_size, _ = get_varint(view, position + max(size, 0))
    return _Span(
        start, time_start, delta_start, len(view), time_delta, offset_delta, key, value_size >= 0
    )


def murmur2(data: bytes) -> int:
    """As Kafka's default partitioner hashes keys; 32 bits without a sign."""
    value = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _32_BITS
        part = (part ^ part >> 24) * _FACTOR & _32_BITS
        value = value * _FACTOR & _32_BITS ^ part
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _32_BITS
    value = (value ^ value >> 13) * _FACTOR & _32_BITS
    return value ^ value >> 15
