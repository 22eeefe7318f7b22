from collections.abc import Iterable
from uuid import UUID

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.errors import (
    FencedLeaderEpoch,
    GroupForbidden,
    NotLeader,
    PartitionNotFound,
    StreamNotFound,
    TopicForbidden,
    UnknownLeaderEpoch,
)
from streamlog.kafka.interfaces import ClusterView, LocalPartition
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.config import StreamConfig
from streamlog.metadata.stream.stream_subjects import bound_subjects
from streamlog.model import NO_EPOCH, TopicPartition


def led_partition(tp: TopicPartition, leader_epoch: int, view: ClusterView) -> LocalPartition:
    """The partition, if this node leads it, in the epoch that the caller knows (NO_EPOCH: any).

    Raises PartitionNotFound, NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch.
    """
    partition = _local_partition(tp, view)
    if not partition.is_leader:
        raise NotLeader(f"{tp} is led by another node")
    if leader_epoch != NO_EPOCH:
        _check_epoch(tp, leader_epoch, partition)
    return partition


def readable_partition(tp: TopicPartition, leader_epoch: int, view: ClusterView) -> LocalPartition:
    """The partition, if consumers may read it here: led, or followed in sync. Raises likewise."""
    partition = _local_partition(tp, view)
    if not partition.may_serve_reads:
        raise NotLeader(f"{tp} is led by another node, and this one is not in sync")
    if leader_epoch != NO_EPOCH:
        _check_epoch(tp, leader_epoch, partition)
    return partition


def _local_partition(tp: TopicPartition, view: ClusterView) -> LocalPartition:
    try:
        return view.partitions.partition(tp)
    except PartitionNotFound:
        stream = view.metadata.image.streams.get(tp.stream)
        if stream is not None and 0 <= tp.partition < len(stream.partitions):
            raise NotLeader(f"{tp} is on another node") from None
        raise


def _check_epoch(tp: TopicPartition, leader_epoch: int, partition: LocalPartition) -> None:
    here = partition.leader_epoch
    if leader_epoch < here:
        raise FencedLeaderEpoch(f"{tp} is in epoch {here}, not {leader_epoch}")
    if leader_epoch > here:
        raise UnknownLeaderEpoch(f"{tp} is in epoch {here}, not {leader_epoch}")


def check_topic(operation: Operation, name: str, view: ClusterView) -> None:
    """Raises TopicForbidden, and StreamNotFound where the caller may not even know of it."""
    if view.access is not None:
        view.access.check_topic(operation, name)


def check_bindings(
    config: StreamConfig, view: ClusterView, known: StreamConfig | None = None
) -> None:
    """What a stream takes from NATS and has published there, beyond what it did as ``known``.
    Raises TopicForbidden.
    """
    if view.access is not None:
        before = frozenset[str]() if known is None else bound_subjects(known)
        for subject in sorted(bound_subjects(config) - before):
            view.access.check_subject(subject)


def forbidden_topics(names: Iterable[str], view: ClusterView) -> set[str]:
    """Those that the caller may know of and not read; in groups' commits."""
    found: set[str] = set()
    if view.access is None:
        return found
    for name in set(names):
        try:
            view.access.check_topic(Operation.READ, name)
        except TopicForbidden:
            found.add(name)
        except StreamNotFound:
            pass
    return found


def group_refusal(operation: Operation, group: str, view: ClusterView) -> ErrorCode:
    """``none`` where the caller may do it; the same whether there is such a group or not."""
    if view.access is not None:
        try:
            view.access.check_group(operation, group)
        except GroupForbidden:
            return ErrorCode.group_authorization_failed
    return ErrorCode.none


def is_other_cluster(cluster_id: str | None, view: ClusterView) -> bool:
    """Whether the caller belongs elsewhere; one that does not say so is believed."""
    return cluster_id not in (None, view.metadata.image.cluster_id)


def stream_named(topic_id: UUID | None, image: MetadataImage) -> str | None:
    """The name of the stream with this id."""
    return None if topic_id is None else image.names.get(topic_id.bytes)
