"""A program: batches that were made to be misread, into everything compiled that reads batches.

Each lies in memory that ends, or begins, at a page which nobody may touch: a read of one byte too
much ends the process by a signal. What is compiled may refuse with ``CorruptBatch``, and may do
nothing else. The same number gives the same batches.
"""

import contextlib
import ctypes
import mmap
import struct
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import crc32c

from streamlog.errors import CorruptBatch
from streamlog.record.batch import HEADER_BYTES, BatchHeader, read_header
from streamlog.record.compiled import codec as _codec
from streamlog.record.compiled import columns as _columns
from streamlog.record.compiled import keys, subjects
from tests.record_batches import HandRecord, hand_batch, varint

SEED: Final = bytes(range(16))
NUMBERS: Final = (
    0, 1, 2, 7, 63, 64, 127, 128, 255, 2**13, 2**15, 2**16, 2**31 - 1, 2**31, 2**32, 2**40, 2**62,
    2**63 - 1, -1, -2, -64, -(2**31), -(2**32), -(2**63),
)  # fmt: skip
"""Of lengths, counts, times and offsets."""
BROKEN: Final = (b"\x80", b"\xff" * 9, b"\x80" * 10, b"\xff" * 10 + b"\x01", b"\xff" * 20)
"""Varints without an end, and those of more than 64 bits."""


class Guarded:
    """Memory between two pages that nobody may touch."""

    def __init__(self, pages: int = 16) -> None:
        page = mmap.PAGESIZE
        self._memory = mmap.mmap(-1, (pages + 2) * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for guard in (start, start + (pages + 1) * page):
            if protect(guard, page, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._first, self._behind = page, (pages + 1) * page
        self.end_address = start + self._behind

    def at_the_end(self, data: bytes) -> memoryview:
        place = slice(self._behind - len(data), self._behind)
        self._memory[place] = data
        return memoryview(self._memory)[place].toreadonly()

    def at_the_start(self, data: bytes) -> memoryview:
        place = slice(self._first, self._first + len(data))
        self._memory[place] = data
        return memoryview(self._memory)[place].toreadonly()


def record(random: Random) -> HandRecord:
    def text() -> bytes:
        return random.randbytes(random.choice((0, 1, 3, 20, 130)))

    headers = [(random.choice((b"subject", b"h", b"\xff", b"")), random.choice((None, text())))
               for _ in range(random.choice((0, 0, 1, 2, 5)))]  # fmt: skip
    return HandRecord(
        random.choice((None, text())),
        random.choice((None, text())),
        headers,
        timestamp_delta=random.choice((0, 1, -1, 2**40, 2**63 - 1, -(2**63))),
    )


def spoiled(random: Random, body: bytes) -> bytes:
    """Records, of which some number, length or end is not what it was."""
    data = bytearray(body)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        place = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0:
                del data[place:]
            case 1 if place < len(data):
                data[place] ^= 1 << random.randrange(8)
            case 2:
                data[place : place + random.randrange(3)] = varint(random.choice(NUMBERS))
            case 3:
                data[place:] = random.choice(BROKEN)
            case 4:
                data[place:place] = random.randbytes(random.randrange(12))
            case _:
                data = bytearray(varint(random.choice(NUMBERS))) + data[1:]
    return bytes(data)


def batch_of(random: Random) -> tuple[bytes, int]:
    """A batch, its checksum right but for some, and how many records its reader is to expect."""
    records = [record(random) for _ in range(random.randrange(6))]
    whole = hand_batch(records, random.choice((0, 5, 2**40)), attributes=random.choice((0, 0, 8)))
    body = whole[HEADER_BYTES:]
    if random.random() < 0.9:
        body = spoiled(random, body)
    data = bytearray(whole[:HEADER_BYTES] + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    count = len(records)
    if random.random() < 0.3:
        count = random.choice((0, 1, 3, 100, 2**31 - 1, -1))
        struct.pack_into(">i", data, 57, count)
    if random.random() < 0.3:
        struct.pack_into(">i", data, 23, random.choice((0, 3, 200, 2**31 - 1, -1)))
    if random.random() < 0.1:  # any field
        data[random.randrange(HEADER_BYTES)] = random.randrange(256)
    if random.random() < 0.95:
        struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    if random.random() < 0.1:
        del data[random.randrange(len(data)) :]
    return bytes(data), count


def columns(data: memoryview, **options: Any) -> None:
    wanted = {"key", "value", "offset", "timestamp", "timestampType", "subject", "headers"}
    decoder = _columns.ColumnDecoder(wanted, rows_max=2, **options)
    decoder.feed(data)
    try:
        while decoder.decode():
            decoder.take()
        _ = decoder.bytes_needed
    finally:
        decoder.take()


def decoded(body: memoryview, header: BatchHeader) -> None:
    for _ in _codec.decode_records(body, header):
        pass


def note_keys(body: memoryview, count: int) -> None:
    keys.KeyOffsets(4, SEED).note(body, count, 5, 0)


def sift(body: memoryview, count: int) -> None:
    for options in ({}, {"drop_tombstones": True}, {"shift_ms": 2**62}, {"shift_ms": -1}):
        keys.KeyOffsets(4, SEED).sift(body, count, 5, 2**50, **options)


def note_subjects(body: memoryview, count: int) -> None:
    subjects.SubjectIndex(SEED, bytes_max=1 << 16).note(body, count, 5, 5 + 2**31)


OF_RECORDS: Final[tuple[Callable[[memoryview, int], Any], ...]] = (
    note_keys,
    sift,
    note_subjects,
    lambda body, count: _codec.survey_records(body, count, 1_000),
    lambda body, count: keys.place_of(body, count, 2),
    lambda body, count: keys.keyless_of(body, count, 3),
    lambda body, count: keys.without(body, count, b"\x05"),
)
OF_BATCHES: Final[tuple[Callable[[memoryview], Any], ...]] = (
    columns,
    lambda data: columns(data, check_crc=False),
    lambda data: columns(data, check_crc=False, start_offset=6, end_offset=8),
    _codec.marked_batches,
)


def readings(place: Callable[[bytes], memoryview], random: Random) -> Iterator[Callable[[], Any]]:
    """Of one batch, each by one reader."""
    data, count = batch_of(random)
    view = place(data)
    yield from ((lambda read=read: read(view)) for read in OF_BATCHES)
    if len(data) < HEADER_BYTES:
        return
    body = view[HEADER_BYTES:]
    yield from ((lambda read=read: read(body, count)) for read in OF_RECORDS)
    header = None
    with contextlib.suppress(CorruptBatch):
        header = read_header(data)
    if header is not None:
        yield lambda: decoded(body, header)


def main(batches: int, touch: str) -> None:
    guarded, random = Guarded(), Random(batches)
    read = refused = 0
    for number in range(batches):
        place = guarded.at_the_start if number % 4 == 3 else guarded.at_the_end
        for reading in readings(place, random):
            try:
                reading()
                read += 1
            except CorruptBatch:
                refused += 1
    print(batches, read, refused, flush=True)
    if touch == "touch":  # as one that reads one byte too much
        ctypes.string_at(guarded.end_address, 1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
