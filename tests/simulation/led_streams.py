"""Streams whose partitions have leaders: which change, lack what was acknowledged, and remove what consumers are done
with. Real is ``StreamInterest``; modelled is what a partition is for it, and what its leader tells readers.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.errors import NotLeader
from streamlog.jetstream.consumers.consumer import EPOCHS_MAX
from streamlog.jetstream.consumers.interest import Lookup
from streamlog.jetstream.consumers.stream_source import (
    ConsumerStart,
    StartQuery,
    StreamMessage,
    StreamPart,
)
from streamlog.log.leader_epochs import EpochStart, LeaderEpochs
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import TopicPartition
from streamlog.record.compiled.message_run import MessageRun
from streamlog.record.offset_set import OffsetSet
from tests.consumer_history import MessageId
from tests.simulation.consumers_node import ConsumersNode, SimRequests, SimSource, StreamMessages

if TYPE_CHECKING:
    from tests.simulation.retention_world import RetentionStory


class LedMessages(StreamMessages):
    """One partition, as its replicas have it together."""

    def __init__(self, tp: TopicPartition, stream_id: UUID) -> None:
        super().__init__()
        self.tp = tp
        self.stream_id = stream_id
        self.epoch = 0
        self.epochs = LeaderEpochs()
        self.ids: list[MessageId] = []
        self.erased = OffsetSet()
        """On all replicas in sync."""
        self.led: StreamReplica | None = None
        """That of the leader, once it knows what is committed."""

    def elect(self, epoch: int) -> None:
        self.epoch, self.led = epoch, None

    def cut(self, end: int) -> list[MessageId]:
        """The next leader has no more. Returns what is lost."""
        lost = self.ids[end:]
        del self.ids[end:], self.messages[end:]
        self.epochs.truncate(end)
        self.erased.keep_between(0, end)
        return lost

    def append(self, subject: str, time_ms: int, encode: Callable[[MessageId], bytes]) -> MessageId:
        self.epochs.assign(self.epoch, self.end)
        message = MessageId(str(self.stream_id), self.tp.partition, self.end, self.epoch)
        stored = StoredMessage(subject, self.end + 1, time_ms, b"", encode(message))
        self.ids.append(message)
        self.messages.append(stored)
        return message

    def erase(self, offsets: OffsetSet) -> None:
        self.erased.update(offsets)
        self.start = min(self.erased.first_absent(self.start), self.end)

    @property
    def hidden(self) -> OffsetSet:
        return self.erased if self.led is None else self.led.erased

    def matching(self, filters: Sequence[str], offset: int) -> list[StoredMessage]:
        hidden = self.hidden
        return [it for it in super().matching(filters, offset) if it.sequence - 1 not in hidden]

    def at(self, offset: int) -> StoredMessage | None:
        return None if offset in self.hidden else super().at(offset)


class StreamReplica:
    """One node's replica, in one life of its process: what ``StreamInterest`` needs of a ``Partition``, and of its
    ``MessageDeletes``.
    """

    def __init__(self, node: "RetentionNode", log: LedMessages, config: StreamConfig) -> None:
        self.tp = log.tp
        self.topic_id = log.stream_id.bytes
        self.config = config
        self.leader_epoch = -1
        self.is_leader = self.high_watermark_known = False
        self.erasing = self
        self.losses = 0
        self.log = log
        self._node = node
        self._foreseen = OffsetSet()
        self._watchers: dict[Callable[[], None], None] = {}

    def lead(self, epoch: int) -> None:
        self.is_leader, self.leader_epoch = True, epoch
        self.high_watermark_known = False
        self._foreseen = OffsetSet()
        self._node.after(self._node.delay_us(), lambda: self._know(epoch))

    def _know(self, epoch: int) -> None:
        if self.leads and self.leader_epoch == epoch:
            self.high_watermark_known = True
            self.log.led = self

    def resign(self) -> None:
        self.is_leader = False
        self.tell()

    @property
    def leads(self) -> bool:
        """Not only as far as it knows."""
        return self.is_leader and self.log.epoch == self.leader_epoch

    @property
    def is_reachable(self) -> bool:
        node = self._node
        host, world = node.host, node.world
        is_there = host.process is node and not host.is_stopped
        return self.leads and is_there and not world.is_cut_off(host.node_id)

    @property
    def log_start_offset(self) -> int:
        return self.log.start

    @property
    def stable_offset(self) -> int:
        """There are no transactions."""
        return self.high_watermark

    @property
    def high_watermark(self) -> int:
        return self.log.end

    @property
    def erased(self) -> OffsetSet:
        found = self.log.erased.copy()
        found.update(self._foreseen)
        return found

    def shared_end(self, read: Sequence[EpochStart], end: int) -> int:
        if read and read[-1].epoch > self.leader_epoch:
            raise NotLeader(f"epoch {read[-1].epoch} has begun")
        return self.log.epochs.shared_end(read, end, self.log.end)

    def place(self, error: object) -> dict[str, Any]:
        return {"stream": self.tp.stream, "error": str(error)}

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        self._watchers.pop(watcher, None)

    def tell(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    def tell_soon(self) -> None:
        self._node.after(0, self.tell)

    # What goes

    def foresee(self, offsets: OffsetSet, *, later: bool) -> None:
        world, node, epoch = self._node.world, self._node, self.leader_epoch
        if self.leads:
            self._foreseen.update(offsets)
            world.released(self.log, offsets, self.config)
            found = offsets.copy()
            wait_us = world.rng.choice((1_000, 50_000, 400_000))
            node.after(wait_us, lambda: self._erase(found, epoch))

    def _erase(self, offsets: OffsetSet, epoch: int) -> None:
        if self.leader_epoch != epoch:
            return  # it was forgotten when it led again
        if not self.leads:
            self._forget()
        elif not self.is_reachable:  # it is appended, and committed when the followers have it
            self._node.after(50_000, lambda: self._erase(offsets, epoch))
        elif self._node.world.rng.random() < self._node.world.fails:
            self._forget()
            self.tell()
        else:
            left = offsets.copy()
            left.keep_all(self._foreseen)
            self.log.erase(left)
            self._foreseen.remove_all(left)

    def _forget(self) -> None:
        """What is not erased is there again."""
        self._foreseen = OffsetSet()
        self.losses += 1

    async def settle(self) -> None:
        found, epoch, losses = self._foreseen.copy(), self.leader_epoch, self.losses
        await asyncio.sleep(self._node.delay_us() / 1e6)
        if not found:
            return
        if not self.is_reachable or self.leader_epoch != epoch or self.losses != losses:
            raise NotLeader(f"{self.tp} is led by another node now")
        self.log.erase(found)
        self._foreseen.remove_all(found)

    async def purge(self, offset: int) -> None:
        """``settle`` follows, and erases the same."""


async def found_in(partition: StreamReplica, lookup: Lookup) -> OffsetSet:
    """In the place of the look-up in an index of subjects."""
    await asyncio.sleep(partition._node.world.rng.choice((0.0, 0.0, 0.005)))
    found = StreamMessages.matching(partition.log, lookup.filters, lookup.low)
    return OffsetSet(it.sequence - 1 for it in found if it.sequence <= lookup.high)


class LedSource(SimSource):
    """What a leader tells, by the leader epochs that its reader has read."""

    async def _partition(self, tp: TopicPartition, stream_id: UUID) -> LedMessages:
        found = await super()._partition(tp, stream_id)
        assert isinstance(found, LedMessages)
        if found.led is None or not found.led.is_reachable:
            await asyncio.sleep(0.05)
            raise NotLeader(f"{tp} has no leader")
        return found

    async def read(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        filters: tuple[str, ...],
        offset: int,
        *,
        limit: int,
        picked: Sequence[int] | None = None,
        epochs: Sequence[EpochStart] = (),
    ) -> StreamPart:
        await self._travel()
        found = await self._partition(tp, stream_id)
        assert found.led is not None
        start, end = found.start, found.end
        shared_end = found.led.shared_end(epochs, offset)
        if shared_end < offset and offset > start:
            part = StreamPart(
                MessageRun(), offset, 0, start, end, shared_end=max(shared_end, start)
            )
        else:
            part = self._part(found, filters, offset, limit, picked)
            if picked is None:
                read = found.epochs.between(max(offset, start), min(part.next_offset, end))
                part = part._replace(epochs=read)
        await self._travel()
        return part

    async def message(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        offset: int,
        *,
        end: int,
        epochs: Sequence[EpochStart],
    ) -> StreamMessage:
        await self._travel()
        found = await self._partition(tp, stream_id)
        assert found.led is not None
        shared_end = found.led.shared_end(epochs, end)
        if shared_end < end and end > found.start:
            message = StreamMessage(None, max(shared_end, found.start))
        else:
            message = StreamMessage(found.at(offset))
        await self._travel()
        return message

    async def start(self, tp: TopicPartition, stream_id: UUID, query: StartQuery) -> ConsumerStart:
        found = await super().start(tp, stream_id, query)
        log = await self._partition(tp, stream_id)
        if not log.start < found.offset <= log.end:
            return found
        return found._replace(epochs=log.epochs.between(log.start, found.offset)[-EPOCHS_MAX:])


class LocalReplicas:
    """In the place of ``LocalLeader``."""

    def __init__(self, node: "RetentionNode") -> None:
        self._node = node

    def led(self, tp: TopicPartition) -> StreamReplica:
        stream = self._node.image.stream(tp.stream)
        replica = self._node.streams.get((stream.stream_id, tp.partition))
        if replica is None or not (replica.is_leader and replica.high_watermark_known):
            raise NotLeader(f"{tp} is not led here")
        if not self._node.lease.held:
            raise NotLeader("no lease is held")
        return replica


class RetentionNode(ConsumersNode):
    """A node that may lead partitions of streams."""

    world: "RetentionStory"

    def __init__(self, host: Any, world: Any, image: MetadataImage) -> None:
        self.streams: dict[tuple[UUID, int], StreamReplica] = {}
        super().__init__(host, world, image)

    def source(self, requests: SimRequests) -> SimSource:
        return LedSource(requests)

    def local_leader(self) -> Any:
        return LocalReplicas(self)

    def _apply(self, image: MetadataImage) -> None:
        me, there = self.host.node_id, dict[tuple[UUID, int], Any]()
        for stream in image.streams.values():
            for number, it in enumerate(stream.partitions):
                there[stream.stream_id, number] = it, stream.config
        for place, replica in self.streams.items():
            it, _ = there.get(place, (None, None))
            leads = it is not None and (it.leader, it.leader_epoch) == (me, replica.leader_epoch)
            if replica.is_leader and not leads:
                replica.resign()
        for place, (it, config) in there.items():
            log = self.world.messages.get(place)
            if it.leader == me and isinstance(log, LedMessages):
                replica = self.streams.get(place) or StreamReplica(self, log, config)
                self.streams[place] = replica
                if not replica.is_leader:
                    replica.lead(it.leader_epoch)
        super()._apply(image)
