"""The feature level: what the metadata log may hold, so that every node can read it. Pure.

A later streamlog may write records that an older one does not know. Nodes of both run side by side
during a rolling upgrade; so nothing new is written until an operator raises the level, which the
controller grants once all nodes have said that they know it. It is never lowered: what was written
stays. As Kafka's metadata.version (KIP-584, KIP-778), but a plain number.

A cluster without the record is of level 1. Each heartbeat says which levels its node knows.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streamlog.acl.rules import ResourceType
from streamlog.errors import FeatureLevelUnknown, InvalidRequest, InvalidStreamConfig
from streamlog.metadata.image.records import (
    AccessRuleAdded,
    FeatureLevelChanged,
    MetadataRecord,
    StreamCreated,
    StreamUpdated,
)
from streamlog.metadata.stream.settings_translation import level_of
from streamlog.model import NodeId

LEVELS: Final[Mapping[int, str]] = {
    1: "the metadata of streamlog 0.1.0",
    2: "nodes that share a machine (node.processes)",
    3: "streams that consumers empty (retention by interest, work queues), limits on their consumers, mirrors and"
    " sources, counters, message schedules, delete markers, fast batches, streams in memory, acks that do not wait for"
    " the disk (persist_mode), a first sequence, what in a stream is of a snapshot, names with dots, all of Kafka's"
    " topic configs, consumer groups of group.protocol=consumer, share groups, transactions, tiered storage,"
    " schemas of tables",
}
"""What each one has brought. A record that a later streamlog adds says in ``LEVEL`` which it needs."""
LEVEL_MIN: Final = min(LEVELS)
LEVEL_MAX: Final = max(LEVELS)
RESTORED_LEVEL: Final = 3
"""From there on every node knows ``StreamCreated.restored_end``."""
CONSUMER_GROUPS_LEVEL: Final = 3
"""From there on every node reads the records of consumer groups of KIP-848; an earlier one would take such a
group for one without members.
"""
TRANSACTIONS_LEVEL: Final = 3
"""From there on every node keeps transactional batches, and tells them apart when it reads."""
SHARE_GROUPS_LEVEL: Final = 3
"""From there on every node reads the records of share groups, and keeps them when it coordinates."""
FIRST: Final = 1
"""Of a cluster whose level was never raised."""


class LevelRange(NamedTuple):
    """The levels that a node can work with; both ends are inclusive, as on the wire."""

    level_min: int
    level_max: int

    def knows(self, level: int) -> bool:
        return self.level_min <= level <= self.level_max


KNOWN = LevelRange(LEVEL_MIN, LEVEL_MAX)
"""By this streamlog."""


def check_known(level: int) -> None:
    """Raises FeatureLevelUnknown."""
    if not KNOWN.knows(level):
        raise FeatureLevelUnknown(
            f"the cluster's metadata is of feature level {level}, and this streamlog knows"
            f" {KNOWN.level_min} to {KNOWN.level_max}; start the version that the other nodes run,"
            " or a later one"
        )


def check_writable(records: Iterable[MetadataRecord], level: int) -> None:
    """Raises InvalidRequest where one of them needs a level that the cluster has not reached."""
    for record in records:
        needed = record.LEVEL
        if isinstance(record, StreamCreated | StreamUpdated):
            needed = max(needed, level_of(record.config))
        if isinstance(record, StreamCreated) and record.restored_end:
            needed = max(needed, RESTORED_LEVEL)
        if (
            isinstance(record, AccessRuleAdded)
            and record.rule.resource_type is ResourceType.TRANSACTIONAL_ID
        ):
            needed = max(needed, TRANSACTIONS_LEVEL)
        check_reached(needed, level)


def check_reached(needed: int, level: int) -> None:
    """Raises InvalidRequest where the cluster has not reached the level."""
    if level < needed:
        raise InvalidRequest(
            f"needs feature level {needed}, and the cluster is at {level}: once"
            " all nodes run this version, `streamlog cluster features upgrade`"
        )


def check_encryptable(records: Iterable[MetadataRecord]) -> None:
    """For a controller without keys. Raises InvalidStreamConfig: where one node has none, others
    may lack them as well, and would have to leave the stream's partitions offline.
    """
    for record in records:
        if isinstance(record, StreamCreated | StreamUpdated) and record.config.encrypted:
            raise InvalidStreamConfig(
                "encrypted: the controller has no key to encrypt by; give every node"
                " encryption.keys and encryption.active_key first"
            )


def check_tierable(records: Iterable[MetadataRecord]) -> None:
    """For a controller without an object store. Raises InvalidStreamConfig: where one node has none, others may lack
    it as well, and a leader among them could not copy anything.
    """
    for record in records:
        if isinstance(record, StreamCreated | StreamUpdated) and record.config.tiered:
            raise InvalidStreamConfig(
                "tiered: the controller has no object store; give every node the same tier.url first"
            )


def raised(
    level: int, wanted: int, nodes: Iterable[NodeId], told: Mapping[NodeId, LevelRange]
) -> tuple[FeatureLevelChanged, ...]:
    """What to log for ``wanted``; nothing where it is so already.

    ``nodes``: all that belong to the cluster, alive or not; ``told``: what they know, by their own
    word. Raises InvalidRequest: a level is never lowered, nor raised above what all know.
    """
    if wanted < level:
        raise InvalidRequest(
            f"the cluster is at feature level {level}; it cannot go back to {wanted}, for what"
            " was written stays (restore a backup of before into a new cluster)"
        )
    if wanted == level:
        return ()
    for node in sorted(nodes):
        known = told.get(node)
        if known is None:
            raise InvalidRequest(
                f"node {node} has not said that it knows feature level {wanted}: it is not alive,"
                " or runs an older streamlog; upgrade it, or remove it, first"
            )
        if not known.knows(wanted):
            raise InvalidRequest(
                f"node {node} knows feature levels {known.level_min} to {known.level_max}, not"
                f" {wanted}; upgrade it first"
            )
    return (FeatureLevelChanged(level=wanted),)
