"""Transactions as the server sees them: a transactional id's coordinator node, and requests to it."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from streamlog.condition import (
    ANOTHER_REPLICA,
    CHECK_NODES,
    CORRECT_THEN_RESTART,
    CRITICAL,
    Condition,
)
from streamlog.config import TransactionsSection
from streamlog.coordination.effects import NONE, Now
from streamlog.coordination.led_shards import CoordinatorMetadata, CoordinatorTroubles, LedShards
from streamlog.coordination.loader import CoordinatorLoader
from streamlog.coordination.reply import DelayedReply
from streamlog.metadata.stream.internal_stream import InternalStream
from streamlog.metadata.stream.stream_config import TRANSACTIONS_STREAM
from streamlog.model import NodeId
from streamlog.partition.internal_partition import InternalPartition, InternalPartitions
from streamlog.transactions.coordinator import TransactionCoordinator
from streamlog.transactions.replay import KnownTransaction, TransactionReplay
from streamlog.transactions.requests import AddRequest, Effect
from streamlog.transactions.state_topic import Markers, TransactionShard, config_of
from streamlog.transactions.transaction import PartitionId
from streamlog.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

TRANSACTIONS_NOT_READ: Final = Condition(
    "SL-0531",
    "transactions cannot be read from the log",
    ANOTHER_REPLICA,
    meaning="The coordinator cannot read the state of its transactional ids. Their producers wait.",
    severity=CRITICAL,
)
TRANSACTIONS_NOT_COORDINATED: Final = Condition(
    "SL-0532",
    "transactions cannot be coordinated",
    CORRECT_THEN_RESTART,
    meaning="The node leads a partition of __transaction_state that it cannot open.",
    severity=CRITICAL,
)
NO_TRANSACTIONS_STREAM: Final = Condition(
    "SL-0533",
    "no stream for transactions",
    CHECK_NODES,
    meaning="The stream __transaction_state could not be created.",
)


class TransactionStatistics(NamedTuple):
    """Of the transactional ids that this node coordinates."""

    states: Counter[str]
    """Ids by their state."""
    ended: Counter[str]
    """Transactions that have ended since the start, by what has ended them."""
    oldest_s: float
    """Age of the transaction that has been open for the longest time; 0: none is open."""
    loading: int
    """Partitions of which the ids are not known yet."""


class TransactionService(LedShards[TransactionShard]):
    """``run`` as a task, ``apply`` at each change of the image, after the partitions have; ``look``
    when a partition follows later.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        settings: TransactionsSection,
        metadata: CoordinatorMetadata,
        partitions: InternalPartitions,
        markers: Markers,
        new_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        """``new_producer_id``: one that no producer has had. Raises NoController, RequestTimedOut."""
        super().__init__(
            node_id=node_id,
            metadata=metadata,
            partitions=partitions,
            stream=InternalStream(
                metadata, node_id, TRANSACTIONS_STREAM, partial(config_of, settings)
            ),
            no_key=ErrorCode.invalid_request,
            troubles=CoordinatorTroubles(TRANSACTIONS_NOT_COORDINATED, NO_TRANSACTIONS_STREAM),
        )
        self.settings = settings
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._loader = CoordinatorLoader(
            TransactionReplay, "transactional_ids", TRANSACTIONS_NOT_READ
        )
        self._closed = Counter[str]()
        """What shards that are closed had counted."""

    def call(
        self,
        transactional_id: str,
        ask: Callable[[TransactionCoordinator, DelayedReply, Now], list[Effect]],
    ) -> DelayedReply | ErrorCode:
        """The reply to come of the id's coordinator; an error where it is not this node."""
        shard = self.shard(transactional_id)
        return shard if isinstance(shard, ErrorCode) else shard.call(ask)

    def verify(self, request: AddRequest) -> Mapping[PartitionId, ErrorCode]:
        """See ``TransactionCoordinator.verify``."""
        shard = self.shard(request.transactional_id)
        if isinstance(shard, ErrorCode):
            return dict.fromkeys(request.partitions, shard)
        assert shard.coordinator is not None
        return shard.coordinator.verify(request)

    def confirm(self, transactional_id: str) -> DelayedReply | ErrorCode:
        """See ``Shard.confirm``."""
        shard = self.shard(transactional_id)
        return shard if isinstance(shard, ErrorCode) else shard.confirm()

    def find_known(self, transactional_id: str) -> KnownTransaction | ErrorCode:
        """What the log says of it, as this node knows it."""
        shard = self.shard(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        assert shard.coordinator is not None
        found = shard.coordinator.find(transactional_id)
        if found is None:
            return ErrorCode.transactional_id_not_found
        return KnownTransaction(transactional_id, found)

    def known(self) -> list[KnownTransaction] | ErrorCode:
        """All of this node; an error while some are not known yet."""
        found: list[KnownTransaction] = []
        for shard in self.shards():
            error = shard.why_not
            if error is not NONE or shard.coordinator is None:
                return error
            found += shard.coordinator.transactions()
        return found

    def statistics(self, wall_ms: int) -> TransactionStatistics:
        states, ended, loading, oldest_ms = Counter[str](), Counter(self._closed), 0, wall_ms
        for shard in self.shards():
            if shard.coordinator is None:
                loading += 1
                continue
            ended += shard.coordinator.ended
            for it in shard.coordinator.transactions():
                states[it.transaction.state.shown] += 1
                if it.transaction.is_open:
                    oldest_ms = min(oldest_ms, it.transaction.start_ms)
        return TransactionStatistics(states, ended, (wall_ms - oldest_ms) / 1000, loading)

    def _new_shard(self, partition: InternalPartition, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            partition,
            leader_epoch,
            self.settings,
            self._metadata.lease,
            markers=self._markers,
            new_producer_id=self._new_producer_id,
            start=self._tasks.put_nowait,
        )

    def _closing(self, shard: TransactionShard) -> None:
        if shard.coordinator is not None:
            self._closed += shard.coordinator.ended

    async def _load(self, shard: TransactionShard) -> None:
        known = await self._loader.load(shard)
        if known is not None and not shard.closed:
            shard.begin(known)
