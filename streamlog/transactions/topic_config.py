"""``__transaction_state``: its settings. The stream is made when the first producer needs it. Pure."""

from typing import Final

from streamlog.config import TransactionsSection
from streamlog.metadata.stream.internal_stream import min_isr_of
from streamlog.metadata.stream.stream_config import TRANSACTIONS_STREAM, StreamConfig

SEGMENT_BYTES: Final = 16 * 1024 * 1024


def config_of(settings: TransactionsSection, nodes: int) -> StreamConfig:
    """By so many nodes: one of them may be lost, no transaction with it, and transactions go on.

    The log is read whole at each change of leaders: it is compacted, in small segments.
    """
    replicas = min(settings.state_replicas, nodes)
    return StreamConfig.of(
        name=TRANSACTIONS_STREAM,
        partitions=settings.state_partitions,
        replicas=replicas,
        min_isr=min_isr_of(replicas),
        sync="commit",
        cleanup_policy="compact",
        segment_bytes=SEGMENT_BYTES,
    )
