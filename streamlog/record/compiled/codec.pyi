"""Record batches: records into them and out of them, compiled.

A varint is Kafka's: zigzag, seven bits a byte, the lowest first.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from streamlog.record.batch import BatchHeader, Record
from streamlog.record.compression import Buffer

SOURCES: int

RUN_BYTES_MAX: Final[int]
"""Of a run's records: each reader of the batch has to be able to open it."""

HEADERS_MAX: Final = 65_536
"""Of a record that a producer sends. A header takes two bytes in a batch, and a hundred times as
much once it is decoded."""

NO_PRODUCER: Final = (-1, -1, -1)
"""Id, epoch and sequence of a batch that no producer has numbered."""

class RecordRun:
    """Records gathered until they are sealed into one batch. Not thread-safe; one owner."""

    @property
    def bytes_max(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def count(self) -> int: ...
    def __init__(self, *, bytes_max: int = RUN_BYTES_MAX, attributes: int = 0) -> None:
        """``attributes``: of its batches, beside those that ``seal`` says."""

    @property
    def size_bytes(self) -> int:
        """What the records take so far, uncompressed."""

    def body_from(self, position: int) -> bytes:
        """The records that begin at that byte and after it."""

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]] = (),
        timestamp_delta_ms: int = 0,
    ) -> int:
        """Add a record; its offset delta. Raises RecordTooLarge where there is no room for it.

        Its time is the batch's, and so much more.
        """

    def seal(
        self,
        *,
        base_offset: int,
        leader_epoch: int,
        timestamp_ms: int,
        compression: int = 0,
        max_timestamp_ms: int | None = None,
        producer: tuple[int, int, int] = NO_PRODUCER,
    ) -> bytes:
        """The whole batch; the run is empty afterwards, but as it was where this raises.

        ``timestamp_ms`` is the time of append of all records; with ``max_timestamp_ms``, which is
        the latest of them, they have times of their own. ``producer``: id, epoch and sequence.
        """

    def clear(self) -> None:
        """Forget the records."""

def decode_records(body: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records of an opened batch, one by one."""

def survey_records(body: Buffer, count: int, base_timestamp_ms: int) -> tuple[int, int]:
    """The size of the largest record of an opened batch, and the latest time of all.

    Raises CorruptBatch unless there are ``count`` whole records with the offsets 0, 1, 2, ... and
    no more than ``HEADERS_MAX`` headers each.
    """

def survey_plain(data: Buffer) -> tuple[tuple[int, ...], tuple[int, int]] | None:
    """The fields of the header of the one batch that ``data`` is, with a base offset of 0, and what ``survey_records``
    says of its records. None: it is not an uncompressed batch outside transactions, or something is wrong with it; the
    checksum is not looked at.
    """

def record_sizes(body: Buffer) -> list[int]:
    """Of each record of an opened batch, in bytes, with the length that it begins with.

    Raises CorruptBatch.
    """

def marked_batches(data: Buffer) -> tuple[list[int], int]:
    """Where in ``data`` those batches begin that have a producer's id, and control batches; and
    the offset after the last whole batch; -1: there is none. Checksums are not looked at.

    Raises CorruptBatch.
    """
