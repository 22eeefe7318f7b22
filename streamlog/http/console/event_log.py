"""What became of the cluster, from one image to the next, in words; the last of it. Pure."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from streamlog.metadata.image.metadata_image import (
    MetadataImage,
    NodeImage,
    PartitionImage,
    StreamChange,
)
from streamlog.metadata.nodes.node_condition import keep_from_leading
from streamlog.model import NO_LEADER

EVENTS_MAX: Final = 500
"""Kept; the oldest go."""
STREAMS_MAX: Final = 50
"""Told one by one of one change ..."""
PARTITIONS_MAX: Final = 4
"""... and of each so many partitions; of more it is said how many."""


MORE_STREAMS: Final = "streams"
"""The kind of an event that counts streams which are not named."""


class ClusterEvent(NamedTuple):
    """Numbers only grow, so that a page that has some asks for the rest."""

    number: int
    time_ms: int
    kind: str
    text: str
    stream: str = ""
    """The one that it is about, if it is one."""

    def is_seen(self, sees: Callable[[str], bool]) -> bool:
        """For a principal who may not know every stream; ``sees``: whether it may know of one."""
        if self.stream:
            return sees(self.stream)
        return self.kind != MORE_STREAMS


class EventLog:
    """``changed`` hears of each image, ``note`` of all else."""

    def __init__(self) -> None:
        self._events: deque[ClusterEvent] = deque(maxlen=EVENTS_MAX)
        self._next = 1

    def changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        for kind, text, stream in _told(old, new):
            self.note(kind, text, now_ms, stream)

    def note(self, kind: str, text: str, now_ms: int, stream: str = "") -> None:
        self._events.append(ClusterEvent(self._next, now_ms, kind, text, stream))
        self._next += 1

    def latest(self, count: int) -> list[ClusterEvent]:
        """The newest first."""
        newest = list(self._events)[-count:] if count > 0 else []
        return newest[::-1]


def _told(old: MetadataImage, new: MetadataImage) -> Iterator[tuple[str, str, str]]:
    """Kind, text, and the stream that it is about."""
    if old.nodes is not new.nodes:
        for kind, text in _of_nodes(old, new):
            yield kind, text, ""
    more = 0
    for number, change in enumerate(new.changes(old)):
        if number >= STREAMS_MAX:
            more += 1
        else:
            stream = change.new or change.old
            assert stream is not None, "a change has one side at least"
            for kind, text in _of_stream(change):
                yield kind, text, stream.name
    if more:
        yield MORE_STREAMS, f"{more} more streams changed at the same time", ""


def _of_nodes(old: MetadataImage, new: MetadataImage) -> Iterator[tuple[str, str]]:
    for node_id in sorted({*old.nodes, *new.nodes}):
        before, after = old.nodes.get(node_id), new.nodes.get(node_id)
        if before == after:
            continue
        if after is None:
            yield "node", f"node {node_id} was removed from the cluster"
        elif before is None:
            yield "node", f"node {node_id} joined from {after.host}:{after.port}"
        else:
            for text in _of_node(before, after):
                yield "node", f"node {node_id} {text}"


def _of_node(before: NodeImage, after: NodeImage) -> Iterator[str]:
    if before.incarnation != after.incarnation:
        yield "was restarted"
    if after.fenced and after.stopping and not before.stopping:
        yield "is stopped in order"
    elif after.fenced and not before.fenced:
        yield "is gone: others lead in its place"
    elif before.fenced and not after.fenced:
        yield "is alive"
    if before.full != after.full:
        yield "has a full disk" if after.full else "has room on its disk again"
    if before.unfit != after.unfit:
        cannot_lead = "cannot lead" if keep_from_leading(after.unfit) else "is not well"
        yield f"{cannot_lead}: {', '.join(after.unfit)}" if after.unfit else "is well again"
    if before.draining != after.draining:
        yield "is being drained" if after.draining else "takes replicas again"


def _of_stream(change: StreamChange) -> Iterator[tuple[str, str]]:
    old, new = change
    if new is None:
        assert old is not None, "a change has one side at least"
        yield "stream", f"stream {old.name} was deleted"
        return
    if old is None:
        yield "stream", f"stream {new.name} was created with {_partitions(len(new.partitions))}"
        return
    if old.config != new.config:
        yield "stream", f"stream {new.name} has another configuration"
    told = [
        (number, kind, text)
        for number, (before, after) in enumerate(zip(old.partitions, new.partitions, strict=False))
        if before != after
        for kind, text in _of_partition(before, after)
    ]
    for number, kind, text in told[:PARTITIONS_MAX]:
        yield kind, f"{new.name}/{number}: {text}"
    left = len({number for number, _, _ in told[PARTITIONS_MAX:]})
    if left:
        yield "partition", f"{new.name}: {_partitions(left)} more changed leader or replicas"


def _of_partition(before: PartitionImage, after: PartitionImage) -> Iterator[tuple[str, str]]:
    if (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch):
        if after.leader == NO_LEADER:
            yield "leader", f"has no leader any more (it was {_who(before.leader)})"
        else:
            epoch = after.leader_epoch
            yield "leader", f"led by {after.leader}, before by {_who(before.leader)}, epoch {epoch}"
    if set(before.isr) != set(after.isr):
        yield "isr", f"in sync: {_listed(after.isr)} (before: {_listed(before.isr)})"
    if before.replicas != after.replicas:
        yield "replicas", f"kept by {_listed(after.replicas)} (before: {_listed(before.replicas)})"


def _who(leader: int) -> str:
    return "no node" if leader == NO_LEADER else str(leader)


def _partitions(count: int) -> str:
    return f"{count} partition" if count == 1 else f"{count} partitions"


def _listed(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids)) or "none"
