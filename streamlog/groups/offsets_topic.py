"""One leadership of one partition of ``__consumer_offsets``: the shell around its coordinator.

``load`` reads what the leaders before have left; until then a client that asks is told to wait. A write
is appended in this leader epoch or not at all, and counts when it is committed: on enough replicas,
and synced. So the next coordinator finds it, and the leader before adds nothing.
"""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final
from uuid import UUID
from weakref import WeakSet

from streamlog.clock import wall_ms
from streamlog.config import GroupsSection
from streamlog.errors import (
    BrokenInvariant,
    InvalidRequest,
    NotLeader,
    Overloaded,
    RecordTooLarge,
    StorageFailed,
    StorageFull,
    StreamlogError,
)
from streamlog.groups.coordinator import Coordinator
from streamlog.groups.group import Group
from streamlog.groups.records import BARRIER
from streamlog.groups.requests import NONE, Effect, MatchTopics, Now, SendReply, Write
from streamlog.groups.subscribed_topics import NoTopics, Topics, matching
from streamlog.metadata.nodes.lease import Lease
from streamlog.partition.internal_partition import InternalPartition
from streamlog.record.codec import RecordRun
from streamlog.wire.error_codes import ErrorCode


class GroupReply:
    """A token of the core's; one may be waited for by several."""

    __slots__ = ("__weakref__", "_result", "_watchers", "is_there")

    def __init__(self) -> None:
        self.is_there = False
        self._result: Any = None
        self._watchers: list[Callable[[], None]] = []

    @property
    def result(self) -> Any:
        if not self.is_there:
            raise BrokenInvariant("no answer has been given")
        return self._result

    def watch(self, watcher: Callable[[], None]) -> None:
        """``watcher`` is called when there is a result, once."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.remove(watcher)

    def give(self, result: Any) -> None:
        if self.is_there:
            raise BrokenInvariant("an answer is given once")
        self._result, self.is_there = result, True
        for watcher in tuple(self._watchers):
            watcher()


LATE_MS: Final = 1_000
"""A timer that is later than this tells of a process that stood still: no session ends."""


def clock() -> Now:
    return Now(time.monotonic_ns() // 1_000_000, wall_ms())


class Shard:
    """Answers for the groups of ``partition``, in ``leader_epoch``. All is on the event loop."""

    def __init__(
        self,
        partition: InternalPartition,
        leader_epoch: int,
        settings: GroupsSection,
        lease: Lease,
        *,
        now: Callable[[], Now] = clock,
        start: Callable[[Coroutine[Any, Any, None]], object] | None = None,
    ) -> None:
        """``start`` has a task of its own carry out what takes a thread; None: that is done at once, here."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.coordinator: Coordinator | None = None
        """None until the log has been read."""
        self.closed = False
        self._settings = settings
        self._lease = lease
        self._now = now
        self._start = start
        self._writing = 0
        """Records that wait for their commit."""
        self._unanswered: WeakSet[GroupReply] = WeakSet()
        """Replies that wait for one of our writes, or for members; if their clients still do, or the
        core.
        """
        self._barrier: GroupReply | None = None
        """Made for those who came since the last one was appended."""
        self._topics: Topics = NoTopics()
        self._matching = asyncio.Lock()
        """One thread at a time looks which topics an expression stands for."""
        self._settled: list[tuple[Write, ErrorCode]] = []
        """Writes of which the core has yet to hear."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._unheard_since_ms: int | None = None
        """When the lease was found to be over."""

    def begin(
        self,
        groups: Iterable[Group],
        streams: Mapping[str, UUID],
        *,
        since_ms: int = 0,
        topics: Topics | None = None,
        share_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """The log has been read; ``streams``: all there are, and their ids; ``since_ms`` and
        ``share_configs``: as of ``Coordinator``; ``topics``: as its groups see the streams.
        """
        if self.coordinator is not None or self.closed:
            raise BrokenInvariant("a shard is opened once")
        self.coordinator = Coordinator(
            self._settings,
            lambda: str(uuid.uuid4()),
            groups,
            now=self._now(),
            since_ms=since_ms,
            share_configs=share_configs,
        )
        if topics is not None:
            self.topics_changed(topics, None)
        self._perform(self.coordinator.only_streams(streams))

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
        partition = self.partition
        is_same = partition.is_leader and partition.leader_epoch == self.leader_epoch
        return is_same and not self.closed

    @property
    def why_not(self) -> ErrorCode:
        """Why it cannot answer for its groups just now; ``NONE`` if it can."""
        if not self.leads or not self._lease.held:
            return ErrorCode.not_coordinator
        return ErrorCode.coordinator_load_in_progress if self.coordinator is None else NONE

    def call(self, ask: Callable[[Coordinator, GroupReply, Now], list[Effect]]) -> GroupReply:
        """The reply to come to a request, which ``ask`` puts to the coordinator."""
        assert self.coordinator is not None
        reply = GroupReply()
        self._unanswered.add(reply)
        self._perform(ask(self.coordinator, reply, self._now()))
        return reply

    def beat(self, ask: Callable[[Coordinator, Now], ErrorCode]) -> ErrorCode:
        """What the coordinator says at once, and without effects."""
        assert self.coordinator is not None
        return ask(self.coordinator, self._now())

    def topics_changed(self, topics: Topics, names: Iterable[str] | None) -> None:
        """See ``Coordinator.topics_changed``."""
        if self.coordinator is not None:
            self._topics = topics
            self._perform(self.coordinator.topics_changed(topics, names, self._now()))

    def do(self, effects: list[Effect]) -> None:
        """What the coordinator wants done beside answering."""
        self._perform(effects)

    def confirm(self) -> GroupReply:
        """A reply with an error code; ``NONE``: this node was still the leader after this was
        called, and all that was acknowledged before it, by any coordinator, is known here.

        That is so once a record is committed that was appended after the question: another leader
        would not have had it. Questions share records. Where the disk is full the lease will do.
        """
        if self._barrier is None:
            self._barrier = GroupReply()
            self._unanswered.add(self._barrier)
            asyncio.get_running_loop().call_soon(self._append_barrier)
        return self._barrier

    # What the core wants

    def _perform(self, effects: list[Effect]) -> None:
        todo = deque(effects)
        while todo:
            match todo.popleft():
                case SendReply(token=GroupReply() as reply, result=result):
                    self._give(reply, result)
                case Write() as write:
                    todo.extend(self._append(write))
                case MatchTopics() as wanted:
                    if self._start is None:
                        matches = _matches(wanted.expressions, self._topics)
                        todo.extend(wanted.then(matches, self._topics.version, self._now()))
                    else:
                        self._start(self._match(wanted))
                case other:
                    raise AssertionError(other)
        self._set_timer()

    def _give(self, reply: GroupReply, result: object) -> None:
        self._unanswered.discard(reply)
        if not reply.is_there:
            reply.give(result)

    def _append(self, write: Write) -> list[Effect]:
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
        self.partition.append(
            run, _WriteAcknowledgement(self, write), leader_epoch=self.leader_epoch
        )
        self._writing += len(write.records)

    def _check_writable(self) -> None:
        if self.closed:
            raise NotLeader(f"{self.partition.tp} is led by another node now")
        self.partition.check_min_isr()
        if self._writing >= self._settings.pending_writes_max:
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

        def then(error: ErrorCode, _now: Now) -> list[Effect]:
            return [SendReply(barrier, error)]

        try:
            self._append_records(Write((BARRIER,), then))
        except StorageFull:
            self._give(barrier, NONE)
        except StreamlogError as error:
            self._give(barrier, code_of_failure(error))

    async def _match(self, wanted: MatchTopics) -> None:
        """In a thread: an expression and a name take a moment each, and there may be many."""
        async with self._matching:
            if self.closed:
                return
            topics = self._topics
            matches = await asyncio.to_thread(_matches, wanted.expressions, topics)
        if not self.closed:
            self._perform(wanted.then(matches, topics.version, self._now()))

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
        """No session ends while we cannot be heard, nor for the time that we stood still."""
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

    def __init__(self, shard: Shard, write: Write) -> None:
        self._shard = shard
        self._write = write

    def committed(self, base_offset: int) -> None:
        self._shard.written(self._write, NONE)

    def failed(self, error: StreamlogError) -> None:
        self._shard.written(self._write, code_of_failure(error))


def _matches(expressions: Iterable[str], topics: Topics) -> dict[str, frozenset[str] | str]:
    found: dict[str, frozenset[str] | str] = {}
    for expression in expressions:
        try:
            found[expression] = matching(expression, topics.names())
        except InvalidRequest as error:
            found[expression] = str(error)
    return found


def code_of_failure(error: StreamlogError) -> ErrorCode:
    """What members are told of a write that failed, as Kafka tells them."""
    match error:
        case NotLeader() | StorageFailed():
            return ErrorCode.not_coordinator
        case Overloaded():
            return ErrorCode.coordinator_load_in_progress
        case RecordTooLarge():
            return ErrorCode.unknown_server_error
        case _:
            return ErrorCode.coordinator_not_available
