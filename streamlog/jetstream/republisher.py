"""Committed messages of streams with ``republish``, published again by their leaders.

The log is the queue: each partition's leader reads what is committed from where it began to lead,
and is as far behind as NATS makes it. Nothing is kept of how far it came, so it is at most once: a
new leader begins at what is committed then, and what is read while there is no NATS is dropped.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from streamlog.client.reader import open_batch
from streamlog.condition import CORRECT_THEN_RESTART, Condition
from streamlog.errors import OffsetOutOfRange, StreamlogError
from streamlog.ingest.pub_ack_format import timestamp
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.republish import Republish
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.batch import batches
from streamlog.record.codec import Record, decode_records

logger = logging.getLogger(__name__)

NOT_REPUBLISHED: Final = Condition(
    "SL-0504",
    "messages are not published again",
    CORRECT_THEN_RESTART,
    meaning="A stream with republish could not be read.",
)
REPUBLISH_REFUSED: Final = Condition(
    "SL-0505",
    "messages not published again",
    "`too large`: raise max_payload of nats-server; `subject`: shorten what republish makes",
    meaning="NATS does not take the message that republish makes of a record.",
)

READ_BYTES: Final = 1024 * 1024

COMPLAINT_S: Final = 60.0
"""A line so often for a stream and a reason, with the number of the messages since the last."""

Unpublished = Literal["disconnected", "too large", "subject", "headers"]
"""Why a message is not published: NATS is away; it takes none so large; no subject so long, or that
is none; or a header's name is none that may be written."""
Publish = Callable[[str, bytes, dict[str, str]], Awaitable[Unpublished | None]]


class Task(NamedTuple):
    """One leadership, and what the stream asks for."""

    tp: TopicPartition
    leader_epoch: int
    republish: str


@dataclass(slots=True)
class _Dropped:
    """Messages of a stream that were not published again, since it was last told."""

    next_s: float = 0.0
    """No line before that; time of the event loop."""
    count: int = 0


class Republisher:
    """``apply`` at each change of the image, ``look`` when a partition follows later, ``run`` as a
    task.
    """

    def __init__(
        self,
        node_id: NodeId,
        partitions: ReplicaManager,
        publish: Publish,
        metrics: NodeMetrics,
    ) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._publish = publish
        self._metrics = metrics
        self._dropped: dict[tuple[str, Unpublished], _Dropped] = {}
        self._wanted: dict[str, dict[Task, int]] = {}
        """By stream; from which offset on."""
        self._running: dict[Task, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def look(self, tp: TopicPartition) -> None:
        """It may be led here by now."""
        if tp.stream in self._wanted:
            self._changed.set()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        for change in new.changes(old):
            name = (change.new or change.old or _nobody()).name
            known = self._wanted.pop(name, {})
            if change.new is None:
                self._dropped = {key: it for key, it in self._dropped.items() if key[0] != name}
            if change.new is not None and change.new.config.republish:
                self._wanted[name] = {
                    task: known.get(task, self._begin(task.tp)) for task in self._led(change.new)
                }
            if known != self._wanted.get(name, {}):
                self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                wanted = {task: at for tasks in self._wanted.values() for task, at in tasks.items()}
                for task in self._running.keys() - wanted.keys():
                    self._running.pop(task).cancel()
                for task in wanted.keys() - self._running.keys():
                    if not self._is_led(task):
                        continue
                    work = self._follow(task, wanted[task])
                    self._running[task] = group.create_task(work)

    def _led(self, stream: StreamImage) -> Iterator[Task]:
        for number, partition in enumerate(stream.partitions):
            if partition.leader == self._node_id:
                tp = TopicPartition(stream.name, number)
                yield Task(tp, partition.leader_epoch, stream.config.republish)

    def _is_led(self, task: Task) -> bool:
        """Not before its log is open; nor where that has failed."""
        try:
            partition = self._partitions.partition(task.tp)
        except StreamlogError:
            return False
        return partition.leader_epoch == task.leader_epoch

    def _begin(self, tp: TopicPartition) -> int:
        try:
            return self._partitions.partition(tp).high_watermark
        except StreamlogError:
            return 0

    async def _follow(self, task: Task, offset: int) -> None:
        """One partition, for as long as it is led."""
        moved, republish = asyncio.Event(), Republish.parse(task.republish)
        try:
            partition = self._partitions.partition(task.tp)
            partition.add_watcher(moved.set)
            try:
                while True:
                    while offset < partition.high_watermark:
                        offset = await self._some(task.tp, partition, republish, offset)
                    await moved.wait()
                    moved.clear()
            finally:
                partition.remove_watcher(moved.set)
        except StreamlogError as error:
            extra = {"stream": task.tp.stream, "partition": task.tp.partition, "error": str(error)}
            logger.warning(NOT_REPUBLISHED, extra=extra)

    async def _some(
        self, tp: TopicPartition, partition: Partition, republish: Republish, offset: int
    ) -> int:
        """What one read brings from ``offset`` on; where the next one begins."""
        try:
            with await partition.read(offset, READ_BYTES) as part:
                data = await asyncio.to_thread(part.read)
        except OffsetOutOfRange:
            return partition.log_start_offset
        end = offset
        for header, batch in batches(data):
            end = header.next_offset
            if not header.is_published:  # the log's own, or a Kafka producer's
                continue
            for record in decode_records(await open_batch(header, batch), header):
                if record.offset >= offset:
                    await self._one(tp, partition, republish, record)
        return end

    async def _one(
        self, tp: TopicPartition, partition: Partition, republish: Republish, record: Record
    ) -> None:
        if not record.headers or record.headers[0][0] != "subject":
            return
        subject = (record.headers[0][1] or b"").decode(errors="replace")
        target = republish.transform(subject)
        if target is None or any(c.isspace() or c in "*>" for c in target):
            return
        index = await partition.subjects.know()
        last = index.last(subject.encode(), record.offset) + 1  # of none: -1
        headers = republished_headers(tp.stream, subject, last, record)
        value = record.value or b""
        if republish.headers_only:
            headers["Nats-Msg-Size"] = str(len(value))
            value = b""
        why = await self._publish(target, value, headers)
        if why is not None:
            self._drop(tp, record.offset, why)

    def _drop(self, tp: TopicPartition, offset: int, why: Unpublished) -> None:
        """Never in silence, and in few lines."""
        self._metrics.republish_dropped.labels(why).inc()
        now_s = asyncio.get_running_loop().time()
        dropped = self._dropped.setdefault((tp.stream, why), _Dropped())
        dropped.count += 1
        if now_s < dropped.next_s:
            return
        extra = {"stream": tp.stream, "partition": tp.partition, "offset": offset, "reason": why}
        logger.warning(REPUBLISH_REFUSED, extra={**extra, "count": dropped.count})
        self._dropped[tp.stream, why] = _Dropped(now_s + COMPLAINT_S)


def republished_headers(
    stream: str, subject: str, last_sequence: int, record: Record
) -> dict[str, str]:
    """Its own, and those by which JetStream says where it comes from; of repeated ones the last."""
    own = record.headers[2:] if _has_reply(record) else record.headers[1:]
    return {
        **{name: (value or b"").decode(errors="replace") for name, value in own},
        "Nats-Stream": stream,
        "Nats-Subject": subject,
        "Nats-Sequence": str(record.offset + 1),
        "Nats-Time-Stamp": timestamp(record.timestamp_ms),
        "Nats-Last-Sequence": str(last_sequence),
    }


def _has_reply(record: Record) -> bool:
    return len(record.headers) > 1 and record.headers[1][0] == "reply"


def _nobody() -> StreamImage:
    raise AssertionError("a change has one side at least")
