"""This node in the metadata quorum: the one task that steps the replica, and what it asks for."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from streamlog.clock import clock_ms, wall_ms
from streamlog.condition import CHECK_NODES, Condition
from streamlog.errors import (
    CorruptData,
    MalformedFrame,
    NoController,
    NodeUnreachable,
    NotLetIn,
    OtherCluster,
    Overloaded,
    RequestTimedOut,
    StorageFailed,
    StreamlogError,
    Unavailable,
)
from streamlog.metadata.commands import Granted
from streamlog.metadata.controller import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.loop_clock import STEP_MS_MAX, LoopClock
from streamlog.metadata.nodes.node_condition import METADATA_FAILED
from streamlog.metadata.quorum.metadata_replica import (
    Blocking,
    MetadataReplica,
    Outcome,
    Outgoing,
    Proposal,
    Steps,
)
from streamlog.metadata.quorum.peers import PeerAddress, Peers
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.messages import (
    Answer,
    BeginEpochRequest,
    Fault,
    Request,
    SnapshotId,
    VoteRequest,
)

logger = logging.getLogger(__name__)

SNAPSHOT_NOT_FETCHED: Final = Condition(
    "SL-0127",
    "snapshot not fetched",
    CHECK_NODES,
    meaning="A node that is far behind asked the leader of the metadata for a snapshot, and did "
    "not get it.",
)
METADATA_WENT_BACK: Final = Condition(
    "SL-0128",
    "metadata of a node went back",
    "see whether the node was started on an older copy of its data folder; a voter: see "
    "the runbook replace-a-node",
    meaning="A node confirmed less of the metadata log than it had confirmed before.",
)

REQUESTS_MAX: Final = 10_000
"""Requests that wait; one more is refused as Overloaded."""
RECORDS_PER_BATCH: Final = 1_000
IDLE_MS: Final = 1_000
PROBES: Final = 4
PROBE_PAUSE_S: Final = 0.005
"""A process that is killed closes its connections and its port one after the other."""

T = TypeVar("T")
Decide = Callable[[MetadataImage], Decision]


@dataclass(frozen=True, slots=True)
class _Job:
    """A blocking call on the store, in its turn."""

    call: Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """It has come, and is in the store."""

    id: SnapshotId


class _Fetching(NamedTuple):
    """How much of a snapshot is in the store: the rest is enough after a failure."""

    leader: NodeId
    snapshot: SnapshotId
    size: int
    position: int


_Item = raft.Event | Proposal | _Job | _Snapshot


class RaftTransport:
    """Carries the core's requests to its peers, and brings back answers, failures and complaints.
    Each call is to be run as a task.
    """

    def __init__(
        self,
        replica: MetadataReplica,
        peers: Peers,
        *,
        request_timeout_ms: int,
        tell: Callable[[raft.Event], None],
        in_turn: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        """``in_turn``: make a blocking call on the store."""
        self.complaint = ""
        """What may be why no leader is known; empty if nothing was noticed."""
        self.twin_leads = False
        """Peers were heard to follow a leader of this node's id, which is not this process."""
        self._replica = replica
        self._peers = peers
        self._request_timeout_ms = request_timeout_ms
        self._tell = tell
        self._in_turn = in_turn
        self._fetching: _Fetching | None = None
        self._one_snapshot = asyncio.Lock()
        self._strangers: dict[NodeId, OtherCluster] = {}
        """Peers that say that they belong to another cluster."""

    @property
    def stranger(self) -> OtherCluster | None:
        """Most of the voters are another cluster's: it is this node that is in the wrong place."""
        if len(self._strangers) <= len(self._replica.voters) // 2:
            return None
        return next(iter(self._strangers.values()))

    async def send(self, peer: NodeId, request: Request) -> None:
        address = self.address_of(peer)
        try:
            if address is None:
                self.complaint = f"node {peer}, which leads, is not one of cluster.voters"
                raise NodeUnreachable(f"node {peer} has no address")
            answer = await self._peers.send(address, peer, request, self._request_timeout_ms)
        except StreamlogError as error:
            logger.debug("peer failed", extra={"node": peer, "error": str(error)})
            if isinstance(error, OtherCluster):
                self._strangers[peer] = error
                self.complaint = str(error)
            elif isinstance(error, NotLetIn):
                self.complaint = str(error)
            if address is not None and await self.is_gone(address, error):
                self._tell(raft.PeerGone(peer))
            self._tell(raft.Failed(peer, request))
        else:
            self._strangers.pop(peer, None)
            self._look_for_faults(peer, answer)
            self._tell(raft.Answered(peer, request, answer))

    def _look_for_faults(self, peer: NodeId, answer: Answer) -> None:
        replica = self._replica
        leads = replica.raft.role is raft.Role.LEADER
        self.twin_leads = answer.leader == replica.key.node_id and not leads
        if answer.fault is Fault.WRONG_VOTERS:
            self.differ(peer)
        elif answer.leader is not None:
            self.complaint = ""

    def differ(self, peer: NodeId) -> None:
        """This node and ``peer`` are configured with different voters, and know no others yet."""
        self.complaint = f"node {peer} has another list of cluster.voters than this node"

    async def is_gone(self, address: PeerAddress, error: StreamlogError) -> bool:
        """Whether nothing listens there; silence says nothing."""
        if not isinstance(error, NodeUnreachable):
            return False
        refused = error.refused
        for _ in range(PROBES):
            if refused:
                return True
            await asyncio.sleep(PROBE_PAUSE_S)
            refused = await self._peers.refuses(address)
        return refused

    async def fetch_snapshot(self, leader: NodeId, snapshot: SnapshotId) -> bool:
        """Into the store, a piece at a time; whether it could be had. After a failure it goes on where
        it was, as long as the same leader gives the same snapshot.
        """
        async with self._one_snapshot:
            return await self._fetch_snapshot(leader, snapshot)

    async def _fetch_snapshot(self, leader: NodeId, snapshot: SnapshotId) -> bool:
        fetching, self._fetching = self._fetching, None
        if fetching is None or fetching[:2] != (leader, snapshot):
            fetching = _Fetching(leader, snapshot, -1, 0)
        store = self._replica.store
        address = self.address_of(leader)
        try:
            if address is None:
                raise NodeUnreachable(f"node {leader} has no address")
            while fetching.position != fetching.size:
                self._fetching = fetching
                piece, size = await self._peers.fetch_snapshot(
                    address, snapshot, fetching.position, self._request_timeout_ms
                )
                self._fetching = None  # what fails from here on may have left anything
                position = fetching.position + len(piece)
                if fetching.size not in (-1, size) or position > size:
                    raise MalformedFrame(f"{address}: a snapshot of {size} bytes is another one")
                await self._in_turn(partial(store.take_piece, fetching.position, piece))
                fetching = _Fetching(leader, snapshot, size, position)
        except StreamlogError as error:
            logger.warning(SNAPSHOT_NOT_FETCHED, extra={"node": leader, "error": str(error)})
            return False
        return True

    def address_of(self, node_id: NodeId) -> PeerAddress | None:
        """As voters, metadata or the configuration tell."""
        replica = self._replica
        voter = replica.voters.by_id.get(node_id)
        if voter is not None:
            return PeerAddress(voter.host, voter.port)
        node = replica.newest.nodes.get(node_id)
        if node is not None and node.has_address:
            return PeerAddress(node.host, node.port)
        configured = replica.configured.by_id.get(node_id)
        return None if configured is None else PeerAddress(configured.host, configured.port)


class RaftDriver:
    """``open``; ``run`` as a task; ``close``. Everything happens on the event loop."""

    def __init__(
        self,
        replica: MetadataReplica,
        peers: Peers,
        *,
        node_id: NodeId,
        request_timeout_ms: int,
        loop_clock: LoopClock,
        committed: Callable[[MetadataImage], None],
        changed: Callable[[], None],
    ) -> None:
        self.replica = replica
        self.failure: StorageFailed | None = None
        """Set once, when the metadata log has failed: this node takes no part until a restart."""
        self._node_id = node_id
        self._peers = peers
        self._transport = RaftTransport(
            replica,
            peers,
            request_timeout_ms=request_timeout_ms,
            tell=self.tell,
            in_turn=self._in_worker,
        )
        self._committed = committed
        self._changed = changed
        self._loop_clock = loop_clock
        self._claim: VoteRequest | None = None
        """Of the node that was the last to stand for election, while the store does not return."""
        self._is_blocked = False
        """The store has not returned yet."""
        self._blocked_ms = 0
        """For so long the store has kept the steps from going on."""
        self._told_lost_ms = 0
        """Of the time in which this node could not hear of others, what the replica knows of."""
        self._inbox: deque[_Item] = deque()
        self._arrived = asyncio.Event()
        """Something is in the inbox, or ``close`` was called."""
        self._tasks: asyncio.TaskGroup
        self._closing = False
        self._stopped = asyncio.Event()
        self._stopped.set()
        # One thread: what the store does is done in order, also after a cancelled wait.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")

    @property
    def is_active(self) -> bool:
        """This node is the controller, and knows all that was decided before."""
        return self.failure is None and self.replica.raft.is_active

    @property
    def twin_leads(self) -> bool:
        """Peers follow a leader of this node's id, which is not this process, or not any more."""
        return self._transport.twin_leads

    @property
    def leader(self) -> NodeId | None:
        """Where the store does not return, this node can neither vote nor follow, but knows who stands: if it is
        elected, it is to hear of this node's disk.
        """
        if self.failure:
            return None
        core, claim = self.replica.raft, self._claim
        if core.leader is None and claim is not None and claim.epoch >= core.epoch:
            return claim.candidate.node_id
        return core.leader

    @property
    def newest(self) -> MetadataImage:
        """What the controller decides on: not all of it need be committed."""
        return self.replica.newest

    @property
    def hopeless(self) -> StreamlogError | None:
        """Why waiting for a controller would not help, if so."""
        if self._closing:
            return NoController("the node is stopping")
        if self.replica.voters.ids == {self._node_id}:
            return self.failure
        return self._transport.stranger

    @property
    def complaint(self) -> str:
        """What may be why no leader is known; empty if nothing was noticed."""
        told, voters = self._transport.complaint, self.replica.voters
        if told or voters.is_recorded:
            return told
        ids = ", ".join(map(str, sorted(voters.ids)))
        return f"a new cluster begins when all of its voters ({ids}) run"

    def address_of(self, node_id: NodeId) -> PeerAddress | None:
        """Where the node listens, as voters or metadata tell."""
        return self._transport.address_of(node_id)

    async def open(self) -> None:
        """Replay the log. Raises CorruptData or StorageFailed."""
        await self._in_worker(lambda: self.replica.open(clock_ms()))

    async def decide(self, decide: Decide) -> Granted:
        """What ``decide`` makes of the newest image, once it is committed.

        Raises what it raises; NoController, Overloaded, StorageFull: nothing has been done;
        RequestTimedOut, StorageFailed: it may be done or not.
        """
        if self._closing or not self.is_active:
            raise NoController("this node is not the controller")
        self._check_room()
        answer: asyncio.Future[Granted] = asyncio.get_running_loop().create_future()
        self._put(Proposal(decide, answer))
        return await answer

    async def raft_request(self, request: Request) -> Answer:
        """Another member asks. Raises NoController if this node takes no part any more, and
        Overloaded.
        """
        if self._closing or self.failure is not None:
            raise NoController("this node takes no part in the quorum")
        if self._is_blocked and isinstance(request, VoteRequest) and not request.pre_vote:
            self._claim = request
        self._check_room()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._put(raft.Received(answer, request))
        try:
            given = await answer
        except asyncio.CancelledError:
            self._put(raft.Abandoned(answer))
            raise
        if isinstance(request, VoteRequest) and given.fault is Fault.WRONG_VOTERS:
            self._transport.differ(request.candidate.node_id)
        return given

    def tell(self, event: raft.Event) -> None:
        """Something that others have noticed: a peer that is gone, the wish to resign."""
        self._put(event)

    def do(self, call: Callable[[], object]) -> None:
        """Have a blocking call on the store made in its turn."""
        self._put(_Job(call))

    async def read(self, call: Callable[[], T]) -> T:
        return await self._in_worker(call)

    async def run(self) -> None:
        """Until ``close``. After a failure of the disk requests are still refused, and no more."""
        self._stopped.clear()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                stepping = self._tasks.create_task(self._step_until_closed())
                await asyncio.wait((stepping,))
                stepping.result()
                raise _Ended
        except* _Ended:
            pass
        finally:
            self._refuse_all()
            self._peers.close()
            self._stopped.set()

    async def close(self) -> None:
        """Refuse what waits, finish what has begun, close the log. May be called again."""
        if self._closing:
            return
        self._closing = True
        self._arrived.set()
        await self._stopped.wait()
        await self._in_worker(self.replica.close)
        self._worker.shutdown(wait=False)

    # The one task

    async def _step_until_closed(self) -> None:
        """Hand the replica what comes, one after the other, and carry out its steps."""
        while (item := await self._next()) is not None:
            if self.failure is not None:
                self._refuse(item)
                continue
            steps, raised = self._steps_of(item), None
            try:
                while (step := _following(steps, raised)) is not None:
                    raised = None
                    match step:
                        case Blocking(call):
                            began_ms = self._loop_clock.now_ms()
                            self._is_blocked = True
                            try:
                                await self._in_worker(call)
                            except StreamlogError as error:
                                raised = error
                            finally:
                                self._is_blocked, self._claim = False, None
                            took_ms = self._loop_clock.now_ms() - began_ms
                            self._blocked_ms += max(0, took_ms - STEP_MS_MAX)
                        case Outcome():
                            _answer(step)
                        case raft.Send(peer, request):
                            self._tasks.create_task(self._transport.send(peer, request))
                        case raft.Reply(token, answer):
                            if not _future(token).done():
                                _future(token).set_result(answer)
                        case raft.InstallSnapshot(leader, snapshot):
                            self._tasks.create_task(self._fetch_snapshot(leader, snapshot))
                        case raft.Committed():
                            self._committed(self.replica.image)
                        case raft.RoleChanged(role, epoch, leader):
                            extra = {"role": role.value, "epoch": epoch, "leader": leader}
                            logger.info("quorum role", extra=extra)
                            if role is raft.Role.LEADER:
                                self._tell_observers(epoch)
                        case raft.WentBack(key, known_end, end_offset):
                            extra = {
                                "node": key.node_id, "known_end": known_end, "end": end_offset,
                            }  # fmt: skip
                            logger.warning(METADATA_WENT_BACK, extra=extra)
            except (Unavailable, CorruptData) as error:  # the core has gone on without what failed
                self._fail(error)
            self._changed()

    def _tell_observers(self, epoch: int) -> None:
        """Voters are told by the core. A node that does not vote would wait for the controller before, which may be
        frozen, and lose its lease.
        """
        request = BeginEpochRequest(epoch, self._node_id)
        told = self.replica.voters.ids | {self._node_id}
        for node in self.replica.newest.nodes.values():
            if node.node_id not in told and not node.fenced:
                self._tasks.create_task(self._transport.send(node.node_id, request))

    def _steps_of(self, item: _Item) -> Steps:
        """Nothing is done before the first of them is asked for."""
        match item:
            case Proposal():
                return self.replica.decide(self._proposals(item), clock_ms, wall_ms)
            case _Job(call):
                return _blocking(call)
            case _Snapshot(snapshot):
                return self.replica.install(snapshot, None, clock_ms())
            case _:
                return self.replica.handle(item, clock_ms(), wall_ms=wall_ms())

    def _check_room(self) -> None:
        """For what others send; what this node says to itself is little, and must not be lost."""
        if len(self._inbox) >= REQUESTS_MAX:
            raise Overloaded(f"{REQUESTS_MAX} metadata requests wait already")

    def _put(self, item: _Item) -> None:
        self._inbox.append(item)
        self._arrived.set()

    async def _next(self) -> _Item | None:
        """None once it is closing and all is done."""
        if not self._inbox and not self._closing:
            self._arrived.clear()
            idle_ms = IDLE_MS if self.failure else self.replica.deadline_ms - clock_ms()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(idle_ms, 0) / 1000):
                    await self._arrived.wait()
        lost_ms = self._loop_clock.lost_ms + self._blocked_ms
        if lost_ms > self._told_lost_ms:
            newly_ms, self._told_lost_ms = lost_ms - self._told_lost_ms, lost_ms
            return raft.StoodStill(newly_ms)
        if self._inbox:
            return self._inbox.popleft()
        return None if self._closing else raft.Tick()

    def _proposals(self, first: Proposal) -> list[Proposal]:
        """With those that came meanwhile, and are still waited for; one sync does for all of them."""
        proposals = [first]
        while self._inbox and isinstance(proposal := self._inbox[0], Proposal):
            self._inbox.popleft()
            proposals.append(proposal)
        return [it for it in proposals if not _future(it.asker).done()]

    def _fail(self, error: StreamlogError) -> None:
        """Nothing that this node says about the log can be trusted until it has read it again."""
        failure = error if isinstance(error, StorageFailed) else StorageFailed(str(error))
        self.failure = failure
        logger.critical(METADATA_FAILED, extra={"error": str(error)})
        for outcome in self.replica.give_up(failure):
            _answer(outcome)

    def _refuse_all(self) -> None:
        while self._inbox:
            self._refuse(self._inbox.popleft())
        stopping = RequestTimedOut("the node is stopping; it may be done or not")
        for outcome in self.replica.give_up(stopping):
            _answer(outcome)

    def _refuse(self, item: _Item) -> None:
        error = NoController(str(self.failure or "the node is stopping"))
        match item:
            case Proposal(_, asker):
                _answer(Outcome(asker, error))
            case raft.Received(token, _):
                _answer(Outcome(token, error))

    async def _fetch_snapshot(self, leader: NodeId, snapshot: SnapshotId) -> None:
        fetched = await self._transport.fetch_snapshot(leader, snapshot)
        self._put(_Snapshot(snapshot) if fetched else raft.SnapshotFailed())

    async def _in_worker(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)


class _Ended(Exception):
    """Ends the messengers together with the task that they serve."""


def _following(steps: Steps, raised: StreamlogError | None) -> Outgoing | None:
    """The next step; None: there is none. ``raised``: by the one before."""
    try:
        return next(steps) if raised is None else steps.throw(raised)
    except StopIteration:
        return None


def _blocking(call: Callable[[], object]) -> Steps:
    yield Blocking(call)


def _future(asker: object) -> "asyncio.Future[Any]":
    assert isinstance(asker, asyncio.Future)
    return asker


def _answer(outcome: Outcome) -> None:
    answer = _future(outcome.asker)
    if answer.done():
        return
    if isinstance(outcome.result, StreamlogError):
        answer.set_exception(outcome.result)
    else:
        answer.set_result(outcome.result)
