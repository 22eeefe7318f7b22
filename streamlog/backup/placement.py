"""The metadata of a cluster that is made again from a backup: the same streams on other nodes. Pure.

What is made of the same backup, nodes and cluster id is the same everywhere: each machine makes its
own folder, and they agree.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from streamlog.backup.manifest import BackupManifest
from streamlog.metadata.image.image_types import PartitionImage, StreamImage, partition_changed
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import (
    LeaderEpochsReserved,
    MetadataLogBegun,
    MetadataRecord,
    NodeDraining,
    NodeFenced,
    NodeFull,
    NodePlaced,
    NodeRegistered,
    NodeStamped,
    NodeUnfit,
    PartitionChanged,
    ProducerIdsAllocated,
    TierChanged,
    VotersChanged,
)
from streamlog.model import NO_LEADER, NodeId, TopicPartition

_OF_THE_OLD: Final = (
    NodeRegistered,
    NodePlaced,
    NodeFenced,
    NodeDraining,
    NodeFull,
    NodeUnfit,
    NodeStamped,
    VotersChanged,
    MetadataLogBegun,
    ProducerIdsAllocated,
    LeaderEpochsReserved,
    TierChanged,
)
"""Nodes register again, the voters are those of the configuration, and the metadata log is another:
its first controller names it. Ids and epochs go on above. A backup has the records themselves, so
nothing of it is in the object store yet.
"""
LEADER_EPOCHS_APART: Final = 1_000_000
QUORUM_EPOCHS_APART: Final = 1_000_000
OFFSETS_APART: Final = 2**32
PRODUCER_IDS_APART: Final = 2**32
"""How far above the backup a restored cluster goes on: further than the old one can have come."""


def directory_id(manifest: BackupManifest, cluster_id: str, node_id: NodeId) -> UUID:
    """Of the folder that a node gets."""
    return uuid.uuid5(manifest.backup_id, f"{cluster_id} {manifest.finished_ms} {node_id}")


def restored_image(
    image: MetadataImage,
    nodes: Sequence[NodeId],
    cluster_id: str,
    manifest: BackupManifest,
    *,
    last_producer_id: int = -1,
) -> MetadataImage:
    """``image`` as of the new cluster: all partitions on ``nodes``, each replica in sync, none led.

    The old cluster went on after the backup, and its clients may live on; a node of it may be
    started by mistake. So whatever is counted goes on far above the backup: the epochs and offsets
    of the metadata log, leader epochs, and producer ids, of which records newer than the metadata
    may have some (``last_producer_id``). What the first controller adds to that: see
    ``controller.begin_log``.
    """
    epoch = max(_epochs(image, manifest)) + LEADER_EPOCHS_APART
    end = max(image.producer_ids_end, last_producer_id + 1) + PRODUCER_IDS_APART
    records = [
        ProducerIdsAllocated(node_id=NO_LEADER, end=end),
        LeaderEpochsReserved(end=epoch),
        *_records(image, nodes, cluster_id, manifest, epoch),
    ]
    return MetadataImage(cluster_id).restored(
        records, offset=image.offset + OFFSETS_APART, epoch=image.epoch + QUORUM_EPOCHS_APART
    )


def placements(
    image: MetadataImage, nodes: Sequence[NodeId]
) -> dict[TopicPartition, tuple[NodeId, ...]]:
    """Who keeps what. Replicas whose nodes are there stay; others go to the node with the fewest."""
    load = dict.fromkeys(sorted(nodes), 0)
    placed: dict[TopicPartition, tuple[NodeId, ...]] = {}
    for stream in _streams(image):
        for number, partition in enumerate(stream.partitions):
            chosen = [node for node in partition.target if node in load]
            wanted = min(len(partition.target), len(load))
            while len(chosen) < wanted:
                others = [node for node in load if node not in chosen]
                chosen.append(min(others, key=lambda node: (load[node], node)))
            for node in chosen:
                load[node] += 1
            placed[TopicPartition(stream.name, number)] = tuple(chosen)
    return placed


def _streams(image: MetadataImage) -> Iterator[StreamImage]:
    for name in sorted(image.streams):
        yield image.streams[name]


def _records(
    image: MetadataImage,
    nodes: Sequence[NodeId],
    cluster_id: str,
    manifest: BackupManifest,
    leader_epoch: int,
) -> Iterator[MetadataRecord]:
    placed = placements(image, nodes)
    incarnation = image.offset + OFFSETS_APART - 1
    for node_id in sorted(nodes):
        yield NodeRegistered(
            node_id=node_id,
            incarnation=directory_id(manifest, cluster_id, node_id),
            host="",
            port=0,  # none, until it registers
            directory_id=directory_id(manifest, cluster_id, node_id),
            epoch=0,
            fenced=True,
        )
    for record in image.records():
        if isinstance(record, _OF_THE_OLD):
            continue
        if isinstance(record, PartitionChanged):
            tp = TopicPartition(record.stream, record.partition)
            old = image.stream(tp.stream).partition(tp.partition)
            renewed = _renewed(old, placed[tp], leader_epoch, incarnation=incarnation)
            yield partition_changed(tp.stream, tp.partition, renewed)
        else:
            yield record


def _epochs(image: MetadataImage, manifest: BackupManifest) -> Iterator[int]:
    """All leader epochs that are known of."""
    yield image.leader_epochs_end
    for stream in image.streams.values():
        yield from (partition.leader_epoch for partition in stream.partitions)
    for backup in manifest.streams:
        yield from (partition.last_epoch for partition in backup.partitions)


def _renewed(
    old: PartitionImage, replicas: tuple[NodeId, ...], leader_epoch: int, *, incarnation: int
) -> PartitionImage:
    """``incarnation``: of all replicas; none of the old cluster has had it, and a node that is assigned
    in the new one has a later one.
    """
    return PartitionImage(
        replicas, NodeId(NO_LEADER), leader_epoch, replicas, old.partition_epoch + 1,
        incarnations=(incarnation,) * len(replicas),
    )  # fmt: skip


def node_file(cluster_id: str, node_id: NodeId, folder_id: UUID, format_version: int) -> bytes:
    """``node.json``."""
    content = {
        "cluster_id": cluster_id,
        "node_id": node_id,
        "format_version": format_version,
        "directory_id": str(folder_id),
    }
    return (json.dumps(content, indent=2) + "\n").encode()
