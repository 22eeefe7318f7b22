"""``__transaction_state``: its settings, and one leadership of one of its partitions.

``TransactionShard`` is the shell around the partition's coordinator.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol

from streamlog.config import TransactionsSection
from streamlog.coordination.effects import Now
from streamlog.coordination.shard import Shard, clock, code_of_failure
from streamlog.errors import StreamlogError
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.internal_stream import state_config
from streamlog.metadata.stream.stream_config import TRANSACTIONS_STREAM, StreamConfig
from streamlog.partition.internal_partition import InternalPartition
from streamlog.transactions.coordinator import TransactionCoordinator
from streamlog.transactions.records import BARRIER
from streamlog.transactions.replay import KnownTransaction
from streamlog.transactions.requests import Effect, SendMarkers, TakeProducerId
from streamlog.transactions.transaction import PartitionId
from streamlog.wire.error_codes import ErrorCode


def config_of(settings: TransactionsSection, nodes: int) -> StreamConfig:
    """By so many nodes. The stream is made when the first producer needs it."""
    return state_config(
        TRANSACTIONS_STREAM,
        nodes,
        partitions=settings.state_partitions,
        replicas=settings.state_replicas,
    )


class Markers(Protocol):
    """``marker_sender.MarkerSender``."""

    def send(self, shard: "TransactionShard", markers: SendMarkers) -> None: ...


class TransactionShard(Shard[TransactionCoordinator]):
    """Answers for the transactional ids of ``partition``."""

    def __init__(
        self,
        partition: InternalPartition,
        leader_epoch: int,
        settings: TransactionsSection,
        lease: Lease,
        *,
        markers: Markers,
        new_producer_id: Callable[[], Awaitable[int]],
        start: Callable[[Coroutine[Any, Any, None]], object],
        now: Callable[[], Now] = clock,
    ) -> None:
        """``start`` has a task of its own carry out what waits for other nodes."""
        super().__init__(
            partition,
            leader_epoch,
            lease,
            barrier=BARRIER,
            pending_writes_max=settings.pending_writes_max,
            now=now,
        )
        self._settings = settings
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._start = start

    def begin(self, transactions: Iterable[KnownTransaction]) -> None:
        """The log has been read."""
        coordinator = TransactionCoordinator(self._settings, transactions)
        self._begin(coordinator)
        self._perform(coordinator.begin(self._now()))

    def marked(self, markers: SendMarkers, partition: PartitionId) -> None:
        """See ``TransactionCoordinator.marked``."""
        if self.coordinator is not None and not self.closed:
            self._perform(
                self.coordinator.marked(
                    markers.transactional_id, markers.producer, partition, self._now()
                )
            )

    def _carry_out(self, effect: Effect) -> Iterable[Effect]:
        match effect:
            case SendMarkers():
                self._markers.send(self, effect)
            case TakeProducerId():
                self._start(self._take_producer_id(effect))
            case other:
                raise AssertionError(other)
        return ()

    async def _take_producer_id(self, wanted: TakeProducerId) -> None:
        found: int | ErrorCode
        try:
            found = await self._new_producer_id()
        except StreamlogError as error:
            found = code_of_failure(error)
        if not self.closed:
            self._perform(wanted.then(found, self._now()))
