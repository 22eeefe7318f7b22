"""Deleted streams, and the nodes that may not know yet that they are deleted. Pure.

A node acts on the metadata that it has applied, which may be old. A node that does not know that a
stream is gone, and once led it, would acknowledge what is published to the next stream of that name
or subject, and lose it with the deleted log. So the controller remembers the streams that it deletes:

- with each answer to a heartbeat it tells the node up to where the node has to apply the metadata
  before that answer extends its lease, see ``NodeHeartbeats``;
- each heartbeat tells how far the node has applied them;
- a lease that was granted before the deletion was logged ends within ``session_timeout_ms``, whichever
  controller granted it, see ``Lease``; a node without a session has none.

The controller answers a deletion, and creates a stream that takes the place of a deleted one, when
no node is left that has a lease and does not know. It asks this of every node, not only of the
leaders: a node may have led the stream, and have been fenced, or have given way to another leader,
without having heard of that either.

The same holds for a node that was fenced, and lives. Others lead in its place, and it may not know that yet. What a
leader does without an append, as to deliver to consumers, only the lease keeps from being done twice. So such a node
gets no lease either before it has applied what was logged until it returned.

A new controller does not know what its predecessor has waited for. So it begins as if any stream had
been deleted by the last record before its time.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.subjects import overlap
from streamlog.model import NodeId


@dataclass(slots=True, eq=False)
class Deletion:
    """Of a stream."""

    offset: int
    """A node that has applied the metadata below it knows of the deletion."""
    config: StreamConfig | None
    """None: it may be any stream."""
    leases_end_ms: int | None = None
    """By then no lease is left of a node that does not know; None: its record may not be logged yet."""


class StreamDeletions:
    """Of one controller's time in office. All times are of its own ``clock``; ``newest_offset`` is the end
    of its metadata log.
    """

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._last_offset = 0
        self._deletions: list[Deletion] = []
        """Those that some node with a lease may not know of."""
        self._applied: dict[NodeId, int] = {}
        """What each node has told last."""
        self._returned: dict[NodeId, int] = {}
        """Nodes that were fenced: what was logged by the time they returned."""

    def started(self, newest_offset: int) -> None:
        """A controller begins."""
        self._applied.clear()
        self._returned.clear()
        self._last_offset = newest_offset
        self._deletions = [Deletion(newest_offset, None)]

    def deleted(self, config: StreamConfig, offset: int) -> Deletion:
        """A record below ``offset`` of the metadata log deletes the stream. To be told before that
        record is logged.
        """
        deletion = Deletion(offset, config)
        self._last_offset = max(self._last_offset, offset)
        self._deletions.append(deletion)
        return deletion

    def not_deleted(self, deletion: Deletion) -> None:
        """Its record was not logged."""
        self._deletions = [it for it in self._deletions if it is not deletion]

    def applied(self, node_id: NodeId, offset: int) -> None:
        """The node acts on the metadata below ``offset``."""
        self._applied[node_id] = offset
        if offset >= self._returned.get(node_id, 0):
            self._returned.pop(node_id, None)

    def returned(self, node_id: NodeId, newest_offset: int) -> None:
        """The node is not fenced any more."""
        self._returned[node_id] = newest_offset

    def offset_wanted(self, node_id: NodeId, newest_offset: int) -> int:
        """An answer that is given now extends no lease of the node unless it has applied the metadata below this
        offset.
        """
        return max(min(self._last_offset, newest_offset), self._returned.get(node_id, 0))

    def unaware(
        self,
        live: AbstractSet[NodeId],
        now_ms: int,
        newest_offset: int,
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
        left = list[Deletion]()
        for it in self._deletions:
            if it.leases_end_ms is None and it.offset <= newest_offset:
                it.leases_end_ms = now_ms + self._session_timeout_ms
            have_leases = set() if alone is None else {alone}
            if it.leases_end_ms is None or now_ms < it.leases_end_ms:
                have_leases |= live
            nodes = {node for node in have_leases if self._applied.get(node, 0) < it.offset}
            if nodes or it.leases_end_ms is None:
                left.append(it)
            if deleted_below is not None and it.offset > deleted_below:
                continue
            if published_to and it.config and not _share_messages(published_to, it.config):
                continue
            found |= nodes
        self._deletions = left
        return frozenset(found)


def _share_messages(one: StreamConfig, other: StreamConfig) -> bool:
    return one.name == other.name or any(
        overlap(subject, another) for subject in _patterns(one) for another in _patterns(other)
    )


def _patterns(config: StreamConfig) -> list[str]:
    """They match all subjects that it stores, and are few, however many partitions it has."""
    if config.partitions == 1 or config.is_spread:
        return list(config.subjects)
    return [*config.subjects, *(f"{subject}.*" for subject in config.subjects)]
