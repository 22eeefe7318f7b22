"""A batch that is being published: messages that are stored together or not at all. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.ingest.admission.publish_headers import Headers
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.published import asked

BATCH_BYTES_MAX: Final = 64 << 20
"""A batch that has grown beyond it gets no message more: it becomes part of one record batch, which
must not be too large for those who fetch it."""
MESSAGE_OVERHEAD_BYTES: Final = 256
"""What a staged message costs beside its record, when the batch is taken apart."""


class StagedMessage(NamedTuple):
    """One message of a batch, as it will be stored."""

    subject: bytes
    asked: Headers
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class AtomicBatch:
    """Its messages so far. Messages go into ``run`` one by one, in their order."""

    __slots__ = ("deadline_ms", "last", "run", "taken_bytes")

    def __init__(self) -> None:
        self.run = RecordRun()
        self.last = 0
        """The number within the batch of its last message; the first is 1."""
        self.deadline_ms = 0
        """Given up then, if nothing more has come."""
        self.taken_bytes = 0
        """For which room has been taken."""

    @property
    def size_bytes(self) -> int:
        """In memory."""
        return self.run.size_bytes + self.run.count * MESSAGE_OVERHEAD_BYTES

    def take_messages(self) -> Iterator[StagedMessage]:
        """All of them, in order; the batch is empty afterwards."""
        if not self.run.count:
            return
        sealed = self.run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)
        for record in iter_records(sealed):
            headers = [(name.encode(), value) for name, value in record.headers]
            wants = {name.encode(): value for name, value in asked(record.headers).items()}
            yield StagedMessage(headers[0][1] or b"", wants, record.key, record.value, headers)
