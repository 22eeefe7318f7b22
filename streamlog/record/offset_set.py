"""A set of offsets, in chunks of 65,536, a bit for each. Pure.

A chunk that has any takes 8 KiB at most, whatever is in it; in bytes it is its runs, or its bits
where these are shorter.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, Self

CHUNK: Final = 65_536
CHUNK_BYTES: Final = CHUNK // 8
CHUNKS_MAX: Final = 2**47
"""There are no more in 2**63 offsets."""

_FULL: Final = (1 << CHUNK) - 1
_HEAD: Final = struct.Struct(">QH")
"""A chunk's number, and of how many runs it is; ``_BITS``: it is told bit by bit."""
_BITS: Final = 0
_RUN: Final = struct.Struct(">HH")
"""The first and the last offset of a run, within its chunk."""
_RUNS_MAX: Final = 512
"""More are told bit by bit: that is four times as long at most, and much quicker."""
_FEW: Final = 64
"""So many bits, or runs, are sooner dealt with one by one."""
_ONES: Final = re.compile("1+")


class OffsetSet:
    """Not thread-safe, but a ``copy`` is cheap and shares nothing that changes."""

    __slots__ = ("_chunks",)

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._chunks: dict[int, int] = {}
        """By number; none is 0."""
        for offset in offsets:
            self.add(offset)

    def __contains__(self, offset: int) -> bool:
        number, place = divmod(offset, CHUNK)
        return bool(self._chunks.get(number, 0) >> place & 1)

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._chunks.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and self._chunks == other._chunks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"OffsetSet({list(self.runs())})"

    def __iter__(self) -> Iterator[int]:
        """In order."""
        for start, end in self.runs():
            yield from range(start, end)

    def copy(self) -> Self:
        other = type(self)()
        other._chunks = dict(self._chunks)
        return other

    def add(self, offset: int) -> None:
        number, place = divmod(offset, CHUNK)
        self._chunks[number] = self._chunks.get(number, 0) | 1 << place

    @classmethod
    def in_order(cls, offsets: Iterable[int]) -> Self:
        """Of many, which never fall: quicker than one by one."""
        made = cls()
        for number, places in groupby(offsets, CHUNK.__rfloordiv__):
            bits = bytearray(CHUNK_BYTES)
            for offset in places:
                bits[offset % CHUNK >> 3] |= 1 << (offset & 7)
            made._chunks[number] = int.from_bytes(bits, "little")
        return made

    @classmethod
    def between_ends(cls, start: int, end: int) -> Self:
        """All of ``[start, end)``."""
        made = cls()
        for number in range(start // CHUNK, -(-end // CHUNK)):
            made._put(number, _mask(number, start, end))
        return made

    def update(self, other: "OffsetSet") -> None:
        for number, bits in other._chunks.items():
            both = self._chunks.get(number, 0) | bits
            self._chunks[number] = both if both != _FULL else _FULL  # of which there is one

    def remove_all(self, other: "OffsetSet") -> None:
        """Those of ``other``, as far as they are here."""
        for number, bits in other._chunks.items():
            self._put(number, self._chunks.get(number, 0) & ~bits)

    def keep_all(self, other: "OffsetSet") -> None:
        """Those that are not in ``other`` go."""
        self._chunks = {
            number: both
            for number, bits in self._chunks.items()
            if (both := bits & other._chunks.get(number, 0))
        }

    def keep_between(self, start: int, end: int) -> None:
        """Those outside ``[start, end)`` go. A thread that iterates over it may go on."""
        kept = {number: bits & _mask(number, start, end) for number, bits in self._chunks.items()}
        self._chunks = {number: bits for number, bits in kept.items() if bits}

    def between(self, start: int, end: int) -> "OffsetSet":
        """Those of ``[start, end)``."""
        found = self.copy()
        found.keep_between(start, end)
        return found

    def count(self, start: int, end: int) -> int:
        """How many are in ``[start, end)``."""
        return sum(
            (bits & _mask(number, start, end)).bit_count() for number, bits in self._chunks.items()
        )

    def bits(self, start: int, end: int) -> int:
        """Bit i: whether ``start + i`` is in it; none for ``end`` and above."""
        found = 0
        for number in range(start // CHUNK, -(-end // CHUNK)):
            bits = self._chunks.get(number, 0) & _mask(number, start, end)
            shift = number * CHUNK - start
            found |= bits << shift if shift >= 0 else bits >> -shift
        return found

    def first_absent(self, offset: int) -> int:
        """The first from ``offset`` on that is not in it."""
        number, place = divmod(offset, CHUNK)
        free = ~self._chunks.get(number, 0) & _FULL & -(1 << place)
        while not free:
            number += 1
            free = ~self._chunks.get(number, 0) & _FULL
        return number * CHUNK + (free & -free).bit_length() - 1

    def start_of_last_absent(self, count: int, start: int, end: int) -> int:
        """From where on there are ``count`` in ``[start, end)`` that are not in it; ``start`` if
        there are fewer.
        """
        low, high = start, end  # the answer is in [low, high]
        while low < high:
            middle = (low + high + 1) // 2
            absent = end - middle - self.count(middle, end)
            if absent >= count:
                low = middle
            else:
                high = middle - 1
        return low

    def runs(self) -> Iterator[tuple[int, int]]:
        """The first offset of each run, and the one after its last; a chunk's end ends a run."""
        for number in sorted(self._chunks):
            base = number * CHUNK
            for start, end in _runs(self._chunks[number]):
                yield base + start, base + end

    def parts(self, chunks: int) -> Iterator["OffsetSet"]:
        """The same, cut into sets of at most so many chunks, in order."""
        numbers = sorted(self._chunks)
        for i in range(0, len(numbers), chunks):
            part = OffsetSet()
            part._chunks = {number: self._chunks[number] for number in numbers[i : i + chunks]}
            yield part

    def encode(self) -> bytes:
        out = bytearray()
        for number in sorted(self._chunks):
            bits = self._chunks[number]
            run_count = (bits & ~(bits << 1)).bit_count()
            if run_count < _RUNS_MAX:
                out += _HEAD.pack(number, run_count)
                for start, end in _runs(bits):
                    out += _RUN.pack(start, end - 1)
            else:
                out += _HEAD.pack(number, _BITS)
                out += bits.to_bytes(CHUNK_BYTES, "little")
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Raises ValueError for what ``encode`` does not give."""
        found, position, before = cls(), 0, -1
        while position < len(data):
            if len(data) - position < _HEAD.size:
                raise ValueError("a chunk is cut")
            number, run_count = _HEAD.unpack_from(data, position)
            position += _HEAD.size
            size = run_count * _RUN.size if run_count != _BITS else CHUNK_BYTES
            if size > len(data) - position or not before < number < CHUNKS_MAX:
                raise ValueError(f"chunk {number} is cut or out of order")
            part = data[position : position + size]
            bits = _of_runs(part) if run_count != _BITS else int.from_bytes(part, "little")
            if not bits:
                raise ValueError(f"chunk {number} is empty")
            found._chunks[number] = bits
            position, before = position + size, number
        return found

    def _put(self, number: int, bits: int) -> None:
        if bits:
            self._chunks[number] = bits
        else:
            self._chunks.pop(number, None)


def _mask(number: int, start: int, end: int) -> int:
    """The bits of a chunk that are in ``[start, end)``."""
    base = number * CHUNK
    low, high = max(start - base, 0), min(end - base, CHUNK)
    if low == 0 and high == CHUNK:
        return _FULL
    return (1 << high) - (1 << low) if low < high else 0


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    if bits == _FULL:
        return iter(((0, CHUNK),))
    if (bits & ~(bits << 1)).bit_count() < _FEW:
        return _few_runs(bits)
    digits = bin(bits)[:1:-1]
    return (found.span() for found in _ONES.finditer(digits))


def _few_runs(bits: int) -> Iterator[tuple[int, int]]:
    while bits:
        start = (bits & -bits).bit_length() - 1
        end = start + (~(bits >> start) & -~(bits >> start)).bit_length() - 1
        yield start, end
        bits &= -1 << end


def _of_runs(data: bytes | memoryview) -> int:
    if len(data) < _FEW * _RUN.size:
        return _of_few_runs(data)
    digits, at = bytearray(b"0" * CHUNK), 0
    for start, last in _RUN.iter_unpack(data):
        if not at <= start <= last:
            raise ValueError(f"a run of {start} to {last} where {at} comes next")
        digits[start : last + 1] = b"1" * (last + 1 - start)
        at = last + 2
    digits.reverse()
    return int(digits, 2)


def _of_few_runs(data: bytes | memoryview) -> int:
    bits = at = 0
    for start, last in _RUN.iter_unpack(data):
        if not at <= start <= last:
            raise ValueError(f"a run of {start} to {last} where {at} comes next")
        bits |= (1 << last + 1) - (1 << start)
        at = last + 2
    return bits if bits != _FULL else _FULL
