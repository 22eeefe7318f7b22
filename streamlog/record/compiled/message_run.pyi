"""Messages of one partition in the order of their offsets, as NATS clients get them, compiled.

A message's first header, named ``subject``, is its subject; a second one named ``reply`` is the publisher's
reply subject, and of no further use; the others are the message's headers. A record that a Kafka producer
wrote may have other headers, and any bytes in them: line ends become blanks, since they would begin headers
of their own, or end them all. What cannot be a subject is left out: such a message's subject is empty.
"""

from collections.abc import Iterable, Sequence

from streamlog.record.batch import BatchHeader
from streamlog.record.compression import Buffer
from streamlog.record.offset_set import OffsetSet

SOURCES: int

class MessageRun:
    """They are gathered, and read. Not thread-safe; one owner at a time."""

    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Of subjects, headers and payloads."""

    @property
    def next_offset(self) -> int:
        """After the last message; 0: there is none."""

    @classmethod
    def of(cls, messages: Iterable[tuple[str, int, int, bytes, bytes]]) -> MessageRun:
        """``messages``: subject, sequence, time in ms, block of headers, payload; sequences rise."""

    def add_records(
        self,
        body: Buffer,
        header: BatchHeader,
        wanted: Sequence[int],
        *,
        patterns: Sequence[bytes] = (),
        bytes_max: int,
    ) -> int:
        """Of an opened batch, those of the ``wanted`` offsets, which rise, whose subject matches one of the
        patterns, if there are any (an empty one matches none); no more once ``size_bytes`` has reached ``bytes_max``.

        The offset after the last record that was looked at. Raises CorruptBatch.
        """

    def leave_out(self, offsets: OffsetSet | set[int]) -> None:
        """Forget those of these offsets."""

    def index_of(self, offset: int) -> int:
        """Of the first message at that offset or later; ``count``: there is none."""

    def offset_at(self, index: int) -> int: ...
    def offsets(self, start: int, stop: int) -> list[int]:
        """Of the messages from index ``start`` up to ``stop``."""

    def message(self, index: int) -> tuple[str, int, int, bytes, bytes]:
        """Subject, sequence, time in ms, block of headers, payload."""

    def encode(self) -> bytes: ...
    @classmethod
    def decode(cls, data: bytes) -> MessageRun:
        """Raises CorruptData."""
