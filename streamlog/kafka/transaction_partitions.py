"""What a partition's leader asks of the transaction coordinator."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from streamlog.model import TopicPartition
from streamlog.wire.error_codes import ErrorCode


class TransactionPartitions(Protocol):
    """The coordinators of all transactional ids, on this node or others."""

    async def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Have these partitions belong to the producer's open transaction, which begins with them if none is
        open; ``verify_only``: they do already, or that is an error (KIP-890). ``none`` for each that does.

        The leader of a partition asks this before the first batch of a transaction is appended there. From the
        answer on the coordinator writes a marker to the partition when the transaction ends. A coordinator that
        cannot be asked is an error for each of them: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS or NETWORK_EXCEPTION have the producer try again.
        """
