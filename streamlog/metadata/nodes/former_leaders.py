"""Nodes that led a stream that is deleted, and may not know that yet. Pure.

A node acts on the metadata that it has applied, which may be old. A leader that does not know that its
stream is gone would acknowledge what is published to the next stream of that name or subject, and
lose it with the deleted log. So the controller remembers who led each stream that it deletes:

- with each answer to a heartbeat it tells the node up to where the node has to apply the metadata
  before that answer extends its lease, see ``Membership``;
- each heartbeat tells how far the node has applied them;
- a lease that was granted before the deletion ends within ``session_timeout_ms``, whichever controller
  granted it, see ``Lease``; a node without a session has none.

The controller answers a deletion, and creates a stream that takes the place of a deleted one, when
no node is left that may acknowledge anything for the deleted one. A new controller does not know
which deletions its predecessor has waited for. So it treats every node as a former leader of any
stream, until the node has applied all that was decided before.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.subjects import overlap
from streamlog.model import NO_LEADER, NodeId


@dataclass(slots=True, eq=False)
class Deletion:
    """Of a stream."""

    offset: int
    """A node that has applied the metadata below it knows of the deletion."""
    config: StreamConfig | None
    """None: it may be any stream."""
    unaware: set[NodeId]
    """Former leaders that have not said yet that they know."""
    leases_end_ms: int
    """By then no lease is left that was granted before the deletion."""


class FormerLeaders:
    """Of one controller's time in office. All times are of its own ``clock``."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._deletions: list[Deletion] = []

    def started(self, image: MetadataImage, now_ms: int) -> None:
        """A controller begins. ``image``: the newest."""
        self._deletions.clear()
        self._add(image.offset, None, set(image.nodes), now_ms)

    def deleted(self, stream: StreamImage, offset: int, now_ms: int) -> Deletion:
        """A record below ``offset`` of the metadata log deletes the stream. To be told before the
        record is logged: a heartbeat that is answered later must not extend the lease of a leader.
        """
        leaders = {partition.leader for partition in stream.partitions} - {NO_LEADER}
        return self._add(offset, stream.config, leaders, now_ms)

    def not_deleted(self, deletion: Deletion) -> None:
        """Its record was not logged."""
        self._deletions = [it for it in self._deletions if it is not deletion]

    def applied(self, node_id: NodeId, offset: int) -> None:
        """The node acts on the metadata below ``offset``."""
        for deletion in self._deletions:
            if deletion.offset <= offset:
                deletion.unaware.discard(node_id)
        self._deletions = [it for it in self._deletions if it.unaware]

    def offset_wanted(self, node_id: NodeId) -> int:
        """The node gets no lease before it has applied the metadata below this offset."""
        return max((it.offset for it in self._deletions if node_id in it.unaware), default=0)

    def unaware(
        self,
        now_ms: int,
        live: AbstractSet[NodeId],
        *,
        alone: NodeId | None = None,
        deleted_below: int | None = None,
        published_to: StreamConfig | None = None,
    ) -> frozenset[NodeId]:
        """The nodes that may still acknowledge something for a deleted stream: for one that was
        deleted below that metadata offset, and that would take what is published to a stream of
        that configuration. None: for any.

        ``live``: nodes with a session; ``alone``: the node that is the whole quorum, if one is: its
        lease does not end.
        """
        found = set[NodeId]()
        for it in self._deletions:
            if deleted_below is not None and it.offset > deleted_below:
                continue
            if published_to and it.config and not _share_messages(published_to, it.config):
                continue
            found |= it.unaware & (live | {alone} if now_ms < it.leases_end_ms else {alone})
        return frozenset(found)

    def _add(
        self, offset: int, config: StreamConfig | None, leaders: set[NodeId], now_ms: int
    ) -> Deletion:
        deletion = Deletion(offset, config, leaders, now_ms + self._session_timeout_ms)
        if leaders:
            self._deletions.append(deletion)
        return deletion


def _share_messages(one: StreamConfig, other: StreamConfig) -> bool:
    return one.name == other.name or any(
        overlap(subject, another) for subject in _patterns(one) for another in _patterns(other)
    )


def _patterns(config: StreamConfig) -> list[str]:
    """They match all subjects that it stores, and are few, however many partitions it has."""
    if config.partitions == 1 or config.is_spread:
        return list(config.subjects)
    return [*config.subjects, *(f"{subject}.*" for subject in config.subjects)]
