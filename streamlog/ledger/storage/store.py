"""A channel's blocks on disk: a log whose records are blocks, each one's offset its number.

``<directory>/`` is a folder of segments as every other log of streamlog: batches of one record
each, without a key, whose value is the encoded block. So a torn tail is cut and a flipped bit is
found as ``streamlog.log`` does that. Beside the segments, ``positions`` tells where each block is.
What is written depends on the blocks alone, never on the time or the node, so the segment files of
two nodes are the same, byte for byte.

``BlockPositions`` has entries of one size, so that a number leads to its block at once. Entry N,
eight bytes, is of block N: which of the chain's segments, counted from the first one, and the
position in its file. A block is found without it, too, only not in the same time however long the
chain is. So nothing here has to be durable, and nothing is believed: a reader looks whether the
block that begins there has that number, and the reader that had to seek it writes the entry again.
"""

import contextlib
import logging
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.condition import CRITICAL, Condition
from streamlog.errors import BrokenInvariant, CorruptFile, OffsetOutOfRange, Unavailable
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.log import PartitionLog, SyncTicket
from streamlog.log.recovery.report import RecoveryReport
from streamlog.log.segment.batch_scan import base_offset_at
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.segment.segment import Segment
from streamlog.log.segment.time_search import Verify
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import Disk, storage_error, storage_errors, write_all
from streamlog.log.storage.file_pool import FilePool
from streamlog.model import LogId, TopicPartition
from streamlog.record.batch import batches, check_batch
from streamlog.record.codec import RecordRun, iter_records

logger = logging.getLogger(__name__)

LEDGER_CUT: Final = Condition(
    "SL-0711",
    "ledger cut back to the last good block",
    "nothing: it is fetched again; look at the disk",
    meaning="The end of the ledger's file was damaged.",
)
LEDGER_BEGUN_AGAIN: Final = Condition(
    "SL-0712",
    "ledger begun again",
    "nothing: it is fetched again; look at the disk",
    meaning="The ledger's file could not be used at all.",
    severity=CRITICAL,
)
LEDGER_CHECKPOINT_DAMAGED: Final = Condition(
    "SL-0713",
    "checkpoint damaged, all blocks are read",
    "nothing; look at the disk if it happens again",
    meaning="The file with the position in the ledger is damaged. The start takes longer.",
)
POSITIONS_NOT_KEPT: Final = Condition(
    "SL-0714",
    "blocks are sought, for want of their positions",
    "make room if its disk is full, and restart: until then finding a block takes longer",
    meaning="The index of block positions could not be written.",
)


ENTRY: Final = struct.Struct(">II")


class BlockPlace(NamedTuple):
    """Of a block."""

    segment: int
    """The chain's ``segment``th."""
    position: int
    """In its file, in bytes."""


class BlockPositions:
    """One file, which is made when the first entry is written. Where the disk fails it is done
    without until the chain is opened again: other writers report a failing disk."""

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self._path = path
        self._failed = False

    def find(self, number: int) -> BlockPlace | None:
        """Where the block may be; None: unknown."""
        if self._failed:
            return None
        try:
            pooled = self._pool.pin(self._path)
            try:
                entry = pooled.file.pread(ENTRY.size, number * ENTRY.size)
            finally:
                self._pool.unpin(pooled)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fail(error)
            return None
        return BlockPlace(*ENTRY.unpack(entry)) if len(entry) == ENTRY.size else None

    def write(self, number: int, places: Sequence[BlockPlace]) -> None:
        """Of the blocks from ``number`` on."""
        if self._failed or not places:
            return
        entries = b"".join(ENTRY.pack(*place) for place in places)
        try:
            self._write(entries, number * ENTRY.size)
        except OSError as error:
            self._fail(error)

    def _write(self, entries: bytes, position: int) -> None:
        try:
            pooled = self._pool.pin(self._path)
        except FileNotFoundError:
            self._pool.create(self._path)
            pooled = self._pool.pin(self._path)
        try:
            write_all(pooled.file, entries, position)
        finally:
            self._pool.unpin(pooled)

    def _fail(self, error: OSError) -> None:
        self._failed = True
        extra = {"file": self._path, "error": str(error)}
        logger.warning(POSITIONS_NOT_KEPT, extra=extra)


CHECKPOINT_NAME: Final = "recovery-point-offset-checkpoint"
POSITIONS_NAME: Final = "positions"
SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""The same for all ledgers, for their files are compared; a start reads about one of them."""
SETTINGS: Final = LogSettings(segment_bytes=SEGMENT_BYTES, segment_age_ms=2**62)
_TIME_MS: Final = 0
_EPOCH: Final = 0
_LOG_ID: Final = LogId(TopicPartition("blocks", 0))
READ_BYTES: Final = 1024 * 1024
OPEN_FILES_MAX: Final = 16
"""Of one channel."""


class StoredBlock(NamedTuple):
    """A block as it lies in the file."""

    number: int
    data: bytes


class BlockStore:
    """Appends and reads blocks by number. One owner; it blocks, so use it from a thread or briefly.

    Its methods raise Unavailable where the disk fails.
    """

    def __init__(self, log: PartitionLog, pool: FilePool, checkpoint: OffsetCheckpoint) -> None:
        self._log = log
        self._pool = pool
        self._positions = BlockPositions(pool, str(checkpoint.path.with_name(POSITIONS_NAME)))
        self._checkpoint = checkpoint
        self._checkpointed = 0

    @classmethod
    def open(cls, directory: Path, disk: Disk, *, settings: LogSettings = SETTINGS) -> "BlockStore":
        """Open or create; cuts what is torn, and from the first damage on what has been found.

        Segments that are known to be synced are not read: they are checked when first read, or by
        ``check_sealed``.
        """
        with storage_errors(str(directory)):
            disk.make_directory(str(directory))
        checkpoint = OffsetCheckpoint(directory / CHECKPOINT_NAME, disk)
        recovery_point = _recovery_point(checkpoint, directory)
        pool = FilePool(disk, OPEN_FILES_MAX)
        log = PartitionLog.open(
            directory, settings, disk=disk, files=pool, recovery_point=recovery_point
        )
        store = cls(log, pool, checkpoint)
        if log.log_start_offset > 0:
            store.lose_all(f"blocks [0, {log.log_start_offset}) are missing")
        store.cut_damage()
        return store

    @property
    def height(self) -> int:
        """The count of blocks; the next one's number."""
        return self._log.log_end_offset

    @property
    def synced_height(self) -> int:
        """All below is on the disk."""
        return self._log.recovery_point

    @property
    def failed(self) -> bool:
        """It takes nothing more until it is opened again."""
        return self._log.failed

    @property
    def recovery(self) -> RecoveryReport:
        """What opening it found and did."""
        return self._log.recovery

    @property
    def segment_count(self) -> int:
        return self._log.segment_count

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def append(self, number: int, blocks: Sequence[bytes]) -> None:
        """Write encoded blocks, of which the first has ``number``, the height; synced by ``sync``.

        Raises StorageFull, after which some may be there.
        """
        if number != self.height:
            raise BrokenInvariant(f"block {number} where {self.height} is next")
        places: list[BlockPlace] = []
        try:
            places.extend(map(self._append, blocks))
        finally:
            self._positions.write(number, places)

    def _append(self, block: bytes) -> BlockPlace:
        run = RecordRun()
        run.append(None, block)
        batch = run.seal(
            base_offset=self._log.log_end_offset,
            leader_epoch=_EPOCH,
            timestamp_ms=_TIME_MS,
        )
        self._log.append(batch, _TIME_MS)
        segments = self._log.segments
        return BlockPlace(len(segments) - 1, segments.last.size_bytes - len(batch))

    def begin_sync(self) -> SyncTicket | None:
        """For all that was appended, to be ``run`` by any thread; None: it is synced."""
        return self._log.begin_sync()

    def finish_sync(self, ticket: SyncTicket) -> int:
        """The ticket has run: the height up to which all is durable."""
        return self._log.finish_sync(ticket)

    def sync(self) -> int:
        """All that was appended is durable when it returns; the height. Blocking."""
        ticket = self.begin_sync()
        if ticket is not None:
            ticket.run()
            self.finish_sync(ticket)
        if self.wants_checkpoint:
            self.write_checkpoint()
        return self.height

    @property
    def wants_checkpoint(self) -> bool:
        """A start would read more than the last segment."""
        return self._log.segments.last.base_offset > self._checkpointed

    def write_checkpoint(self) -> None:
        """Up to which the next start believes the files without reading them. Blocking."""
        recovery_point = self._log.recovery_point
        with storage_errors(str(self._checkpoint.path)):
            self._checkpoint.write({_LOG_ID: recovery_point})
        self._checkpointed = recovery_point

    def slice(self, number: int, max_bytes: int, *, verify: Verify = Segment.verify) -> FileSlice:
        """The batches of the blocks from ``number`` on, one at least, about ``max_bytes`` of them;
        ``blocks_in`` reads it.

        ``verify`` as ``PartitionLog.read`` has it. Raises OffsetOutOfRange where there is no such
        block; CorruptBatch where it is damaged.
        """
        if not 0 <= number < self.height:
            raise OffsetOutOfRange(number, 0, self.height)
        segment = self._at_once(number)
        if segment is None:
            return self._sought(number, max_bytes, verify)
        with storage_errors(segment.path):
            return segment.slice(number, max_bytes, self.height)

    def _at_once(self, number: int) -> Segment | None:
        """The segment which has been told where in it the block is."""
        place, segments = self._positions.find(number), self._log.segments
        if place is None or place.segment >= len(segments):
            return None
        segment = segments[place.segment]
        if segment.unverified_bytes or segment.damages:
            return None
        with storage_errors(segment.path):
            pooled = self._pool.pin(segment.path)
            try:
                if base_offset_at(pooled.file, place.position) != number:
                    return None
            finally:
                self._pool.unpin(pooled)
        segment.hint(number, place.position)
        return segment

    def _sought(self, number: int, max_bytes: int, verify: Verify) -> FileSlice:
        """By a bisection over the segments' names, and one over an index; remembered."""
        part = self._log.read(number, max_bytes, self.height, verify=verify)
        segment = self._log.segments.index(number)
        self._positions.write(number, [BlockPlace(segment, part.position)])
        return part

    def read(self, number: int, *, max_bytes: int = READ_BYTES) -> list[StoredBlock]:
        """The blocks of ``slice``, which raises. Blocking."""
        with self.slice(number, max_bytes) as part:
            return list(blocks_in(part.read()))

    def block(self, number: int) -> bytes:
        """As ``read``."""
        return self.read(number, max_bytes=1)[0].data

    def unchecked(self) -> list[Segment]:
        """What was not read since the ledger was opened: ``Segment.verify`` it, in any thread.

        What is damaged shows in ``damaged_from``.
        """
        return [segment for segment in self._log.segments if segment.unverified_bytes]

    @property
    def damaged_from(self) -> int | None:
        """The first block that is known to be damaged."""
        return self._log.damaged_from

    def recheck(self, number: int) -> None:
        """Look again at the segment of a block that was good once and could not be read. Blocking.

        Raises Unavailable.
        """
        segment = self._log.segment_for_read(number)
        if segment is not None:
            with storage_errors(segment.path):
                segment.note_damages(segment.recheck(lambda _: None))

    def cut_damage(self) -> int | None:
        """Cut back to the last block before any damage that was found; where. Durable.

        The damaged segment is kept aside for the operator.
        """
        damaged_from = self._log.damaged_from
        if damaged_from is None:
            return None
        self._log.cut_damage()
        self.write_checkpoint()
        logger.warning(
            LEDGER_CUT,
            extra={"directory": str(self._checkpoint.path.parent), "height": self.height},
        )
        return self.height

    def lose_all(self, problem: str) -> None:
        """Begin again, durably: what is there is no chain."""
        directory = str(self._checkpoint.path.parent)
        logger.error(LEDGER_BEGUN_AGAIN, extra={"directory": directory, "problem": problem})
        self._log.truncate_fully_to(0)
        self.write_checkpoint()

    def truncate(self, height: int) -> None:
        """Forget the blocks from this number on, durably."""
        self._log.truncate_to(height)
        self.write_checkpoint()

    def close(self) -> None:
        """Sync what is left and let go of the files."""
        self._log.close()
        with contextlib.suppress(Unavailable):  # the next start reads more
            self.write_checkpoint()
        self._pool.close()


def _recovery_point(checkpoint: OffsetCheckpoint, directory: Path) -> int:
    """One that cannot be read is as good as none: more is read at the start."""
    try:
        return next(iter(checkpoint.read().values()), 0)
    except OSError as error:
        raise storage_error(error, str(checkpoint.path)) from error
    except CorruptFile as error:
        logger.warning(
            LEDGER_CHECKPOINT_DAMAGED,
            extra={"directory": str(directory), "problem": str(error)},
        )
        return 0


def blocks_in(data: bytes) -> Iterator[StoredBlock]:
    """Of a slice. Raises CorruptBatch if the bytes are not what was checked."""
    for header, batch in batches(data):
        check_batch(batch)
        for record in iter_records(batch):
            yield StoredBlock(header.base_offset, record.value or b"")
