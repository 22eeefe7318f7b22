"""Which operations the caller may do with a resource, as one number (KIP-430)."""

from typing import Final

from streamlog.acl.rules import CLUSTER_NAME, Operation, ResourceType
from streamlog.kafka.auth.acl_codec import number_of
from streamlog.kafka.context import Context

OPERATIONS_UNKNOWN: Final = -(2**31)
"""The caller has not asked for them."""

_OF: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""What Kafka's rules may say of each."""
_BITS: Final = {
    kind: tuple((operation, 1 << number_of(operation)) for operation in operations)
    for kind, operations in _OF.items()
}


def authorized_operations(
    kind: ResourceType, name: str, context: Context, *, asked: bool = True
) -> int:
    """The bit of each operation that rules allow, by its number in Kafka's protocol; all of them where no rules hold.
    A refusal is not audited.
    """
    if not asked:
        return OPERATIONS_UNKNOWN
    access = context.access
    return sum(
        bit
        for operation, bit in _BITS[kind]
        if access is None or access.allows(operation, kind, name)
    )


def cluster_operations(context: Context, *, asked: bool) -> int:
    return authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME, context, asked=asked)


def topic_operations(name: str, context: Context, *, asked: bool = True) -> int:
    return authorized_operations(ResourceType.TOPIC, name, context, asked=asked)


def group_operations(name: str, context: Context, *, asked: bool) -> int:
    return authorized_operations(ResourceType.GROUP, name, context, asked=asked)
