from collections.abc import Iterable
from typing import NoReturn
from uuid import UUID

from streamlog.acl.rules import Operation
from streamlog.errors import (
    ClusterForbidden,
    FencedLeaderEpoch,
    GroupForbidden,
    NotLeader,
    PartitionNotFound,
    StreamlogError,
    StreamNotFound,
    TopicForbidden,
    TransactionalIdForbidden,
    UnknownLeaderEpoch,
)
from streamlog.kafka.cluster_view import ClusterView
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.wire.error_codes import ErrorCode


def led_partition(tp: TopicPartition, leader_epoch: int, view: ClusterView) -> Partition:
    """The partition, if this node leads it, in the epoch that the caller knows (NO_EPOCH: any).

    Raises PartitionNotFound, NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch.
    """
    try:
        partition = view.partitions.partition(tp)
    except PartitionNotFound as error:
        raise not_here(error, tp, view) from None
    if not partition.is_leader:
        raise NotLeader(f"{tp} is led by another node")
    if leader_epoch != NO_EPOCH:
        check_epoch(tp, leader_epoch, partition)
    return partition


def not_here(error: PartitionNotFound, tp: TopicPartition, view: ClusterView) -> StreamlogError:
    """NotLeader, which makes clients look for the leader, if another node has the partition."""
    stream = view.metadata.image.streams.get(tp.stream)
    if stream is not None and 0 <= tp.partition < len(stream.partitions):
        return NotLeader(f"{tp} is on another node")
    return error


def check_epoch(tp: TopicPartition, leader_epoch: int, partition: Partition) -> None:
    """Raises FencedLeaderEpoch, UnknownLeaderEpoch."""
    here = partition.leader_epoch
    if leader_epoch < here:
        raise FencedLeaderEpoch(f"{tp} is in epoch {here}, not {leader_epoch}")
    if leader_epoch > here:
        raise UnknownLeaderEpoch(f"{tp} is in epoch {here}, not {leader_epoch}")


def check_topic(operation: Operation, name: str, view: ClusterView) -> None:
    """Raises TopicForbidden, and StreamNotFound where the caller may not even know of it."""
    if view.access is not None:
        view.access.check_topic(operation, name)


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


def transactional_id_refusal(operation: Operation, name: str, view: ClusterView) -> ErrorCode:
    """``none`` where the caller may do it; the same whether there is such an id or not."""
    if view.access is not None:
        try:
            view.access.check_transactional_id(operation, name)
        except TransactionalIdForbidden:
            return ErrorCode.transactional_id_authorization_failed
    return ErrorCode.none


def refuse_to_clients(what: str, view: ClusterView) -> NoReturn:
    """Raises ClusterForbidden."""
    if view.access is not None:
        view.access.refuse_to_clients(what)
    raise ClusterForbidden(f"{what}: only nodes of the cluster may ask that")


def is_other_cluster(cluster_id: str | None, view: ClusterView) -> bool:
    """Whether the caller belongs elsewhere; one that does not say so is believed."""
    return cluster_id not in (None, view.metadata.image.cluster_id)


def stream_named(topic_id: UUID | None, image: MetadataImage) -> str | None:
    """The name of the stream with this id."""
    return None if topic_id is None else image.names.get(topic_id.bytes)
