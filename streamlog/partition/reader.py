"""Reads from a log without stopping the event loop: what has to be checked first is, elsewhere."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from streamlog.condition import CRITICAL, REPAIR_DISK, Condition
from streamlog.errors import CorruptBatch, NotLeader, StorageFailed
from streamlog.log.log import PartitionLog
from streamlog.log.retention import Trim
from streamlog.log.segment.batch_scan import Damage
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.segment.segment import Segment
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.record.offset_set import OffsetSet

logger = logging.getLogger(__name__)

FOLDER_NOT_READ: Final = Condition(
    "SL-0305",
    "folder cannot be read",
    REPAIR_DISK,
    meaning="The folder of a partition could not be listed.",
)
SEGMENT_NOT_CHECKED: Final = Condition(
    "SL-0318",
    "segment cannot be checked",
    REPAIR_DISK,
    meaning="A segment could not be read for a check.",
    severity=CRITICAL,
)

T = TypeVar("T")


RESUME_S: Final = 0.5
"""After which a scrub goes on that made way for something."""


class _CalledOffError(Exception):
    """A check of a segment was told to end."""


class _Check:
    """One check of a segment, which a worker thread makes."""

    def __init__(self, bytes_per_s: float) -> None:
        self.may_wait = bytes_per_s < math.inf
        """Its result is not urgent."""
        self._bytes_per_s = bytes_per_s
        self._is_off = threading.Event()

    def call_off(self) -> None:
        """It ends before it reads more. From any thread."""
        self._is_off.set()

    def pause(self, size: int) -> None:
        """So many bytes are to be read. Raises _CalledOffError."""
        if self._is_off.wait(size / self._bytes_per_s):
            raise _CalledOffError


class _NotVerifiedError(Exception):
    """A segment has to be checked before it is read."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.path)
        self.segment = segment


def _must_be_verified(segment: Segment) -> None:
    if not segment.verified:
        raise _NotVerifiedError(segment)


def _decrypt(part: FileSlice) -> None:
    """Blocking. Where it raises, the slice is closed."""
    try:
        part.decrypt()
    except BaseException:
        part.close()
        raise


class Reader:
    """Segments that were there at the start are checked in a worker thread, once, when first read.

    All of it is below the ``upper_offset`` that the caller gives. Raises CorruptBatch where the log
    is damaged, StorageFailed, NotLeader once closed.
    """

    def __init__(
        self,
        tp: TopicPartition,
        log: PartitionLog,
        workers: Executor,
        metrics: NodeMetrics,
        *,
        damaged: Callable[[], None],
    ) -> None:
        """``damaged`` is called when damage is found."""
        self.closed = False
        self.was_read = False
        """Since the reader of this has set it to False."""
        self.read_bytes = 0
        """Of all that was read, from the object store, too."""
        self._tp = tp
        self._log = log
        self._workers = workers
        self._metrics = metrics
        self._tell_damaged = damaged
        self._checks: set[_Check] = set()
        """Those that run."""
        self._damaged: dict[Segment, int] = {}
        """Those whose damages are told already, with how often they were cut then: one that was cut
        and written again may be damaged again.
        """

    async def read(
        self,
        offset: int,
        max_bytes: int,
        upper: Callable[[], int],
        *,
        from_files_start: bool = False,
    ) -> FileSlice:
        """Whole batches, first the one with ``offset``. ``from_files_start``: see ``PartitionLog.read``. Raises
        OffsetOutOfRange, too.
        """
        self.was_read = True
        failed: FileSlice | None = None
        while True:
            self.check_open()
            try:
                part = self._log.read(
                    offset,
                    max_bytes,
                    upper(),
                    verify=_must_be_verified,
                    from_files_start=from_files_start,
                )
            except _NotVerifiedError as found:
                segment = found.segment
            except (CorruptBatch, StorageFailed):
                await self.check_files()
                raise
            else:
                self.read_bytes += len(part)
                if not part.is_encrypted:
                    return part
                try:
                    return await self.decrypted(part)
                except StorageFailed:
                    # The segment may have gone, and the file of its key with it: then the log says so, or has another.
                    if failed is not None and part.is_sealed_as(failed):
                        raise
                    failed = part
                    continue
            await self._verify(segment)

    def read_now(self, offset: int, max_bytes: int, upper: Callable[[], int]) -> FileSlice | None:
        """The same without waiting; None if a segment has to be checked first."""
        self.check_open()
        self.was_read = True
        try:
            part = self._log.read(offset, max_bytes, upper(), verify=_must_be_verified)
        except _NotVerifiedError:
            return None
        self.read_bytes += len(part)
        if part.is_encrypted:
            _decrypt(part)
        return part

    async def decrypted(self, part: FileSlice) -> FileSlice:
        """In a worker thread: it may have to wait for the disk, and takes its time after that."""
        decrypting = asyncio.get_running_loop().run_in_executor(self._workers, _decrypt, part)
        try:
            await asyncio.shield(decrypting)
        except asyncio.CancelledError:
            await asyncio.wait([decrypting])  # the thread has the file still
            part.close()
            raise
        return part

    def nothing(self) -> FileSlice:
        """An empty slice."""
        return self._log.nothing()

    async def offset_for_timestamp(
        self, timestamp_ms: int, upper: Callable[[], int], *, from_files_start: bool = False
    ) -> tuple[int, int] | None:
        """The first offset of that time or later, with its time."""
        return await self._look(
            lambda: self._log.offset_for_timestamp(
                timestamp_ms,
                upper(),
                verify=_must_be_verified,
                from_files_start=from_files_start,
            )
        )

    async def trimmed_start(
        self, now_ms: int, upper: Callable[[], int], erased: Callable[[], OffsetSet]
    ) -> Trim:
        """Where the log begins once all is gone that its limits no longer keep. This is no read: the log may rest."""
        return await self._look(
            lambda: self._log.trimmed_start(
                now_ms, upper(), erased=erased(), verify=_must_be_verified
            ),
            is_read=False,
        )

    async def latest_timestamp(self, upper: Callable[[], int]) -> tuple[int, int] | None:
        """The offset of the latest time, with that time."""
        return await self._look(
            lambda: self._log.latest_timestamp(upper(), verify=_must_be_verified)
        )

    def close(self) -> None:
        """Nothing is read from now on; checks that run end, and let go of their files."""
        self.closed = True
        for check in self._checks:
            check.call_off()

    def make_way(self) -> None:
        """The log is to be cut, or is led by another node now: a scrub ends, and is resumed soon
        with the segment that it was at. Checks that a caller waits for go on.
        """
        for check in self._checks:
            if check.may_wait:
                check.call_off()

    async def scrub(self, bytes_per_s: int) -> None:
        """Check all segments again, one after the other, no faster than that."""
        await self.check_files()
        offset, end = self._log.log_start_offset, self._log.log_end_offset
        while not self.closed and (offset := max(offset, self._log.log_start_offset)) < end:
            segment = self._log.segment_for_read(offset)
            if segment is None:  # the log was cut below it
                return
            if await self._scrub(segment, _Check(bytes_per_s)):
                offset = segment.next_offset
            else:
                await asyncio.sleep(RESUME_S)

    async def check_files(self) -> None:
        """See whether all files are there, and as long as they must be; what is in a file that is
        not counts as damaged. One with another first or last batch is read.
        """
        if self.closed or self._log.is_swapping:
            return
        cuts = {segment: segment.cuts for segment in self._log.segments}
        try:
            lost = await asyncio.to_thread(self._log.lost_files)
        except OSError as error:
            logger.warning(
                FOLDER_NOT_READ,
                extra={"file": self._log.beside.directory, "problem": error.strerror},
            )
            return
        for segment, problem in lost:
            is_there = segment in self._log.segments and cuts.get(segment) == segment.cuts
            if self.closed or self._log.is_swapping or not is_there or segment.damages:
                continue
            if problem is None:
                segment.let_go()  # who has it open may still see the file that was there before
                await self._scrub(segment, _Check(math.inf), and_files=False)
                continue
            start, end = segment.base_offset, segment.next_offset
            segment.unverified_bytes = 0
            segment.note_damages((Damage(0, segment.size_bytes, start, end, problem),))
            segment.let_go()
            self._tell(segment)

    async def recheck(self, offset: int) -> None:
        """Check the segment with ``offset``, at once."""
        segment = self._log.segment_for_read(offset)
        if segment is not None:
            await self._scrub(segment, _Check(math.inf))

    async def _scrub(self, segment: Segment, check: _Check, *, and_files: bool = True) -> bool:
        """Whether it has come to its end."""
        if self.closed or segment not in self._log.segments:
            return True
        cuts, size_bytes, path = segment.cuts, segment.size_bytes, segment.path
        self._checks.add(check)
        try:
            damages = await asyncio.to_thread(segment.recheck, check.pause)
        except _CalledOffError:
            return False
        except OSError as error:
            if self._log.is_swapping or segment.path != path:  # it is being renamed
                return False
            if not self.closed and segment in self._log.segments:
                extra = {"file": segment.path, "problem": error.strerror or str(error)}
                logger.error(SEGMENT_NOT_CHECKED, extra=extra)
                if and_files:
                    await self.check_files()
            return True
        finally:
            self._checks.discard(check)
            check.call_off()  # where no caller waits for it any more
        self._metrics.scrubbed_bytes.inc(size_bytes)
        is_there = segment in self._log.segments and segment.cuts == cuts
        if is_there and not self.closed and set(damages) - set(segment.damages):
            await self._found(segment, damages)
        return True

    async def _found(self, segment: Segment, damages: tuple[Damage, ...]) -> None:
        if segment.verified:
            segment.note_damages(damages)
            self._tell(segment)
        else:
            await self._verify(segment)

    def check_open(self) -> None:
        if self.closed:
            raise NotLeader(f"{self._tp} is closed")

    async def _look(self, look: Callable[[], T], *, is_read: bool = True) -> T:
        """``look``, again after each segment that has to be checked first."""
        self.was_read |= is_read
        while True:
            self.check_open()
            try:
                return look()
            except _NotVerifiedError as found:
                segment = found.segment
            await self._verify(segment)

    async def _verify(self, segment: Segment) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, segment.verify)
        except StorageFailed:
            if segment.next_offset > self._log.log_start_offset:
                await self.check_files()
                raise
            return  # deleted meanwhile
        self.check_open()
        if segment.is_retired and segment in self._log.segments:  # by a cut, which may have failed
            raise StorageFailed(f"{segment.path}: the segment is being removed")
        self._tell(segment)

    def _tell(self, segment: Segment) -> None:
        """Unless the log was cut before it while it was checked: then there is nothing to repair."""
        is_there = segment in self._log.segments
        if is_there and segment.damages and self._damaged.get(segment) != segment.cuts:
            self._damaged[segment] = segment.cuts
            self._metrics.corrupt_batches.inc(len(segment.damages))
            self._tell_damaged()
