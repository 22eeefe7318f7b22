"""JetStream's consumers as the API sees them: the node that coordinates a stream's consumers, and requests to it.

All consumers of a stream belong to one partition of the internal stream ``__consumer_state``; the leader of that
partition is their coordinator. The node that a client asks puts the request to it. Messages go from the coordinator to
the client, and acknowledgements come to it, over the NATS port, the links between nodes, and the leafnode link.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.condition import CORRECT_THEN_RESTART, CRITICAL, Condition
from streamlog.config import ConsumersSection
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.coordination.keys import partition_of
from streamlog.errors import (
    CorruptData,
    InvalidRequest,
    NodeUnreachable,
    NotLeader,
    PartitionNotFound,
    StreamlogError,
    StreamNotFound,
)
from streamlog.jetstream.consumers.consumer_config import (
    check_honoured,
    pause_until,
    read_create,
    unpinned_group,
)
from streamlog.jetstream.consumers.consumer_coordinator import (
    LEADERSHIP_CHANGE,
    NAMES,
    ConsumerCoordinator,
    HostedConsumer,
    Surroundings,
)
from streamlog.jetstream.consumers.consumer_records import ConsumerKey
from streamlog.jetstream.consumers.consumer_statistics import ConsumerCounts, ConsumerStatistics
from streamlog.jetstream.consumers.interest_reports import StreamInterest
from streamlog.jetstream.consumers.stream_source import StreamSource
from streamlog.jetstream.errors import CONSUMER_NOT_FOUND, ApiError, ApiRefused
from streamlog.jetstream.verbs.stream_info import NO_TIME, rfc3339
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.consumer_limits import ConsumerLimits
from streamlog.metadata.stream.internal_stream import InternalStream, StreamMetadata, state_config
from streamlog.metadata.stream.stream_config import CONSUMERS_STREAM, StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.nats.router import Router
from streamlog.partition.internal_partition import InternalPartitions

logger = logging.getLogger(__name__)

CONSUMERS_NOT_COORDINATED: Final = Condition(
    "SL-0518",
    "consumers cannot be coordinated",
    CORRECT_THEN_RESTART,
    meaning="The node leads a partition of __consumer_state that it cannot open or read.",
    severity=CRITICAL,
)
CONSUMER: Final = "CONSUMER"
"""The request of the node that a client has asked."""
END: Final = "CONSUMER.END"
"""The request of a coordinator that begins: those of earlier leader epochs are to end."""
END_S: Final = 10.0
"""How long a coordinator waits for a node that does not answer this, and that is not fenced."""
END_ASK_S: Final = 1.0
END_PAUSE_S: Final = 0.1
NAME_CHARS: Final = 8
"""Of a consumer that its client gives no name."""
NAMES_MAX: Final = 1024
LIST_MAX: Final = 256
MAKE_S: Final = 1.0
HOLDERS_MAX: Final = 100
"""Consumers of which the metrics tell what they hold."""
SNAPSHOT_MAX: Final = 20
"""Consumers in one answer, each with its state."""
MAKES: Final = ("CREATE", "RESTORE")
"""Verbs before which the internal stream is made."""
OF_ONE: Final = ("NEXT", "INFO")
"""Verbs that ask for one consumer, and nothing of the others."""
KNOWN_S: Final = 2.0
"""How long a coordinator waits for the metadata of a stream that another node knows."""


COUNTS_S: Final = 1.0
"""How long a list of streams waits for the numbers of their consumers."""
_CHANGED: Final = f"NATS/1.0 409 {LEADERSHIP_CHANGE}\r\n\r\n".encode()
PULL_S_MAX: Final = 600.0
"""How long a pull request is remembered that does not end earlier."""
PLACES_MAX: Final = 100_000
"""Streams whose partition of the internal stream is remembered."""
PULLS_MAX: Final = 100_000
"""Pull requests of one partition that are remembered. The client of one more waits for its own time-out."""
SWEPT_FROM: Final = 1_000
"""Fewer pull requests than this are not worth a sweep."""
SWEEP_S: Final = 0.1
"""A sweep looks at all of them: not more often."""


class ConsumerHost(NamedTuple):
    """What a node that serves consumers has for them."""

    settings: ConsumersSection
    metadata: StreamMetadata
    """By which the internal stream is made."""


class ConsumerRequest(NamedTuple):
    """A verb about one consumer of a stream, or about all of them."""

    verb: str
    stream: str
    stream_id: UUID
    consumer: str = ""
    filter: str = ""
    """At the end of the subject of CONSUMER.CREATE."""
    fields: Mapping[str, Any] = {}
    inbox: str = ""
    """Of MSG.NEXT: where the messages go."""
    body: str = ""
    new_name: str = ""
    """Of a consumer that its client gives no name: chosen once, so that a request that is repeated finds it."""


class ForwardedPulls:
    """Inboxes of pull requests that this node has put to coordinators, and that may still wait there."""

    def __init__(self) -> None:
        self._until_s: dict[int, dict[str, float]] = {}
        """By partition of the internal stream, and by inbox."""
        self._sweep_at: dict[int, int] = {}
        """Of so many those that are over are forgotten next."""
        self._next_sweep_s = 0.0

    def note(self, partition: int, inbox: str, body: str) -> None:
        wait_s = waiting_s(body)
        if wait_s <= 0:
            return
        now_s = time.monotonic()
        pulls = self._until_s.setdefault(partition, {})
        if len(pulls) >= self._sweep_at.get(partition, SWEPT_FROM) and now_s >= self._next_sweep_s:
            pulls = {it: until_s for it, until_s in pulls.items() if until_s > now_s}
            self._until_s[partition] = pulls
            self._sweep_at[partition] = min(max(SWEPT_FROM, 2 * len(pulls)), PULLS_MAX)
            self._next_sweep_s = now_s + SWEEP_S
        if len(pulls) < PULLS_MAX or inbox in pulls:
            pulls[inbox] = max(pulls.get(inbox, 0.0), now_s + min(wait_s, PULL_S_MAX))

    def take(self, partition: int) -> list[str]:
        """Those that are not over."""
        now_s = time.monotonic()
        taken = self._until_s.pop(partition, {})
        return [inbox for inbox, until_s in taken.items() if until_s > now_s]


def waiting_s(body: str) -> float:
    """How long a pull request waits at most."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return PULL_S_MAX
    if not isinstance(fields, dict):
        return PULL_S_MAX
    expires_ns = fields.get("expires")
    if isinstance(expires_ns, int) and expires_ns:
        return min(expires_ns, int(PULL_S_MAX * 1e9)) / 1e9
    return 0.0 if fields.get("no_wait") else PULL_S_MAX


class ConsumerService:
    """``run`` as a task, ``apply`` at each change of the image, after the partitions have; ``look`` when a
    partition follows later.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        domain: str,
        settings: ConsumersSection,
        metadata: StreamMetadata,
        partitions: InternalPartitions,
        leaders: LeaderRouter,
        nodes: NodeRequests,
        router: Router,
        advise: Callable[[str, str, dict[str, Any]], None],
        measure: Callable[[str, str, dict[str, Any]], None],
        may_deliver_to: Callable[[str], bool],
        lease: Lease | None = None,
        source: StreamSource,
        interest: StreamInterest,
    ) -> None:
        """``may_deliver_to``: whether a push consumer may have this deliver subject."""
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._leaders = leaders
        self._lease = lease
        self._may_deliver_to = may_deliver_to
        self._state = InternalStream(
            metadata, node_id, CONSUMERS_STREAM, partial(config_of, settings)
        )
        self._coordinators: dict[int, ConsumerCoordinator] = {}
        self._pulls = ForwardedPulls()
        self._router = router
        self._ended_below: dict[int, int] = {}
        """By partition: coordinators of earlier leader epochs are over, whatever the image says."""
        self._nodes = nodes
        self._begun: asyncio.Queue[ConsumerCoordinator] = asyncio.Queue()
        self._stopping = False
        self._around = Surroundings(
            node_id=node_id,
            domain=domain,
            settings=settings,
            router=router,
            source=source,
            interest=interest,
            consumed=self._consumed_of,
            image=lambda: metadata.image,
            lease_held=lambda: lease is None or lease.held,
            advise=advise,
            measure=measure,
            end_others=self._end_others,
            counts=ConsumerCounts(),
        )
        self._consumed: set[str] = set()
        """Streams that their consumers empty."""
        self._any_consumed = asyncio.Event()
        self._places: dict[str, TopicPartition] = {}
        """By stream: its hash takes longer than all else that a pull request needs."""
        self._places_count = 0
        nodes.register(CONSUMER, self._answer_node)
        nodes.register(END, self._answer_end)
        if lease is not None:
            lease.add_listener(self._lease_changed)

    # What the API asks

    async def ask(self, request: ConsumerRequest) -> dict[str, Any]:
        """The reply's fields. Raises ApiRefused, StreamlogError."""
        if self._state.stream is None:
            if not request.verb.endswith(MAKES):
                return _of_none(request)
            await self._state.make()
        if request.verb.endswith("CREATE") and not request.consumer:
            request = request._replace(new_name=_new_name())
        tp = self._place(request.stream)

        async def here() -> dict[str, Any]:
            return await self._answer(request)

        if request.verb == "NEXT":
            stream = self._metadata.image.streams.get(request.stream)
            is_known = stream is not None and stream.stream_id == request.stream_id
            if stream is not None and is_known:
                hosted = self.hosted_here(stream, request.consumer)
                if hosted is not None:
                    hosted.pull(request.inbox, request.body.encode())
                    return {}
            self._pulls.note(tp.partition, request.inbox, request.body)
        return await self._leaders.at_leader(
            tp,
            CONSUMER,
            _travelling(request),
            here=here,
            decode=_reply_of,
            repeatable=request.verb != "DELETE",
        )

    def hosted_here(self, stream: StreamImage, consumer: str) -> HostedConsumer | None:
        """A consumer that this node coordinates; None: it does not."""
        if self._state.stream is None:
            return None
        coordinator = self._coordinators.get(self._place(stream.name).partition)
        if coordinator is None or not self._coordinates(coordinator, each=True):
            return None
        hosted = coordinator.known(ConsumerKey(stream.name, consumer))
        if hosted is None or hosted.closed or hosted.kept.stream_id != stream.stream_id:
            return None
        return hosted

    async def count(self, stream: StreamImage) -> int:
        """Consumers of a stream; 0 where their coordinator does not answer: a stream is described without it."""
        try:
            return int(
                (await self.ask(ConsumerRequest("COUNT", stream.name, stream.stream_id)))["count"]
            )
        except StreamlogError:
            return 0

    async def counts(self, streams: Sequence[StreamImage]) -> dict[str, int]:
        """As ``count`` of each: each coordinator is asked once."""
        if self._state.stream is None:
            return {}
        of_partition: dict[int, list[StreamImage]] = {}
        try:
            for stream in streams:
                of_partition.setdefault(self._place(stream.name).partition, []).append(stream)
        except NotLeader:  # the internal stream is not there yet
            return {}
        counted = await asyncio.gather(*map(self._counts_of, of_partition.values()))
        return {name: count for counts in counted for name, count in counts.items()}

    async def _counts_of(self, streams: Sequence[StreamImage]) -> dict[str, int]:
        """Of streams with one coordinator."""
        names = [it.name for it in streams]
        request = ConsumerRequest(
            "COUNTS", names[0], streams[0].stream_id, fields={"streams": names}
        )
        try:
            async with asyncio.timeout(COUNTS_S):
                counts: dict[str, int] = (await self.ask(request))["counts"]
        except (StreamlogError, ApiRefused, TimeoutError):
            return {}
        return counts

    async def beyond(self, stream: StreamImage, limits: ConsumerLimits) -> list[str]:
        """Consumers that would be beyond these limits. Raises StreamlogError."""
        if self._state.stream is None:
            return []
        request = ConsumerRequest(
            "BEYOND", stream.name, stream.stream_id, fields={"limits": str(limits)}
        )
        names: list[str] = (await self.ask(request))["consumers"]
        return names

    async def _answer_node(self, fields: Fields) -> NodeAnswer:
        request = ConsumerRequest(**{**fields, "stream_id": UUID(fields["stream_id"])})
        try:
            return NodeAnswer({"reply": await self._answer(request)})
        except ApiRefused as refused:
            return NodeAnswer({"refused": list(refused.error)})

    async def _answer(self, request: ConsumerRequest) -> dict[str, Any]:
        of_one = request.verb in OF_ONE
        # Another node may coordinate, which knows the stream earlier.
        self._coordinator(request.stream, each=of_one)
        stream = await self._known(request)
        coordinator = self._coordinator(request.stream, each=of_one)
        key = ConsumerKey(request.stream, request.consumer)
        match request.verb:
            case "CREATE" | "DURABLE.CREATE":
                created = read_create(
                    request.fields,
                    stream=stream.config,
                    subject_consumer=request.consumer,
                    subject_filter=request.filter,
                    is_durable_form=request.verb == "DURABLE.CREATE",
                    is_clustered=len(self._metadata.image.nodes) > 1,
                )
                check_honoured(created.config, len(stream.partitions))
                subject = created.config.deliver_subject
                if subject and not self._may_deliver_to(subject):
                    raise ApiRefused(
                        ApiError(400, 10012, "consumer deliver subject is stored by a stream")
                    )
                return await (await coordinator.create(stream, created, request.new_name)).info()
            case "NEXT":
                coordinator.find(key).pull(request.inbox, request.body.encode())
                return {}
            case "INFO":
                return await coordinator.find(key).info()
            case "DELETE":
                await coordinator.delete(key)
                return {"success": True}
            case "PAUSE":
                until_ms = pause_until(request.fields)
                info = await (await coordinator.pause(key, until_ms)).info()
                return {
                    "paused": info.get("paused", False),
                    "pause_until": _shown_time(until_ms),
                    "pause_remaining": info.get("pause_remaining", 0),
                }
            case "UNPIN":
                coordinator.unpin(key, unpinned_group(request.fields))
                return {}
            case "RESET":
                hosted, sequence = await coordinator.reset(key, request.fields.get("seq", 0))
                return {**await hosted.info(), "reset_seq": sequence}
            case "COUNT":
                return {"count": coordinator.count_of(request.stream)}
            case "COUNTS":
                names = request.fields["streams"]
                return {"counts": {name: coordinator.count_of(name) for name in names}}
            case "SNAPSHOT":
                names = coordinator.names_of(request.stream)
                offset = request.fields["offset"]
                chosen = names[offset : offset + SNAPSHOT_MAX]
                told = coordinator.snapshot(request.stream, chosen)
                return {"consumers": told, "total": len(names)}
            case "RESTORE":
                await self._restore(coordinator, stream, request)
                return {}
            case "BEYOND":
                limits = ConsumerLimits.parse(request.fields["limits"])
                return {"consumers": coordinator.beyond(request.stream, limits)}
            case _:
                return await self._page(coordinator, request)

    async def _restore(
        self, coordinator: ConsumerCoordinator, stream: StreamImage, request: ConsumerRequest
    ) -> None:
        """Its configuration is judged as that of a new one."""
        asked = {"stream_name": stream.name, "config": request.fields["config"]}
        created = read_create(asked, stream=stream.config, subject_consumer=request.consumer)
        check_honoured(created.config, len(stream.partitions))
        subject = created.config.deliver_subject
        if subject and not self._may_deliver_to(subject):
            raise ApiRefused(ApiError(400, 10012, "consumer deliver subject is stored by a stream"))
        await coordinator.restore(stream, created.config, request.fields)

    async def _page(
        self, coordinator: ConsumerCoordinator, request: ConsumerRequest
    ) -> dict[str, Any]:
        """NAMES and LIST."""
        names = coordinator.names_of(request.stream)
        limit = NAMES_MAX if request.verb == "NAMES" else LIST_MAX
        offset = min(max(request.fields.get("offset", 0), 0), len(names))
        chosen = names[offset : offset + limit]
        page: dict[str, Any] = {"total": len(names), "offset": offset, "limit": limit}
        if request.verb == "NAMES":
            return {**page, "consumers": chosen}
        found = [coordinator.consumers[ConsumerKey(request.stream, name)] for name in chosen]
        return {**page, "consumers": [await it.info() for it in found if not it.closed]}

    async def _known(self, request: ConsumerRequest) -> StreamImage:
        """The stream that the asker knows. Raises StreamNotFound."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + KNOWN_S
        while True:
            stream = self._metadata.image.streams.get(request.stream)
            if stream is not None and stream.stream_id == request.stream_id:
                return stream
            if loop.time() >= deadline:
                raise StreamNotFound(f"stream {request.stream!r} not found")
            await asyncio.sleep(0.01)

    def _coordinator(self, stream: str, *, each: bool = False) -> ConsumerCoordinator:
        """``each``: one consumer is asked for, and nothing of the others. Raises NotLeader."""
        found = self._coordinators.get(self._place(stream).partition)
        if found is None or not self._coordinates(found, each=each):
            raise NotLeader(f"consumers of {stream} are not coordinated here")
        return found

    def _coordinates(self, coordinator: ConsumerCoordinator, *, each: bool = False) -> bool:
        """Its log has been read, and no other node coordinates what it does."""
        return (coordinator.is_serving if each else coordinator.is_open) and coordinator.may_act

    def _place(self, stream: str) -> TopicPartition:
        state = self._state.stream
        if state is None or not state.partitions:
            raise NotLeader(f"{CONSUMERS_STREAM} is not there yet")
        count = len(state.partitions)
        if count != self._places_count or len(self._places) > PLACES_MAX:
            self._places, self._places_count = {}, count
        place = self._places.get(stream)
        if place is None:
            place = TopicPartition(CONSUMERS_STREAM, partition_of(stream, count))
            self._places[stream] = place
        return place

    def statistics(self) -> ConsumerStatistics:
        """Of what this node coordinates."""
        coordinators, counts = self._coordinators.values(), self._around.counts
        durable = sum(it.durable_count for it in coordinators)
        return ConsumerStatistics(
            durable=durable,
            ephemeral=sum(len(it.consumers) for it in coordinators) - durable,
            loading=sum(not it.is_open for it in self._coordinators.values()),
            deliveries=counts.deliveries,
            redeliveries=counts.redeliveries,
            acks=counts.acks,
            unreported=sum(it.reports.failing for it in self._coordinators.values()),
            holders=self._around.interest.holders(HOLDERS_MAX),
        )

    # Its life

    async def run(self) -> None:
        """Coordinate what is led here, and see to the stream's replicas."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._state.keep())
            group.create_task(self._make_for_consumed())
            group.create_task(self._around.interest.run())
            while True:
                coordinator = await self._begun.get()
                group.create_task(self._serve(coordinator))

    async def _make_for_consumed(self) -> None:
        """A stream without consumers has a coordinator, too, where it keeps what its consumers want."""
        while True:
            await self._any_consumed.wait()
            self._any_consumed.clear()
            try:
                await self._state.make()
            except StreamlogError:  # as without a controller
                await asyncio.sleep(MAKE_S)
                self._any_consumed.set()

    def _consumed_of(self, number: int) -> list[StreamImage]:
        state, streams = self._state.stream, self._metadata.image.streams
        if state is None:
            return []
        return [
            streams[it]
            for it in self._consumed
            if it in streams and partition_of(it, len(state.partitions)) == number
        ]

    async def _serve(self, coordinator: ConsumerCoordinator) -> None:
        try:
            await coordinator.run()
        except* (StreamlogError, CorruptData) as errors:
            extra = {"partition": coordinator.number, "error": str(errors.exceptions[0])}
            logger.error(CONSUMERS_NOT_COORDINATED, extra=extra)

    def look(self, tp: TopicPartition) -> None:
        """It may be led here by now."""
        if tp.stream == CONSUMERS_STREAM:
            self._lead(self._metadata.image.streams.get(CONSUMERS_STREAM))

    def _lease_changed(self, held: bool) -> None:
        if held:
            for coordinator in self._coordinators.values():
                coordinator.lease_returned()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """Coordinate as ``new`` says; what is not open yet comes with ``look``."""
        is_any_other = is_any_consumed = False
        for change in new.changes(old):
            known = change.new or change.old
            assert known is not None, "a change has one side at least"
            is_any_consumed |= self._note_consumed(known.name, change.new)
            if known.name == CONSUMERS_STREAM:
                self._tell_waiting(old, new)
                self._lead(new.streams.get(CONSUMERS_STREAM))
            elif change.old is not None and (
                change.new is None
                or change.old.stream_id != change.new.stream_id
                or len(change.old.partitions) != len(change.new.partitions)
                or change.old.config.is_restoring != change.new.config.is_restoring
            ):
                is_any_other = True
        if is_any_other:
            for coordinator in self._coordinators.values():
                if coordinator.is_open:
                    coordinator.apply(new.streams)
        if is_any_consumed:
            for coordinator in self._coordinators.values():
                coordinator.look_at_streams()
        self._state.look()

    def _note_consumed(self, name: str, stream: StreamImage | None) -> bool:
        """Whether it is, or was, one that its consumers empty."""
        is_consumed, was_consumed = (
            stream is not None and stream.config.is_consumed,
            name in self._consumed,
        )
        if is_consumed:
            self._consumed.add(name)
            if self._state.stream is None:
                self._any_consumed.set()
        else:
            self._consumed.discard(name)
        if stream is not None and was_consumed and not is_consumed:
            self._around.interest.forget(stream.stream_id)
        return is_consumed or was_consumed

    def _tell_waiting(self, old: MetadataImage, new: MetadataImage) -> None:
        """Clients send pull requests again that wait at a coordinator no longer. It may have been killed, and could
        not say so itself; a status that comes twice does no harm.
        """
        before, now = (it.streams.get(CONSUMERS_STREAM) for it in (old, new))
        if before is None or now is None:
            return
        for number, (was, has) in enumerate(zip(before.partitions, now.partitions, strict=False)):
            if was.leader not in (NO_LEADER, self._node_id, has.leader):
                for inbox in self._pulls.take(number):
                    self._router.publish(inbox.encode(), b"", block=_CHANGED)

    async def stop(self) -> None:
        """Nothing is coordinated here any more."""
        self._stopping = True
        is_alone = len(self._metadata.image.nodes) < 2
        for coordinator in self._coordinators.values():
            coordinator.close("Server Shutdown" if is_alone else LEADERSHIP_CHANGE)
        self._coordinators.clear()

    def _lead(self, stream: StreamImage | None) -> None:
        led = {} if stream is None else {
            number: partition.leader_epoch
            for number, partition in enumerate(stream.partitions)
            if partition.leader == self._node_id
        }  # fmt: skip
        for number, coordinator in tuple(self._coordinators.items()):
            if led.get(number) != coordinator.leader_epoch:
                coordinator.close()
                del self._coordinators[number]
        for number, leader_epoch in led.items():
            if number not in self._coordinators and not self._stopping:
                self._begin(number, leader_epoch)

    # One coordinator at a time

    async def _end_others(self, number: int, leader_epoch: int) -> None:
        """Return once no other node acts as an earlier leader of the partition. A node that lives may be unaware
        that it has to give way, and has a lease: it is told. One that is fenced has none.
        """
        others = [node for node in self._metadata.image.nodes if node != self._node_id]
        await asyncio.gather(*(self._end_at(node, number, leader_epoch) for node in others))

    async def _end_at(self, node_id: NodeId, number: int, leader_epoch: int) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + END_S
        fields = {"partition": number, "leader_epoch": leader_epoch}
        while True:
            node = self._metadata.image.nodes.get(node_id)
            if node is None or (node.fenced and not node.stopping):
                return
            try:
                await self._nodes.ask(node_id, END, fields, timeout_s=END_ASK_S)
                return
            except InvalidRequest:
                return  # of an earlier build
            except StreamlogError as error:
                is_gone = isinstance(error, NodeUnreachable) and error.refused
                if is_gone or node.stopping or loop.time() >= deadline:
                    return
            await asyncio.sleep(END_PAUSE_S)

    async def _answer_end(self, fields: Fields) -> NodeAnswer:
        number, leader_epoch = int(fields["partition"]), int(fields["leader_epoch"])
        self._ended_below[number] = max(self._ended_below.get(number, 0), leader_epoch)
        coordinator = self._coordinators.get(number)
        if coordinator is not None and coordinator.leader_epoch < leader_epoch:
            coordinator.close()
            del self._coordinators[number]
        return NodeAnswer({})

    def _begin(self, number: int, leader_epoch: int) -> None:
        if leader_epoch < self._ended_below.get(number, 0):
            return  # the next one has begun elsewhere; the image is about to show it
        try:
            partition = self._partitions.partition(TopicPartition(CONSUMERS_STREAM, number))
        except PartitionNotFound:
            return  # it is about to be opened
        except StreamlogError as error:
            logger.error(
                CONSUMERS_NOT_COORDINATED, extra={"partition": number, "error": str(error)}
            )
            return
        if not partition.is_leader or partition.leader_epoch != leader_epoch:
            return  # its log is being cut
        coordinator = ConsumerCoordinator(partition, leader_epoch, self._around)
        self._coordinators[number] = coordinator
        self._begun.put_nowait(coordinator)


def config_of(settings: ConsumersSection, nodes: int) -> StreamConfig:
    """By so many nodes. The stream is made when the first consumer needs it."""
    return state_config(
        CONSUMERS_STREAM,
        nodes,
        partitions=settings.state_partitions,
        replicas=settings.state_replicas,
        sync=settings.state_sync,
    )


def _new_name() -> str:
    return "".join(secrets.choice(NAMES) for _ in range(NAME_CHARS))


def _of_none(request: ConsumerRequest) -> dict[str, Any]:
    """No consumer has ever been made."""
    if request.verb == "COUNT":
        return {"count": 0}
    if request.verb == "SNAPSHOT":
        return {"consumers": [], "total": 0}
    if request.verb not in ("NAMES", "LIST"):
        raise ApiRefused(CONSUMER_NOT_FOUND)
    limit = NAMES_MAX if request.verb == "NAMES" else LIST_MAX
    return {"total": 0, "offset": 0, "limit": limit, "consumers": []}


def _travelling(request: ConsumerRequest) -> dict[str, Any]:
    return {**request._asdict(), "stream_id": str(request.stream_id)}


def _reply_of(answer: NodeAnswer) -> dict[str, Any]:
    refused = answer.fields.get("refused")
    if refused is not None:
        raise ApiRefused(ApiError(*refused))
    reply: dict[str, Any] = answer.fields["reply"]
    return reply


def _shown_time(time_ms: int | None) -> str:
    return NO_TIME if time_ms is None else rfc3339(time_ms)
