"""``__activity`` on one node: it is made, kept, and told for as long as this node leads it.

An ``ActivityWriter`` is one leadership: what is committed in the metadata log becomes events in it.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from streamlog.activity.events import (
    ActivityEvent,
    EventBuilder,
    Told,
    gap_event,
    log_id_of,
    runs,
    told_by,
)
from streamlog.clock import wall_ms
from streamlog.condition import CHECK_NODES, CORRECT_THEN_RESTART, CRITICAL, Condition
from streamlog.config import ActivitySection
from streamlog.errors import PartitionNotFound, StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.history import MetadataHistory
from streamlog.metadata.service import MetadataService
from streamlog.metadata.stream.internal_stream import SEGMENT_BYTES, InternalStream, min_isr_of
from streamlog.metadata.stream.stream_config import ACTIVITY_STREAM, StreamConfig
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.internal_partition import InternalPartition, InternalPartitions, until
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun, iter_records

RUN_BYTES: Final = 256 * 1024
"""Of events that are appended at once; one that is larger goes by itself."""
RETRY_S: Final = 1.0
"""After the first failure in a row; twice as long after each further one ..."""
RETRY_MAX_S: Final = 10.0
"""... up to this."""


class ActivityWriter:
    """``run`` as a task, ``look`` when there is more metadata.

    After any failure it starts again from its log: an event is repeated rather than lost.
    """

    def __init__(
        self, partition: InternalPartition, leader_epoch: int, history: MetadataHistory
    ) -> None:
        self.told_offset = 0
        """All metadata below has its event, or its gap."""
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._history = history
        self._more = asyncio.Event()
        self._failures = 0

    @property
    def leads(self) -> bool:
        return self._partition.leads(self._leader_epoch)

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
        logger.warning(ACTIVITY_NOT_TOLD, extra=extra)
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
            logger.error(ACTIVITY_NOT_DECODED, extra={"error": str(error)})
            return None

    async def _tell_gap(self, told: Told, image: MetadataImage, log_id: str | None) -> None:
        now_ms = wall_ms()
        gap = gap_event(told, image.offset, log_id=log_id, epoch=image.epoch, time_ms=now_ms)
        logger.warning(
            ACTIVITY_GAP if told.log_id == log_id else ACTIVITY_OTHER_LOG,
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
        written = _EventsWritten()
        partition.append(run, written, leader_epoch=self._leader_epoch)
        await written.done
        self.told_offset = events[-1].metadata_offset + 1
        self._failures = 0


class _EventsWritten:
    """An ``Acknowledgement``, to be waited for."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def committed(self, base_offset: int) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, error: StreamlogError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


logger = logging.getLogger(__name__)

ACTIVITY_NOT_TOLD: Final = Condition(
    "SL-0510",
    "activity is not told",
    CHECK_NODES,
    meaning="Events could not be appended to __activity. The node tries again.",
)
ACTIVITY_NOT_HERE: Final = Condition(
    "SL-0511",
    "activity cannot be told here",
    CORRECT_THEN_RESTART,
    meaning="The node leads __activity and cannot open it.",
    severity=CRITICAL,
)
ACTIVITY_GAP: Final = Condition(
    "SL-0512",
    "metadata was let go before its activity was told",
    "nothing; __activity has a gap event in its place",
    meaning="Metadata was removed before its events were in __activity.",
)
ACTIVITY_OTHER_LOG: Final = Condition(
    "SL-0513",
    "activity goes on with another metadata log",
    "nothing, if the cluster was restored or its quorum forced; __activity has a gap event",
    meaning="The metadata log is not the one whose events __activity has.",
)
ACTIVITY_NOT_DECODED: Final = Condition(
    "SL-0514",
    "last activity does not decode",
    "another client has written to __activity: check the ACLs on it",
    meaning="The last record of __activity is not an event.",
    severity=CRITICAL,
)

ACTIVITY = TopicPartition(ACTIVITY_STREAM, 0)


class ActivityService:
    """``run`` as a task, ``apply`` at each change of the image, after the partitions have; ``look``
    when a partition follows later.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        settings: ActivitySection,
        metadata: MetadataService,
        partitions: InternalPartitions,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._stream = InternalStream(
            metadata, node_id, ACTIVITY_STREAM, partial(config_of, settings), unasked=True
        )
        self._epoch: int | None = None
        """Of the leadership of this node; None where it has none."""
        self._changed = asyncio.Event()
        """The leadership has."""
        self._publisher: ActivityWriter | None = None
        self._stopping = False

    @property
    def told_offset(self) -> int | None:
        """All metadata below is told; None on a node that does not tell it."""
        return None if self._publisher is None else self._publisher.told_offset

    def look(self, tp: TopicPartition) -> None:
        """It may be led here by now."""
        if tp == ACTIVITY and self._publisher is None:
            self._changed.set()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """What is not open yet comes with ``look``."""
        self._lead(new)
        self._stream.look()
        if self._publisher is not None:
            self._publisher.look()

    async def stop(self) -> None:
        """Nothing more is published; the next leader continues from there."""
        self._stopping = True
        self._epoch = None
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stream.keep())
            telling: asyncio.Task[None] | None = None
            while True:
                await self._changed.wait()
                self._changed.clear()
                if telling is not None:
                    telling.cancel()
                publisher = self._publisher = self._begun(self._epoch)
                telling = None if publisher is None else group.create_task(publisher.run())

    def _lead(self, image: MetadataImage) -> None:
        stream = image.streams.get(ACTIVITY_STREAM)
        partitions = stream.partitions if stream is not None and not self._stopping else ()
        epochs = [it.leader_epoch for it in partitions if it.leader == self._node_id]
        epoch = epochs[0] if epochs else None
        if epoch != self._epoch:
            self._epoch = epoch
            self._changed.set()

    def _begun(self, epoch: int | None) -> ActivityWriter | None:
        if epoch is None:
            return None
        try:
            partition = self._partitions.partition(ACTIVITY)
        except PartitionNotFound:  # it is being opened
            return None
        except StreamlogError as error:
            extra = {"stream": ACTIVITY.stream, "epoch": epoch, "error": str(error)}
            logger.error(ACTIVITY_NOT_HERE, extra=extra)
            return None
        if not partition.is_leader or partition.leader_epoch != epoch:
            return None  # its log is being cut
        return ActivityWriter(partition, epoch, self._metadata.history)


SEGMENT_AGE_MS: Final = 86_400_000
"""Retention lets go of whole segments, and little may happen in months."""


def config_of(settings: ActivitySection, nodes: int) -> StreamConfig:
    """By so many nodes; in one partition, since all of it has one order."""
    replicas = min(settings.replicas, nodes)
    return StreamConfig.of(
        name=ACTIVITY_STREAM,
        replicas=replicas,
        min_isr=min_isr_of(replicas),
        sync="commit",
        retention_ms=settings.retention_ms,
        segment_bytes=SEGMENT_BYTES,
        segment_age_ms=min(SEGMENT_AGE_MS, settings.retention_ms)
        if settings.retention_ms > 0
        else SEGMENT_AGE_MS,
        allow_direct=True,
    )
