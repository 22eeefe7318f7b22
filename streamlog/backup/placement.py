"""The metadata of a cluster that is made anew of a backup: the same streams on other nodes. Pure.

What is made of the same backup, nodes and cluster id is the same everywhere: each machine makes its
own folder, and they agree.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from streamlog.backup.manifest import Manifest
from streamlog.metadata.entries import PartitionImage, StreamImage, partition_changed
from streamlog.metadata.image import Image
from streamlog.metadata.records import (
    MetadataLogBegun,
    MetadataRecord,
    NodeDraining,
    NodeFenced,
    NodeFull,
    NodeRegistered,
    PartitionChanged,
    VotersChanged,
)
from streamlog.model import NO_LEADER, NodeId, TopicPartition

_OF_THE_OLD: Final = (
    NodeRegistered,
    NodeFenced,
    NodeDraining,
    NodeFull,
    VotersChanged,
    MetadataLogBegun,
)
"""Nodes register anew, the voters are those of the configuration, and the metadata log is another:
its first controller names it.
"""


def directory_id(manifest: Manifest, cluster_id: str, node_id: NodeId) -> UUID:
    """Of the folder that a node gets."""
    return uuid.uuid5(manifest.backup_id, f"{cluster_id} {manifest.finished_ms} {node_id}")


def restored_image(
    image: Image, nodes: Sequence[NodeId], cluster_id: str, manifest: Manifest
) -> Image:
    """``image`` as of the new cluster: all partitions on ``nodes``, each replica in sync, none led.

    Its epoch is newer than any in the backup.
    """
    records = list(_records(image, nodes, cluster_id, manifest))
    return Image(cluster_id).restored(records, offset=image.offset + 1, epoch=image.epoch + 1)


def placements(image: Image, nodes: Sequence[NodeId]) -> dict[TopicPartition, tuple[NodeId, ...]]:
    """Who keeps what. Replicas whose nodes are there stay; others go to whoever has least."""
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


def _streams(image: Image) -> Iterator[StreamImage]:
    for name in sorted(image.streams):
        yield image.streams[name]


def _records(
    image: Image, nodes: Sequence[NodeId], cluster_id: str, manifest: Manifest
) -> Iterator[MetadataRecord]:
    placed = placements(image, nodes)
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
            stream = image.stream(tp.stream)
            last_epoch = _last_epoch(manifest, stream, tp.partition)
            anew = _anew(stream.partition(tp.partition), placed[tp], last_epoch)
            yield partition_changed(tp.stream, tp.partition, anew)
        else:
            yield record


def _last_epoch(manifest: Manifest, stream: StreamImage, number: int) -> int:
    backup = manifest.by_id(stream.stream_id)
    partition = backup.partition(number) if backup is not None else None
    return -1 if partition is None else partition.last_epoch


def _anew(old: PartitionImage, replicas: tuple[NodeId, ...], last_epoch: int) -> PartitionImage:
    epoch = max(old.leader_epoch, last_epoch) + 1
    return PartitionImage(replicas, NodeId(NO_LEADER), epoch, replicas, old.partition_epoch + 1)


def node_file(cluster_id: str, node_id: NodeId, folder_id: UUID, format_version: int) -> bytes:
    """``node.json``."""
    content = {
        "cluster_id": cluster_id,
        "node_id": node_id,
        "format_version": format_version,
        "directory_id": str(folder_id),
    }
    return (json.dumps(content, indent=2) + "\n").encode()
