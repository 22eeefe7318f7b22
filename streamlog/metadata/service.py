"""The metadata as the rest of the node sees it: an image, and ways to have it changed."""

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, TypeGuard
from uuid import UUID

from streamlog.clock import clock_ms
from streamlog.condition import NO_ACTION, Condition
from streamlog.config import ClusterSection
from streamlog.errors import (
    NoController,
    RequestTimedOut,
    StorageFailed,
    StreamlogError,
)
from streamlog.metadata.active_controller import ActiveController
from streamlog.metadata.commands import (
    AlterStream,
    AwaitApplied,
    Command,
    CreateStream,
    DescribeCluster,
    Granted,
    PlaceStream,
    RegisterNode,
    ReportLeader,
)
from streamlog.metadata.controller.self_healing import DiskRoom
from streamlog.metadata.forwarding import CommandForwarder
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.image.snapshot import is_due, snapshot_id
from streamlog.metadata.loop_clock import LoopClock
from streamlog.metadata.nodes.healing_status import HealingStatus
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.nodes.node_connections import NodeConnections
from streamlog.metadata.nodes.node_heartbeats import NodeHeartbeats, Stamp
from streamlog.metadata.quorum.history import MetadataHistory
from streamlog.metadata.quorum.metadata_replica import MetadataReplica
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.quorum.raft_driver import RaftDriver
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.raft.events import Resign, Role
from streamlog.raft.messages import Answer, Request, SnapshotId
from streamlog.raft.voters import VoterSet

logger = logging.getLogger(__name__)

LEADER_MAY_NOT_BE_READY: Final = Condition(
    "SL-0114",
    "a leader may not be ready",
    NO_ACTION,
    meaning="A stream was changed, and a node that leads a partition of it did not confirm the "
    "change in time. A client may have to ask again.",
)
LEFT_WITHOUT_NOTICE: Final = Condition(
    "SL-0116",
    "leaving without a word",
    NO_ACTION,
    meaning="A node that stops did not reach the controller. The controller notices when its "
    "session ends.",
)
VOTERS_DIFFER: Final = Condition(
    "SL-0112",
    "cluster.voters is not what the cluster says, which holds",
    "bring cluster.voters in line with `streamlog cluster quorum` on every node",
    meaning="The setting of this node names other voters than the metadata. The metadata holds.",
)

CHECKPOINT_S: Final = 1.0
READY_WAIT_MS: Final = 5_000
"""How long the creation of a stream waits for its leaders to listen."""
RESIGN_WAIT_S: Final = 1.0
"""How long a controller that stops waits for another one."""
RETRY_S: Final = 0.02
PATIENCE_FACTOR: Final = 2
"""A command waits for a controller as long as so many request time-outs."""

Listener = Callable[[MetadataImage, MetadataImage], None]
"""Called with the image before and after each change; must not wait for anything."""

Settled = Callable[[str | None], Awaitable[None]]
"""Returns when the listener has done all that the images up to now ask for: of the stream of this
name, or of all streams."""

NOT_AN_IMAGE = -1


class Applier:
    """From committed images to a node that acts on them. ``image`` is what the node acts on.

    What follows from an image at once takes effect in the same turn of the event loop as the image
    itself: who leads, which log belongs to which stream, what is deleted. Nothing there waits for a
    disk or a network. What takes its time, such as opening logs or subscribing at NATS, each
    listener does by itself, and catches up with the newest image; ``settled`` waits for that.

    Images that come in one turn of the event loop, or before a listener has begun, are taken
    together. Invariant: between two turns of the event loop every listener has heard of ``image``.
    """

    def __init__(self, image: MetadataImage, applied: Listener | None = None) -> None:
        """``applied`` is called when all listeners have heard of a change."""
        self.image = image
        """Replaced as a whole; never changes while a caller holds it."""
        self._applied = applied
        self._listeners: list[Listener] = []
        self._settled: list[Settled] = []
        self._next: MetadataImage | None = None
        self._touched: set[str] = set()
        self._all_touched = True
        """``_touched`` tells every difference between ``image`` and ``_next``."""
        self._arrived = asyncio.Event()
        self._attaching = asyncio.Lock()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def attach(
        self,
        listener: Listener,
        begin: Callable[[MetadataImage], Awaitable[None]],
        settled: Settled | None = None,
    ) -> None:
        """``begin`` with the image there is, then have ``listener`` told of each change, after
        those that were there before it. No image is applied meanwhile.
        """
        async with self._attaching:
            await begin(self.image)
            self._listeners.append(listener)
            if settled is not None:
                self._settled.append(settled)

    def start_from(self, image: MetadataImage) -> None:
        """Nothing listens yet."""
        self.image = image

    def committed(self, image: MetadataImage) -> None:
        """To be applied in the next turn of the event loop."""
        before = self._next or self.image
        if image.offset <= before.offset:
            return
        if image.parent_offset == before.offset:
            self._touched |= image.touched
        else:
            self._all_touched = False
        self._next = image
        self._arrived.set()

    async def wait(self, offset: int) -> None:
        """Until the metadata below ``offset`` is applied."""
        if self.image.offset < offset:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (offset, next(self._numbers), waiting))
            await waiting

    async def wait_settled(self, offset: int, stream: str | None = None) -> None:
        """Until that is so, and the listeners have done what it asks for; of ``stream`` or all."""
        await self.wait(offset)
        for settled in tuple(self._settled):
            await settled(stream)

    async def run(self) -> None:
        """Whatever a listener raises stops the node: it must handle what it can."""
        try:
            while True:
                await self._arrived.wait()
                async with self._attaching:
                    self._arrived.clear()
                    old, new, self._next = self.image, self._next, None
                    if new is None:
                        continue
                    if self._all_touched:
                        touched = frozenset(self._touched)
                        new = replace(new, parent_offset=old.offset, touched=touched)
                    else:
                        new = replace(new, parent_offset=NOT_AN_IMAGE)
                    self._touched, self._all_touched = set(), True
                    self.image = new
                    for listener in tuple(self._listeners):
                        listener(old, new)
                    if self._applied is not None:
                        self._applied(old, new)
                    while self._waiting and self._waiting[0][0] <= new.offset:
                        *_, waiting = heapq.heappop(self._waiting)
                        if not waiting.done():
                            waiting.set_result(None)
        finally:
            for *_, waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(NoController("the node is stopping"))


class MetadataService:
    """``open``; ``run`` as a task; ``register``; ``join`` as a task; ``leave`` and ``close``.

    What it raises beside a request's own errors: NoController and Overloaded, after which nothing
    has been done, and RequestTimedOut and StorageFailed, after which it may have been.
    """

    def __init__(
        self,
        replica: MetadataReplica,
        cluster_id: str,
        *,
        node_id: NodeId,
        incarnation: UUID,
        settings: ClusterSection,
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._stepped = asyncio.Event()
        """The quorum has taken a step: there may be a controller now."""
        self._applier = Applier(MetadataImage(cluster_id), self._has_applied)
        self._loop_clock = LoopClock()
        self._quorum = RaftDriver(
            replica,
            peers,
            node_id=node_id,
            loop_clock=self._loop_clock,
            request_timeout_ms=settings.request_timeout_ms,
            committed=self._applier.committed,
            changed=self._quorum_changed,
        )
        self.history = MetadataHistory(self._quorum, replica.store, lambda: self._applier.image)
        """How the image came about; once it is open."""
        self._controller = ActiveController(
            self._quorum,
            NodeConnections(peers),
            node_id=node_id,
            loop_clock=self._loop_clock,
            settings=settings,
            applied_offset=lambda: self._applier.image.offset,
        )
        self._forwarder = CommandForwarder(self._quorum, peers, node_id=node_id, settings=settings)
        self._heartbeats = NodeHeartbeats(
            node_id=node_id,
            incarnation=incarnation,
            settings=settings,
            grant=self._grant,
            applied_offset=lambda: self._applier.image.offset,
            applied=self._applier.wait,
            needs_no_lease=self._is_alone,
        )
        self._last_controller: NodeId | None = None
        self._committed_offset = 0  # as last checkpointed

    # What there is

    @property
    def is_open(self) -> bool:
        """The log has been replayed: the quorum's epoch, role and voters are known."""
        return hasattr(self._quorum.replica, "raft")

    @property
    def image(self) -> MetadataImage:
        """What the node acts on; replaced as a whole."""
        return self._applier.image

    @property
    def failure(self) -> StorageFailed | None:
        """Why this node takes no part in the quorum, if so; a restart may repair it."""
        return self._quorum.failure

    @property
    def lease(self) -> Lease:
        return self._heartbeats.lease

    @property
    def clock_skew_s(self) -> float | None:
        """How far this node's clock is ahead of the time that most nodes agree on, or else of the
        controller's clock; None before it is known.
        """
        skew_s = self._heartbeats.clock_skew.seconds
        return None if skew_s is None else skew_s - (self._heartbeats.agreed_ahead_s or 0.0)

    @property
    def clock_is_agreed(self) -> bool:
        """Most nodes agree on the time, so that ``clock_skew_s`` is this node's own fault."""
        return self._heartbeats.agreed_ahead_s is not None

    @property
    def node_epoch(self) -> int:
        """Of this process; -1 before it has registered."""
        return self._heartbeats.node_epoch

    @property
    def waiting_for(self) -> str:
        """Why the node has not registered yet."""
        return self._heartbeats.waiting_for

    @property
    def controller_id(self) -> NodeId | None:
        return self._quorum.leader

    @property
    def quorum_epoch(self) -> int:
        return self._quorum.replica.raft.epoch

    @property
    def quorum_role(self) -> Role:
        return self._quorum.replica.raft.role

    @property
    def voters(self) -> VoterSet:
        return self._quorum.replica.voters

    @property
    def recently_deleted(self) -> frozenset[UUID]:
        """Ids of streams whose folders may still lie around from before this start."""
        return frozenset(self._quorum.replica.deleted)

    async def attach(
        self,
        listener: Listener,
        begin: Callable[[MetadataImage], Awaitable[None]],
        settled: Settled | None = None,
    ) -> None:
        """``begin`` with the image there is, then have ``listener`` called at each change, in the
        order in which listeners were attached. ``settled`` waits for what takes it longer.
        """
        await self._applier.attach(listener, begin, settled)

    def tell_offline(self, offline: "Iterable[TopicPartition]") -> None:
        """These partitions cannot be written here; the controller hears of it at once."""
        self._heartbeats.offline = frozenset(offline)
        self._heartbeats.hurry()

    def tell_full(self, full: bool) -> None:
        """There is no room on the disk, or there is again; the controller hears of it at once."""
        self._heartbeats.full = full
        self._heartbeats.hurry()

    def ask_before_heartbeats(
        self,
        unfit: Callable[[], tuple[str, ...]],
        stall_ms: Callable[[], int],
        oldest_sync_ms: Callable[[], int],
    ) -> None:
        """``unfit``: what else is wrong with this node, by the names of ``condition``; ``stall_ms``: for how long
        its disk has owed an answer; ``oldest_sync_ms``: for how long it has been asked.
        """
        self._heartbeats.unfit = unfit
        self._heartbeats.stall_ms = stall_ms
        self._controller.watch_disk(stall_ms, oldest_sync_ms)

    def ask_for_room(self, measure: Callable[[], Awaitable[DiskRoom]]) -> None:
        """Where replicas of lost nodes may go, while this node is the controller."""
        self._controller.ask_for_room(measure)

    @property
    def healing_status(self) -> HealingStatus:
        """How far self-healing is, where this node is the controller."""
        return self._controller.healing_status

    def awake_ms(self) -> int:
        """A clock that counts the time in which this node's event loop runs."""
        return self._loop_clock.now_ms()

    @property
    def is_current(self) -> bool:
        """The image has all that was decided by now: this node is the controller, no other can have
        been elected, and it has applied all that is committed. Another node has to ask it.
        """
        raft = self._quorum.replica.raft
        is_applied = self._applier.image.offset >= raft.high_watermark
        return self._quorum.is_active and is_applied and raft.is_confirmed(clock_ms())

    # To have it changed

    async def request(self, command: Command) -> Granted:
        """Have the controller carry it out, wherever that is; it is in this node's image then."""
        granted = await self._grant(command)
        await _in_time(self._applier.wait(granted.offset), granted.offset)
        return granted

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        """A command that came over the wire; one that was forwarded already goes no further."""
        if forwarded and not _is_local(command):
            return await self._controller.take(command)
        return await self._grant(command)

    async def change_stream(
        self, command: Command, name: str, *, deleted: StreamImage | None = None
    ) -> Granted:
        """Have it carried out, and wait until this node, and the nodes that lead the stream's
        partitions, have done all that it asks for. ``deleted``: the stream as it was.

        A leader that does not answer is no reason to fail what has been done.
        """
        granted = await self._grant(command)
        await _in_time(self._applier.wait_settled(granted.offset, name), granted.offset)
        stream = deleted or self.image.streams.get(name)
        partitions = () if stream is None else stream.partitions
        leaders = {it.leader for it in partitions} - {NO_LEADER, self._node_id}
        applied = AwaitApplied(offset=granted.offset, wait_ms=READY_WAIT_MS, stream=name)
        asked = [self._forwarder.ask(leader, applied) for leader in leaders]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, StreamlogError):
                extra = {"stream": name, "error": str(answer)}
                logger.warning(LEADER_MAY_NOT_BE_READY, extra=extra)
            elif isinstance(answer, BaseException):
                raise answer
        return granted

    async def create_stream(
        self, config: StreamConfig, assignments: tuple[tuple[NodeId, ...], ...] = ()
    ) -> tuple[StreamImage, bool]:
        """The stream, and whether it is new; its leaders listen, or are not to be had.

        ``assignments``: who keeps each partition, where that is not left to the controller.
        """
        command: Command = CreateStream(config=config)
        if assignments:
            command = PlaceStream(config=config, assignments=assignments)
        # A stream that exists already is waited for, too: its leaders may still be on their way.
        granted = await self.change_stream(command, config.name)
        return self.image.stream(config.name), granted.result["created"]

    async def alter_stream(
        self,
        name: str,
        changes: tuple[SettingChange, ...],
        assignments: tuple[tuple[NodeId, ...], ...] = (),
        seen: StreamConfig | None = None,
    ) -> StreamImage:
        """The stream as it is now.

        ``assignments``: who keeps each new partition, where that is not left to the controller.
        ``seen``: the configuration on which it was judged that this is allowed.
        """
        command = AlterStream(name=name, changes=changes, assignments=assignments, seen=seen)
        await self.change_stream(command, name)
        return self.image.stream(name)

    async def report_leader(self, tp: TopicPartition, leader: NodeId, leader_epoch: int) -> None:
        """This node is in sync and cannot reach the leader."""
        await self._grant(
            ReportLeader(
                node_id=self._node_id,
                node_epoch=self.node_epoch,
                stream=tp.stream,
                partition=tp.partition,
                leader=leader,
                leader_epoch=leader_epoch,
            )
        )

    # For other members of the quorum

    async def raft_request(self, request: Request) -> Answer:
        return await self._quorum.raft_request(request)

    async def read_snapshot(
        self, snapshot: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        """A piece of it, and how long it is in all. Raises OffsetOutOfRange where it is gone."""
        store = self._quorum.replica.store
        return await self._quorum.read(
            lambda: store.read_snapshot_piece(snapshot, position, max_bytes)
        )

    # Its life

    async def open(self) -> None:
        """Replay the log. Raises CorruptData or StorageFailed. Listeners hear nothing yet."""
        await self._quorum.open()
        replica = self._quorum.replica
        self._applier.start_from(replica.image)
        self._committed_offset = replica.image.offset
        logger.info(
            "metadata replayed",
            extra={
                "offset": replica.image.offset,
                "end": replica.store.end_offset,
                "epoch": replica.raft.epoch,
                "streams": len(replica.image.streams),
            },
        )

    async def run(self) -> None:
        """Take part in the quorum, until ``close``."""
        async with asyncio.TaskGroup() as group:
            services = (
                self._applier.run(), self._controller.run(), self._checkpoint(), self._keep_short(),
                self._loop_clock.run(),
            )  # fmt: skip
            others = [group.create_task(service) for service in services]
            await self._quorum.run()
            for task in others:
                task.cancel()

    async def register(self, wanted: RegisterNode) -> None:
        """Until the controller accepts it, and the node knows all that was decided before.

        Raises NodeIdTaken.
        """
        await self._heartbeats.register(wanted)
        configured = self._quorum.replica.configured.ids
        if configured != self.voters.ids:
            logger.warning(
                VOTERS_DIFFER,
                extra={"configured": sorted(configured), "voters": sorted(self.voters.ids)},
            )

    async def join(self, stamp: Stamp | None = None) -> None:
        """Send heartbeats for as long as the node runs, and ``stamp`` its data folder. Raises
        StaleNode.
        """
        await self._heartbeats.run(stamp)

    async def leave(self) -> None:
        """Have others lead, in the quorum too, if there are any."""
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                await self._heartbeats.stop()
        except (StreamlogError, TimeoutError) as error:
            logger.warning(LEFT_WITHOUT_NOTICE, extra={"error": str(error)})
        if self._quorum.is_active and len(self.voters) > 1:
            self._quorum.tell(Resign())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESIGN_WAIT_S):
                    while self.controller_id in (None, self._node_id):
                        await self._pause()

    async def close(self) -> None:
        """Refuse what waits, finish what has begun, close the log. May be called again."""
        await self._quorum.close()

    def _is_alone(self) -> bool:
        return self.voters.ids == {self._node_id}

    def _quorum_changed(self) -> None:
        """The quorum has taken a step."""
        self._controller.look()
        self._stepped.set()
        if self._last_controller != self.controller_id:
            self._last_controller = self.controller_id
            self._heartbeats.controller_changed()

    def _has_applied(self, old: MetadataImage, new: MetadataImage) -> None:
        """The answer to a deletion waits until the nodes say that they know."""
        for name in new.touched if new.parent_offset == old.offset else old.streams:
            before, after = old.streams.get(name), new.streams.get(name)
            if before is not None and (after is None or after.stream_id != before.stream_id):
                self._heartbeats.hurry()
                return

    # How a command is carried out

    async def _grant(self, command: Command) -> Granted:
        """Carried out by the controller, here or elsewhere; one that is just elected is waited for.

        Raises what the controller answers; NoController: nothing has been done; RequestTimedOut:
        it may have been.
        """
        if _is_local(command):
            return await self._answer_locally(command)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_FACTOR * self._settings.request_timeout_ms / 1000
        while True:
            try:
                if self._quorum.is_active:
                    return await self._controller.take(command)
                return await self._forwarder.ask(self._quorum.leader, command)
            except NoController:
                if self._quorum.hopeless is not None:
                    raise self._quorum.hopeless from None
                if loop.time() >= deadline:
                    raise
            await self._pause()

    async def _answer_locally(self, command: AwaitApplied | DescribeCluster) -> Granted:
        if isinstance(command, DescribeCluster):
            return Granted(0, self._controller.description(self._quorum.replica.image))
        offset, stream = command.offset, command.stream
        if stream is None:
            await _in_time(self._applier.wait(offset), offset)
        else:
            await _in_time(self._applier.wait_settled(offset, stream), offset)
        return Granted(offset, {})

    async def _pause(self) -> None:
        """Until the quorum has taken a step, but not for long."""
        self._stepped.clear()
        try:
            async with asyncio.timeout(RETRY_S):
                await self._stepped.wait()
        except TimeoutError:
            pass

    # Its own tasks

    async def _checkpoint(self) -> None:
        """So that a start knows what is committed."""
        store = self._quorum.replica.store
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            offset = self._applier.image.offset
            if offset > self._committed_offset and self.failure is None:
                self._committed_offset = offset
                self._quorum.do(partial(store.checkpoint, offset))

    async def _keep_short(self) -> None:
        """Snapshots, so that a start is quick.

        A snapshot does not tell which streams were deleted, so their folders must be out of the
        way first: a start takes others for orphans.
        """
        store = self._quorum.replica.store
        encoded: SnapshotId | None = None
        """Takes seconds where there are many streams: not again while it is being written, nor at
        once where it cannot be.
        """
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            image = self._applier.image
            if is_due(image, max(filter(None, (store.snapshot, encoded)), default=None)):
                await self._applier.wait_settled(image.offset)
                prepared = await asyncio.to_thread(store.prepare_snapshot, image)
                encoded = at = snapshot_id(image)
                if prepared:
                    self._quorum.do(partial(store.keep_snapshot, at))


async def _in_time(applied: Awaitable[None], offset: int) -> None:
    try:
        async with asyncio.timeout(READY_WAIT_MS / 1000):
            await applied
    except TimeoutError:
        raise RequestTimedOut(
            f"done at metadata offset {offset}, which this node has not reached yet"
        ) from None


def _is_local(command: Command) -> TypeGuard[AwaitApplied | DescribeCluster]:
    """The node that is asked answers, controller or not."""
    return isinstance(command, AwaitApplied) or (
        isinstance(command, DescribeCluster) and command.local
    )
