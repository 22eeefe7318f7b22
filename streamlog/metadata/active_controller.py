"""What this node does as the controller: it carries out commands, and keeps the cluster in order.

Commands come from any node, see ``service``. Unasked, the controller fences nodes whose sessions are
over, goes on with moves, rebalances leaders, and has a voter that lost its folder vote again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from operator import is_
from typing import Any, Final
from uuid import UUID, uuid4

from streamlog.authn.nonces import Nonces
from streamlog.clock import clock_ms, wall_ms
from streamlog.condition import Condition
from streamlog.config import ClusterSection
from streamlog.errors import (
    InvalidRequest,
    NoController,
    Overloaded,
    RequestTimedOut,
    StaleNode,
    StorageFull,
    StreamlogError,
    Unavailable,
)
from streamlog.metadata.commands import (
    AddVoter,
    AlterStream,
    Command,
    CreateStream,
    DeleteStream,
    DescribeCluster,
    ExportMetadata,
    FenceNode,
    Granted,
    Heartbeat,
    PlaceStream,
    RaiseLevel,
    RebalanceLeaders,
    RegisterNode,
    RemoveVoter,
    ReportLeader,
    SpendNonce,
    StopNode,
    TransferController,
    UpdateStream,
)
from streamlog.metadata.controller import Decision, decide, next_moves
from streamlog.metadata.controller.self_healing import (
    DiskRoom,
    Healing,
    LostNodes,
)
from streamlog.metadata.image.feature_level import LEVEL_MAX, LevelRange, raised
from streamlog.metadata.image.image_types import NodeLoad
from streamlog.metadata.image.metadata_image import MetadataImage, NodeImage
from streamlog.metadata.image.snapshot import encode_snapshot
from streamlog.metadata.loop_clock import LoopClock
from streamlog.metadata.nodes.healing_status import (
    SELF_HEALED,
    SELF_HEALING,
    SELF_HEALING_STUCK,
    HealingStatus,
)
from streamlog.metadata.nodes.node_condition import NODE_GONE, keep_from_deciding, keep_from_leading
from streamlog.metadata.nodes.node_connections import NodeConnections
from streamlog.metadata.nodes.session_times import SessionTimes, holds_short_leases
from streamlog.metadata.nodes.sessions import Sessions
from streamlog.metadata.nodes.stream_deletions import Deletion, StreamDeletions
from streamlog.metadata.quorum.raft_driver import RaftDriver
from streamlog.metadata.quorum.voter_sets import add_voter, remove_voter, tended_voters
from streamlog.metadata.stream.alteration import altered
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.raft.events import Resign
from streamlog.raft.node import RaftNode
from streamlog.raft.voters import ReplicaKey

logger = logging.getLogger(__name__)

CONTROLLER_MUST_MOVE: Final = Condition(
    "SL-0115",
    "another node is to be the controller",
    "see what this node's /readyz says",
    meaning="The controller cannot decide in its condition, for instance with an expired "
    "certificate, and resigns.",
)

MOVES_MS: Final = 500
"""How often draining and moving go on."""
MARGIN_MS: Final = 100
"""So much earlier than a node with a hung disk is fenced, a controller with one resigns: another one is to fence it
in time."""
TURN_MS: Final = 500
"""So much time nodes have to turn to a new controller, before it decides without them."""
DELETION_WAIT_FACTOR: Final = 2
"""A deletion waits for as long as so many sessions until nodes know of it. All but a node that is the
whole quorum have no lease after one.
"""
DISKS_MS: Final = 10_000
"""How often nodes are asked for the room on their disks, while replicas of lost nodes move."""
VOTER_STEPS_MAX: Final = 4
"""In one go: others wait meanwhile."""


class _NodesUnaware(StreamlogError):
    """See ``StreamDeletions``."""


class NonceCache:
    """The nonces of the signed requests that the controller has carried out. Times are of the wall
    clock, in ms since 1970, because other nodes send theirs.

    Any node answers a signed request, so each of them asks the controller, which there is one of.
    A new controller does not know what the one before has seen: it refuses requests that were
    signed before it took office.
    """

    def __init__(self) -> None:
        self._since_ms = 0
        self._nonces = Nonces()

    def begin(self, now_ms: int) -> None:
        """An office begins: what others have remembered is not known."""
        self._since_ms = now_ms
        self._nonces.clear()

    def spend(self, signer: str, nonce: str, *, signed_ms: int, window_ms: int, now_ms: int) -> str:
        """Why it does not count; empty: it does, this once. ``window_ms``: either way of now."""
        if signed_ms < self._since_ms:
            return "it was signed before the present controller took office: sign it again"
        until_ms = now_ms + 2 * window_ms
        return self._nonces.spend(signer, nonce, until_ms=until_ms, now_ms=now_ms)


class ActiveController:
    """``take`` commands; ``run`` as a task. Does nothing while another node is the controller."""

    def __init__(
        self,
        quorum: RaftDriver,
        connections: NodeConnections,
        *,
        node_id: NodeId,
        settings: ClusterSection,
        loop_clock: LoopClock,
        applied_offset: Callable[[], int],
    ) -> None:
        """``applied_offset``: up to where this node acts on the metadata."""
        self._applied_offset = applied_offset
        self._loop_clock = loop_clock
        self._sessions = Sessions(SessionTimes.of(settings))
        self._resigns_again_ms = 0
        self._stall_ms: Callable[[], int] = int
        self._oldest_sync_ms: Callable[[], int] = int
        self._resigns_stalled_ms = SessionTimes.of(settings).session_ms_min - MARGIN_MS
        self._decided_offset = 0
        self._deletions = StreamDeletions(settings.session_timeout_ms)
        self._nonces = NonceCache()
        self._quorum = quorum
        self._connections = connections
        self._node_id = node_id
        self._settings = settings
        self._active_epoch: int | None = None
        """The quorum epoch in which the sessions were begun; None while others are in charge."""
        self._began_ms = 0
        self._leaving: set[NodeId] = set()
        """Nodes whose partitions are being taken from them, portion by portion: they get none back
        meanwhile."""
        self._revived: tuple[object, ...] = ()
        """What the last look for partitions without a leader, which found nothing to do, was made on."""
        self._changed = asyncio.Event()
        self._heartbeat_came = asyncio.Event()
        self._moves_due_ms = 0
        self._rebalance_due_ms = 0
        self._lost_nodes = LostNodes(settings.self_healing_ms)
        self._healing = Healing()
        self._healing_status = HealingStatus()
        self._measure_room: Callable[[], Awaitable[DiskRoom]] | None = None
        self._room_wanted = asyncio.Event()
        """Lost nodes keep replicas: nodes are to be asked for the room on their disks."""

    def ask_for_room(self, measure: Callable[[], Awaitable[DiskRoom]]) -> None:
        """Of all nodes; it may take seconds. Without it nothing is moved off lost nodes."""
        self._measure_room = measure

    def watch_disk(self, stall_ms: Callable[[], int], oldest_sync_ms: Callable[[], int]) -> None:
        """Of this node: for how long it has owed an answer, and for how long it has been asked."""
        self._stall_ms, self._oldest_sync_ms = stall_ms, oldest_sync_ms

    def look(self) -> None:
        """The quorum has taken a step: this node may be the controller now, or again."""
        epoch = self._quorum.replica.raft.epoch if self._quorum.is_active else None
        if epoch != self._active_epoch:
            self._active_epoch = epoch
            if epoch is not None:
                self._nonces.begin(wall_ms())
                self._began_ms = now_ms = clock_ms()
                raft = self._quorum.replica.raft
                self._sessions.started(
                    self._quorum.newest,
                    self._loop_clock.now_ms(),
                    predecessor=raft.predecessor,
                    silence_ms=raft.electors_silence_ms,
                    voters=raft.voters.ids,
                )
                self._decided_offset = self._quorum.newest.offset
                self._deletions.started(self._quorum.newest.offset)
                self._moves_due_ms = now_ms
                self._lost_nodes.started()
                self._healing, self._healing_status = Healing(), HealingStatus()
                self._rebalance_due_ms = now_ms + self._settings.leader_rebalance_ms
            self._changed.set()
        if epoch is not None and (decided := self._quorum.newest.offset) > self._decided_offset:
            self._sessions.decided(decided - self._decided_offset, self._loop_clock.now_ms())
            self._decided_offset = decided

    # Commands

    async def take(self, command: Command) -> Granted:
        """Carry it out. Raises NoController unless this node is the controller."""
        if not self._quorum.is_active:
            raise NoController(f"node {self._node_id} is not the controller")
        match command:
            case Heartbeat():
                granted = await self._heartbeat(command)
            case DescribeCluster():
                if not self._quorum.replica.raft.is_confirmed(clock_ms()):
                    raise NoController(
                        f"node {self._node_id} may not be the controller any more: it is out of touch with a majority"
                    )
                granted = Granted(0, self.description(self._quorum.newest))
            case SpendNonce():
                granted = Granted(0, {"refusal": self._spend(command)})
            case ExportMetadata():
                image = self._quorum.replica.image
                data = await asyncio.to_thread(encode_snapshot, image)
                granted = Granted(image.offset, {"snapshot": data.decode()})
            case RaiseLevel():
                granted = await self._raise_level(command)
            case TransferController():
                granted = self._transfer(command)
            case AddVoter() | RemoveVoter():
                granted = await self._change_voters(command)
            case FenceNode():
                raise InvalidRequest("only the controller itself fences a node")
            case ReportLeader() if not self._sessions.report(
                self._quorum.newest, command, self._loop_clock.now_ms()
            ):
                granted = Granted(0, {})  # until enough nodes have reported the same
            case DeleteStream():
                granted = await self._delete_stream(command)
            case _:
                deadline_ms = clock_ms() + DELETION_WAIT_FACTOR * self._settings.session_timeout_ms
                while True:
                    try:
                        granted = await self._decide_to_the_end(command)
                        break
                    except _NodesUnaware as error:
                        if clock_ms() >= deadline_ms:
                            raise RequestTimedOut(f"nothing was done: {error}") from None
                        await self._hear_a_heartbeat(self._settings.heartbeat_interval_ms)
        if isinstance(command, RegisterNode):
            node_epoch = int(granted.result["node_epoch"])
            self._sessions.heard(command.node_id, node_epoch, self._loop_clock.now_ms())
        return granted

    def description(self, image: MetadataImage) -> dict[str, Any]:
        """The quorum and the nodes, as this node knows them."""
        sessions, now_ms = self._sessions, clock_ms()
        levels = sessions.known_levels(self._loop_clock.now_ms(), image)
        raft = self._quorum.replica.raft
        return {
            "node": self._node_id,
            **describe(raft, image, now_ms, sessions.heard_of, levels),
            "self_healing": self.healing_status.json(),
        }

    @property
    def healing_status(self) -> HealingStatus:
        """Nothing while another node is the controller."""
        return HealingStatus() if self._active_epoch is None else self._healing_status

    def _decision(self, command: Command) -> Callable[[MetadataImage], Decision]:
        """What the quorum is to decide about ``command``, with the sessions as they are then. It raises
        _NodesUnaware where a node may take the stream's messages for those of a deleted one.
        """
        new_id: UUID = uuid4()

        def decided(image: MetadataImage) -> Decision:
            made = decide(
                image,
                command,
                now_ms=wall_ms(),
                new_id=new_id,
                live=self._here(),
                heard_of=self._sessions.heard_of,
            )
            config = _config_after(image, command) if made.records else None
            unaware = self._unaware(published_to=config) if config else None
            if unaware:
                raise _NodesUnaware(_told_unaware(unaware))
            return made

        return decided

    def _here(self) -> frozenset[NodeId]:
        """Nodes that may get something."""
        return (self._sessions.live(self._loop_clock.now_ms()) | {self._node_id}) - self._leaving

    async def _decide_to_the_end(self, command: Command) -> Granted:
        """Portion by portion, where it is about very many partitions. Others have their turn in
        between: a new controller decides about them at once, however much the one before it led.
        """
        granted, unfinished = await self._decide_portion(command)
        if not unfinished or not isinstance(command, FenceNode | StopNode | RegisterNode):
            return granted
        node_id = command.node_id
        is_first = node_id not in self._leaving
        self._leaving.add(node_id)
        try:
            while unfinished:
                granted, unfinished = await self._decide_portion(command)
        finally:
            if is_first:
                self._leaving.discard(node_id)
        return granted

    async def _decide_portion(self, command: Command) -> tuple[Granted, bool]:
        """What is granted, and whether that was not all."""
        decision, unfinished = self._decision(command), False

        def decided(image: MetadataImage) -> Decision:
            nonlocal unfinished
            made = decision(image)
            unfinished = made.unfinished
            return made

        return await self._quorum.decide(decided), unfinished

    async def _heartbeat(self, beat: Heartbeat) -> Granted:
        """Nearly always nothing is to be logged. Raises StaleNode."""
        newest = self._quorum.newest
        node = newest.nodes.get(beat.node_id)
        if node is None or node.epoch != beat.node_epoch:
            raise StaleNode(f"node {beat.node_id} has registered again since {beat.node_epoch}")
        if beat.node_id not in self._sessions.heard_of:  # partitions may have waited for it
            self._moves_due_ms = 0
            self._changed.set()
        # Where the disk of this node is late as well, it says nothing about the other's.
        stall_ms = max(0, beat.stall_ms - self._oldest_sync_ms())
        self._sessions.heard(
            beat.node_id,
            beat.node_epoch,
            self._loop_clock.now_ms(),
            short_lease=holds_short_leases(beat.levels),
            stall_ms=stall_ms,
        )
        self._sessions.told(beat.node_id, beat.levels)
        self._deletions.applied(beat.node_id, beat.offset)
        self._sessions.told_clock(beat.node_id, beat.clock_ahead_ms)
        self._heartbeat_came.set()
        granted = Granted(0, {})
        hands_over = keep_from_leading(beat.unfit) and newest.load(node.node_id).leaders > 0
        is_news = node.fenced or beat.unfit != node.unfit
        is_away = node.fenced and stall_ms > 0  # it comes back when its disk works again
        if not is_away and (is_news or hands_over or node.full or beat.offline or beat.full):
            granted = await self._quorum.decide(self._decision(beat))
            if node.fenced:
                self._deletions.returned(beat.node_id, self._quorum.newest.offset)
        unconfirmed_ms = self._quorum.replica.raft.unconfirmed_ms(clock_ms())
        if unconfirmed_ms is None:
            raise NoController(f"node {self._node_id} is not the controller any more")
        told = {
            "time_ms": wall_ms(),
            "unconfirmed_ms": unconfirmed_ms,
            "offset_wanted": self._deletions.offset_wanted(
                beat.node_id, self._quorum.newest.offset
            ),
            "agreed_ahead_ms": self._sessions.agreed_ahead_ms(self._loop_clock.now_ms()),
        }
        return granted._replace(result={**granted.result, **told})

    async def _delete_stream(self, command: DeleteStream) -> Granted:
        """Answers when no node acknowledges anything for the deleted stream any more."""
        decision = self._decision(command)
        deletion: Deletion | None = None

        def decided(image: MetadataImage) -> Decision:
            nonlocal deletion
            made = decision(image)
            deletion = self._deletions.deleted(
                image.stream(command.name).config, image.offset + len(made.records)
            )
            return made

        try:
            granted = await self._quorum.decide(decided)
        except (NoController, Overloaded, StorageFull):  # nothing has been done
            if deletion is not None:
                self._deletions.not_deleted(deletion)
            raise
        deadline_ms = clock_ms() + DELETION_WAIT_FACTOR * self._settings.session_timeout_ms
        # This node's own heartbeat comes as soon as it has applied the deletion, as the others' do.
        # Also when another node has become the controller: leases end then as they do now.
        while unaware := self._unaware(deleted_below=granted.offset):
            if clock_ms() >= deadline_ms:
                raise RequestTimedOut(f"{command.name!r} is deleted, but {_told_unaware(unaware)}")
            await self._hear_a_heartbeat(self._settings.heartbeat_interval_ms)
        return granted

    def _unaware(
        self, *, deleted_below: int | None = None, published_to: StreamConfig | None = None
    ) -> frozenset[NodeId]:
        """See ``StreamDeletions``."""
        self._deletions.applied(self._node_id, self._applied_offset())
        is_alone = self._quorum.replica.voters.ids == {self._node_id}
        return self._deletions.unaware(
            self._sessions.live(self._loop_clock.now_ms()),
            clock_ms(),
            self._quorum.newest.offset,
            alone=self._node_id if is_alone else None,
            deleted_below=deleted_below,
            published_to=published_to,
        )

    async def _hear_a_heartbeat(self, wait_ms: int) -> None:
        """The next one, of any node, or none within this time."""
        self._heartbeat_came.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._heartbeat_came.wait()

    def _spend(self, command: SpendNonce) -> str:
        self.look()  # this node may be the controller since a moment ago
        return self._nonces.spend(
            command.signer,
            command.nonce,
            signed_ms=command.signed_ms,
            window_ms=command.window_ms,
            now_ms=wall_ms(),
        )

    async def _raise_level(self, command: RaiseLevel) -> Granted:
        def decided(image: MetadataImage) -> Decision:
            told = self._sessions.known_levels(self._loop_clock.now_ms(), image)
            records = raised(image.level, command.level, image.nodes, told)
            return Decision(records, {"before": image.level, "level": command.level})

        return await self._quorum.decide(decided)

    def _transfer(self, command: TransferController) -> Granted:
        successor, voters = command.node_id, self._quorum.replica.voters
        if successor is not None and successor not in voters.ids:
            raise InvalidRequest(f"node {successor} is not a voter")
        if len(voters) == 1:
            raise InvalidRequest("there is no other voter")
        if successor != self._node_id:
            self._quorum.tell(Resign(successor))
        return Granted(0, {})

    async def _change_voters(self, command: AddVoter | RemoveVoter) -> Granted:
        core = self._quorum.replica.raft

        def decided(image: MetadataImage) -> Decision:
            refusal = core.change_voters_refusal(voters_offset=image.voters_offset)
            if refusal is not None:
                raise NoController(refusal)
            if isinstance(command, RemoveVoter):
                return Decision(remove_voter(image, command.node_id))
            return Decision(add_voter(image, command.node_id, self._caught_up()))

        return await self._quorum.decide(decided)

    # Its own tasks

    async def run(self) -> None:
        """For as long as the node runs."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connections.run(self._gone))
            group.create_task(self._keep_room_known())
            while True:
                self._changed.clear()
                if self._active_epoch is None:
                    self._connections.forget()
                    await self._changed.wait()
                    continue
                self._connections.keep(self._others())
                try:
                    await self._do_what_is_due()
                except Unavailable as error:
                    logger.info("controller's duty put off", extra={"error": str(error)})
                await self._pause()

    def _others(self) -> list[NodeImage]:
        nodes = self._quorum.newest.nodes.values()
        return [node for node in nodes if node.node_id != self._node_id and not node.fenced]

    async def _pause(self) -> None:
        """Until a session ends, but not for long."""
        now_ms, pause_ms = self._loop_clock.now_ms(), self._settings.heartbeat_interval_ms
        expiry_ms = self._sessions.next_expiry_ms(now_ms)
        if expiry_ms is not None:
            pause_ms = min(pause_ms, expiry_ms - now_ms)
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _do_what_is_due(self) -> None:
        now_ms = clock_ms()
        live = self._sessions.live(self._loop_clock.now_ms())
        for node in self._others():
            if node.node_id not in live:
                logger.warning(NODE_GONE.logged_as("session over"), extra={"node": node.node_id})
                await self._fence(node)
        await self._tend_voters()
        self._give_up_office()
        self._look_for_lost_nodes()
        if now_ms >= self._moves_due_ms:
            self._moves_due_ms = now_ms + MOVES_MS
            await self._move_on()
        if self._settings.leader_rebalance_ms > 0 and now_ms >= self._rebalance_due_ms:
            self._rebalance_due_ms = now_ms + self._settings.leader_rebalance_ms
            await self._quorum.decide(self._decision(RebalanceLeaders()))

    def _give_up_office(self) -> None:
        """A controller that others cannot open connections to, or whose disk hangs: a voter that is well takes
        over. What is in the way of the others is fenced by that one.
        """
        nodes, live = self._quorum.newest.nodes, self._sessions.live(self._loop_clock.now_ms())
        own = nodes.get(self._node_id)
        hangs = self._stall_ms() >= self._resigns_stalled_ms
        if own is None or not (hangs or keep_from_deciding(own.unfit)):
            return
        now_ms = clock_ms()
        if now_ms < self._resigns_again_ms:
            return
        self._resigns_again_ms = now_ms + MOVES_MS
        others = (self._caught_up().keys() & live & self._quorum.replica.voters.ids) - {own.node_id}
        for successor in sorted(others - self._sessions.stalled):
            if successor in nodes and not keep_from_deciding(nodes[successor].unfit):
                unfit = ("its disk hangs",) if hangs else own.unfit
                extra = {"to": successor, "unfit": ", ".join(unfit)}
                logger.warning(CONTROLLER_MUST_MOVE, extra=extra)
                self._quorum.tell(Resign(successor))
                return

    def _look_for_lost_nodes(self) -> None:
        newest = self._quorum.newest
        lost = self._lost_nodes.look(newest, self._loop_clock.now_ms())
        if lost != self._healing.lost:
            self._healing = Healing(lost)
            self._moves_due_ms = 0
        if self._healing.replaced(newest):
            self._room_wanted.set()
        else:
            self._room_wanted.clear()

    async def _keep_room_known(self) -> None:
        while True:
            await self._room_wanted.wait()
            if self._measure_room is None or self._active_epoch is None:
                self._room_wanted.clear()
                continue
            lost, room = self._healing.lost, await self._measure_room()
            if lost == self._healing.lost:
                self._healing = Healing(lost, room)
                self._moves_due_ms = 0
                self._changed.set()
                await asyncio.sleep(DISKS_MS / 1000)

    def _note_healing(self, status: HealingStatus) -> None:
        before, self._healing_status = self._healing_status, status
        extra = {**status.json(), "lost": ", ".join(map(str, status.lost))}
        if status.is_stuck and not (before.is_stuck and before.lost == status.lost):
            logger.warning(SELF_HEALING_STUCK, extra=extra)
        if status.lost and status.lost != before.lost:
            logger.warning(SELF_HEALING, extra=extra)
        elif before.lost and not status.lost:
            logger.info(SELF_HEALED, extra={"lost": ", ".join(map(str, before.lost))})

    async def _move_on(self) -> None:
        """A look at all partitions, where some wait for a node: not again for the same answer."""
        newest, here, heard_of = self._quorum.newest, self._here(), self._sessions.heard_of
        looked_at = (newest.streams, newest.nodes, self._healing, here, heard_of)
        if all(map(is_, looked_at[:3], self._revived[:3])) and looked_at[3:] == self._revived[3:]:
            return
        decision = next_moves(newest, here, heard_of, self._healing)
        self._note_healing(HealingStatus.of_json(decision.result.get("healing", {})))
        if not decision.records:
            self._revived = looked_at
            return
        await self._quorum.decide(self._moves)
        self._moves_due_ms = 0  # there may be more of it
        self._changed.set()

    def _moves(self, image: MetadataImage) -> Decision:
        return next_moves(image, self._here(), self._sessions.heard_of, self._healing)

    async def _gone(self, node: NodeImage) -> None:
        """Nothing listens at the node's address."""
        if self._active_epoch is None:
            return
        logger.warning(NODE_GONE, extra={"node": node.node_id})
        try:
            await self._fence(node)
        except StreamlogError as error:
            logger.info("node not fenced", extra={"node": node.node_id, "error": str(error)})

    async def _fence(self, node: NodeImage) -> None:
        self._sessions.gone(node.node_id)
        await self._hear_the_others()
        if node.node_id in self._leaving:  # it is under way
            return
        command = FenceNode(node_id=node.node_id, node_epoch=node.epoch)
        with contextlib.suppress(StaleNode):  # it has come back meanwhile, as another
            await self._decide_to_the_end(command)

    async def _hear_the_others(self) -> None:
        """Who lives turns to a new controller at once; only whom it has heard of it can elect."""
        deadline_ms = self._began_ms + TURN_MS
        while (
            self._sessions.hearsay(self._loop_clock.now_ms())
            and (now_ms := clock_ms()) < deadline_ms
        ):
            await self._hear_a_heartbeat(deadline_ms - now_ms)

    def _caught_up(self) -> dict[NodeId, ReplicaKey]:
        """Replicas that follow closely; of one node's, the one that fetched last."""
        replicas = self._quorum.replica.raft.replicas(clock_ms())
        return {it.key.node_id: it.key for it in replicas if it.is_caught_up}

    async def _tend_voters(self) -> None:
        """A voter whose folder was lost votes again, with the one that it has now, when it has
        caught up. Each step is decided when the one before it is committed.
        """
        core = self._quorum.replica.raft

        def decided(image: MetadataImage) -> Decision:
            if core.change_voters_refusal(voters_offset=image.voters_offset) is not None:
                return Decision()
            return Decision(tended_voters(image, core.replaced_voters(), self._caught_up()))

        for _ in range(VOTER_STEPS_MAX):
            if not decided(self._quorum.newest).records:
                break
            await self._quorum.decide(decided)


def _told_unaware(unaware: AbstractSet[NodeId]) -> str:
    nodes = ", ".join(map(str, sorted(unaware)))
    return f"node {nodes} has yet to apply the deletion of a stream with such messages"


def _config_after(image: MetadataImage, command: Command) -> StreamConfig | None:
    """Of the stream that the command creates or changes."""
    match command:
        case CreateStream() | PlaceStream() | UpdateStream():
            return command.config
        case AlterStream():
            return altered(image.stream(command.name).config, command.changes)
        case _:
            return None


def describe(
    raft: RaftNode,
    image: MetadataImage,
    now_ms: int,
    heard_of: AbstractSet[NodeId],
    levels: Mapping[NodeId, LevelRange],
) -> dict[str, Any]:
    """JSON. ``replicas`` is known to the leader alone, and empty elsewhere; of one node's, the one
    that fetched last stands last.

    ``heard_of``: the nodes that the controller has heard of in its own time in office; ``levels``:
    what they know by their own word.
    """
    end_offset = raft.log.end_offset
    return {
        "controller": raft.leader,
        "level": image.level,
        "level_max": LEVEL_MAX,
        "epoch": raft.epoch,
        "role": raft.role.value,
        "end_offset": end_offset,
        "high_watermark": raft.high_watermark,
        "voters": [
            {
                "node_id": voter.node_id,
                "host": voter.host,
                "port": voter.port,
                "directory_id": voter.directory_id and str(voter.directory_id),
            }
            for voter in raft.voters.by_id.values()
        ],
        "returning": sorted(image.returning),
        "replicas": [
            {
                "node_id": replica.key.node_id,
                "directory_id": str(replica.key.directory_id),
                "end_offset": replica.end_offset,
                "lag": max(0, end_offset - replica.end_offset),
                "last_fetch_ms": replica.last_fetch_ms,
            }
            for replica in raft.replicas(now_ms)
        ],
        "nodes": [
            {
                "node_id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "epoch": node.epoch,
                "fenced": node.fenced,
                "stopping": node.stopping,
                "heard": node_id in heard_of,
                "draining": node.draining,
                "full": node.full,
                "unfit": node.unfit,
                "levels": levels.get(node_id),
                "replicas": image.loads.get(node_id, NodeLoad()).replicas,
                "leaders": image.loads.get(node_id, NodeLoad()).leaders,
            }
            for node_id, node in sorted(image.nodes.items())
        ],
    }
