"""The duplicate window as a small file, so that a start need not read it out of the log. Pure.

Big-endian: magic, CRC-32C of the rest, the fields of ``_HEAD``, the last id; then each slot:
when it ends, how many ids it has, their offsets, their lengths, the ids. As with Kafka's producer
snapshots, what comes after it is read from the log; what does not fit the log is not used.
"""

import struct
import sys
from array import array
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.ingest.admission.deduplicator import Last
from streamlog.ingest.admission.duplicate_window import Slot

FILE_NAME: Final = "message-ids.snapshot"
_MAGIC: Final = b"SLMI\x00\x00\x00\x01"
_CRC: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">16sqiqIqI")
_SLOT: Final = struct.Struct(">qI")
_NO_OFFSET: Final = -1


class DedupSnapshot(NamedTuple):
    """What was known of a log."""

    topic_id: bytes
    """Of the stream whose log it is: 16 bytes."""
    known_offset: int
    """The ids of all batches below it are here."""
    epoch: int
    """Of the last of these batches: where the log has that much of it, it is the same log."""
    since_ms: int
    """An id as young as that, or younger, is here; older ones may be missing."""
    last: Last
    """The youngest id and its offset, however old."""
    slots: list[Slot]
    """As ``DuplicateWindow`` has them."""


def encode(snapshot: DedupSnapshot) -> bytes:
    """In a thread of its own: ids are added to no slot but the last one, which is a copy. Where an
    append fails meanwhile the others may lose ids, and the caller must not use what this returns.
    """
    last_id, last_offset = snapshot.last or (b"", _NO_OFFSET)
    known_offset, epoch, since_ms = snapshot.known_offset, snapshot.epoch, snapshot.since_ms
    slot_count = len(snapshot.slots)
    out = [
        _HEAD.pack(
            snapshot.topic_id, known_offset, epoch, since_ms, slot_count, last_offset, len(last_id)
        )
    ]
    out.append(last_id)
    for end_ms, ids in snapshot.slots:
        items = list(ids.items())  # at once
        out.append(_SLOT.pack(end_ms, len(items)))
        out.append(_packed("q", [offset for _, offset in items]))
        out.append(_packed("I", [len(message_id) for message_id, _ in items]))
        out += [message_id for message_id, _ in items]
    body = b"".join(out)
    return b"".join((_MAGIC, _CRC.pack(crc32c(body)), body))


def decode(data: bytes, path: str) -> DedupSnapshot:
    """Raises CorruptFile for what is not, to the last byte, what was written."""
    start = len(_MAGIC) + _CRC.size
    if len(data) < start + _HEAD.size or not data.startswith(_MAGIC):
        raise CorruptFile(f"{path}: not a snapshot of message ids")
    if crc32c(memoryview(data)[start:]) != _CRC.unpack_from(data, len(_MAGIC))[0]:
        raise CorruptFile(f"{path}: the checksum does not fit")
    head = _HEAD.unpack_from(data, start)
    topic_id, known_offset, epoch, since_ms, slot_count, last_offset, last_length = head
    at = start + _HEAD.size + last_length
    last_id = data[at - last_length : at]
    slots: list[Slot] = []
    for _ in range(slot_count):
        end_ms, count = _SLOT.unpack_from(data, at)
        at += _SLOT.size
        offsets = _unpacked("q", data[at : at + 8 * count])
        lengths = _unpacked("I", data[at + 8 * count : at + 12 * count])
        at += 12 * count
        ids: dict[bytes, int] = {}
        for offset, length in zip(offsets, lengths, strict=True):
            ids[data[at : at + length]] = offset
            at += length
        slots.append((end_ms, ids))
    last = None if last_offset == _NO_OFFSET else (last_id, last_offset)
    return DedupSnapshot(topic_id, known_offset, epoch, since_ms, last, slots)


def _packed(kind: str, values: list[int]) -> bytes:
    return _swapped(array(kind, values)).tobytes()


def _unpacked(kind: str, data: bytes) -> "array[int]":
    return _swapped(array(kind, data))


def _swapped(values: "array[int]") -> "array[int]":
    """Between this machine's order of bytes and the file's."""
    if sys.byteorder == "little":
        values.byteswap()
    return values
