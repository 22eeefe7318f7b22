"""The coordinators of transactional ids: on this node, or asked for over the socket.

An id's coordinator is the leader of the partition of ``__transaction_state`` that it belongs to.
"""

from collections.abc import Callable, Sequence
from typing import Final

from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.coordination.keys import partition_of
from streamlog.errors import CorruptData, StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import TRANSACTIONS_STREAM
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.transactions.requests import AddRequest
from streamlog.transactions.service import TransactionService
from streamlog.transactions.transaction import VERSION_2, PartitionId, ProducerEpoch
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

    async def _add(self, fields: Fields) -> NodeAnswer:
        request = AddRequest(
            str(fields["transactional_id"]),
            ProducerEpoch(int(fields["producer_id"]), int(fields["producer_epoch"])),
            frozenset((str(stream), int(number)) for stream, number in fields["partitions"]),
            VERSION_2,
        )
        codes = await self.add(request, verify_only=bool(fields["verify_only"]))
        return NodeAnswer({"codes": [(*place, int(code)) for place, code in codes.items()]})


class TransactionRouter:
    """Wherever the coordinator of a transactional id is: ``kafka.transaction_partitions``."""

    def __init__(
        self,
        node_id: NodeId,
        here: LocalTransactions,
        nodes: NodeRequests,
        *,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._node_id = node_id
        self._here = here
        self._nodes = nodes
        self._image = image

    def node_of(self, transactional_id: str) -> NodeId | None:
        """The node that coordinates it; None: none does just now."""
        stream = self._image().streams.get(TRANSACTIONS_STREAM)
        if stream is None or not stream.partitions:
            return None
        number = partition_of(transactional_id, len(stream.partitions))
        leader = stream.partitions[number].leader
        return None if leader == NO_LEADER else leader

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
