"""One leadership of ``__activity``: what is committed in the metadata log becomes events in it."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from streamlog.activity.event_builder import EventBuilder, runs
from streamlog.activity.events import ActivityEvent, Told, gap_event, log_id_of, told_by
from streamlog.clock import wall_ms
from streamlog.errors import StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.store import StoredBatch
from streamlog.partition.led_partition import LedPartition
from streamlog.partition.watchers import until
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun, iter_records

logger = logging.getLogger(__name__)

RUN_BYTES: Final = 256 * 1024
"""Of events that are appended at once; one that is larger goes by itself."""
RETRY_S: Final = 1.0
"""After the first failure in a row; twice as long after each further one ..."""
RETRY_MAX_S: Final = 10.0
"""... up to this."""


class History(Protocol):
    """``metadata.quorum.history.MetadataHistory``."""

    @property
    def end(self) -> MetadataImage: ...
    async def begin(self, offset: int) -> MetadataImage: ...
    async def read(self, offset: int) -> list[StoredBatch]: ...


class ActivityWriter:
    """``run`` as a task, ``look`` when there is more metadata.

    Whatever fails, it begins anew with what its log says: told again rather than not at all.
    """

    def __init__(self, partition: LedPartition, leader_epoch: int, history: History) -> None:
        self.told_offset = 0
        """All metadata below has its event, or its gap."""
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._history = history
        self._more = asyncio.Event()
        self._failures = 0

    @property
    def leads(self) -> bool:
        partition = self._partition
        return partition.is_leader and partition.leader_epoch == self._leader_epoch

    def look(self) -> None:
        self._more.set()

    async def run(self) -> None:
        """For as long as the partition is led in this epoch."""
        partition = self._partition
        await until(partition, lambda: not self.leads or partition.high_watermark_known)
        while self.leads:
            try:
                await self._tell()
            except StreamlogError as error:
                await self._pause(error)

    async def _pause(self, error: StreamlogError) -> None:
        """After a failure, but for the one that the end of the leadership is."""
        if not self.leads:
            return
        pause_s = min(RETRY_MAX_S, RETRY_S * 2 ** min(self._failures, 4))
        self._failures += 1
        extra = {"offset": self.told_offset, "error": str(error), "pause_s": pause_s}
        logger.warning("activity is not told", extra=extra)
        await asyncio.sleep(pause_s)

    async def _tell(self) -> None:
        """From the last event on. Raises StreamlogError.

        Offsets of another metadata log, told before a restore, say nothing of this one.
        """
        log_id = log_id_of(self._history.end)
        told = await self._last_told() or Told(log_id, 0)
        self.told_offset = told.next_offset if told.log_id == log_id else 0
        image = await self._history.begin(self.told_offset)
        if image.offset > self.told_offset or told.log_id != log_id:
            await self._tell_gap(told, image, log_id)
        chronicle = EventBuilder(image, self.told_offset, log_id)
        while self.leads:
            self._more.clear()
            read = await self._history.read(chronicle.image.offset)
            if log_id_of(self._history.end) != log_id:
                return  # what was read may be of the log that has begun meanwhile
            if not read:
                chronicle.rest(self._history.end)
                await self._more.wait()
                continue
            events = await asyncio.to_thread(chronicle.tell, read)
            for run in runs(events, RUN_BYTES):
                await self._append(run)

    async def _last_told(self) -> Told | None:
        """None where nothing is, or where retention has let go of it."""
        partition = self._partition
        if partition.high_watermark <= partition.log_start_offset:
            return None
        with await partition.read(partition.high_watermark - 1, 1) as part:
            data = await asyncio.to_thread(part.read)
        values = [it.value or b"" for _, batch in batches(data) for it in iter_records(batch)]
        try:
            return told_by(values[-1] if values else b"")
        except ValueError as error:
            logger.error("last activity does not decode", extra={"error": str(error)})
            return None

    async def _tell_gap(self, told: Told, image: MetadataImage, log_id: str | None) -> None:
        now_ms = wall_ms()
        gap = gap_event(told, image.offset, log_id=log_id, epoch=image.epoch, time_ms=now_ms)
        logger.warning(
            "metadata was let go before its activity was told"
            if told.log_id == log_id
            else "activity goes on with another metadata log",
            extra={"first": self.told_offset, "end": image.offset},
        )
        await self._append([gap])

    async def _append(self, events: Sequence[ActivityEvent]) -> None:
        """Return when they are committed, which waits for replicas. Raises StreamlogError."""
        partition = self._partition
        await until(partition, lambda: not self.leads or not partition.below_min_isr)
        run = RecordRun()
        for event in events:
            run.append(event.key, event.value, [(b"subject", event.subject)])
        written = _Written()
        partition.append(run, written, leader_epoch=self._leader_epoch)
        await written.done
        self.told_offset = events[-1].metadata_offset + 1
        self._failures = 0


class _Written:
    """An ``Acknowledgement``, to be waited for."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def committed(self, base_offset: int) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, error: StreamlogError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
