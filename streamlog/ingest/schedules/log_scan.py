"""What a piece of a log tells of schedules."""

from typing import Final, NamedTuple

from streamlog.ingest.schedules.pending_schedules import PendingSchedules
from streamlog.ingest.schedules.scheduled_message import firing_of, schedule_of, subject_of
from streamlog.log.segment.file_slice import FileSlice
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records

_HEADER_BYTES: Final = b"Nats-Schedule"
_MS: Final = 1_000_000


class Stored(NamedTuple):
    """A schedule."""

    subject: bytes
    offset: int
    due_ns: int

    def tell(self, pending: PendingSchedules) -> None:
        pending.stored(self.subject, self.offset, self.due_ns)


class Fired(NamedTuple):
    """A message of one."""

    subject: bytes
    """Of the schedule."""
    offset: int
    next_ns: int | None

    def tell(self, pending: PendingSchedules) -> None:
        pending.fired(self.subject, self.offset, self.next_ns)


class Expunged(NamedTuple):
    """Messages were taken out of the files."""

    offset: int
    latest_ms: int

    def tell(self, pending: PendingSchedules) -> None:
        pending.gap(self.offset, self.latest_ms)


Event = Stored | Fired | Expunged


def scan(part: FileSlice, from_offset: int) -> tuple[list[Event], int]:
    """In order, and where the piece ends. Blocks. Raises CorruptBatch.

    A Kafka producer's headers ask for nothing.
    """
    data, until = part.read(), from_offset
    found: list[Event] = []
    uncompressed = _HEADER_BYTES in data
    for header, batch in batches(data):
        until = header.next_offset
        if header.is_control:
            continue
        if header.record_count < header.next_offset - header.base_offset:
            found.append(Expunged(header.last_offset, header.max_timestamp_ms))
        if header.is_published and header.record_count and (header.compression or uncompressed):
            found += _events(batch, from_offset)
    return found, until


def _events(batch: memoryview, from_offset: int) -> list[Event]:
    found: list[Event] = []
    for record in iter_records(batch):
        if record.offset < from_offset:
            continue
        if (schedule := schedule_of(record)) is not None:
            due_ns = schedule.spec.first_ns(record.timestamp_ms * _MS)
            if due_ns is not None:
                found.append(Stored(subject_of(record), record.offset, due_ns))
        if (firing := firing_of(record)) is not None:
            found.append(Fired(firing.scheduler, record.offset, firing.next_ns))
    return found
