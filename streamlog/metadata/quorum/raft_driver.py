"""This node in the metadata quorum: the one task that steps the replica, and its messengers."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import uuid4

from streamlog.clock import clock_ms, wall_ms
from streamlog.errors import (
    CorruptData,
    InvalidRequest,
    NoController,
    Overloaded,
    RequestTimedOut,
    StorageFailed,
    StorageFull,
    StreamlogError,
    Unavailable,
)
from streamlog.metadata.controller import Decision, batches, begin_log
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.image import records as facts
from streamlog.metadata.image.feature_level import LEVEL_MAX, check_encryptable, check_writable
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataRecord
from streamlog.metadata.quorum.metadata_replica import Blocking, MetadataReplica, Outgoing, Written
from streamlog.metadata.quorum.peers import PeerAddress, Peers
from streamlog.metadata.quorum.pending_decisions import Decided, PendingDecisions
from streamlog.metadata.quorum.raft_transport import RaftTransport
from streamlog.metadata.quorum.voter_sets import first_voters
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.events import Role
from streamlog.raft.messages import Answer, Fault, Request, SnapshotId, VoteRequest

logger = logging.getLogger(__name__)

REQUESTS_MAX: Final = 10_000
"""Requests that wait; one more is refused as Overloaded."""
RECORDS_PER_BATCH: Final = 1_000
IDLE_MS: Final = 1_000

T = TypeVar("T")
Decide = Callable[[MetadataImage], Decision]


@dataclass(frozen=True, slots=True)
class _Wish:
    decide: Decide
    answer: "asyncio.Future[Granted]"


@dataclass(frozen=True, slots=True)
class _Job:
    """A blocking call on the store, in its turn."""

    call: Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    id: SnapshotId
    data: bytes


_Item = raft.Event | _Wish | _Job | _Snapshot


class RaftDriver:
    """``open``; ``run`` as a task; ``close``. Everything happens on the event loop."""

    def __init__(
        self,
        replica: MetadataReplica,
        peers: Peers,
        *,
        node_id: NodeId,
        request_timeout_ms: int,
        committed: Callable[[MetadataImage], None],
        changed: Callable[[], None],
        may_encrypt: bool = False,
    ) -> None:
        """``may_encrypt``: this node has the keys for encrypted streams."""
        self.replica = replica
        self.failure: StorageFailed | None = None
        """Set once, when the metadata log has failed: this node takes no part until a restart."""
        self._node_id = node_id
        self._peers = peers
        self._messengers = RaftTransport(
            replica, peers, request_timeout_ms=request_timeout_ms, tell=self.tell
        )
        self._may_encrypt = may_encrypt
        self._committed = committed
        self._changed = changed
        self._inbox: deque[_Item] = deque()
        self._arrived = asyncio.Event()
        """Something is in the inbox, or ``close`` was called."""
        self._pending: PendingDecisions[asyncio.Future[Granted]] = PendingDecisions(_grant, _fail)
        self._begun_epoch = 0
        """The last one in which this node has written the leader's first records."""
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
        return self._messengers.twin_leads

    @property
    def leader(self) -> NodeId | None:
        return None if self.failure else self.replica.raft.leader

    @property
    def newest(self) -> MetadataImage:
        """What the controller decides upon: not all of it need be committed."""
        return self.replica.newest

    @property
    def hopeless(self) -> StreamlogError | None:
        """Why waiting for a controller would not help, if so."""
        if self._closing:
            return NoController("the node is stopping")
        if self.replica.voters.ids == {self._node_id}:
            return self.failure
        return self._messengers.stranger

    @property
    def complaint(self) -> str:
        """What may be why no leader is known; empty if nothing was noticed."""
        told, voters = self._messengers.complaint, self.replica.voters
        if told or voters.is_recorded:
            return told
        ids = ", ".join(map(str, sorted(voters.ids)))
        return f"a new cluster begins when all of its voters ({ids}) run"

    def address_of(self, node_id: NodeId) -> PeerAddress | None:
        """Where the node listens, as voters or metadata tell."""
        return self._messengers.address_of(node_id)

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
        self._put(_Wish(decide, answer))
        return await answer

    async def raft_request(self, request: Request) -> Answer:
        """Another member asks. Raises NoController if this node takes no part any more, and
        Overloaded.
        """
        if self._closing or self.failure is not None:
            raise NoController("this node takes no part in the quorum")
        self._check_room()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._put(raft.Received(answer, request))
        try:
            given = await answer
        except asyncio.CancelledError:
            self._put(raft.Abandoned(answer))
            raise
        if isinstance(request, VoteRequest) and given.fault is Fault.WRONG_VOTERS:
            self._messengers.differ(request.candidate.node_id)
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
        while (item := await self._next()) is not None:
            if self.failure is not None:
                self._refuse(item)
                continue
            try:
                await self._take(item)
                await self._begin_epoch()
            except (Unavailable, CorruptData) as error:  # the core has gone on without what failed
                self._fail(error)
            self._changed()

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
        if self._inbox:
            return self._inbox.popleft()
        return None if self._closing else raft.Tick()

    async def _take(self, item: _Item) -> None:
        match item:
            case _Wish():
                await self._grant([item, *self._more_wishes()])
            case _Job():
                await self._in_worker(item.call)
            case _Snapshot():
                await self._drive(self.replica.install(item.id, item.data, clock_ms()))
            case _:
                await self._drive(self.replica.handle(item, clock_ms()))

    def _more_wishes(self) -> Iterator[_Wish]:
        """Those that came meanwhile; one sync does for all of them."""
        while self._inbox and isinstance(wish := self._inbox[0], _Wish):
            self._inbox.popleft()
            yield wish

    async def _grant(self, wishes: Sequence[_Wish]) -> None:
        """Decide one upon the other, log what they come to, answer when it is committed."""
        if not self.replica.raft.is_active:
            for wish in wishes:
                _fail(wish.answer, NoController("this node is not the controller"))
            return
        image, records = self.replica.newest, list[MetadataRecord]()
        decided: list[Decided[asyncio.Future[Granted]]] = []
        for wish in wishes:
            if wish.answer.done():
                continue
            try:
                decision = wish.decide(image)
                check_writable(decision.records, image.level)
                if not self._may_encrypt:
                    check_encryptable(decision.records)
            except StreamlogError as error:
                _fail(wish.answer, error)
                continue
            offset = image.offset
            if decision.records:
                image = image.apply_all(
                    decision.records, offset=offset, epoch=self.replica.raft.epoch
                )
                records += decision.records
            decided.append(Decided(offset, image.offset, decision.result, wish.answer))
        store = self.replica.store
        self._pending.decided(decided, store.end_offset)
        problem: StreamlogError = RequestTimedOut("the metadata log failed")
        try:
            for batch in batches(Decision(tuple(records)), RECORDS_PER_BATCH):
                await self._propose(batch)
        except (NoController, InvalidRequest) as error:
            problem = error
        except (StorageFull, Overloaded) as error:
            problem = error
            logger.error("metadata not written", extra={"error": str(error)})
            self.tell(raft.Resign())  # others may have room; a voter by itself stays
        finally:
            self._pending.refuse_unwritten(problem, store.end_offset)
        self._pending.committed(self.replica.image.offset)

    async def _propose(self, records: Sequence[MetadataRecord]) -> None:
        await self._drive(self.replica.propose(records, clock_ms(), wall_ms=wall_ms()))

    async def _begin_epoch(self) -> None:
        """A new leader's first records: what was written before commits with them (Raft 5.4.2)."""
        core = self.replica.raft
        if core.role is not Role.LEADER or core.epoch == self._begun_epoch:
            return
        self._begun_epoch = core.epoch
        records: list[MetadataRecord] = [facts.QuorumLeader(node_id=self._node_id)]
        if not self.replica.voters.is_recorded:
            records.append(first_voters(self.replica.voters, core.electors))
        if self.replica.newest.offset == 0:  # nobody has ever read anything of this cluster
            records.append(facts.FeatureLevelChanged(level=LEVEL_MAX))
        if self.replica.newest.log is None:
            now_ms = wall_ms()
            records.append(begin_log(self.replica.newest, new_id=uuid4(), now_ms=now_ms))
        try:
            await self._propose(records)
        except (StorageFull, Overloaded) as error:  # a leader that cannot begin makes way
            logger.error("metadata not written", extra={"error": str(error)})

    async def _drive(self, steps: Iterator[Outgoing]) -> None:
        for step in steps:
            match step:
                case Blocking(call):
                    await self._in_worker(call)
                case Written(end_offset):
                    self._pending.written(end_offset)
                case raft.Send(peer, request):
                    self._tasks.create_task(self._messengers.send(peer, request))
                case raft.Reply(token, answer):
                    assert isinstance(token, asyncio.Future)
                    if not token.done():
                        token.set_result(answer)
                case raft.InstallSnapshot(leader, snapshot):
                    self._tasks.create_task(self._fetch_snapshot(leader, snapshot))
                case raft.Committed(high_watermark):
                    self._committed(self.replica.image)
                    self._pending.committed(high_watermark)
                case raft.RoleChanged(role, epoch, leader):
                    self._role_changed(role, epoch, leader)
                case raft.WentBack(key, known_end, end_offset):
                    extra = {"node": key.node_id, "known_end": known_end, "end": end_offset}
                    logger.warning("metadata of a node went back", extra=extra)

    def _role_changed(self, role: Role, epoch: int, leader: NodeId | None) -> None:
        logger.info("quorum role", extra={"role": role.value, "epoch": epoch, "leader": leader})
        if role is not Role.LEADER:
            error = RequestTimedOut("the controller changed; whether it was done is not known")
            self._pending.give_up(error)

    def _fail(self, error: StreamlogError) -> None:
        """Nothing that this node says about the log can be trusted until it has read it again."""
        failure = error if isinstance(error, StorageFailed) else StorageFailed(str(error))
        self.failure = failure
        logger.critical("metadata log failed", extra={"error": str(error)})
        self._pending.give_up(failure)

    def _refuse_all(self) -> None:
        while self._inbox:
            self._refuse(self._inbox.popleft())
        self._pending.give_up(RequestTimedOut("the node is stopping; it may be done or not"))

    def _refuse(self, item: _Item) -> None:
        error = NoController(str(self.failure or "the node is stopping"))
        match item:
            case _Wish(_, answer):
                _fail(answer, error)
            case raft.Received(token, _):
                assert isinstance(token, asyncio.Future)
                _fail(token, error)

    async def _fetch_snapshot(self, leader: NodeId, snapshot: SnapshotId) -> None:
        data = await self._messengers.fetch_snapshot(leader, snapshot)
        self._put(raft.SnapshotFailed() if data is None else _Snapshot(snapshot, data))

    async def _in_worker(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)


class _Ended(Exception):
    """Ends the messengers together with the task that they serve."""


def _grant(answer: "asyncio.Future[Granted]", granted: Granted) -> None:
    if not answer.done():
        answer.set_result(granted)


def _fail(answer: "asyncio.Future[Any]", error: StreamlogError) -> None:
    if not answer.done():
        answer.set_exception(error)
