"""The replica fetcher of one leader: one request for all partitions that it leads and this node keeps.

Fetch, append, sync, fetch again with the new offsets, which acknowledges what was synced. While
nothing is new the request waits at the leader. Only what has changed is named, and looked at: the
leader knows the rest from the requests before, and keeps it in a session.

What another partition joins is asked for at once: the leader is hurried.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from itertools import groupby
from typing import Final, NamedTuple

from streamlog.client.connection import Connection
from streamlog.client.security import NO_SECURITY, Security
from streamlog.condition import CHECK_NODES, CORRECT_THEN_RESTART, CRITICAL, Condition
from streamlog.config import ReplicationSection
from streamlog.errors import CorruptData, StreamlogError
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replication.fetch_session import FetchedPosition, FollowerFetchSession
from streamlog.partition.replication.follower_append import BEGINS_AGAIN, is_cut, take
from streamlog.partition.replication.partition_follower import FetchPosition
from streamlog.partition.replication.truncation import repair
from streamlog.rate_limit import TokenBucket
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import check
from streamlog.wire.fetch import (
    FetchedRecords,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    TopicIdPartition,
)

logger = logging.getLogger(__name__)

NOT_FOLLOWED: Final = Condition(
    "SL-0208",
    "partition not followed",
    CORRECT_THEN_RESTART,
    meaning="A follower cannot fetch the partition, for a reason that does not pass by itself.",
    severity=CRITICAL,
)
LEADER_UNREACHABLE: Final = Condition(
    "SL-0209",
    "leader unreachable",
    CHECK_NODES,
    meaning="A follower does not reach the node that leads its partitions. It tries again, and "
    "reports it to the controller.",
)

LATE_MS: Final = 1_500
"""An answer that comes so much later than it might wait is late: the leader may be gone."""
TIMEOUT_MS: Final = 15_000
"""For a large answer over a slow link."""
RETRY_MS_MIN: Final = 5
"""After a first refusal: the leader has not yet heard that it leads, most likely."""
JOIN_MS: Final = 20
"""For partitions that join one after the other the leader is hurried no more often."""
PARTITION_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one partition in one answer, so that others have their share."""
COPY_WINDOW_S: Final = 1.0
"""Copies that were slower than ``copy_bytes_per_s`` make up for so much."""
COPY_BYTES_MIN: Final = 64 * 1024
"""What is asked for at once of a partition that is copied slowly."""
SESSION_LOST: Final = (
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
)

RELEASING: Final = (ErrorCode.none, *BEGINS_AGAIN)
"""Answers of a leader that has looked, and does not count what this node cannot read."""

Standings = dict[TopicIdPartition, FetchedPosition]
Unreachable = Callable[[NodeId, Iterable[Partition]], None]


class FetchPeer(NamedTuple):
    """A node to be fetched from."""

    node_id: NodeId
    host: str
    port: int


class _AnsweredPartition(NamedTuple):
    """What the leader answers to what it was asked."""

    partition: Partition
    asked: FetchPosition
    answer: FetchedRecords


class _Setback:
    """A partition that is not asked for until later."""

    def __init__(self) -> None:
        self.until = 0.0
        self.delay_ms = RETRY_MS_MIN


class ReplicaFetcher:
    """``run`` as a task; ``follow`` and ``leave`` at any time."""

    def __init__(
        self,
        leader: FetchPeer,
        *,
        node_id: NodeId,
        node_epoch: Callable[[], int],
        settings: ReplicationSection,
        unreachable: Unreachable,
        workers: Executor,
        metrics: NodeMetrics,
        copy_limit: TokenBucket | None = None,
        security: Security = NO_SECURITY,
    ) -> None:
        """``unreachable`` hears of each vain attempt, with the partitions it was made for; ``copy_limit``: of all
        fetchers, for partitions whose replica here is not in sync.
        """
        self._leader = leader
        self._node_id = node_id
        self._node_epoch = node_epoch
        self._settings = settings
        self._unreachable = unreachable
        self._workers = workers
        self._metrics = metrics
        self._copy_limit = copy_limit
        self._copy_due = 0.0
        """When the limit lets a copy go on that waits for it."""
        self._copies = 0
        """Partitions of the next request that are not in sync."""
        self._security = security
        self._partitions: dict[TopicIdPartition, Partition] = {}
        self._session = FollowerFetchSession()
        self._loose: dict[TopicIdPartition, None] = {}
        """Those that the leader may not know as they are; to be looked at before each request."""
        self._setbacks: dict[TopicIdPartition, _Setback] = {}
        self._connection: Connection | None = None
        self._changed = asyncio.Event()
        self._exchanging: asyncio.Timeout | None = None  # what another address interrupts
        self._joined = asyncio.Event()
        self._waits = False  # for an answer, so that the leader may be hurried
        self._is_reachable = True  # as last told
        self._has_answered = False  # on this connection

    def __len__(self) -> int:
        return len(self._partitions)

    def follow(self, partition: Partition, leader: FetchPeer) -> None:
        """It is led by this node, in a new epoch; perhaps at another address."""
        key = partition.key
        self._partitions[key] = partition
        self._loose[key] = None
        self._setbacks.pop(key, None)
        if leader != self._leader:
            self._leader = leader
            if self._exchanging is None:
                self._disconnect()
            elif not self._exchanging.expired():
                self._exchanging.reschedule(asyncio.get_running_loop().time())
        self._changed.set()
        self._joined.set()

    def leave(self, partition: Partition) -> None:
        key = partition.key
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._loose.pop(key, None)
            self._setbacks.pop(key, None)
            self._session.forget(key)

    def look_at(self, partition: Partition) -> None:
        """It may not be fit to be asked for any more, or is again."""
        if self._partitions.get(partition.key) is partition:
            self._loose[partition.key] = None

    def hurry(self, partition: Partition) -> None:
        """The leader is to hear at once how it is now."""
        if self._partitions.get(partition.key) is partition:
            self._loose[partition.key] = None
            self._changed.set()
            self._joined.set()

    async def run(self) -> None:
        """For as long as the node runs."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hurry())
            try:
                while True:
                    self._changed.clear()
                    try:
                        await self._round()
                    except StreamlogError as error:
                        await self._failed(error)
            finally:
                self._disconnect()

    async def _round(self) -> None:
        # An absent leader is tried often, and nothing need be written for it.
        if self._partitions and not await self._reached():
            return
        standings = await self._standings()
        if not standings and not self._session:
            self._session.lose()  # a full request would be as short
            await self._pause(self._due_ms())
            return
        try:
            async with asyncio.timeout(None) as self._exchanging:
                answer = await self._exchange(self._request(standings))
        except TimeoutError:
            self._disconnect()
            return
        finally:
            self._exchanging = None
        cuts: list[Awaitable[None]] = []
        answered = self._found(answer)
        if answer.error_code == ErrorCode.none:
            self._release(standings, answered)
        for found in answered:
            if is_cut(found.answer):  # in a worker thread, so beside the others
                cuts.append(self._take(found))
            else:
                await self._take(found)
        if cuts:
            await asyncio.gather(*cuts)

    def _release(self, asked: Standings, answered: Sequence[_AnsweredPartition]) -> None:
        """The leader knows now where damage begins. It looks at each partition that is named, and
        answers with an error where the damage must stay. A partition without news may be missing.
        """
        codes = {it.partition.key: it.answer.fetched.error_code for it in answered}
        for key, standing in asked.items():
            partition = self._partitions.get(key)
            if partition is not None and partition.is_damaged:
                self._loose[key] = None
                if codes.get(key, ErrorCode.none) in RELEASING:
                    partition.following.release(standing.position)

    # What to ask

    async def _standings(self) -> Standings:
        """Of the loose partitions that can be followed now, once what they have is synced; the
        others are not asked for.
        """
        now = asyncio.get_running_loop().time()
        loose, self._loose = self._loose, {}
        self._copies = 0
        ready: list[Partition] = []
        unready: list[Partition] = []
        for key in loose:
            partition, setback = self._partitions[key], self._setbacks.get(key)
            if (setback is not None and setback.until > now) or self._holds_back(partition, now):
                self._loosen(key)
            elif partition.following.position() is not None:
                ready.append(partition)
            elif partition.failure is None and not partition.is_leader:
                unready.append(partition)
            else:
                self._session.forget(key)
        if unready:
            await asyncio.gather(*(self._make_ready(partition) for partition in unready))
        standings: Standings = {}
        for partition in (*ready, *unready):
            key, position = partition.key, partition.following.position()
            if self._partitions.get(key) is not partition:
                continue
            if position is None:
                self._loosen(key)
            else:
                start = partition.local_log_start_offset
                standings[key] = FetchedPosition(position, partition.high_watermark, start)
        return standings

    def _holds_back(self, partition: Partition, now: float) -> bool:
        """A copy waits until the ones before it are paid for. A request has as many as share what may be copied in
        a second, so that many of them do not take a multiple of the limit at once. Those that were asked for last
        come last again.
        """
        if self._copy_limit is None or self._is_in_sync(partition):
            return False
        debt_s = self._copy_limit.debt_s(now)
        if debt_s > 0:
            self._copy_due = now + debt_s
        elif self._copies < max(1, int(self._copy_limit.rate) // COPY_BYTES_MIN):
            self._copies += 1
            return False
        return True

    def _is_in_sync(self, partition: Partition) -> bool:
        return self._node_id in partition.state.isr

    def _loosen(self, key: TopicIdPartition) -> None:
        """Not asked for by the next request, perhaps by the one after it."""
        self._loose[key] = None
        self._session.forget(key)

    async def _make_ready(self, partition: Partition) -> None:
        """What it has is whole and synced then, if that can be."""
        try:
            if partition.is_damaged:
                await repair(partition, self._workers)
            await partition.wait_kept()
        except StreamlogError as error:
            self._set_back(partition, error)

    def _due_ms(self) -> int:
        """How long the request may wait: a partition that was set back, or a copy, is due then."""
        longest = self._settings.fetch_wait_max_ms
        now = asyncio.get_running_loop().time()
        due = [it.until for it in self._setbacks.values() if it.until > now]
        if self._copy_due > now:
            due.append(self._copy_due)
        return min(longest, int((min(due) - now) * 1000) + 1) if due else longest

    def _request(self, standings: Standings) -> FetchRequest:
        session = self._session
        named = session.ask(standings)
        return FetchRequest(
            [
                FetchTopic("", [self._wanted(it, standings[it]) for it in group], topic_id)
                for topic_id, group in groupby(named, key=lambda it: it.topic_id)
            ],
            max_wait_ms=self._due_ms(),
            min_bytes=1,
            max_bytes=self._settings.fetch_bytes_max,
            replica_id=self._node_id,
            replica_epoch=self._node_epoch(),
            session_id=session.id,
            session_epoch=session.epoch,
            forgotten=session.take_forgotten(),
        )

    def _wanted(self, key: TopicIdPartition, standing: FetchedPosition) -> FetchPartition:
        position, partition = standing.position, self._partitions[key]
        bytes_max = min(self._settings.fetch_bytes_max, PARTITION_BYTES_MAX)
        if self._copy_limit is not None and not self._is_in_sync(partition):
            share = int(self._copy_limit.rate) // max(1, self._copies)
            bytes_max = min(bytes_max, max(share, COPY_BYTES_MIN))
        return FetchPartition(
            key.partition,
            position.offset,
            bytes_max,
            position.leader_epoch,
            position.last_epoch,
            standing.log_start,
            high_watermark=standing.high_watermark,
            incarnation=partition.incarnation,
            partition_epoch=position.partition_epoch,
        )

    # Asking

    async def _reached(self) -> bool:
        """False if it is to be tried again at another address."""
        late = asyncio.get_running_loop().call_later(
            LATE_MS / 1000, self._tell_unreachable, "no connection"
        )
        try:
            async with asyncio.timeout(None) as self._exchanging:
                await self._connected()
        except TimeoutError:
            self._disconnect()
            return False
        finally:
            self._exchanging = None
            late.cancel()
        return True

    async def _exchange(self, request: FetchRequest) -> FetchResponse:
        loop = asyncio.get_running_loop()
        late_s = (request.max_wait_ms + LATE_MS) / 1000
        late = loop.call_later(late_s, self._tell_unreachable, "no answer")
        try:
            connection = await self._connected()
            if self._changed.is_set():  # since it was written
                request = request._replace(max_wait_ms=0)
            self._waits = True
            answer = await connection.fetch(request)
        finally:
            self._waits = False
            late.cancel()
        if answer.error_code not in SESSION_LOST:
            check(answer.error_code, f"node {self._leader.node_id}")
        self._has_answered = True
        self._tell_reachable()
        return answer

    async def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.broken:
            return self._connection
        if self._connection is not None:
            self._connection.close()
        _, host, port = self._leader
        self._has_answered = False
        self._connection = await Connection.open(
            host, port, timeout_ms=TIMEOUT_MS, security=self._security
        )
        return self._connection

    async def _hurry(self) -> None:
        """What joins while a request waits is not to wait, too."""
        while True:
            await self._joined.wait()
            self._joined.clear()
            if self._waits and self._connection is not None and self._changed.is_set():
                await self._connection.hurry()
                await asyncio.sleep(JOIN_MS / 1000)

    def _found(self, answer: FetchResponse) -> Sequence[_AnsweredPartition]:
        """What is answered is loose: it may not be afterwards what the leader knows."""
        session, found = self._session, []
        for fetched in answer.partitions:
            key = TopicIdPartition(fetched.topic_id, fetched.fetched.partition)
            partition, asked = self._partitions.get(key), session.position(key)
            if partition is not None and asked is not None:
                found.append(_AnsweredPartition(partition, asked, fetched))
                session.told(key, fetched.fetched)
                self._loose[key] = None
        session.answered(answer)
        if session.is_new:
            self._loose.update(dict.fromkeys(self._partitions))
        return found

    async def _failed(self, error: StreamlogError) -> None:
        """A connection that has served and breaks may be only that; if the next one fails, too, the
        leader is away.
        """
        had_answered, self._has_answered = self._has_answered, False
        self._disconnect()
        if not had_answered:
            self._tell_unreachable(str(error))
            await self._pause(self._settings.fetch_backoff_ms)

    def _disconnect(self) -> None:
        """The next request, on another connection, names everything."""
        self._session.lose()
        self._loose.update(dict.fromkeys(self._partitions))
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _pause(self, pause_ms: int) -> None:
        """Shorter if a partition joins."""
        try:
            async with asyncio.timeout(pause_ms / 1000 if self._partitions else None):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _tell_unreachable(self, problem: str) -> None:
        if self._is_reachable:
            self._is_reachable = False
            logger.warning(
                LEADER_UNREACHABLE, extra={"node": self._leader.node_id, "error": problem}
            )
        self._unreachable(self._leader.node_id, self._partitions.values())

    def _tell_reachable(self) -> None:
        if not self._is_reachable:
            self._is_reachable = True
            logger.info("leader reachable", extra={"node": self._leader.node_id})

    # Taking the answer

    async def _take(self, found: _AnsweredPartition) -> None:
        partition, asked, answer = found
        is_copy = not self._is_in_sync(partition)
        try:
            size = await take(partition, asked, answer, self._workers)
        except StreamlogError as error:
            self._set_back(partition, error)
            return
        self._setbacks.pop(partition.key, None)
        if size:
            self._metrics.replication_bytes.inc(size)
        if size and is_copy and self._copy_limit is not None:
            self._copy_limit.take(size, asyncio.get_running_loop().time())

    def _set_back(self, partition: Partition, error: StreamlogError) -> None:
        if self._partitions.get(partition.key) is not partition:
            return
        setback = self._setbacks.setdefault(partition.key, _Setback())
        is_grave = isinstance(error, CorruptData) and setback.delay_ms == RETRY_MS_MIN
        logger.log(
            logging.ERROR if is_grave else logging.DEBUG,
            NOT_FOLLOWED,
            extra=partition.place(error),
        )
        setback.until = asyncio.get_running_loop().time() + setback.delay_ms / 1000
        setback.delay_ms = min(2 * setback.delay_ms, self._settings.fetch_backoff_ms)


class _FollowedPartition(NamedTuple):
    partition: Partition
    leader: NodeId


class ReplicaFetchers:
    """All followed partitions, by the node that leads them: a fetcher for each such node.
    ``follow`` and ``leave`` at any time; ``run`` as a task.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        node_epoch: Callable[[], int],
        settings: ReplicationSection,
        unreachable: Unreachable,
        workers: Executor,
        metrics: NodeMetrics,
        security: Security = NO_SECURITY,
    ) -> None:
        """``unreachable`` hears of each vain attempt, with the partitions it was made for."""
        self._node_id = node_id
        self._node_epoch = node_epoch
        self._settings = settings
        self._unreachable = unreachable
        self._workers = workers
        self._metrics = metrics
        self._copy_limit: TokenBucket | None = None
        self._security = security
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._followed: dict[TopicPartition, _FollowedPartition] = {}
        self._group: asyncio.TaskGroup | None = None

    def follow(self, partition: Partition, leader: FetchPeer) -> None:
        """Ask this leader from now on, and at once; again for each new epoch."""
        followed = _FollowedPartition(partition, leader.node_id)
        if self._followed.get(partition.tp) != followed:
            self.leave(partition.tp)
        self._followed[partition.tp] = followed
        self._fetcher(leader).follow(partition, leader)

    def leave(self, tp: TopicPartition) -> None:
        """It is followed no more. An answer that is on its way does nothing."""
        followed = self._followed.pop(tp, None)
        if followed is not None:
            self._fetchers[followed.leader].leave(followed.partition)

    def look_at(self, tp: TopicPartition) -> None:
        """Whether it can be followed may have changed."""
        followed = self._followed.get(tp)
        if followed is not None:
            self._fetchers[followed.leader].look_at(followed.partition)

    def hurry(self, tp: TopicPartition) -> None:
        """Its leader is to hear at once how it is now."""
        followed = self._followed.get(tp)
        if followed is not None:
            self._fetchers[followed.leader].hurry(followed.partition)

    async def run(self) -> None:
        """For as long as the node runs."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for fetcher in self._fetchers.values():
                group.create_task(fetcher.run())
            await asyncio.get_running_loop().create_future()  # until cancelled

    def _fetcher(self, leader: FetchPeer) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader.node_id)
        if fetcher is None:
            rate = self._settings.copy_bytes_per_s
            if rate and self._copy_limit is None:
                now = asyncio.get_running_loop().time()
                self._copy_limit = TokenBucket(rate, COPY_WINDOW_S, now)
            fetcher = ReplicaFetcher(
                leader,
                node_id=self._node_id,
                node_epoch=self._node_epoch,
                settings=self._settings,
                unreachable=self._unreachable,
                workers=self._workers,
                metrics=self._metrics,
                copy_limit=self._copy_limit,
                security=self._security,
            )
            self._fetchers[leader.node_id] = fetcher
            if self._group is not None:
                self._group.create_task(fetcher.run())
        return fetcher
