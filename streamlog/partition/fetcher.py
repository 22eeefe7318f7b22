"""Follows one leader: all partitions that it leads and that this node keeps, in one request.

Fetch, append, sync, fetch again with the new offsets, which acknowledges what was synced. While
nothing is new the request waits at the leader. What another partition joins is asked for at once:
a request that waits is given up, with its connection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from itertools import groupby
from typing import Final

from streamlog.client.connection import Connection
from streamlog.config import ReplicationSection
from streamlog.errors import CorruptData, StreamlogError
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.following import FetchPosition
from streamlog.partition.owner import Partition
from streamlog.partition.replica import is_cut, mend, take
from streamlog.partition.surroundings import FetchPeer
from streamlog.wire.errors import check
from streamlog.wire.fetch import FetchedRecords, FetchPartition, FetchRequest, FetchTopic

logger = logging.getLogger(__name__)

LATE_MS: Final = 1_500
"""An answer that comes so much later than it might wait is late: the leader may be gone."""
TIMEOUT_MS: Final = 15_000
"""For a large answer over a slow link."""
RETRY_MS_MIN: Final = 5
"""After a first refusal: the leader has not yet heard that it leads, most likely."""
JOIN_MS: Final = 20
"""Partitions that join one after the other give up a waiting request no more often."""
PARTITION_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one partition in one answer, so that others have their share."""

Asked = dict[TopicPartition, tuple[Partition, FetchPosition]]
Unreachable = Callable[[NodeId, Iterable[Partition]], None]


class _Setback:
    """A partition that is not asked for until later."""

    def __init__(self) -> None:
        self.until = 0.0
        self.delay_ms = RETRY_MS_MIN


class LeaderFetcher:
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
    ) -> None:
        """``unreachable`` hears of each vain attempt, with the partitions it was made for."""
        self._leader = leader
        self._node_id = node_id
        self._node_epoch = node_epoch
        self._settings = settings
        self._unreachable = unreachable
        self._workers = workers
        self._metrics = metrics
        self._partitions: dict[TopicPartition, Partition] = {}
        self._setbacks: dict[TopicPartition, _Setback] = {}
        self._connection: Connection | None = None
        self._changed = asyncio.Event()
        self._waiting: asyncio.Timeout | None = None  # what may be interrupted
        self._joined = 0.0  # when a waiting request was given up last
        self._is_reachable = True  # as last told
        self._has_answered = False  # on this connection

    def __len__(self) -> int:
        return len(self._partitions)

    def follow(self, partition: Partition, leader: FetchPeer) -> None:
        """It is led by this node, in a new epoch; perhaps at another address."""
        self._partitions[partition.tp] = partition
        self._setbacks.pop(partition.tp, None)
        if leader != self._leader:
            self._leader = leader
            self._disconnect()
        self._changed.set()
        if self._waiting is not None and not self._waiting.expired():
            now = asyncio.get_running_loop().time()
            self._waiting.reschedule(max(now, self._joined + JOIN_MS / 1000))

    def leave(self, tp: TopicPartition) -> None:
        self._partitions.pop(tp, None)
        self._setbacks.pop(tp, None)

    async def run(self) -> None:
        """For as long as the node runs."""
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
        asked = await self._positions()
        if not asked:
            await self._pause(self._due_ms())
            return
        cuts: list[Awaitable[None]] = []
        for answer in await self._fetch(asked):
            found = asked.get(TopicPartition(answer.topic, answer.fetched.partition))
            if found is None:
                continue
            if is_cut(answer):  # in a worker thread, so beside the others
                cuts.append(self._take(*found, answer))
            else:
                await self._take(*found, answer)
        if cuts:
            await asyncio.gather(*cuts)

    # What to ask

    async def _positions(self) -> Asked:
        """Of all partitions that can be followed now, once what they have is synced."""
        now = asyncio.get_running_loop().time()
        asked: Asked = {}
        unready: list[Partition] = []
        for tp, partition in self._partitions.items():
            setback = self._setbacks.get(tp)
            if setback is not None and setback.until > now:
                continue
            position = partition.following.position()
            if position is not None:
                asked[tp] = partition, position
            elif partition.failure is None and not partition.is_leader:
                unready.append(partition)
        if unready:
            await asyncio.gather(*(self._make_ready(partition) for partition in unready))
            for partition in unready:
                position = partition.following.position()
                if position is not None:
                    asked[partition.tp] = partition, position
        return asked

    async def _make_ready(self, partition: Partition) -> None:
        """What it has is whole and synced then, if that can be."""
        try:
            if partition.is_damaged:
                await mend(partition, self._workers)
            await partition.syncing.wait_kept()
        except StreamlogError as error:
            self._set_back(partition, error)

    def _due_ms(self) -> int:
        """How long the request may wait: a partition that was set back is due then."""
        longest = self._settings.fetch_wait_ms
        now = asyncio.get_running_loop().time()
        due = [it.until for it in self._setbacks.values() if it.until > now]
        return min(longest, int((min(due) - now) * 1000) + 1) if due else longest

    def _request(self, asked: Asked) -> FetchRequest:
        most = self._settings.fetch_bytes_max
        topics = [
            FetchTopic(
                stream,
                [
                    FetchPartition(
                        tp.partition,
                        position.offset,
                        min(most, PARTITION_BYTES_MAX),
                        position.leader_epoch,
                        position.last_epoch,
                        partition.log_start_offset,
                        high_watermark=partition.high_watermark,
                    )
                    for tp, (partition, position) in group
                ],
            )
            for stream, group in groupby(asked.items(), key=lambda item: item[0].stream)
        ]
        return FetchRequest(
            topics,
            max_wait_ms=self._due_ms(),
            min_bytes=1,
            max_bytes=most,
            replica_id=self._node_id,
            replica_epoch=self._node_epoch(),
        )

    # Asking

    async def _fetch(self, asked: Asked) -> Iterable[FetchedRecords]:
        """Nothing where a partition has joined meanwhile."""
        try:
            async with asyncio.timeout(None) as self._waiting:
                if self._changed.is_set():
                    return ()
                return await self._exchange(asked)
        except TimeoutError:
            self._disconnect()  # an answer may still come
            self._joined = asyncio.get_running_loop().time()
            return ()
        finally:
            self._waiting = None

    async def _exchange(self, asked: Asked) -> Iterable[FetchedRecords]:
        loop = asyncio.get_running_loop()
        request = self._request(asked)
        late_s = (request.max_wait_ms + LATE_MS) / 1000
        late = loop.call_later(late_s, self._tell_unreachable, "no answer")
        try:
            if self._connection is None or self._connection.broken:
                _, host, port = self._leader
                self._has_answered = False
                self._connection = await Connection.open(host, port, timeout_ms=TIMEOUT_MS)
            answer = await self._connection.fetch(request)
        finally:
            late.cancel()
        check(answer.error_code, f"node {self._leader.node_id}")
        self._has_answered = True
        self._tell_reachable()
        return answer.partitions

    async def _failed(self, error: StreamlogError) -> None:
        """A connection that has served and breaks may be only that; if the next one fails, too, the
        leader is away.
        """
        had_answered, self._has_answered = self._has_answered, False
        self._disconnect()
        if not had_answered:
            self._tell_unreachable(str(error))
            await self._pause(self._settings.retry_ms)

    def _disconnect(self) -> None:
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
                "leader unreachable", extra={"node": self._leader.node_id, "error": problem}
            )
        self._unreachable(self._leader.node_id, self._partitions.values())

    def _tell_reachable(self) -> None:
        if not self._is_reachable:
            self._is_reachable = True
            logger.info("leader reachable", extra={"node": self._leader.node_id})

    # Taking the answer

    async def _take(
        self, partition: Partition, asked: FetchPosition, answer: FetchedRecords
    ) -> None:
        try:
            size = await take(partition, asked, answer, self._workers)
        except StreamlogError as error:
            self._set_back(partition, error)
            return
        self._setbacks.pop(partition.tp, None)
        if size:
            self._metrics.replication_bytes.inc(size)
            if self._partitions.pop(partition.tp, None) is not None:
                self._partitions[partition.tp] = partition  # others first, the next time

    def _set_back(self, partition: Partition, error: StreamlogError) -> None:
        if partition.tp not in self._partitions:
            return
        setback = self._setbacks.setdefault(partition.tp, _Setback())
        is_grave = isinstance(error, CorruptData) and setback.delay_ms == RETRY_MS_MIN
        logger.log(
            logging.ERROR if is_grave else logging.DEBUG,
            "partition not followed",
            extra=partition.place(error),
        )
        setback.until = asyncio.get_running_loop().time() + setback.delay_ms / 1000
        setback.delay_ms = min(2 * setback.delay_ms, self._settings.retry_ms)
