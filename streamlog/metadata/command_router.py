"""The way of a command: decided here by the controller, or carried to it from any node."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from streamlog.clock import clock_ms, wall_ms
from streamlog.config import ClusterSection
from streamlog.errors import (
    InvalidRequest,
    NoController,
    NodeIdTaken,
    NodeUnreachable,
    RequestTimedOut,
)
from streamlog.metadata.cluster_description import describe
from streamlog.metadata.commands import (
    AddVoter,
    AllocateProducerIds,
    AlterIsr,
    AlterQuota,
    AwaitApplied,
    Command,
    DescribeCluster,
    ExportMetadata,
    FenceNode,
    Heartbeat,
    RaiseLevel,
    RegisterNode,
    RemoveVoter,
    ReportLeader,
    SpendNonce,
    StampFolder,
    TransferController,
    encode_command,
)
from streamlog.metadata.controller import Decision
from streamlog.metadata.controller_tasks import ControllerTasks
from streamlog.metadata.forwarding import Granted, decode_result
from streamlog.metadata.image.feature_level import raised
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import encode_snapshot
from streamlog.metadata.nonce_cache import NonceCache
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.quorum.raft_driver import RaftDriver
from streamlog.metadata.quorum.voter_sets import add_voter, remove_voter
from streamlog.model import NodeId
from streamlog.raft.events import Resign

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.02
PATIENCE_FACTOR: Final = 2
"""A command waits for a controller as long as so many request time-outs."""

REPEATABLE: Final = (
    Heartbeat,
    RegisterNode,
    StampFolder,
    ReportLeader,
    AlterIsr,
    AllocateProducerIds,
    AlterQuota,
    AwaitApplied,
    DescribeCluster,
    ExportMetadata,
)
"""Twice is as good as once."""

FREQUENT: Final = (Heartbeat, AlterIsr, SpendNonce)
"""Worth a connection that is kept."""


def _is_local(command: Command) -> bool:
    """The node that is asked answers, whoever is the controller."""
    return isinstance(command, AwaitApplied) or (
        isinstance(command, DescribeCluster) and command.local
    )


class CommandRouter:
    """``grant`` is for this node's own commands, ``take`` for those that others bring."""

    def __init__(
        self,
        quorum: RaftDriver,
        duties: ControllerTasks,
        peers: Peers,
        *,
        node_id: NodeId,
        settings: ClusterSection,
        await_applied: Callable[[int], Awaitable[None]],
        await_settled: Callable[[int, str], Awaitable[None]],
    ) -> None:
        self._quorum = quorum
        self._duties = duties
        self._peers = peers
        self._node_id = node_id
        self._timeout_ms = settings.request_timeout_ms
        self._await_applied = await_applied
        self._await_settled = await_settled
        self._changed = asyncio.Event()
        self._spent = NonceCache()
        self._in_office = False

    def look(self) -> None:
        """The quorum has taken a step: there may be a controller now."""
        self._changed.set()
        self._notice_office()

    def _notice_office(self) -> None:
        if self._quorum.is_active and not self._in_office:
            self._spent.begin(wall_ms())
        self._in_office = self._quorum.is_active

    async def grant(self, command: Command) -> Granted:
        """Carried out by the controller, here or elsewhere; one that is just elected is waited for.

        Raises what the controller answers; NoController: nothing has been done; RequestTimedOut:
        it may have been.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_FACTOR * self._timeout_ms / 1000
        while True:
            try:
                if self._quorum.is_active or _is_local(command):
                    return await self.take(command)
                return await self.ask(self._quorum.leader, command)
            except NoController:
                if self._quorum.hopeless is not None:
                    raise self._quorum.hopeless from None
                if loop.time() >= deadline:
                    raise
            await self.pause()

    async def ask(self, node_id: NodeId | None, command: Command) -> Granted:
        """Have this node carry it out. Raises NoController where it was not heard."""
        address = None if node_id is None else self._quorum.address_of(node_id)
        if address is None and self._quorum.twin_leads:
            raise NodeIdTaken(f"node {self._node_id} is alive, and leads the metadata quorum")
        if address is None and node_id is not None:
            text = f"node {node_id}, which leads the metadata quorum, is not in cluster.voters"
            raise NoController(text)
        if address is None or node_id == self._node_id:
            text = "the metadata quorum has no leader that this node knows"
            complaint = self._quorum.complaint
            raise NoController(f"{text}: {complaint}" if complaint else text)
        wait_ms = command.wait_ms if isinstance(command, AwaitApplied) else 0
        try:
            data = await self._peers.command(
                address,
                encode_command(command),
                self._timeout_ms + wait_ms,
                purpose=type(command).__name__ if isinstance(command, FREQUENT) else "",
            )
        except NodeUnreachable as error:
            if error.refused or isinstance(command, REPEATABLE):
                raise NoController(str(error)) from error
            text = f"{error}; whether it was done is not known"
            raise RequestTimedOut(text) from error
        return decode_result(data)

    async def take(self, command: Command) -> Granted:
        """Carried out here. Raises NoController unless this node is the controller."""
        if _is_local(command):
            return await self._locally(command)
        if not self._quorum.is_active:
            raise NoController(f"node {self._node_id} is not the controller")
        match command:
            case Heartbeat():
                granted = await self._duties.heartbeat(command)
            case DescribeCluster() | SpendNonce():
                granted = Granted(0, self._told(command))
            case ExportMetadata():
                granted = await self._export()
            case RaiseLevel():
                granted = await self._raise_level(command)
            case TransferController():
                granted = self._transfer(command)
            case AddVoter() | RemoveVoter():
                granted = await self._change_voters(command)
            case FenceNode():
                raise InvalidRequest("only the controller itself fences a node")
            case ReportLeader() if not self._duties.is_believed(command):
                granted = Granted(0, {})
            case _:
                granted = await self._quorum.decide(self._duties.decision(command))
        if isinstance(command, RegisterNode):
            self._duties.registered(command.node_id, int(granted.result["node_epoch"]))
        return granted

    async def _locally(self, command: Command) -> Granted:
        if isinstance(command, AwaitApplied):
            return await self._awaited(command)
        return Granted(0, self._description(self._quorum.replica.image))

    async def _awaited(self, command: AwaitApplied) -> Granted:
        if command.stream is None:
            await self._await_applied(command.offset)
        else:
            await self._await_settled(command.offset, command.stream)
        return Granted(command.offset, {})

    def _told(self, command: DescribeCluster | SpendNonce) -> dict[str, Any]:
        """Nothing is logged of it."""
        if isinstance(command, DescribeCluster):
            return self._description(self._quorum.newest)
        self._notice_office()
        refusal = self._spent.spend(
            command.signer,
            command.nonce,
            signed_ms=command.signed_ms,
            window_ms=command.window_ms,
            now_ms=wall_ms(),
        )
        return {"refusal": refusal}

    def _description(self, image: MetadataImage) -> dict[str, Any]:
        sessions, now_ms = self._duties.sessions, clock_ms()
        levels = sessions.known_levels(now_ms, image)
        told = describe(self._quorum.replica.raft, image, now_ms, sessions.heard_of, levels)
        return {"node": self._node_id, **told}

    async def _raise_level(self, command: RaiseLevel) -> Granted:
        def decided(image: MetadataImage) -> Decision:
            told = self._duties.sessions.known_levels(clock_ms(), image)
            records = raised(image.level, command.level, image.nodes, told)
            return Decision(records, {"before": image.level, "level": command.level})

        return await self._quorum.decide(decided)

    async def _export(self) -> Granted:
        image = self._quorum.replica.image
        data = await asyncio.to_thread(encode_snapshot, image)
        return Granted(image.offset, {"snapshot": data.decode()})

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
            return Decision(add_voter(image, command.node_id, self._duties.caught_up()))

        return await self._quorum.decide(decided)

    async def pause(self) -> None:
        """Until the quorum has taken a step, but not for long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(RETRY_S):
                await self._changed.wait()
        except TimeoutError:
            pass
