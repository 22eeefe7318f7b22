"""Tells partitions how transactions end: markers, to the leader of each partition, until it has taken them.

Markers for one node share requests, and no more than ``REQUESTS_MAX`` of them are on their way to it at once.
A marker whose request has failed, or whose partition is led by another node by now, is sent again. One that has come
twice has no effect the second time; one of an earlier coordinator is refused by the partition.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from streamlog.condition import CHECK_NODES, Condition
from streamlog.errors import RequestTimedOut, StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.peers import PeerAddress
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.transactions.requests import SendMarkers
from streamlog.transactions.state_topic import TransactionShard
from streamlog.transactions.transaction import VERSION_2
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of

logger = logging.getLogger(__name__)

MARKER_NOT_TAKEN: Final = Condition(
    "SL-0530",
    "a transaction's marker is not taken",
    CHECK_NODES,
    meaning="A partition does not take the marker that ends a transaction. Its read_committed readers wait, and so does"
    " the producer's next transaction; the marker is sent again until it is taken.",
)

REQUESTS_MAX: Final = 4
"""On their way to one node; a partition that takes long holds up a few others only."""
MARKERS_AT_ONCE: Final = 500
REQUEST_TIMEOUT_MS: Final = 6_000
"""A leader waits 4 s for its followers."""
RETRY_S: Final = 0.1
LATE_S: Final = 6.0
"""Until a marker is sent again that may be on its way still, where it has the epoch of the producer's next transaction,
too (before version 2 of transactions): one that came after the next transaction has begun would end that.
"""
TOLD_AFTER: Final = 50
"""Failures of a marker, before the log has it."""


class MarkerNodes(Protocol):
    """``metadata.quorum.peers.Peers``, of which this one is used for nothing else."""

    def close(self) -> None: ...
    async def write_markers(
        self, address: PeerAddress, values: Message, timeout_ms: int, *, purpose: str
    ) -> Message: ...


class Marker(NamedTuple):
    """One partition is to be told of one transaction's end."""

    shard: TransactionShard
    sent: SendMarkers
    tp: TopicPartition
    failures: int = 0


class MarkerSender:
    """``run`` as a task."""

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        nodes: MarkerNodes,
        *,
        here: Callable[[TopicPartition, TransactionMarker], Awaitable[None]],
        catch_up: Callable[[], Awaitable[bool]],
    ) -> None:
        """``here`` ends a transaction in a partition that this node leads, and raises what it refuses; ``catch_up``:
        whether the image has all that is decided by now.
        """
        self._node_id = node_id
        self._image = image
        self._nodes = nodes
        self._end_here = here
        self._catch_up = catch_up
        self._waiting: dict[NodeId, deque[Marker]] = defaultdict(deque)
        self._requests: dict[NodeId, set[int]] = defaultdict(set)
        """On their way; each has a connection by its number."""
        self._begun: asyncio.Queue[tuple[NodeId, int]] = asyncio.Queue()
        """Requests to be sent; never more than ``REQUESTS_MAX`` a node."""
        self.unsent = 0
        """Markers that are not known to be taken."""

    def send(self, shard: TransactionShard, markers: SendMarkers) -> None:
        """``shard.marked`` is called for each partition, as long as the shard leads."""
        for topic, number in sorted(markers.partitions):
            self.unsent += 1
            self._queue(Marker(shard, markers, TopicPartition(topic, number)))

    def close(self) -> None:
        """No other node is told any more."""
        self._nodes.close()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                node_id, number = await self._begun.get()
                group.create_task(self._request(node_id, number))

    def _queue(self, marker: Marker) -> None:
        if not marker.shard.leads:
            self.unsent -= 1
            return
        leader = self._leader(marker.tp)
        if leader == NO_LEADER:
            asyncio.get_running_loop().call_later(RETRY_S, self._queue, marker)
            return
        self._waiting[leader].append(marker)
        self._begin(leader)

    def _leader(self, tp: TopicPartition) -> NodeId:
        """This node, where there is no such partition as far as it knows: it finds out whether that is so."""
        stream = self._image().streams.get(tp.stream)
        if stream is None or tp.partition >= len(stream.partitions):
            return self._node_id
        return stream.partitions[tp.partition].leader

    def _begin(self, node_id: NodeId) -> None:
        requests = self._requests[node_id]
        number = next((it for it in range(REQUESTS_MAX) if it not in requests), None)
        if number is not None and self._waiting[node_id]:
            requests.add(number)
            self._begun.put_nowait((node_id, number))

    async def _request(self, node_id: NodeId, number: int) -> None:
        waiting = self._waiting[node_id]
        markers = [waiting.popleft() for _ in range(min(len(waiting), MARKERS_AT_ONCE))]
        markers = [it for it in markers if it.shard.leads or self._forget()]
        try:
            if not markers:
                return
            if node_id == self._node_id:
                codes = await self._tell_here(markers)
            else:
                codes = await self._tell(node_id, number, markers)
            for marker, code in zip(markers, codes, strict=True):
                self._told(marker, code)
        finally:
            self._requests[node_id].discard(number)
            self._begin(node_id)

    def _forget(self) -> bool:
        """Another coordinator sends it."""
        self.unsent -= 1
        return False

    async def _tell_here(self, markers: Iterable[Marker]) -> list[ErrorCode]:
        async def tell(marker: Marker) -> ErrorCode:
            sent = marker.sent
            try:
                await self._end_here(
                    marker.tp,
                    TransactionMarker(
                        *sent.producer, sent.commit, marker.shard.leader_epoch, sent.version
                    ),
                )
            except StreamlogError as error:
                code = code_of(error)
                if code is ErrorCode.unknown_topic_or_partition and await self._is_gone(marker.tp):
                    return ErrorCode.none
                return code
            return ErrorCode.none

        return list(await asyncio.gather(*map(tell, markers)))

    async def _is_gone(self, tp: TopicPartition) -> bool:
        """The stream was deleted: nothing is left to be ended."""
        if not await self._catch_up():
            return False
        stream = self._image().streams.get(tp.stream)
        return stream is None or tp.partition >= len(stream.partitions)

    async def _tell(self, node_id: NodeId, number: int, markers: list[Marker]) -> list[ErrorCode]:
        node = self._image().nodes.get(node_id)
        if node is None:
            return [ErrorCode.broker_not_available] * len(markers)
        try:
            answer = await self._nodes.write_markers(
                PeerAddress(node.host, node.port),
                {"markers": [_asked(it) for it in markers]},
                REQUEST_TIMEOUT_MS,
                purpose=f"markers-{number}",
            )
        except RequestTimedOut:
            return [ErrorCode.request_timed_out] * len(markers)
        except StreamlogError as error:
            logger.debug("markers not sent", extra={"node": node_id, "error": str(error)})
            return [ErrorCode.broker_not_available] * len(markers)
        return [_code(told, it) for told, it in zip(answer["markers"], markers, strict=True)]

    def _told(self, marker: Marker, code: ErrorCode) -> None:
        if code is ErrorCode.none:
            self.unsent -= 1
            marker.shard.marked(marker.sent, (marker.tp.stream, marker.tp.partition))
            return
        failures = marker.failures + 1
        if failures % TOLD_AFTER == 0:
            extra: dict[str, Any] = {
                "stream": marker.tp.stream,
                "partition": marker.tp.partition,
                "transactional_id": marker.sent.transactional_id,
                "error": code.name,
            }
            logger.warning(MARKER_NOT_TAKEN, extra=extra)
        is_late = code is ErrorCode.request_timed_out and marker.sent.version < VERSION_2
        asyncio.get_running_loop().call_later(
            LATE_S if is_late else RETRY_S, self._queue, marker._replace(failures=failures)
        )


def _asked(marker: Marker) -> dict[str, Any]:
    sent = marker.sent
    return {
        "producer_id": sent.producer.producer_id,
        "producer_epoch": sent.producer.epoch,
        "transaction_result": sent.commit,
        "topics": [{"name": marker.tp.stream, "partition_indexes": [marker.tp.partition]}],
        "coordinator_epoch": marker.shard.leader_epoch,
        "transaction_version": sent.version,
    }


def _code(told: Mapping[str, Any], marker: Marker) -> ErrorCode:
    for topic in told["topics"]:
        for it in topic["partitions"]:
            if (topic["name"], it["partition_index"]) == marker.tp:
                return ErrorCode(it["error_code"])
    return ErrorCode.unknown_server_error
