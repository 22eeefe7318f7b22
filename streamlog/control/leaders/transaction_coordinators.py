"""The coordinators of transactional ids: on this node, or asked for over the socket.

An id's coordinator is the leader of the partition of ``__transaction_state`` that it belongs to.
"""

from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import Any, Final

from streamlog.control.leaders.coordinator_listing import (
    LISTED_AT_ONCE,
    NAME_SHOWN,
    CoordinatorListing,
    not_coordinated,
)
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.coordination.keys import is_key, partition_of
from streamlog.coordination.reply import DelayedReply
from streamlog.errors import (
    CorruptData,
    InvalidRequest,
    NoOpenTransaction,
    NotLeader,
    RequestTimedOut,
    StreamlogError,
    TransactionNotFound,
)
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import TRANSACTIONS_STREAM
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.transactions.replay import KnownTransaction
from streamlog.transactions.requests import AddRequest
from streamlog.transactions.service import TransactionService
from streamlog.transactions.transaction import (
    VERSION_2,
    PartitionId,
    ProducerEpoch,
    Transaction,
    TransactionState,
)
from streamlog.wire.error_codes import ErrorCode

ADD_TIMEOUT_S: Final = 6.0
"""The coordinator waits for its followers, by default 5 s."""

Codes = dict[TopicPartition, ErrorCode]


class LocalTransactions:
    """What this node answers about the transactional ids that it coordinates."""

    def __init__(self, transactions: TransactionService | None) -> None:
        """None on a node that coordinates none."""
        self._transactions = transactions

    def register(self, nodes: NodeRequests) -> None:
        """Have other nodes' requests answered."""
        nodes.register("TRANSACTION.ADD", self._add)
        nodes.register("TRANSACTIONS", self._list)
        nodes.register("TRANSACTION", self._known)
        nodes.register("TRANSACTION.ABORT", self._abort)

    def listed(self, after: str, limit: int) -> list[KnownTransaction]:
        """The first ones by name after that. Raises NotLeader while some are not known yet."""
        found = self._service().known()
        if isinstance(found, ErrorCode):
            raise error_of(found, "")
        wanted = (it for it in found if it.transactional_id > after)
        return nsmallest(limit, wanted, key=lambda it: it.transactional_id)

    async def known(self, transactional_id: str) -> Transaction:
        """Raises TransactionNotFound. Nothing older than when it is asked for is told."""
        await self._done(transactional_id, self._service().confirm(transactional_id))
        found = self._service().find_known(transactional_id)
        if isinstance(found, ErrorCode):
            raise error_of(found, transactional_id)
        return found.transaction

    async def abort(self, transactional_id: str) -> None:
        """Raises TransactionNotFound, NoOpenTransaction."""
        reply = self._service().call(
            transactional_id,
            lambda coordinator, token, now: coordinator.abort(transactional_id, token, now),
        )
        await self._done(transactional_id, reply)

    def _service(self) -> TransactionService:
        if self._transactions is None:
            raise NotLeader("this node coordinates no transactions")
        return self._transactions

    async def _done(self, transactional_id: str, reply: DelayedReply | ErrorCode) -> None:
        """Raises what an error code means, RequestTimedOut."""
        if not isinstance(reply, ErrorCode):
            try:
                reply = ErrorCode(
                    await reply.given(self._service().settings.write_timeout_ms / 1000)
                )
            except TimeoutError:
                text = f"transactional id {transactional_id!r}: it may be done yet"
                raise RequestTimedOut(text) from None
        if reply is not ErrorCode.none:
            raise error_of(reply, transactional_id)

    async def add(self, request: AddRequest, *, verify_only: bool) -> dict[PartitionId, ErrorCode]:
        """An error code for each partition."""
        service = self._transactions
        if service is None:
            return dict.fromkeys(request.partitions, ErrorCode.not_coordinator)
        if verify_only:
            return dict(service.verify(request))
        reply = service.call(
            request.transactional_id,
            lambda coordinator, token, now: coordinator.add_partitions(request, token, now),
        )
        if not isinstance(reply, ErrorCode):
            try:
                reply = ErrorCode(await reply.given(service.settings.write_timeout_ms / 1000))
            except TimeoutError:
                reply = ErrorCode.coordinator_not_available
        return dict.fromkeys(request.partitions, reply)

    async def _list(self, fields: Fields) -> NodeAnswer:
        rows = self.listed(str(fields["after"]), min(int(fields["limit"]), LISTED_AT_ONCE))
        return NodeAnswer(
            {"transactions": [(it.transactional_id, _shown(it.transaction)) for it in rows]}
        )

    async def _known(self, fields: Fields) -> NodeAnswer:
        return NodeAnswer(_shown(await self.known(str(fields["transactional_id"]))))

    async def _abort(self, fields: Fields) -> NodeAnswer:
        await self.abort(str(fields["transactional_id"]))
        return NodeAnswer({})

    async def _add(self, fields: Fields) -> NodeAnswer:
        request = AddRequest(
            str(fields["transactional_id"]),
            ProducerEpoch(int(fields["producer_id"]), int(fields["producer_epoch"])),
            frozenset((str(stream), int(number)) for stream, number in fields["partitions"]),
            VERSION_2,
        )
        codes = await self.add(request, verify_only=bool(fields["verify_only"]))
        return NodeAnswer({"codes": [(*place, int(code)) for place, code in codes.items()]})


def error_of(code: ErrorCode, transactional_id: str) -> StreamlogError:
    """What a coordinator's code means to the caller of an operation."""
    about = f"transactional id {transactional_id[:NAME_SHOWN]!r}"
    elsewhere = not_coordinated(code, about)
    if elsewhere is not None:
        return elsewhere
    if code is ErrorCode.transactional_id_not_found:
        return TransactionNotFound(f"there is no {about}")
    if code in (ErrorCode.invalid_txn_state, ErrorCode.concurrent_transactions):
        return NoOpenTransaction(f"{about} has no open transaction, or it is about to end")
    return InvalidRequest(f"{about}: {code.name}")


def _shown(it: Transaction) -> dict[str, Any]:
    return {**it._asdict(), "state": int(it.state), "partitions": sorted(it.partitions)}


def _read(fields: Fields) -> Transaction:
    """Raises CorruptData."""
    try:
        return Transaction(
            **{
                **fields,
                "state": TransactionState(fields["state"]),
                "partitions": frozenset((str(it[0]), int(it[1])) for it in fields["partitions"]),
            }
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"another node's answer does not decode: {error!r}") from None


def _read_list(fields: Fields) -> list[KnownTransaction]:
    return [KnownTransaction(str(it[0]), _read(it[1])) for it in fields["transactions"]]


class TransactionRouter:
    """Wherever the coordinator of a transactional id is: ``kafka.transaction_partitions``."""

    def __init__(
        self,
        node_id: NodeId,
        here: LocalTransactions,
        nodes: NodeRequests,
        leaders: LeaderRouter,
        *,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._node_id = node_id
        self._here = here
        self._nodes = nodes
        self._leaders = leaders
        self._image = image
        self._listing = CoordinatorListing(
            node_id,
            nodes,
            image,
            stream=TRANSACTIONS_STREAM,
            verb="TRANSACTIONS",
            here=here.listed,
            name_of=lambda it: it.transactional_id,
            decode=_read_list,
        )

    def node_of(self, transactional_id: str) -> NodeId | None:
        """The node that coordinates it; None: none does just now."""
        stream = self._image().streams.get(TRANSACTIONS_STREAM)
        if stream is None or not stream.partitions:
            return None
        number = partition_of(transactional_id, len(stream.partitions))
        leader = stream.partitions[number].leader
        return None if leader == NO_LEADER else leader

    async def all(self) -> tuple[list[KnownTransaction], list[NodeId]]:
        """All transactional ids by name, and the nodes whose ids are not known."""
        return await self._listing.all()

    async def known(self, transactional_id: str) -> Transaction:
        """Raises TransactionNotFound."""
        return await self._leaders.at_leader(
            self._place(transactional_id),
            "TRANSACTION",
            {"transactional_id": transactional_id},
            here=lambda: self._here.known(transactional_id),
            decode=lambda answer: _read(answer.fields),
            repeatable=True,
        )

    async def abort(self, transactional_id: str) -> None:
        """Raises TransactionNotFound, NoOpenTransaction."""
        await self._leaders.at_leader(
            self._place(transactional_id),
            "TRANSACTION.ABORT",
            {"transactional_id": transactional_id},
            here=lambda: self._here.abort(transactional_id),
            decode=lambda _: None,
        )

    def _place(self, transactional_id: str) -> TopicPartition:
        """Raises TransactionNotFound."""
        stream = self._image().streams.get(TRANSACTIONS_STREAM)
        if not is_key(transactional_id) or stream is None or not stream.partitions:
            raise error_of(ErrorCode.transactional_id_not_found, transactional_id)
        number = partition_of(transactional_id, len(stream.partitions))
        return TopicPartition(TRANSACTIONS_STREAM, number)

    async def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Codes:
        """Have these partitions belong to the producer's open transaction, which begins with them if none is open;
        ``verify_only``: they do already, or that is an error (KIP-890). An error code for each; a producer that is
        fenced is told so as all of its versions understand it.
        """
        codes = await self._added(
            transactional_id, ProducerEpoch(producer_id, producer_epoch), partitions, verify_only
        )
        fenced = ErrorCode.producer_fenced
        return {
            tp: ErrorCode.invalid_producer_epoch if code is fenced else code
            for tp, code in codes.items()
        }

    async def _added(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        verify_only: bool,
    ) -> Codes:
        node_id = self.node_of(transactional_id)
        if node_id is None:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        if node_id == self._node_id:
            request = AddRequest(
                transactional_id,
                producer,
                frozenset((it.stream, it.partition) for it in partitions),
                VERSION_2,
            )
            here = await self._here.add(request, verify_only=verify_only)
            return {TopicPartition(*place): code for place, code in here.items()}
        fields = {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "partitions": [(it.stream, it.partition) for it in partitions],
            "verify_only": verify_only,
        }
        try:
            answer = await self._nodes.ask(
                node_id, "TRANSACTION.ADD", fields, timeout_s=ADD_TIMEOUT_S
            )
            told = {
                TopicPartition(stream, number): ErrorCode(code)
                for stream, number, code in answer.fields["codes"]
            }
        except StreamlogError:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"another node's answer does not decode: {error!r}") from None
        return {it: told.get(it, ErrorCode.unknown_server_error) for it in partitions}
