"""This node as a member of the cluster: it registers, sends heartbeats, holds the lease."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from streamlog.clock import clock_s, wall_ms
from streamlog.condition import CHECK_NODES, CRITICAL, Condition
from streamlog.config import ClusterSection
from streamlog.errors import NodeIdTaken, StaleNode, StreamlogError, Unavailable
from streamlog.metadata.commands import (
    Command,
    Granted,
    Heartbeat,
    RegisterNode,
    StampFolder,
    StopNode,
)
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.nodes.session_times import SessionTimes
from streamlog.model import NodeId, TopicPartition

logger = logging.getLogger(__name__)

WAITING_TO_REGISTER: Final = Condition(
    "SL-0113",
    "waiting to register",
    "start a majority of cluster.voters (a new cluster: all); " + CHECK_NODES,
    meaning="A node that starts has no controller that accepts it yet, or another node has its "
    "number.",
)
OLDER_COPY: Final = Condition(
    "SL-0131",
    "data folder is an older copy",
    "nothing where other replicas are in sync: it fetches from them; a voter: see the "
    "runbook replace-a-node",
    meaning="The node was started on a copy of its data folder from earlier, for instance from a "
    "snapshot of the disk.",
    severity=CRITICAL,
)
REPLICA_MAY_LACK_RECORDS: Final = Condition(
    "SL-0132",
    "last in-sync replica may lack records",
    "if a newer copy of the data folder is left, stop the node and put that back; else "
    "publish again what publishers still have",
    meaning="The last in-sync replica of the partition was not stopped in order, and no other "
    "one can say whether its end is missing.",
    severity=CRITICAL,
)
REPLICA_LOST: Final = Condition(
    "SL-0133",
    "last in-sync replica is lost",
    "put the data folder back if it is left; else restore from a backup, or have another "
    "replica lead with `streamlog cluster elect-leader --unclean`",
    meaning="The last in-sync replica of the partition was on a data folder that is gone. The "
    "partition has no leader.",
    severity=CRITICAL,
)

RETRY_S: Final = 0.1
SKEWS_KEPT: Final = 16
"""Answers; the quickest of them tells best, as in NTP (RFC 5905, 10)."""
TELL_S: Final = 2.0
"""After so long of waiting, say what for; and again after as long."""


Grant = Callable[[Command], Awaitable[Granted]]
"""Asks the controller, wherever it is. Raises what it answers, or NoController."""
Stamp = Callable[[], Awaitable[tuple[UUID, ...] | None]]
"""Durably adds a stamp to the data folder, and returns all of them; None where it cannot."""


class ClockSkew:
    """How far this node's clock is from the controller's, told by the answers to heartbeats. Pure.

    ``seconds`` is off by half of the quickest round trip at most.
    """

    def __init__(self) -> None:
        self._heard: deque[tuple[int, int]] = deque(maxlen=SKEWS_KEPT)
        """How long the answer took, and how far our clock was ahead; milliseconds."""

    def heard(self, *, sent_ms: int, told_ms: int, now_ms: int) -> None:
        """Asked at ``sent_ms`` and answered at ``now_ms`` of our clock; theirs was ``told_ms``."""
        took_ms = now_ms - sent_ms
        if took_ms >= 0:  # else our clock was set meanwhile
            self._heard.append((took_ms, (sent_ms + now_ms) // 2 - told_ms))

    def forget(self) -> None:
        """Another node answers."""
        self._heard.clear()

    @property
    def seconds(self) -> float | None:
        """Ahead of the other clock; None before anything was heard."""
        return min(self._heard)[1] / 1000 if self._heard else None


class NodeHeartbeats:
    """``register`` once; ``run`` as a task; ``stop`` before the node goes."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        incarnation: UUID,
        settings: ClusterSection,
        grant: Grant,
        applied_offset: Callable[[], int],
        applied: Callable[[int], Awaitable[None]],
        needs_no_lease: Callable[[], bool],
    ) -> None:
        """``applied_offset``: up to where the node acts on the metadata; ``applied`` waits until it does."""
        times = SessionTimes.of(settings)
        self.lease = Lease(times.lease_ms, times.session_ms_min)
        self.node_epoch = -1
        """Of this process; -1 before it has registered."""
        self.waiting_for = "the controller"
        """Why the node has not registered."""
        self.offline: frozenset[TopicPartition] = frozenset()
        """The partitions that this node cannot write, told with each heartbeat."""
        self.full = False
        """There is no room on this node's disk; told with the heartbeat, too."""
        self.unfit: Callable[[], tuple[str, ...]] = tuple
        """What else is wrong with the node, asked before each heartbeat and told with it."""
        self.stall_ms: Callable[[], int] = int
        """For how long the node's disk has owed an answer, asked before each heartbeat and told with it."""
        self.clock_skew = ClockSkew()
        """Of this node and the controller."""
        self.agreed_ahead_s: float | None = None
        """By how much the time that most nodes agree on is ahead of the controller's clock."""
        self._node_id = node_id
        self._incarnation = incarnation
        self._heartbeat_s = settings.heartbeat_interval_ms / 1000
        self._session_s = settings.session_timeout_ms / 1000
        self._stamp_s = settings.stamp_ms / 1000
        self._grant = grant
        self._applied_offset = applied_offset
        self._applied = applied
        self._needs_no_lease = needs_no_lease
        self._hurry = asyncio.Event()
        self._asking: asyncio.Timeout | None = None
        """While a heartbeat is not answered."""

    async def register(self, wanted: RegisterNode) -> None:
        """Until the controller accepts it, and the node has applied all that was decided before.

        Raises NodeIdTaken if another node of this id stays alive.
        """
        told = clock_s()
        refused_at: float | None = None
        refused_s = 0.0
        while True:
            sent_at = clock_s()
            try:
                granted = await self._grant(wanted)
            except NodeIdTaken as error:
                # The process before this one may have died a moment ago: its session must end first.
                # Only the time from one refusal to the next counts. Without a controller no session
                # ends, and a process that stood still has not waited, however late it is.
                now = clock_s()
                if refused_at is not None:
                    refused_s += min(now - refused_at, self._session_s / 2)
                if refused_s > 2 * self._session_s:
                    raise
                refused_at = now
                self.waiting_for = str(error)
            except Unavailable as error:
                refused_at = None
                self.waiting_for = str(error)
            else:
                self.node_epoch = int(granted.result["node_epoch"])
                await self._applied(granted.offset)
                self._extend(sent_at)
                _tell_losses(granted)
                return
            if clock_s() > told + TELL_S:
                told = clock_s()
                logger.warning(WAITING_TO_REGISTER, extra={"reason": self.waiting_for})
            await asyncio.sleep(RETRY_S)

    def hurry(self) -> None:
        """The next heartbeat is due now: there is another controller, or news."""
        self._hurry.set()

    def controller_changed(self) -> None:
        """What another one was asked is not waited for: it may never answer, and the lease runs out."""
        self.clock_skew.forget()
        self.agreed_ahead_s = None
        if self._asking is not None and not self._asking.expired():
            self._asking.reschedule(asyncio.get_running_loop().time())
        self.hurry()

    async def run(self, stamp: Stamp | None = None) -> None:
        """Raises StaleNode when another process has registered as this node."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._beat())
                tasks.create_task(self._tell_of_the_lease())
                if stamp is not None:
                    tasks.create_task(self._stamp_folder(stamp))
        except ExceptionGroup as group:  # Python 3.11.2 wraps what an except* block raises
            stale, others = group.split(StaleNode)
            if stale is None or others is not None:
                raise
            raise _first(stale) from None
        finally:
            self.lease.end()

    async def _tell_of_the_lease(self) -> None:
        """When it runs out, and now and then."""
        while True:
            self.lease.tell()
            left_s = self.lease.left_s
            pause_s = min(left_s, self._heartbeat_s) if left_s > 0 else self._heartbeat_s
            await asyncio.sleep(max(pause_s, 0.001))

    async def stop(self) -> None:
        """Have others lead, if there are any. Raises Unavailable."""
        if self.node_epoch >= 0:
            await self._grant(StopNode(node_id=self._node_id, node_epoch=self.node_epoch))

    async def _beat(self) -> None:
        while True:
            self._hurry.clear()
            sent_at, sent_ms, beat = clock_s(), wall_ms(), self._heartbeat()
            worked_at = sent_at - beat.stall_ms / 1000
            if beat.stall_ms:
                self.lease.count_from(worked_at)
            try:
                async with asyncio.timeout(self._session_s) as self._asking:
                    granted = await self._grant(beat)
            except StaleNode:
                self.lease.end()
                raise
            except (StreamlogError, TimeoutError) as error:
                self._asking = None
                logger.debug("heartbeat failed", extra={"error": str(error)})
            else:
                self._asking = None
                self._compare_clocks(sent_ms, granted)
                # A controller of an earlier build wants none.
                if await self._has_applied(int(granted.result.get("offset_wanted", 0))):
                    self._extend(worked_at, int(granted.result["unconfirmed_ms"]))
            pause_s = max(0.0, sent_at + self._heartbeat_s - clock_s())
            try:
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    async def _has_applied(self, offset: int) -> bool:
        """Wait a little for the metadata below ``offset``: a node that does not know that a stream is
        deleted must not acknowledge for it. After a wait the next heartbeat is due at once, to tell
        the controller.
        """
        if self._applied_offset() >= offset:
            return True
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await self._applied(offset)
        except (StreamlogError, TimeoutError):
            return False
        self.hurry()
        return True

    async def _stamp_folder(self, stamp: Stamp) -> None:
        """One stamp at a time, told until the controller knows it: the folder does not keep all
        stamps, and must keep the last one that the controller knows.
        """
        stamps: tuple[UUID, ...] | None = None
        while True:
            await asyncio.sleep(self._stamp_s)
            stamps = stamps or await stamp()
            if stamps is None:
                continue
            command = StampFolder(node_id=self._node_id, node_epoch=self.node_epoch, stamps=stamps)
            try:
                async with asyncio.timeout(self._session_s):
                    await self._grant(command)
            except StaleNode:
                self.lease.end()
                raise
            except (StreamlogError, TimeoutError) as error:
                logger.debug("stamp not told", extra={"error": str(error)})
            else:
                stamps = None

    def _compare_clocks(self, sent_ms: int, granted: Granted) -> None:
        agreed_ms: int | None = granted.result["agreed_ahead_ms"]
        self.agreed_ahead_s = None if agreed_ms is None else agreed_ms / 1000
        told_ms, now_ms = int(granted.result["time_ms"]), wall_ms()
        self.clock_skew.heard(sent_ms=sent_ms, told_ms=told_ms, now_ms=now_ms)

    def _heartbeat(self) -> Heartbeat:
        skew_s = self.clock_skew.seconds
        return Heartbeat(
            node_id=self._node_id,
            node_epoch=self.node_epoch,
            offset=self._applied_offset(),
            offline=tuple((tp.stream, tp.partition) for tp in sorted(self.offline)),
            full=self.full,
            unfit=self.unfit(),
            clock_ahead_ms=None if skew_s is None else round(skew_s * 1000),
            stall_ms=self.stall_ms(),
        )

    def _extend(self, sent_at: float, unconfirmed_ms: int = 0) -> None:
        if self._needs_no_lease():
            self.lease.hold_for_ever()
        else:
            self.lease.extend(sent_at, unconfirmed_ms)


def _tell_losses(granted: Granted) -> None:
    """Of what the controller knows of this node's data folder."""
    if granted.result.get("older_copy"):
        logger.error(OLDER_COPY)
    for what, event in (
        ("tail_lost", REPLICA_MAY_LACK_RECORDS),
        ("data_lost", REPLICA_LOST),
    ):
        for stream, partition in granted.result.get(what, ()):
            logger.error(event, extra={"stream": stream, "partition": partition})


def _first(group: BaseExceptionGroup[StaleNode]) -> StaleNode:
    found = group.exceptions[0]
    return found if isinstance(found, StaleNode) else _first(found)
