"""What the controller does unasked: fences who is gone, goes on with moves, rebalances leaders."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID, uuid4

from streamlog.clock import clock_ms, wall_ms
from streamlog.config import ClusterSection
from streamlog.errors import NoController, StaleNode, StreamlogError, Unavailable
from streamlog.metadata.commands import (
    Command,
    FenceNode,
    Heartbeat,
    RebalanceLeaders,
    ReportLeader,
)
from streamlog.metadata.controller import Decision, decide, next_moves
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.image.metadata_image import MetadataImage, NodeImage
from streamlog.metadata.nodes.node_condition import keep_from_deciding, keep_from_leading
from streamlog.metadata.nodes.node_connections import NodeConnections
from streamlog.metadata.nodes.sessions import Sessions
from streamlog.metadata.quorum.raft_driver import RaftDriver
from streamlog.metadata.quorum.voter_sets import tended_voters
from streamlog.model import NodeId
from streamlog.raft.events import Resign
from streamlog.raft.voters import ReplicaKey

logger = logging.getLogger(__name__)

MOVES_MS: Final = 500
"""How often draining and moving go on."""
VOTER_STEPS_MAX: Final = 4
"""In one go: others wait meanwhile."""


class ControllerTasks:
    """Nothing happens here but while this node is the controller."""

    def __init__(
        self,
        quorum: RaftDriver,
        watch: NodeConnections,
        *,
        node_id: NodeId,
        settings: ClusterSection,
    ) -> None:
        self.sessions = Sessions(settings.session_timeout_ms)
        self._quorum = quorum
        self._watch = watch
        self._node_id = node_id
        self._settings = settings
        self._active_epoch: int | None = None
        """The quorum epoch in which the sessions were begun; None while others are in charge."""
        self._began_ms = 0
        self._changed = asyncio.Event()
        self._heard = asyncio.Event()
        """Another node has been heard of."""
        self._moves_due_ms = 0
        self._rebalance_due_ms = 0

    def look(self) -> None:
        """The quorum's state may be another: sessions begin anew with each time in charge."""
        epoch = self._quorum.replica.raft.epoch if self._quorum.is_active else None
        if epoch != self._active_epoch:
            self._active_epoch = epoch
            if epoch is not None:
                self._began_ms = now_ms = clock_ms()
                self.sessions.started(self._quorum.newest, now_ms)
                self._moves_due_ms = now_ms
                self._rebalance_due_ms = now_ms + self._settings.leader_rebalance_ms
            self._changed.set()

    def decision(self, command: Command) -> Callable[[MetadataImage], Decision]:
        """What the quorum is to decide about ``command``, with the sessions as they are then."""
        new_id: UUID = uuid4()

        def decided(image: MetadataImage) -> Decision:
            return decide(
                image,
                command,
                now_ms=wall_ms(),
                new_id=new_id,
                live=self.sessions.live(clock_ms()) | {self._node_id},
                heard_of=self.sessions.heard_of,
            )

        return decided

    async def heartbeat(self, beat: Heartbeat) -> Granted:
        """Nearly always nothing is to be logged. Raises StaleNode."""
        newest = self._quorum.newest
        node = newest.nodes.get(beat.node_id)
        if node is None or node.epoch != beat.node_epoch:
            raise StaleNode(f"node {beat.node_id} has registered anew since {beat.node_epoch}")
        if beat.node_id not in self.sessions.heard_of:  # partitions may have waited for it
            self._moves_due_ms = 0
            self._changed.set()
        self.sessions.heard(beat.node_id, beat.node_epoch, clock_ms())
        self.sessions.told(beat.node_id, beat.levels)
        self.sessions.told_clock(beat.node_id, beat.clock_ahead_ms)
        self._heard.set()
        granted = Granted(0, {})
        hands_over = keep_from_leading(beat.unfit) and newest.load(node.node_id).leaders > 0
        is_news = node.fenced or beat.unfit != node.unfit
        if is_news or hands_over or node.full or beat.offline or beat.full:
            granted = await self._quorum.decide(self.decision(beat))
        unconfirmed_ms = self._quorum.replica.raft.unconfirmed_ms(clock_ms())
        if unconfirmed_ms is None:
            raise NoController(f"node {self._node_id} is not the controller any more")
        told = {
            "time_ms": wall_ms(),
            "unconfirmed_ms": unconfirmed_ms,
            "agreed_ahead_ms": self.sessions.agreed_ahead_ms(clock_ms()),
        }
        return granted._replace(result={**granted.result, **told})

    def is_believed(self, report: ReportLeader) -> bool:
        """Whether enough others have said the same lately."""
        return self.sessions.report(self._quorum.newest, report, clock_ms())

    def registered(self, node_id: NodeId, node_epoch: int) -> None:
        """A node is there, and will be heard of."""
        self.sessions.heard(node_id, node_epoch, clock_ms())

    async def run(self) -> None:
        """For as long as the node runs."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run(self._gone))
            while True:
                self._changed.clear()
                if self._active_epoch is None:
                    self._watch.forget()
                    await self._changed.wait()
                    continue
                self._watch.keep(self._others())
                try:
                    await self._do_what_is_due()
                except Unavailable as error:
                    logger.info("controller's duty put off", extra={"error": str(error)})
                await self._pause()

    def _others(self) -> list[NodeImage]:
        nodes = self._quorum.newest.nodes.values()
        return [node for node in nodes if node.node_id != self._node_id and not node.fenced]

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._settings.heartbeat_interval_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _do_what_is_due(self) -> None:
        now_ms = clock_ms()
        live = self.sessions.live(now_ms)
        for node in self._others():
            if node.node_id not in live:
                logger.warning("session over", extra={"node": node.node_id})
                await self._fence(node)
        await self._tend_voters()
        self._give_up_office()
        if now_ms >= self._moves_due_ms:
            self._moves_due_ms = now_ms + MOVES_MS
            if self._moves(self._quorum.newest).records:
                await self._quorum.decide(self._moves)
        if self._settings.leader_rebalance_ms > 0 and now_ms >= self._rebalance_due_ms:
            self._rebalance_due_ms = now_ms + self._settings.leader_rebalance_ms
            await self._quorum.decide(self.decision(RebalanceLeaders()))

    def _give_up_office(self) -> None:
        """A controller that others cannot open connections to: a voter that is well takes over."""
        nodes, live = self._quorum.newest.nodes, self.sessions.live(clock_ms())
        own = nodes.get(self._node_id)
        if own is None or not keep_from_deciding(own.unfit):
            return
        others = (self.caught_up().keys() & live & self._quorum.replica.voters.ids) - {own.node_id}
        for successor in sorted(others):
            if successor in nodes and not keep_from_deciding(nodes[successor].unfit):
                extra = {"to": successor, "unfit": ", ".join(own.unfit)}
                logger.warning("another node is to be the controller", extra=extra)
                self._quorum.tell(Resign(successor))
                return

    def _moves(self, image: MetadataImage) -> Decision:
        here = self.sessions.live(clock_ms()) | {self._node_id}
        return next_moves(image, here, self.sessions.heard_of)

    async def _gone(self, node: NodeImage) -> None:
        """Nothing listens at the node's address."""
        if self._active_epoch is None:
            return
        logger.warning("node is gone", extra={"node": node.node_id})
        try:
            await self._fence(node)
        except StreamlogError as error:
            logger.info("node not fenced", extra={"node": node.node_id, "error": str(error)})

    async def _fence(self, node: NodeImage) -> None:
        self.sessions.gone(node.node_id)
        await self._hear_the_others()
        command = FenceNode(node_id=node.node_id, node_epoch=node.epoch)
        with contextlib.suppress(StaleNode):  # it has come back meanwhile, as another
            await self._quorum.decide(self.decision(command))

    async def _hear_the_others(self) -> None:
        """Who lives turns to a new controller at once; only whom it has heard of it can elect."""
        deadline_ms = self._began_ms + self._settings.heartbeat_interval_ms
        while self.sessions.hearsay(now_ms := clock_ms()) and now_ms < deadline_ms:
            self._heard.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((deadline_ms - now_ms) / 1000):
                    await self._heard.wait()

    def caught_up(self) -> dict[NodeId, ReplicaKey]:
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
            return Decision(tended_voters(image, core.replaced_voters(), self.caught_up()))

        for _ in range(VOTER_STEPS_MAX):
            if not decided(self._quorum.newest).records:
                break
            await self._quorum.decide(decided)
