"""Operations on transactions of Kafka's producers."""

from dataclasses import dataclass
from typing import Final

from streamlog.acl.rules import Operation
from streamlog.control.operation import Operations, operation
from streamlog.errors import InvalidRequest
from streamlog.model import NodeId
from streamlog.transactions.replay import KnownTransaction

LIST_MAX: Final = 1_000
"""Transactional ids in one list."""


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id in a list."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int | None
    """When its last transaction began; None: it has had none."""


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """Some of the transactional ids, by name."""

    total: int
    offset: int
    transactions: tuple[ListedTransaction, ...]
    missing_nodes: tuple[NodeId, ...]
    """Their ids are not in the list: they did not answer. -1: some ids have no coordinator."""


@dataclass(frozen=True, slots=True)
class TransactionPartition:
    """A partition that a transaction has written to, or is about to."""

    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, and what is in its open transaction."""

    transactional_id: str
    state: str
    coordinator: NodeId | None
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    updated_ms: int
    partitions: tuple[TransactionPartition, ...]
    """Of streams that the caller may know of."""


class TransactionOperations(Operations):
    """Transactions. Each needs the right to the transactional id that Kafka's request for it needs."""

    group = "transactions"

    @operation("GET /transactions")
    async def list(self, offset: int = 0, limit: int = 100, state: str = "") -> TransactionPage:
        """List transactional ids by name; with ``state`` those that are in it."""
        if not 0 <= limit <= LIST_MAX or offset < 0:
            raise InvalidRequest(f"limit: 0 to {LIST_MAX}; offset: 0 or more")
        await self._service.freshness.catch_up()
        found, missing = await self._service.transactions.all()
        seen = [
            it
            for it in found
            if (not state or it.transaction.state.shown.casefold() == state.casefold())
            and (self._access is None or self._access.sees_transactional_id(it.transactional_id))
        ]
        page = tuple(_listed(it) for it in seen[offset : offset + limit])
        return TransactionPage(len(seen), offset, page, tuple(missing))

    @operation("GET /transactions/{transactional_id}", about=("transactional_id",))
    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Describe a transactional id: its producer, and the partitions of its transaction."""
        self._check(Operation.DESCRIBE, transactional_id)
        await self._service.freshness.catch_up()
        found = await self._service.transactions.known(transactional_id)
        streams = self._metadata.image.streams
        return TransactionDescription(
            transactional_id,
            found.state.shown,
            self._service.transactions.node_of(transactional_id),
            found.producer_id,
            found.producer_epoch,
            found.timeout_ms,
            found.start_ms if found.start_ms >= 0 else None,
            found.update_ms,
            tuple(TransactionPartition(*it) for it in sorted(found.partitions) if it[0] in streams),
        )

    @operation("POST /transactions/{transactional_id}/abort", act=True, about=("transactional_id",))
    async def abort(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id, whose producer is fenced."""
        self._check(Operation.WRITE, transactional_id)
        await self._service.freshness.catch_up()
        await self._service.transactions.abort(transactional_id)

    def _check(self, right: Operation, transactional_id: str) -> None:
        """Raises TransactionalIdForbidden, whether there is such an id or not."""
        if self._access is not None:
            self._access.check_transactional_id(right, transactional_id)


def _listed(it: KnownTransaction) -> ListedTransaction:
    kept = it.transaction
    return ListedTransaction(
        it.transactional_id,
        kept.state.shown,
        kept.producer_id,
        kept.producer_epoch,
        kept.start_ms if kept.start_ms >= 0 else None,
    )
