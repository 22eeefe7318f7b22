"""What each verb of the management API needs. Closed: what is not in the tables needs ALTER."""

from typing import Final

from streamlog.acl.rules import Operation
from streamlog.authz.permissions import Permissions
from streamlog.metadata.stream.config import StreamConfig

OPEN: Final = frozenset({"INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.CREATE"})
"""They tell what the asker may see, and no more; CREATE looks at rights by itself."""

ON_STREAM: Final[dict[str, Operation]] = {
    "STREAM.UPDATE": Operation.ALTER_CONFIGS,
    "STREAM.INFO": Operation.DESCRIBE,
    "STREAM.DELETE": Operation.DELETE,
    "STREAM.PURGE": Operation.DELETE,
    "STREAM.MSG.GET": Operation.READ,
    "STREAM.MSG.DELETE": Operation.DELETE,
    "DIRECT.GET": Operation.READ,
}
"""With the stream that is named."""


def check_verb(access: Permissions, verb: str, stream: str) -> None:
    """``stream``: "" for what is about none. Raises TopicForbidden and ClusterForbidden; nothing of
    a stream that the asker may not know of: the verb itself answers that there is none.
    """
    head = verb.removesuffix(f".{stream}") if stream else verb
    if head in OPEN:
        return
    if head.startswith("CONSUMER."):
        operation = Operation.DESCRIBE
    elif head in ON_STREAM:
        operation = ON_STREAM[head]
    else:
        access.check_cluster(Operation.ALTER)
        return
    if access.finds(stream):
        access.check_topic(operation, stream)


def check_update(access: Permissions, known: StreamConfig, config: StreamConfig) -> None:
    """Other partitions and replicas are no configs to Kafka: they need ALTER. Raises
    TopicForbidden.
    """
    if (known.partitions, known.replicas) != (config.partitions, config.replicas):
        access.check_topic(Operation.ALTER, known.name)
    access.check_bindings(config, known)
