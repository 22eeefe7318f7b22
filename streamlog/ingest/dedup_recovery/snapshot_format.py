"""The duplicate window as a small file, so that a start need not read it out of the log. Pure.

A checked file (``log.checked_file``): the fields of ``_HEAD``, the last id; then each slot:
when it ends, how many ids it has, their offsets, their lengths, the ids. As with Kafka's producer
snapshots, what comes after it is read from the log; what does not fit the log is not used.
"""

import struct
from typing import Final, NamedTuple

from streamlog.errors import CorruptFile
from streamlog.ingest.admission.deduplicator import Last
from streamlog.ingest.admission.duplicate_window import WindowSlot
from streamlog.log.checked_file import body_of, checked

FILE_NAME: Final = "message-ids.snapshot"
_MAGIC: Final = b"SLMI\x00\x00\x00\x01"
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
    slots: list[WindowSlot]
    """As ``DuplicateWindow`` has them."""


def encode(snapshot: DedupSnapshot) -> bytes:
    """In a thread of its own: the slots do not change."""
    last_id, last_offset = snapshot.last or (b"", _NO_OFFSET)
    known_offset, epoch, since_ms = snapshot.known_offset, snapshot.epoch, snapshot.since_ms
    slot_count = len(snapshot.slots)
    out = [
        _HEAD.pack(
            snapshot.topic_id, known_offset, epoch, since_ms, slot_count, last_offset, len(last_id)
        )
    ]
    out.append(last_id)
    for slot in snapshot.slots:
        out += (_SLOT.pack(slot.end_ms, len(slot)), slot.columns())
    return checked(_MAGIC, b"".join(out))


def decode(data: bytes, path: str) -> DedupSnapshot:
    """Raises CorruptFile for what is not, to the last byte, what was written."""
    body = body_of(data, _MAGIC, path, "a snapshot of message ids")
    if len(body) < _HEAD.size:
        raise CorruptFile(f"{path}: not a snapshot of message ids")
    head = _HEAD.unpack_from(body)
    topic_id, known_offset, epoch, since_ms, slot_count, last_offset, last_length = head
    at = _HEAD.size + last_length
    last_id = bytes(body[at - last_length : at])
    slots: list[WindowSlot] = []
    try:
        for _ in range(slot_count):
            end_ms, count = _SLOT.unpack_from(body, at)
            at += _SLOT.size
            slot, size = WindowSlot.of_columns(end_ms, count, body[at:])
            slots.append(slot)
            at += size
    except (struct.error, ValueError) as error:
        raise CorruptFile(f"{path}: {error}") from error
    if at != len(body):
        raise CorruptFile(f"{path}: something follows the last slot")
    last = None if last_offset == _NO_OFFSET else (last_id, last_offset)
    return DedupSnapshot(topic_id, known_offset, epoch, since_ms, last, slots)
