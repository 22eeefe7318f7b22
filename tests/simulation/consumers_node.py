"""A node that coordinates consumers: the real service and coordinators, over a replicated log that is modelled.

Real are ``ConsumerService``, its coordinators and their cores, ``LeaderRouter``, ``NodeRequests``, the lease and the
node's own subscriptions. Modelled are the partitions of ``__consumer_state`` as a leader sees them, the streams whose
messages are delivered, and the way of a message to a client and back.
"""

import asyncio
import random
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from streamlog.config import ConsumersSection
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.node_requests import NodeRequests
from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.errors import (
    NodeUnreachable,
    NotEnoughReplicas,
    NotLeader,
    PartitionNotFound,
    StreamlogError,
    StreamNotFound,
)
from streamlog.jetstream.consumers.acks import MS_NS
from streamlog.jetstream.consumers.consumer_records import ConsumerKey
from streamlog.jetstream.consumers.consumer_service import ConsumerRequest, ConsumerService
from streamlog.jetstream.consumers.interest_reports import StreamInterest
from streamlog.jetstream.consumers.stream_source import (
    ConsumerStart,
    StartQuery,
    StreamMessage,
    StreamPart,
)
from streamlog.jetstream.errors import ApiRefused
from streamlog.log.leader_epochs import EpochStart
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.stream_config import CONSUMERS_STREAM
from streamlog.model import NodeId, TopicPartition
from streamlog.nats.router import Router
from streamlog.partition.state import Acknowledgement
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.compiled.message_run import MessageRun
from tests.message_runs import run_of
from tests.simulation.checkers import Violation
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.loop import SimLoop

if TYPE_CHECKING:
    from tests.simulation.consumers_world import ConsumersStory

LEASE_MS: Final = 1_500
SESSION_MS: Final = 3_000
BEAT_US: Final = 300_000
READ_BYTES: Final = 2_000
"""Of the log at once."""
TELL_US: Final = 50_000


class Entry(NamedTuple):
    """A batch of the log."""

    base_offset: int
    next_offset: int
    data: bytes


class StateLog:
    """One partition of ``__consumer_state``, as its replicas have it together."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.epoch = 0
        self.entries: list[Entry] = []
        self.committed = 0
        """All below is at enough replicas."""
        self.is_full = False
        """Too few replicas are in sync."""

    @property
    def end(self) -> int:
        return self.entries[-1].next_offset if self.entries else 0

    def elect(self, epoch: int) -> None:
        """What is committed stays; of the rest, what the new leader has."""
        tail = [it for it in self.entries if it.base_offset >= self.committed]
        kept = self.rng.randint(0, len(tail))
        self.entries = self.entries[: len(self.entries) - len(tail) + kept]
        self.epoch = epoch

    def compact(self) -> None:
        """Batches go whose records have all been replaced, or ended for good."""
        committed = [it for it in self.entries if it.next_offset <= self.committed]
        keys = {
            it.base_offset: [
                (record.key, record.value is None)
                for _, batch in batches(it.data)
                for record in iter_records(batch)
            ]
            for it in committed
        }
        last = {key: base for base, found in keys.items() for key, _ in found}
        kept_keys: set[bytes | None] = set()
        gone = set()
        for it in committed[:-1]:
            found, base = keys[it.base_offset], it.base_offset
            is_over = all(
                last[key] != base or (is_end and key not in kept_keys) for key, is_end in found
            )
            if is_over:
                gone.add(base)
            else:
                kept_keys |= {key for key, _ in found}
        self.entries = [it for it in self.entries if it.base_offset not in gone]


class _Slice:
    """What was read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data

    def __enter__(self) -> "_Slice":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


class StateReplica:
    """One node's replica, in one life of its process. An ``InternalPartition`` while it leads."""

    def __init__(self, node: "ConsumersNode", tp: TopicPartition, log: StateLog) -> None:
        self.tp = tp
        self.is_leader = False
        self.leader_epoch = -1
        self.log_start_offset = 0
        self.high_watermark = 0
        self.high_watermark_known = False
        self._node = node
        self._log = log
        self._end = 0
        self._waiting: list[tuple[int, Acknowledgement]] = []
        self._watchers: dict[Callable[[], None], None] = {}

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    def lead(self, epoch: int) -> None:
        """The followers fetch from it, soon: then it knows what is committed."""
        self.resign()
        self.is_leader, self.leader_epoch = True, epoch
        self.high_watermark_known = False
        self._end = self._log.end if self._log.epoch == epoch else self._end
        self._node.after(self._node.delay_us(), lambda: self._replicate(epoch, self._end))

    def resign(self) -> None:
        """Another leads; what waits may be kept all the same."""
        self.is_leader = False
        waiting, self._waiting = self._waiting, []
        for _, ack in waiting:
            ack.failed(NotLeader(f"{self.tp} is led by another node now"))
        self._tell()

    @property
    def below_min_isr(self) -> bool:
        return self._log.is_full

    def check_min_isr(self) -> None:
        if self._log.is_full:
            raise NotEnoughReplicas(f"{self.tp} has too few replicas")

    def append(
        self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int | None = None
    ) -> int:
        if not self.is_leader or leader_epoch not in (None, self.leader_epoch):
            raise NotLeader(f"{self.tp} is led by another node now")
        base, count = self._end, run.count
        data = run.seal(base_offset=base, leader_epoch=self.leader_epoch, timestamp_ms=1)
        self._end = end = base + count
        if self._log.epoch == self.leader_epoch:
            self._log.entries.append(Entry(base, end, data))
        self._waiting.append((base, ack))
        epoch = self.leader_epoch
        self._node.after(self._node.delay_us(), lambda: self._replicate(epoch, end))
        return base

    async def read(self, offset: int, max_bytes: int) -> Any:
        await asyncio.sleep(self._node.delay_us() / 1e6)
        data = b""
        for it in self._log.entries:
            if offset < it.next_offset <= self.high_watermark:
                if data and len(data) + len(it.data) > min(max_bytes, READ_BYTES):
                    break
                data += it.data
        return _Slice(data)

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        self._watchers.pop(watcher, None)

    def _replicate(self, epoch: int, end: int) -> None:
        """Enough followers have all below ``end``, unless they follow another by now."""
        log, node = self._log, self._node
        if not self.is_leader or self.leader_epoch != epoch or log.epoch != epoch:
            return
        if log.is_full or node.world.is_cut_off(node.host.node_id):
            node.after(100_000, lambda: self._replicate(epoch, end))
            return
        log.committed = max(log.committed, min(end, log.end))
        node.after(node.delay_us() // 2, lambda: self._commit(epoch, end))

    def _commit(self, epoch: int, end: int) -> None:
        """The leader learns it."""
        if not self.is_leader or self.leader_epoch != epoch:
            return
        self.high_watermark = max(self.high_watermark, end)
        self.high_watermark_known = True
        done = [it for it in self._waiting if it[0] < self.high_watermark]
        self._waiting = self._waiting[len(done) :]
        for base, ack in done:
            ack.committed(base)
        self._tell()

    def _tell(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()


class StreamMessages:
    """One partition of a stream whose messages are delivered. What is stored is committed."""

    def __init__(self) -> None:
        self.start = 0
        self.messages: list[StoredMessage | None] = []
        """By offset; None: erased."""
        self.waiting: list[Callable[[], None]] = []

    @property
    def end(self) -> int:
        return len(self.messages)

    def matching(self, filters: Sequence[str], offset: int) -> list[StoredMessage]:
        return [
            it
            for it in self.messages[max(offset, self.start) :]
            if it is not None
            and (not filters or any(_matches(name, it.subject) for name in filters))
        ]

    def at(self, offset: int) -> StoredMessage | None:
        """None: it is gone."""
        return self.messages[offset] if self.start <= offset < self.end else None


def _matches(pattern: str, subject: str) -> bool:
    return pattern in (subject, ">") or (
        pattern.endswith(".>") and subject.startswith(pattern[:-1])
    )


class SimSource:
    """In the place of ``StreamSource``: reads are late, and show what was there before; leaders are away."""

    def __init__(self, nodes: "SimRequests") -> None:
        self._node = nodes.node

    async def _partition(self, tp: TopicPartition, stream_id: UUID) -> StreamMessages:
        node = self._node
        if node.world.rng.random() < node.world.away:
            await asyncio.sleep(0.5)
            raise NotLeader(f"{tp} has no leader")
        if node.image.stream(tp.stream).stream_id != stream_id:
            raise StreamNotFound(f"{tp.stream} is another stream")
        found = node.world.messages.get((stream_id, tp.partition))
        if found is None:
            await asyncio.sleep(0.5)
            raise NotLeader(f"{tp} has no leader")
        return found

    async def _travel(self) -> None:
        rng = self._node.world.rng
        if rng.random() < 0.5:
            await asyncio.sleep(rng.choice((0, 0.001, 0.02)))

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
        part = self._part(await self._partition(tp, stream_id), filters, offset, limit, picked)
        await self._travel()
        return part

    def _part(
        self,
        found: StreamMessages,
        filters: tuple[str, ...],
        offset: int,
        limit: int,
        picked: Sequence[int] | None,
    ) -> StreamPart:
        start, end = found.start, found.end
        most = self._node.world.rng.choice((1, 3, 1_000))
        if picked is not None:
            taken = list(picked[:most])
            messages = [it for place in taken if (it := found.at(place)) is not None]
            next_offset = taken[-1] + 1 if taken else 0  # a read may be for nothing
            return StreamPart(run_of(messages), next_offset, len(picked) - len(taken), start, end)
        first = max(offset, start)
        messages = found.matching(filters, first) if limit else []
        chosen = messages[:most]
        next_offset = chosen[-1].sequence if len(chosen) < len(messages) else max(end, first)
        next_offset = next_offset if limit else first
        beyond = len(found.matching(filters, next_offset))
        return StreamPart(run_of(chosen), next_offset, beyond, start, end)

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
        message = StreamMessage(found.at(offset))
        await self._travel()
        return message

    async def wait(self, tp: TopicPartition, stream_id: UUID, offset: int) -> tuple[int, int]:
        found = await self._partition(tp, stream_id)
        if found.end <= offset:
            woken, node = asyncio.Event(), self._node
            found.waiting.append(lambda: node.after(0, woken.set))
            try:
                async with asyncio.timeout(1):
                    await woken.wait()
            except TimeoutError:
                pass
        return found.start, found.end

    async def start(self, tp: TopicPartition, stream_id: UUID, query: StartQuery) -> ConsumerStart:
        await self._travel()
        found = await self._partition(tp, stream_id)
        match query.policy:
            case "all":
                return ConsumerStart(found.start)
            case "new":
                return ConsumerStart(found.end)
            case "by_start_sequence":
                return ConsumerStart(max(query.value, found.start))
            case "last_per_subject":
                end = found.end if query.up_to is None else query.up_to
                last = {
                    it.subject: it.sequence - 1
                    for it in found.matching(query.filters, 0)
                    if it.sequence <= end
                }
                return ConsumerStart(end, sorted(last.values()))
        raise AssertionError(f"{query} is not asked for here")


class SimPeers:
    """In the place of ``Peers``."""

    def __init__(self, node: "ConsumersNode") -> None:
        self._node = node

    async def command(
        self, address: Any, data: bytes, timeout_ms: int, *, purpose: str = ""
    ) -> bytes:
        asker, world, host = self._node, self._node.world, self._node.host
        target = world.hosts[NodeId(address.port)]
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()

        def end(answer: bytes) -> None:
            if not answered.done():
                answered.set_result(answer)

        def back(answer: bytes) -> None:
            world.links.carry(
                target.node_id, host.node_id, lambda: asker.after(0, lambda: end(answer)), once=True
            )

        def arrive() -> None:
            node = target.process
            if node is not None:
                node.after(0, lambda: node.serve(data, back))

        world.links.carry(host.node_id, target.node_id, arrive, once=True)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answered
        except TimeoutError:
            raise NodeUnreachable(f"{address} does not answer") from None

    def close(self) -> None:
        """Nothing is open."""


class SimRequests(NodeRequests):
    """Of a node."""

    def __init__(self, node: "ConsumersNode") -> None:
        peers: Any = SimPeers(node)
        super().__init__(peers, lambda: node.image)
        self.node = node


class NodeRouter(Router):
    """The node's own subscriptions are real. What is for clients goes to the world."""

    def __init__(self, node: "ConsumersNode") -> None:
        super().__init__()
        self._node = node
        self.wake = self._end_turn_soon
        self.clients: set[bytes] = set()
        """Their subscriptions are known here."""
        self._changes = 0

    def _end_turn_soon(self) -> None:
        self._node.loop.call_soon(self.end_turn)

    @property
    def generation(self) -> int:
        return self._changes

    def know(self, client: bytes, *, is_there: bool) -> None:
        self._changes += 1
        (self.clients.add if is_there else self.clients.discard)(client)

    def interest(self, subject: bytes, *, queue: bytes = b"") -> int:
        return int(_client_of(subject) in self.clients)

    def unwritten_bytes(self, subject: bytes) -> int:
        return 0

    def deliver_as(
        self,
        subject: bytes,
        shown: bytes,
        payload: bytes,
        *,
        reply: bytes = b"",
        block: bytes = b"",
    ) -> int:
        if not self.interest(subject):
            return 0
        self._node.world.emitted(
            self._node, subject.decode(), shown.decode(), payload, reply.decode()
        )
        return 1

    def publish(  # type: ignore[override]
        self, subject: bytes, payload: bytes, *, reply: bytes = b"", block: bytes = b""
    ) -> int:
        if subject.startswith(b"_"):
            self._node.world.told(self._node, subject.decode(), payload, block)
            return 1
        return int(super().publish(subject, payload, reply=reply, block=block))


def deliver_one_by_one(
    router: NodeRouter,
    subject: bytes,
    run: MessageRun,
    start: int,
    stop: int,
    *,
    head: bytes,
    sequence: int,
    time_mark_ns: int,
    pending: int,
    unnamed: bytes,
) -> int:
    """In the place of ``deliver_run``, which asks no router that is made otherwise."""
    for number in range(stop - start):
        text, stream_sequence, timestamp_ms, block, data = run.message(start + number)
        time_ns = timestamp_ms * MS_NS + time_mark_ns
        numbers = f"{stream_sequence}.{sequence + number}.{time_ns}.{max(0, pending - number)}"
        shown, reply = text.encode() or unnamed, head + numbers.encode()
        if not router.deliver_as(subject, shown, data, reply=reply, block=block):
            return number
    return stop - start


def _client_of(subject: bytes) -> bytes:
    """The second token."""
    return subject.split(b".", 2)[1]


class ConsumersNode:
    """One life of a process on ``host``."""

    def __init__(self, host: Host, world: "ConsumersStory", image: MetadataImage) -> None:
        self.host = host
        self.world = world
        self.life = host.life
        self.image = MetadataImage(image.cluster_id)
        self.controller_id = NodeId(0)
        self.loop = SimLoop(host, self._unhandled)  # type: ignore[abstract]
        self.router = NodeRouter(self)
        self.lease = Lease(LEASE_MS, SESSION_MS)
        self.replicas = {tp: StateReplica(self, tp, log) for tp, log in world.state_logs.items()}
        self.registered_at: int | None = None
        """The metadata offset of the registration of this process, before which it does nothing."""
        requests = SimRequests(self)
        self._requests = requests
        local: Any = self.local_leader()
        metadata: Any = self
        source: Any = self.source(requests)
        self.service = ConsumerService(
            node_id=host.node_id,
            domain="",
            settings=ConsumersSection(state_partitions=len(world.state_logs)),
            metadata=metadata,
            partitions=self,
            leaders=LeaderRouter(host.node_id, local, requests, image=lambda: self.image),
            nodes=requests,
            router=self.router,
            advise=lambda *_: None,
            measure=lambda *_: None,
            may_deliver_to=lambda _: True,
            lease=self.lease,
            source=source,
            interest=StreamInterest(
                local, requests, node_id=host.node_id, image=lambda: self.image
            ),
        )
        self.loop.call_soon(self._begin)

    def source(self, requests: SimRequests) -> SimSource:
        """Of the messages of all streams."""
        return SimSource(requests)

    def local_leader(self) -> Any:
        """Of the streams' partitions that this node leads; None: nothing asks for one."""

    def _begin(self) -> None:
        self.loop.create_task(self._guarded(self.service.run()))
        self.loop.call_soon(self._beat)
        self.loop.call_soon(self._tell_lease)
        self.loop.call_soon(self._follow)

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            self.world.broken = self.world.broken or Violation(f"a service ends: {trace}")

    def _unhandled(self, context: dict[str, Any]) -> None:
        if not self.loop.is_closed():
            raise Violation(f"not handled: {context}") from context.get("exception")

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """On the node's loop; not in another life."""
        if self.host.life != self.life:
            return
        handle = asyncio.Handle(call, (), self.loop)
        self.host.after(delay_us, lambda: self.loop._run(handle))

    def delay_us(self) -> int:
        rng = self.world.rng
        return rng.choice((200, 1_000, 5_000, 40_000))

    # Metadata

    def partition(self, tp: TopicPartition) -> StateReplica:
        found = self.replicas.get(tp)
        if found is None:
            raise PartitionNotFound(f"{tp} is not here")
        return found

    async def create_stream(self, config: object) -> Any:
        raise AssertionError("it is there from the start")

    async def alter_stream(self, name: str, changes: object) -> Any:
        raise AssertionError("nobody alters it")

    def _follow(self) -> None:
        """The metadata's log, with more or less of a lag."""
        world, host, begin = self.world, self.host, self.registered_at
        is_late = host.late_us > host.events.now_us
        if begin is not None and not is_late and not world.is_cut_off(host.node_id):
            for image in world.images:
                if image.offset > self.image.offset and image.offset >= begin:
                    self._apply(image)
        self.after(world.rng.choice((1_000, 10_000, 60_000)), self._follow)

    def _apply(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        state = image.streams.get(CONSUMERS_STREAM)
        if state is None:
            return
        late, led = list[TopicPartition](), list[TopicPartition]()
        for tp, replica in self.replicas.items():
            known = state.partition(tp.partition)
            leads = known.leader == self.host.node_id
            if replica.is_leader and not (leads and replica.leader_epoch == known.leader_epoch):
                replica.resign()
            if leads and not replica.is_leader:
                if self.world.rng.random() < 0.3:  # its log is cut first
                    late.append(tp)
                else:
                    replica.lead(known.leader_epoch)
                    led.append(tp)
        self.service.apply(old, image)
        for tp in led:
            self.service.look(tp)
        for tp in late:
            self.after(self.delay_us(), lambda tp=tp: self._lead_late(tp))  # type: ignore[misc]

    def _lead_late(self, tp: TopicPartition) -> None:
        known = self.image.stream(CONSUMERS_STREAM).partition(tp.partition)
        replica = self.replicas[tp]
        if known.leader == self.host.node_id and not replica.is_leader:
            replica.lead(known.leader_epoch)
            self.service.look(tp)

    def _beat(self) -> None:
        """The controller lends a lease to a node that it hears of."""
        world, host = self.world, self.host
        sent_s, offset, life = self.loop.time(), self.image.offset, self.life
        # ``clock_s`` is the machine's monotonic clock here, as ``loop.time`` is.

        def answered(begin: int, *, is_lent: bool) -> None:
            if self.registered_at is None:
                self.registered_at = begin
            elif is_lent:
                self.lease.extend(sent_s)

        def heard() -> None:
            begin, is_lent = world.heard(host.node_id, life, offset)
            answer = partial(answered, begin, is_lent=is_lent)
            world.links.carry(0, host.node_id, lambda: self.after(0, answer))

        world.links.carry(host.node_id, 0, heard)
        self.after(BEAT_US, self._beat)

    def _tell_lease(self) -> None:
        self.lease.tell()
        self.after(TELL_US, self._tell_lease)

    # Requests

    def serve(self, data: bytes, back: Callable[[bytes], None]) -> None:
        """Of another node."""

        async def answer() -> None:
            back(await self._requests.answer(data))

        self.loop.create_task(answer())

    def ask(
        self, verb: str, stream: str, consumer: str, answered: Callable[[Any], None], **more: Any
    ) -> None:
        """Of a client. ``answered`` gets the reply's fields, or the error."""

        async def work() -> None:
            try:
                found = self.image.stream(stream)
                request = ConsumerRequest(verb, stream, found.stream_id, consumer, **more)
                answered(await self.service.ask(request))
            except (ApiRefused, StreamlogError) as error:
                answered(error)

        self.loop.create_task(work())

    def made_ms(self, stream: str, consumer: str) -> int:
        """When the one was made that delivers now."""
        (found,) = (
            it.consumers[ConsumerKey(stream, consumer)]
            for it in self.service._coordinators.values()
            if ConsumerKey(stream, consumer) in it.consumers
        )
        return found.kept.created_ms

    def check_counts(self) -> None:
        """What coordinators keep beside their consumers is so."""
        for it in self.service._coordinators.values():
            for stream in {key.stream for key in it.consumers}:
                names = sorted(key.consumer for key in it.consumers if key.stream == stream)
                if it.names_of(stream) != names or it.count_of(stream) != len(names):
                    raise Violation(f"{it.names_of(stream)} are listed, and {names} are there")
            durable = sum(hosted.kept.config.is_durable for hosted in it.consumers.values())
            if it.durable_count != durable:
                raise Violation(f"{it.durable_count} durable consumers are counted, not {durable}")

    def hear(self, subject: str, payload: bytes, reply: str) -> None:
        """A client has published, and this node's subscriptions match."""
        if self.router.matches(subject.encode()):
            self.router.publish(subject.encode(), payload, reply=reply.encode())
