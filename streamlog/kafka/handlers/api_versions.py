"""ApiVersions: the APIs and versions that this node speaks, and the cluster's feature level."""

from typing import Final

from streamlog.kafka.context import Context
from streamlog.kafka.transaction_support import why_no_transactions
from streamlog.metadata.image.feature_level import LEVEL_MAX, LEVEL_MIN, SHARE_GROUPS_LEVEL
from streamlog.transactions.transaction import VERSION_2
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.registry import APIS

FEATURE: Final = "streamlog.level"
"""What ``streamlog cluster features ls`` tells, as Kafka's clients ask for it (KIP-584)."""
TRANSACTIONS: Final = "transaction.version"
"""By version 2 Java's producers know that leaders add partitions to transactions, and that each has an epoch of its
own (KIP-890). It comes with ``streamlog.level``.
"""
SHARE_FEATURE: Final = "share.version"
"""Kafka's feature for share groups: 1 where the cluster has them."""


async def api_versions(_request: Message, _version: int, context: Context) -> Message:
    """ApiVersions (18), versions 0 to 4: what this node speaks. A newer one is answered as 0.

    No guards: any client may ask.
    """
    image = context.metadata.image
    supported = [
        {"name": FEATURE, "min_version": LEVEL_MIN, "max_version": LEVEL_MAX},
        {"name": SHARE_FEATURE, "min_version": 0, "max_version": 1},
        {"name": TRANSACTIONS, "min_version": 0, "max_version": VERSION_2},
    ]
    finalized = [_finalized(FEATURE, image.level)]
    if image.level >= SHARE_GROUPS_LEVEL:
        finalized.append(_finalized(SHARE_FEATURE, 1))
    if why_no_transactions(context) is None:
        finalized.append(_finalized(TRANSACTIONS, VERSION_2))
    return {
        **offered(ErrorCode.none),
        "supported_features": supported,
        # It has to grow with each change of a feature, and with nothing else: a client that may not see
        # streams would see them come and go by it.
        "finalized_features_epoch": image.level,
        "finalized_features": finalized,
    }


def _finalized(name: str, version: int) -> Message:
    return {"name": name, "max_version_level": version, "min_version_level": version}


def offered(error_code: ErrorCode) -> Message:
    """The list is given beside an error, too: clients choose from it when they ask again."""
    return {
        "error_code": error_code,
        "api_keys": [
            {"api_key": api.key, "min_version": api.version_min, "max_version": api.version_max}
            for api in APIS.values()
        ],
    }
