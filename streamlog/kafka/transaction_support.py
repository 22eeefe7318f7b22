"""Whether clients may have transactions."""

from streamlog.kafka.context import Context
from streamlog.metadata.image.feature_level import TRANSACTIONS_LEVEL


def why_no_transactions(context: Context) -> str | None:
    """In words; None: there are transactions."""
    if context.transaction_partitions is None:
        return "transactions are not supported"
    if context.metadata.image.level < TRANSACTIONS_LEVEL:
        return (
            f"transactions need feature level {TRANSACTIONS_LEVEL}: once all nodes run this version,"
            " `streamlog cluster features upgrade`"
        )
    return None
