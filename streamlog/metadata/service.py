"""The metadata as the rest of the node sees it: an image, and ways to have it changed."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

from streamlog.config import ClusterSection
from streamlog.errors import (
    RequestTimedOut,
    StorageFailed,
    StreamlogError,
)
from streamlog.metadata.applier import Applier, Listener, Settled
from streamlog.metadata.command_router import CommandRouter
from streamlog.metadata.commands import (
    AlterStream,
    AwaitApplied,
    Command,
    CreateStream,
    DeleteStream,
    PlaceStream,
    RegisterNode,
    ReportLeader,
    UpdateStream,
)
from streamlog.metadata.controller_tasks import ControllerTasks
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.image.snapshot import encode_snapshot, is_due, snapshot_id
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.nodes.membership import Membership, Stamp
from streamlog.metadata.nodes.node_connections import NodeConnections
from streamlog.metadata.quorum.history import MetadataHistory
from streamlog.metadata.quorum.metadata_replica import MetadataReplica
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.quorum.raft_driver import RaftDriver
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.raft.events import Resign, Role
from streamlog.raft.messages import Answer, Request, SnapshotId
from streamlog.raft.voters import VoterSet

logger = logging.getLogger(__name__)

CHECKPOINT_S: Final = 1.0
READY_WAIT_MS: Final = 5_000
"""How long whoever creates a stream waits for its leaders to listen."""
RESIGN_WAIT_S: Final = 1.0
"""How long a controller that stops waits for another one."""


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
        may_encrypt: bool = False,
    ) -> None:
        """``may_encrypt``: this node has the keys for encrypted streams."""
        self._node_id = node_id
        self._settings = settings
        self._peers = peers
        self._applier = Applier(MetadataImage(cluster_id))
        self._quorum = RaftDriver(
            replica,
            peers,
            node_id=node_id,
            request_timeout_ms=settings.request_timeout_ms,
            committed=self._applier.committed,
            changed=self._quorum_changed,
            may_encrypt=may_encrypt,
        )
        self.history = MetadataHistory(self._quorum, replica.store, lambda: self._applier.image)
        """How the image came about; once it is open."""
        self._duties = ControllerTasks(
            self._quorum, NodeConnections(peers), node_id=node_id, settings=settings
        )
        self._office = CommandRouter(
            self._quorum,
            self._duties,
            peers,
            node_id=node_id,
            settings=settings,
            await_applied=self._await_applied,
            await_settled=self._await_settled,
        )
        self._membership = Membership(
            node_id=node_id,
            incarnation=incarnation,
            settings=settings,
            grant=self._office.grant,
            applied_offset=lambda: self._applier.image.offset,
            needs_no_lease=self._is_alone,
        )
        self._controller: NodeId | None = None
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
        """Why this node takes no part in the quorum, if so; a restart may mend it."""
        return self._quorum.failure

    @property
    def lease(self) -> Lease:
        return self._membership.lease

    @property
    def clock_skew_s(self) -> float | None:
        """How far this node's clock is ahead of the time that most nodes agree on, or else of the
        controller's clock; None before it is known.
        """
        skew_s = self._membership.clock_skew.seconds
        return None if skew_s is None else skew_s - (self._membership.agreed_ahead_s or 0.0)

    @property
    def clock_is_agreed(self) -> bool:
        """Most nodes agree on the time, so that ``clock_skew_s`` is this node's own fault."""
        return self._membership.agreed_ahead_s is not None

    @property
    def node_epoch(self) -> int:
        """Of this process; -1 before it has registered."""
        return self._membership.node_epoch

    @property
    def waiting_for(self) -> str:
        """Why the node has not registered yet."""
        return self._membership.waiting_for

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
        self._membership.offline = frozenset(offline)
        self._membership.hurry()

    def tell_full(self, full: bool) -> None:
        """There is no room on the disk, or there is again; the controller hears of it at once."""
        self._membership.full = full
        self._membership.hurry()

    def ask_before_heartbeats(self, unfit: Callable[[], tuple[str, ...]]) -> None:
        """``unfit``: what else is wrong with this node, by the names of ``condition``."""
        self._membership.unfit = unfit

    # To have it changed

    async def request(self, command: Command) -> Granted:
        """Have the controller carry it out, wherever that is; it is in this node's image then."""
        granted = await self._office.grant(command)
        await self._await_applied(granted.offset)
        return granted

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        """A command that came over the wire; one that was forwarded already goes no further."""
        if forwarded:
            return await self._office.take(command)
        return await self._office.grant(command)

    async def create_stream(
        self, config: StreamConfig, assignments: tuple[tuple[NodeId, ...], ...] = ()
    ) -> tuple[StreamImage, bool]:
        """The stream, and whether it is new; its leaders listen, or are not to be had.

        ``assignments``: who keeps each partition, where that is not left to the controller.
        """
        command: Command = CreateStream(config=config)
        if assignments:
            command = PlaceStream(config=config, assignments=assignments)
        granted = await self._settled(command, config.name)
        stream = self.image.stream(config.name)
        # Also where it was there: whoever asks again may do so while its leaders are still on it.
        await self._wait_for_leaders(stream, granted.offset)
        return stream, granted.result["created"]

    async def update_stream(
        self, config: StreamConfig, seen: StreamConfig | None = None
    ) -> StreamImage:
        """The stream as it is now. ``seen``: upon which it was judged that this is allowed."""
        granted = await self._settled(UpdateStream(config=config, seen=seen), config.name)
        stream = self.image.stream(config.name)
        await self._wait_for_leaders(stream, granted.offset)
        return stream

    async def alter_stream(
        self,
        name: str,
        changes: tuple[SettingChange, ...],
        assignments: tuple[tuple[NodeId, ...], ...] = (),
        seen: StreamConfig | None = None,
    ) -> StreamImage:
        """The stream as it is now.

        ``assignments``: who keeps each new partition, where that is not left to the controller.
        ``seen``: as above.
        """
        command = AlterStream(name=name, changes=changes, assignments=assignments, seen=seen)
        granted = await self._settled(command, name)
        stream = self.image.stream(name)
        await self._wait_for_leaders(stream, granted.offset)
        return stream

    async def delete_stream(self, name: str, stream_id: UUID | None = None) -> None:
        """The stream is gone; nobody finds it here, nor is it listened for, after this. With
        ``stream_id``, raises UnknownTopicId where another one has the name.
        """
        known = self.image.streams.get(name)
        granted = await self._settled(DeleteStream(name=name, stream_id=stream_id), name)
        if known is not None:
            await self._wait_for_leaders(known, granted.offset)

    async def report_leader(self, tp: TopicPartition, leader: NodeId, leader_epoch: int) -> None:
        """This node is in sync and cannot reach the leader."""
        await self._office.grant(
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
                self._applier.run(), self._duties.run(), self._checkpoint(), self._keep_short(),
            )  # fmt: skip
            others = [group.create_task(service) for service in services]
            await self._quorum.run()
            for task in others:
                task.cancel()

    async def register(self, wanted: RegisterNode) -> None:
        """Until the controller accepts it, and the node knows all that was decided before.

        Raises NodeIdTaken.
        """
        offset = await self._membership.register(wanted)
        await self._applier.wait(offset)
        configured = self._quorum.replica.configured.ids
        if configured != self.voters.ids:
            logger.warning(
                "cluster.voters is not what the cluster says, which holds",
                extra={"configured": sorted(configured), "voters": sorted(self.voters.ids)},
            )

    async def join(self, stamp: Stamp | None = None) -> None:
        """Send heartbeats for as long as the node runs, and ``stamp`` its data folder. Raises
        StaleNode.
        """
        await self._membership.run(stamp)

    async def leave(self) -> None:
        """Have others lead, in the quorum too, if there are any."""
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                await self._membership.stop()
        except (StreamlogError, TimeoutError) as error:
            logger.warning("leaving without a word", extra={"error": str(error)})
        if self._quorum.is_active and len(self.voters) > 1:
            self._quorum.tell(Resign())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESIGN_WAIT_S):
                    while self.controller_id in (None, self._node_id):
                        await self._office.pause()

    async def close(self) -> None:
        """Refuse what waits, finish what has begun, close the log. May be called again."""
        await self._quorum.close()

    def _is_alone(self) -> bool:
        return self.voters.ids == {self._node_id}

    def _quorum_changed(self) -> None:
        """The quorum has taken a step."""
        self._duties.look()
        self._office.look()
        if self._controller != self.controller_id:
            self._controller = self.controller_id
            self._membership.forget_clocks()
            self._membership.hurry()

    async def _settled(self, command: Command, stream: str) -> Granted:
        """As ``request``, and this node has done all that it asks for of this stream."""
        granted = await self._office.grant(command)
        await self._await_settled(granted.offset, stream)
        return granted

    async def _await_applied(self, offset: int) -> None:
        await _in_time(self._applier.wait(offset), offset)

    async def _await_settled(self, offset: int, stream: str) -> None:
        await _in_time(self._applier.wait_settled(offset, stream), offset)

    async def _wait_for_leaders(self, stream: StreamImage, offset: int) -> None:
        """A leader that does not answer is no reason to fail what has been done."""
        leaders = {it.leader for it in stream.partitions} - {NO_LEADER, self._node_id}
        command = AwaitApplied(offset=offset, wait_ms=READY_WAIT_MS, stream=stream.name)
        asked = [self._office.ask(leader, command) for leader in leaders]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, StreamlogError):
                logger.warning(
                    "a leader may not be ready", extra={"stream": stream.name, "error": str(answer)}
                )
            elif isinstance(answer, BaseException):
                raise answer

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
                data = await asyncio.to_thread(encode_snapshot, image)
                encoded = at = snapshot_id(image)
                self._quorum.do(partial(store.add_snapshot, at, data))


async def _in_time(applied: Awaitable[None], offset: int) -> None:
    try:
        async with asyncio.timeout(READY_WAIT_MS / 1000):
            await applied
    except TimeoutError:
        raise RequestTimedOut(
            f"done at metadata offset {offset}, which this node has not reached yet"
        ) from None
