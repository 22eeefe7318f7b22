"""One leadership of one partition of an internal stream: the shell around its coordinator.

``loader`` reads what the leaders before have left; until then a client that asks is told to wait. A write
is appended in this leader epoch or not at all, and counts when it is committed: on enough replicas,
and synced. So the next coordinator finds it, and the leader before adds nothing.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

from streamlog.clock import wall_ms
from streamlog.coordination.effects import NONE, KeptRecord, Now, SendReply, TransactionPart, Write
from streamlog.coordination.reply import DelayedReply
from streamlog.errors import (
    BrokenInvariant,
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotLeader,
    Overloaded,
    RecordTooLarge,
    StorageFailed,
    StorageFull,
    StreamlogError,
)
from streamlog.metadata.nodes.lease import Lease
from streamlog.partition.internal_partition import InternalPartition
from streamlog.partition.state import Acknowledgement
from streamlog.record.codec import RecordRun
from streamlog.wire.error_codes import ErrorCode

LATE_MS: Final = 1_000
"""A timer that is later than this tells of a process that stood still: no session ends."""


def clock() -> Now:
    return Now(time.monotonic_ns() // 1_000_000, wall_ms())


class CoordinatorCore(Protocol):
    """What answers for the keys of a partition. Pure: ``Effect`` is ``SendReply``, ``Write``, or what the
    shard's class carries out itself.
    """

    @property
    def next_ms(self) -> int | None:
        """When ``tick`` has something to do, or earlier."""
        ...

    def tick(self, now: Now) -> list[Any]:
        """What has a deadline by now."""
        ...

    def resume(self, away_ms: int, now: Now) -> None:
        """No client could be heard for so long, by no fault of theirs."""
        ...

    def close(self) -> list[Any]:
        """Another coordinates now."""
        ...


C = TypeVar("C", bound=CoordinatorCore)


class Shard(ABC, Generic[C]):
    """Answers for the keys of ``partition``, in ``leader_epoch``. All is on the event loop."""

    def __init__(
        self,
        partition: InternalPartition,
        leader_epoch: int,
        lease: Lease,
        *,
        barrier: KeptRecord,
        pending_writes_max: int,
        now: Callable[[], Now] = clock,
    ) -> None:
        """``barrier``: a record that says nothing, written to see that it can be; ``pending_writes_max``:
        records that may wait for their commit.
        """
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.coordinator: C | None = None
        """None until the log has been read."""
        self.closed = False
        self._barrier_record = barrier
        self._pending_writes_max = pending_writes_max
        self._lease = lease
        self._now = now
        self._writing = 0
        """Records that wait for their commit."""
        self._unanswered: WeakSet[DelayedReply] = WeakSet()
        """Replies that wait for one of our writes, or for other clients; if their own still do, or the
        core.
        """
        self._barrier: DelayedReply | None = None
        """Made for those who came since the last one was appended."""
        self._settled: list[tuple[Write, ErrorCode]] = []
        """Writes of which the core has yet to hear."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._unheard_since_ms: int | None = None
        """When the lease was found to be over."""

    def _begin(self, coordinator: C) -> None:
        """The log has been read."""
        if self.coordinator is not None or self.closed:
            raise BrokenInvariant("a shard is opened once")
        self.coordinator = coordinator
        self._set_timer()

    def close(self) -> None:
        """Another node leads, or this one in another epoch: no client waits here any longer."""
        self._tell_settled()
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self.coordinator is not None:
            self._perform(self.coordinator.close())
        for reply in tuple(self._unanswered):
            self._give(reply, ErrorCode.not_coordinator)

    @property
    def leads(self) -> bool:
        """The partition is led here still, in the same epoch."""
        return self.partition.leads(self.leader_epoch) and not self.closed

    @property
    def why_not(self) -> ErrorCode:
        """Why it cannot answer for its keys just now; ``NONE`` if it can."""
        if not self.leads or not self._lease.held:
            return ErrorCode.not_coordinator
        return ErrorCode.coordinator_load_in_progress if self.coordinator is None else NONE

    def call(self, ask: Callable[[C, DelayedReply, Now], list[Any]]) -> DelayedReply:
        """The reply to come to a request, which ``ask`` puts to the coordinator."""
        assert self.coordinator is not None
        reply = DelayedReply()
        self._unanswered.add(reply)
        self._perform(ask(self.coordinator, reply, self._now()))
        return reply

    def beat(self, ask: Callable[[C, Now], ErrorCode]) -> ErrorCode:
        """What the coordinator says at once, and without effects."""
        assert self.coordinator is not None
        return ask(self.coordinator, self._now())

    def do(self, effects: list[Any]) -> None:
        """What the coordinator wants done beside answering."""
        self._perform(effects)

    def confirm(self) -> DelayedReply:
        """A reply with an error code; ``NONE``: this node was still the leader after this was
        called, and all that was acknowledged before it, by any coordinator, is known here.

        That is so once a record is committed that was appended after the question: another leader
        would not have had it. Questions share records. Where the disk is full the lease will do.
        """
        if self._barrier is None:
            self._barrier = DelayedReply()
            self._unanswered.add(self._barrier)
            asyncio.get_running_loop().call_soon(self._append_barrier)
        return self._barrier

    # What the core wants

    def _perform(self, effects: list[Any]) -> None:
        todo = deque(effects)
        while todo:
            match todo.popleft():
                case SendReply(token=DelayedReply() as reply, result=result):
                    self._give(reply, result)
                case Write() as write:
                    todo.extend(self._append(write))
                case other:
                    todo.extend(self._carry_out(other))
        self._set_timer()

    @abstractmethod
    def _carry_out(self, effect: Any) -> Iterable[Any]:
        """An effect of the core's own kinds; what follows from it at once."""

    def _give(self, reply: DelayedReply, result: object) -> None:
        self._unanswered.discard(reply)
        if not reply.is_there:
            reply.give(result)

    def _append(self, write: Write) -> list[Any]:
        """Nothing further now, but where it fails at once."""
        try:
            self._append_records(write)
        except StreamlogError as error:
            return write.then(code_of_failure(error), self._now())
        return []

    def _append_records(self, write: Write) -> None:
        self._check_writable()
        run = RecordRun()
        for key, value in write.records:
            run.append(key, value)
        ack = _WriteAcknowledgement(self, write)
        if write.transaction is None:
            self.partition.append(run, ack, leader_epoch=self.leader_epoch)
        elif self.leads:
            self._append_to_transaction(run, ack, write.transaction)
        else:
            raise NotLeader(f"{self.partition.tp} is led by another node now")
        self._writing += len(write.records)

    def _append_to_transaction(
        self, run: RecordRun, ack: Acknowledgement, part: TransactionPart
    ) -> None:
        """Raises as ``TransactionalPartition.append_to_transaction``."""
        raise BrokenInvariant(f"{self.partition.tp} has no records of transactions")

    def _check_writable(self) -> None:
        if self.closed:
            raise NotLeader(f"{self.partition.tp} is led by another node now")
        self.partition.check_min_isr()
        if self._writing >= self._pending_writes_max:
            raise Overloaded(f"{self._writing} records wait for their commit")

    def written(self, write: Write, error: ErrorCode) -> None:
        """It is committed; or this node will not know whether it is.

        The partition tells it in the middle of its own work: what follows from it comes later.
        """
        if not self._settled:
            asyncio.get_running_loop().call_soon(self._tell_settled)
        self._settled.append((write, error))

    def _tell_settled(self) -> None:
        settled, self._settled = self._settled, []
        for write, error in settled:
            self._writing -= len(write.records)
            self._perform(write.then(error, self._now()))

    def _append_barrier(self) -> None:
        barrier, self._barrier = self._barrier, None
        assert barrier is not None
        if barrier.is_there:
            return

        def then(error: ErrorCode, _now: Now) -> list[Any]:
            return [SendReply(barrier, error)]

        try:
            self._append_records(Write((self._barrier_record,), then))
        except StorageFull:
            self._give(barrier, NONE)
        except StreamlogError as error:
            self._give(barrier, code_of_failure(error))

    # Time

    def _set_timer(self) -> None:
        """One, for the first of all deadlines."""
        if self.coordinator is None or self.closed:
            return
        next_ms = self.coordinator.next_ms
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_s = max(0, next_ms - self._now().ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        """Nothing is late while we cannot be heard, nor for the time that we stood still."""
        assert self.coordinator is not None
        self._timer = None
        now = self._now()
        if not self._lease.held:
            if self._unheard_since_ms is None:
                self._unheard_since_ms = self._timer_ms
            self._timer_ms = now.ms + LATE_MS
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LATE_MS / 1000, self._tick)
            return
        since_ms = self._timer_ms if self._unheard_since_ms is None else self._unheard_since_ms
        self._unheard_since_ms = None
        if now.ms - since_ms > LATE_MS:
            self.coordinator.resume(now.ms - since_ms, now)
        self._perform(self.coordinator.tick(now))


class _WriteAcknowledgement:
    """An ``Acknowledgement`` of one write."""

    __slots__ = ("_shard", "_write")

    def __init__(self, shard: "Shard[Any]", write: Write) -> None:
        self._shard = shard
        self._write = write

    def committed(self, base_offset: int) -> None:
        self._shard.written(self._write, NONE)

    def failed(self, error: StreamlogError) -> None:
        self._shard.written(self._write, code_of_failure(error))


def code_of_failure(error: StreamlogError) -> ErrorCode:
    """What clients are told of a write that failed, as Kafka tells them."""
    match error:
        case NotLeader() | StorageFailed():
            return ErrorCode.not_coordinator
        case InvalidProducerEpoch():
            return ErrorCode.invalid_producer_epoch
        case InvalidTransactionState():
            return ErrorCode.invalid_txn_state
        case Overloaded():
            return ErrorCode.coordinator_load_in_progress
        case RecordTooLarge():
            return ErrorCode.unknown_server_error
        case _:
            return ErrorCode.coordinator_not_available
