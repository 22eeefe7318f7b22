"""A stream as nats-server backs it up: in frames of S2 a tar, or since nats-server 2.15 an archive. Pure.

The tar is what is written here: every nats-server restores it. It has these files:

================================  ===================================================================
file                              content
================================  ===================================================================
``meta.inf``, ``meta.sum``        the stream's configuration as JSON, and its checksum
``msgs/<n>.blk``                  messages, one after the other
``msgs/index.db``                 an index of them, which nats-server makes again where it is missing
``obs/<consumer>/meta.inf``       a consumer's configuration as JSON; ``meta.sum``
``obs/<consumer>/o.dat``          how far it has come
``obs/<consumer>/streamlog.inf``  the same as streamlog knows it; nats-server passes it over
================================  ===================================================================

A message is, in little endian: its whole length (4 bytes, the highest bit: it has headers), sequence (8), time in ns
(8), length of the subject (2), subject, with headers their length (4) and they, payload, and a HighwayHash of all but
the lengths (8). The highest bit of a sequence says that the message was erased in place; the next one, that the message
of this sequence, which is in some block before, was deleted. Keys of hashes are made of the names of streams,
blocks and consumers.

The archive (NATS's ADR "JetStream Stream Backup and Restore V2") is a list of entries: ``state.json``, consumers as
JSON, messages by rising sequence, and an empty entry at the end. What is missing between two messages was removed.

Everything is read and written piece by piece, so that a stream of any size takes as much memory as one block, or as
one message.
"""

import hashlib
import json
import struct
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from streamlog.delivery.state_encoding import DeliveredPartition, DeliveryState, PendingState
from streamlog.errors import CorruptData
from streamlog.jetstream.snapshot.snapshot_codec import HighwayHash, s2_block
from streamlog.record.compression import snappy_block

META: Final = "meta.inf"
META_SUM: Final = "meta.sum"
BLOCKS: Final = "msgs/"
CONSUMERS: Final = "obs/"
STATE: Final = "o.dat"
OWN_STATE: Final = "streamlog.inf"
ERRORS: Final = "errors.txt"
"""What a server has left in a snapshot that it could not finish."""

BLOCK_BYTES: Final = 4 * 1024 * 1024
"""A block ends with the message that reaches this size."""
RECORD_BYTES_MAX: Final = 65 * 1024 * 1024
SMALL_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a file that is held as a whole."""
PENDING_MAX: Final = 10_000_000
"""Pending messages of one consumer."""

SEQUENCES_MAX: Final = 1 << 61
_ERASED: Final = 1 << 63
_DELETED: Final = 1 << 62
_HAS_HEADERS: Final = 1 << 31
_HEAD: Final = struct.Struct("<IQQH")
_LENGTH: Final = struct.Struct("<I")
_HASH_BYTES: Final = 8
NS_PER_MS: Final = 1_000_000

# Frames


S2_HEAD: Final = b"\xff\x06\x00\x00S2sTwO"
_SNAPPY_HEAD: Final = b"\xff\x06\x00\x00sNaPpY"
_FRAME_BYTES: Final = 65_536
"""Of what one frame holds, as Snappy's frames have at most."""
_UNCOMPRESSED_MAX: Final = 4 * 1024 * 1024
"""Of what one frame of S2 holds."""
_FRAME_MAX: Final = _UNCOMPRESSED_MAX + _UNCOMPRESSED_MAX // 6 + 64


def _masked(data: bytes | memoryview) -> int:
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def s2_frames(data: bytes | memoryview) -> bytes:
    """``data`` in frames, without the head of the whole. Snappy's blocks are S2's, too."""
    out, view = bytearray(), memoryview(data)
    for start in range(0, len(view), _FRAME_BYTES):
        part = view[start : start + _FRAME_BYTES]
        packed = snappy_block(part)
        kind = 0
        if len(packed) >= len(part) - len(part) // 8:
            packed, kind = bytes(part), 1
        out += bytes([kind]) + (len(packed) + 4).to_bytes(3, "little")
        out += _masked(part).to_bytes(4, "little") + packed
    return bytes(out)


class S2Frames:
    """``feed`` pieces of any size; what they hold comes back."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._has_begun = False

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Raises CorruptData."""
        self._rest += data
        at = 0
        while len(self._rest) - at >= 4:
            size = int.from_bytes(self._rest[at + 1 : at + 4], "little")
            if size > _FRAME_MAX and self._rest[at] < 0x80:
                raise CorruptData("a frame of the snapshot is too large")
            if len(self._rest) - at < 4 + size:
                break
            kind, body = self._rest[at], bytes(self._rest[at + 4 : at + 4 + size])
            at += 4 + size
            yield from self._opened(kind, body)
        del self._rest[:at]

    def end(self) -> None:
        """Raises CorruptData where more should come."""
        if self._rest or not self._has_begun:
            raise CorruptData("the snapshot is cut")

    def _opened(self, kind: int, body: bytes) -> Iterator[bytes]:
        if kind == 0xFF:
            if body not in (S2_HEAD[4:], _SNAPPY_HEAD[4:]):
                raise CorruptData("the snapshot is in no frames of S2")
            self._has_begun = True
            return
        if not self._has_begun:
            raise CorruptData("the snapshot is in no frames of S2")
        if kind > 1:
            if kind < 0x80:
                raise CorruptData(f"a frame of S2 of the unknown kind {kind}")
            return  # it may be passed over
        found = body[4:] if kind else s2_block(memoryview(body)[4:], _UNCOMPRESSED_MAX)
        if _masked(found) != int.from_bytes(body[:4], "little"):
            raise CorruptData("a frame of the snapshot has another checksum")
        yield found


# The tar


def tar_file(name: str, data: bytes | bytearray, time_s: int) -> Iterator[bytes]:
    head = tarfile.TarInfo(name)
    head.size, head.mode, head.mtime = len(data), 0o600, time_s
    head.uname = head.gname = "nats"
    yield head.tobuf(tarfile.PAX_FORMAT)
    yield bytes(data)
    yield bytes(-len(data) % tarfile.BLOCKSIZE)


TAR_END: Final = bytes(2 * tarfile.BLOCKSIZE)


class TarPart(NamedTuple):
    """Some bytes of a file, in their order."""

    name: str
    data: bytes
    is_last: bool


class TarFiles:
    """``feed`` pieces of any size; parts of files come back."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._name = ""
        self._left: int | None = None
        """Of the file; None: a head comes."""
        self._padding = 0
        self._extended: dict[str, str] = {}
        self._is_extension = False
        self._is_done = False

    def feed(self, data: bytes) -> Iterator[TarPart]:
        """Raises CorruptData."""
        self._rest += data
        while not self._is_done:
            if self._left is None:
                if len(self._rest) < self._padding + tarfile.BLOCKSIZE:
                    return
                del self._rest[: self._padding]
                self._padding = 0
                self._begin(bytes(self._rest[: tarfile.BLOCKSIZE]))
                del self._rest[: tarfile.BLOCKSIZE]
                continue
            if self._is_extension:
                if len(self._rest) < self._left:
                    return
                self._extended.update(_extensions(bytes(self._rest[: self._left])))
                del self._rest[: self._left]
                self._left = None
                continue
            part = bytes(self._rest[: self._left])
            if not part and self._left:
                return
            del self._rest[: len(part)]
            self._left -= len(part)
            name, is_last = self._name, not self._left
            if is_last:
                self._left = None
            yield TarPart(name, part, is_last)
        self._rest.clear()

    def end(self) -> None:
        """Raises CorruptData where more should come."""
        if not self._is_done:
            raise CorruptData("the snapshot is cut")

    def _begin(self, head: bytes) -> None:
        if not any(head):
            self._is_done = True
            return
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
            size = int(self._extended.get("size", info.size))
        except (tarfile.HeaderError, ValueError) as error:
            raise CorruptData(f"the snapshot is no tar: {error}") from None
        self._is_extension = info.type == tarfile.XHDTYPE
        if not self._is_extension and info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise CorruptData(f"the snapshot has {info.name[:60]!r}, which is no file")
        if size < 0 or (self._is_extension and size > SMALL_BYTES_MAX):
            raise CorruptData("a file of the snapshot has a wrong size")
        self._left, self._padding = size, -size % tarfile.BLOCKSIZE
        if not self._is_extension:
            self._name = self._extended.pop("path", info.name)
            self._extended.clear()


def _extensions(data: bytes) -> Iterator[tuple[str, str]]:
    """PAX: ``<length> <name>=<value>`` and a newline, each."""
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(data):
            raise CorruptData("a head of the snapshot's tar does not decode")
        line, data = data[: int(length)], data[int(length) :]
        name, _, value = line[len(length) + 1 : -1].partition(b"=")
        yield name.decode(errors="replace"), value.decode(errors="replace")


# Messages


class SnapshotMessage(NamedTuple):
    """Of a block."""

    sequence: int
    timestamp_ms: int
    subject: str
    header_block: bytes
    data: bytes


class Removed(NamedTuple):
    """There is no such message. ``where``: in place of it, or somewhere behind it."""

    sequence: int
    timestamp_ms: int
    in_place: bool


class MessageBlock:
    """One block in the making."""

    def __init__(self, stream: str, index: int) -> None:
        self.name = f"{BLOCKS}{index}.blk"
        self.data = bytearray()
        self._hash = _block_hash(stream, index)

    def add(self, message: SnapshotMessage) -> None:
        subject = message.subject.encode()
        self._add(
            message.sequence, message.timestamp_ms, subject, message.header_block, message.data
        )

    def add_erased(self, sequence: int, timestamp_ms: int) -> None:
        """So that the stream ends there."""
        self._add(sequence | _ERASED, timestamp_ms, b"", b"", b"")

    def _add(
        self, sequence: int, timestamp_ms: int, subject: bytes, headers: bytes, payload: bytes
    ) -> None:
        length = _HEAD.size + len(subject) + len(headers) + len(payload) + _HASH_BYTES
        marked = length
        if headers:
            length += _LENGTH.size
            marked = length | _HAS_HEADERS
        head = _HEAD.pack(marked, sequence, timestamp_ms * NS_PER_MS, len(subject))
        self.data += head + subject
        if headers:
            self.data += _LENGTH.pack(len(headers)) + headers
        self.data += payload
        self.data += self._hash.digest(head[4:20] + subject + headers + payload)


class BlockMessages:
    """``feed`` a block piece by piece; its messages come back."""

    def __init__(self, stream: str, index: int) -> None:
        self._index = index
        self._hash = _block_hash(stream, index)
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[SnapshotMessage | Removed]:
        """Raises CorruptData."""
        self._rest += data
        at, size = 0, len(self._rest)
        while size - at >= _HEAD.size:
            marked, sequence, time_ns, subject_size = _HEAD.unpack_from(self._rest, at)
            length = marked & ~_HAS_HEADERS
            if not _HEAD.size + _HASH_BYTES <= length <= RECORD_BYTES_MAX:
                raise CorruptData(f"block {self._index} of the snapshot: a message is damaged")
            if size - at < length:
                break
            record = bytes(self._rest[at : at + length])
            at += length
            yield self._read(record, marked, sequence, time_ns, subject_size)
        del self._rest[:at]

    def end(self) -> None:
        """Raises CorruptData where more should come."""
        if self._rest:
            raise CorruptData(f"block {self._index} of the snapshot is cut")

    def _read(
        self, record: bytes, marked: int, sequence: int, time_ns: int, subject_size: int
    ) -> SnapshotMessage | Removed:
        end = len(record) - _HASH_BYTES
        start = _HEAD.size + subject_size
        subject, headers = record[_HEAD.size : start], b""
        if marked & _HAS_HEADERS and start + _LENGTH.size <= end:
            (count,) = _LENGTH.unpack_from(record, start)
            start += _LENGTH.size
            headers = record[start : start + count]
            start += count
        if start > end:
            raise CorruptData(f"block {self._index} of the snapshot: a message is damaged")
        payload = record[start:end]
        hashed = record[4:20] + subject + headers + payload
        if self._hash.digest(hashed) != record[end:]:
            raise CorruptData(
                f"block {self._index} of the snapshot: a message has another checksum, or the"
                " snapshot is of a stream of another name"
            )
        timestamp_ms = time_ns // NS_PER_MS
        if sequence & (_ERASED | _DELETED) or not sequence:
            found = sequence & ~(_ERASED | _DELETED)
            return Removed(found, timestamp_ms, in_place=not sequence & _DELETED)
        return SnapshotMessage(
            sequence, timestamp_ms, subject.decode(errors="replace"), headers, payload
        )


def _block_hash(stream: str, index: int) -> HighwayHash:
    return HighwayHash(hashlib.sha256(f"{stream}-{index}".encode()).digest())


def checksum(data: bytes, *names: str) -> bytes:
    """Of a file of settings: of the stream, or of the stream and a consumer."""
    hashed = HighwayHash(hashlib.sha256("/".join(names).encode()).digest())
    return hashed.digest(data).hex().encode()


# Consumers

_STATE_HEAD: Final = bytes([22, 2])


def consumer_state(state: DeliveryState, *, now_ms: int, wait_ms: int, step_ms: int) -> bytes:
    """Of a stream with one partition. ``wait_ms``: of the consumer, from a delivery to the next one; ``step_ms``: of
    the state's deadlines.
    """
    partition = state.partitions.get(0) or DeliveredPartition(0, 0, [])
    pending = partition.pending
    floor = pending[0].offset if pending else partition.delivered_end
    floor_sequence = min((it.sequence for it in pending), default=state.sequence + 1) - 1
    out = bytearray(_STATE_HEAD)
    for number in (floor_sequence, floor, state.sequence, partition.delivered_end, len(pending)):
        _put(out, number)
    if pending:
        now_s = now_ms // 1000
        _put_signed(out, now_s)
        for it in pending:
            left_ms = 0 if it.steps_left is None else it.steps_left * step_ms
            delivered_s = (now_ms + left_ms - wait_ms) // 1000
            _put(out, it.offset + 1 - floor)
            _put(out, it.sequence - floor_sequence)
            _put_signed(out, now_s - delivered_s)
    again = [it for it in pending if it.count > 1]
    _put(out, len(again))
    for it in again:
        _put(out, it.offset + 1 - floor)
        _put(out, it.count - 1)
    return bytes(out)


def delivery_state(data: bytes, *, now_ms: int, wait_ms: int, step_ms: int) -> DeliveryState | None:
    """What ``o.dat`` says; None: nothing was delivered. Raises CorruptData."""
    reader = _Numbers(data)
    if data[:2] != _STATE_HEAD:
        raise CorruptData("a consumer's state has an unknown form")
    floor_sequence, floor, sequence, end = (reader.number() for _ in range(4))
    pending = dict[int, tuple[int, int]]()
    if count := reader.number():
        if count > PENDING_MAX:
            raise CorruptData("a consumer's state has too many pending messages")
        base_s = reader.signed()
        for _ in range(count):
            offset = reader.number() + floor - 1
            pending[offset] = reader.number() + floor_sequence, base_s - reader.signed()
    redelivered = dict[int, int]()
    for _ in range(min(reader.number(), PENDING_MAX)):
        offset = reader.number() + floor - 1
        redelivered[offset] = reader.number()
    return _state(
        sequence, end, pending, redelivered, now_ms=now_ms, wait_ms=wait_ms, step_ms=step_ms
    )


def archived_state(
    told: dict[str, Any], *, now_ms: int, wait_ms: int, step_ms: int
) -> DeliveryState | None:
    """As ``delivery_state``, of an archive. Raises CorruptData; KeyError, TypeError, ValueError, AttributeError."""
    pending = {
        int(sequence) - 1: (int(it["Sequence"]), int(it["Timestamp"]) // 1_000_000_000)
        for sequence, it in (told.get("pending") or {}).items()
    }
    redelivered = {
        int(sequence) - 1: int(count) for sequence, count in (told.get("redelivered") or {}).items()
    }
    delivered = told["delivered"]
    return _state(
        int(delivered["consumer_seq"]),
        int(delivered["stream_seq"]),
        pending,
        redelivered,
        now_ms=now_ms,
        wait_ms=wait_ms,
        step_ms=step_ms,
    )


def _state(
    sequence: int,
    end: int,
    pending: Mapping[int, tuple[int, int]],
    redelivered: Mapping[int, int],
    *,
    now_ms: int,
    wait_ms: int,
    step_ms: int,
) -> DeliveryState | None:
    """``pending``: by offset, the sequence of the delivery and its time in seconds."""
    if not sequence and not end:
        return None
    records, used = list[PendingState](), set[int]()
    for offset in sorted(pending):
        number, delivered_s = pending[offset]
        if offset < 0 or offset >= end or number in used or not 0 < number <= sequence:
            raise CorruptData("a consumer's state does not hold together")
        used.add(number)
        left_ms = delivered_s * 1000 + wait_ms - now_ms
        steps = min(max(0, -(-left_ms // step_ms)), -(-wait_ms // step_ms))
        records.append(PendingState(offset, number, 1 + redelivered.get(offset, 0), steps))
    if (
        not 0 <= end <= SEQUENCES_MAX
        or not 0 <= sequence <= SEQUENCES_MAX
        or len(records) > PENDING_MAX
    ):
        raise CorruptData("a consumer's state does not hold together")
    sequence = max(sequence, sum(it.count for it in records))
    return DeliveryState(sequence, {0: DeliveredPartition(end, end, records)}, [])


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _put_signed(out: bytearray, number: int) -> None:
    _put(out, number << 1 if number >= 0 else (-number << 1) - 1)


class _Numbers:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = len(_STATE_HEAD)

    def number(self) -> int:
        found = shift = 0
        while True:
            if self._at >= len(self._data) or shift > 63:
                raise CorruptData("a consumer's state is cut")
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found

    def signed(self) -> int:
        found = self.number()
        return found >> 1 if not found & 1 else -((found + 1) >> 1)


# The whole


class SmallFile(NamedTuple):
    """A file that is no block, whole. ``consumer`` empty: it is about the stream."""

    consumer: str
    name: str
    data: bytes


ARCHIVE_HEAD: Final = b"NATSARC1"
ARCHIVED: Final = "consumer.json"
"""The name that a consumer's entry of an archive gets here."""
_ENTRY_BYTES_MAX: Final = 80
"""Of the numbers of an entry."""


class ArchivedEnd(NamedTuple):
    """What an archive says of its stream."""

    last_sequence: int
    timestamp_ms: int


class ArchiveEntries:
    """``feed`` an archive piece by piece, without its head."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._last = 0
        self._is_done = False

    def feed(self, data: bytes) -> Iterator["SnapshotItem"]:
        """Raises CorruptData."""
        self._rest += data
        at = 0
        while not self._is_done:
            head = _entry(self._rest[at : at + _ENTRY_BYTES_MAX])
            if head is None:
                break
            size, name_size, time_ns, sequence, header_size, payload_size = head
            body = name_size + header_size + payload_size
            if body > RECORD_BYTES_MAX:
                raise CorruptData("an entry of the snapshot is too large")
            if len(self._rest) - at < size + body:
                break
            start = at + size
            name = bytes(self._rest[start : start + name_size])
            headers = bytes(self._rest[start + name_size : start + name_size + header_size])
            payload = bytes(self._rest[start + name_size + header_size : start + body])
            at = start + body
            if not any(head[1:]):
                self._is_done = True
                break
            yield self._read(name, time_ns, sequence, headers, payload)
        del self._rest[:at]

    def end(self) -> None:
        """Raises CorruptData where more should come."""
        if not self._is_done:
            raise CorruptData("the snapshot is cut")

    def _read(
        self, name: bytes, time_ns: int, sequence: int, headers: bytes, payload: bytes
    ) -> "SnapshotItem":
        text = name.decode(errors="replace")
        if sequence:
            if sequence <= self._last or sequence > SEQUENCES_MAX:
                raise CorruptData("messages of the snapshot are out of order")
            self._last = sequence
            return SnapshotMessage(sequence, time_ns // NS_PER_MS, text, headers, payload)
        if text == "state.json":
            try:
                state = json.loads(payload)
                last = int(state.get("last_seq") or 0)
            except (ValueError, TypeError, AttributeError, RecursionError):
                raise CorruptData("the state of the snapshot does not decode") from None
            return ArchivedEnd(last, time_ns // NS_PER_MS)
        folder, _, consumer = text.partition("/")
        if folder != "consumers" or not consumer:
            raise CorruptData(f"{text[:60]!r} of the snapshot is unknown")
        return SmallFile(consumer, ARCHIVED, payload)


def _entry(data: bytearray) -> tuple[int, int, int, int, int, int] | None:
    """Its size, and its five numbers; None: more has to come."""
    found, at = [0], 0
    for _ in range(5):
        number = shift = 0
        while True:
            if at >= len(data):
                if len(data) == _ENTRY_BYTES_MAX:
                    raise CorruptData("an entry of the snapshot does not decode")
                return None
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 70:
                raise CorruptData("an entry of the snapshot does not decode")
            if byte < 0x80:
                break
        found.append(number)
    signed = found[2]
    found[0], found[2] = at, signed >> 1 if not signed & 1 else -((signed + 1) >> 1)
    size, name, time_ns, sequence, headers, payload = found
    return size, name, time_ns, sequence, headers, payload


SnapshotItem = SnapshotMessage | Removed | SmallFile | ArchivedEnd


class SnapshotFiles:
    """``feed`` a snapshot of the stream ``stream`` piece by piece; what is in it comes back in its order."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._frames = S2Frames()
        self._tar = TarFiles()
        self._archive: ArchiveEntries | None = None
        self._head: bytearray | None = bytearray()
        """Until it is known which of the two it is."""
        self._small = bytearray()
        self._block: BlockMessages | None = None
        self._name = ""

    @property
    def is_archive(self) -> bool:
        return self._archive is not None

    def feed(self, data: bytes | memoryview) -> Iterator[SnapshotItem]:
        """Raises CorruptData."""
        for frame in self._frames.feed(data):
            opened = frame
            if self._head is not None:
                self._head += opened
                if len(self._head) < len(ARCHIVE_HEAD):
                    continue
                opened, self._head = bytes(self._head), None
                if opened.startswith(ARCHIVE_HEAD):
                    self._archive = ArchiveEntries()
                    opened = opened[len(ARCHIVE_HEAD) :]
            if self._archive is not None:
                yield from self._archive.feed(opened)
                continue
            for part in self._tar.feed(opened):
                yield from self._part(part)

    def end(self) -> None:
        """Raises CorruptData where more should come."""
        self._frames.end()
        (self._archive or self._tar).end()

    def _part(self, part: TarPart) -> Iterable[SnapshotMessage | Removed | SmallFile]:
        name = part.name
        if name.startswith(BLOCKS):
            if name.endswith(".blk"):
                yield from self._of_block(part)
            return
        self._small += part.data
        if len(self._small) > SMALL_BYTES_MAX:
            raise CorruptData(f"{name[:60]!r} of the snapshot is too large")
        if not part.is_last:
            return
        data = bytes(self._small)
        self._small.clear()
        if name == ERRORS:
            said = data.decode(errors="replace")[:200]
            raise CorruptData(f"the snapshot was not finished where it was taken: {said}")
        consumer = ""
        if name.startswith(CONSUMERS):
            consumer, _, name = name.removeprefix(CONSUMERS).rpartition("/")
        yield SmallFile(consumer, name, data)

    def _of_block(self, part: TarPart) -> Iterable[SnapshotMessage | Removed]:
        if self._block is None:
            index = part.name.removeprefix(BLOCKS).removesuffix(".blk")
            if not index.isascii() or not index.isdigit() or len(index) > 10:
                raise CorruptData(f"{part.name[:60]!r} of the snapshot is no block")
            self._block = BlockMessages(self._stream, int(index))
        yield from self._block.feed(part.data)
        if part.is_last:
            self._block.end()
            self._block = None
