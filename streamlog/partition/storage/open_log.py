"""From a folder to an open log. Blocking calls, for worker threads."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from streamlog.errors import CorruptData, CorruptFile
from streamlog.log.encryption.key_file import scope_of
from streamlog.log.erasure.loading import load as load_erasures
from streamlog.log.log import PartitionLog
from streamlog.log.partition_metadata import PartitionMetadata
from streamlog.log.recovery.recovery import DeferredSyncs
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import Disk, storage_error
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.storage.checkpoints import Offsets
from streamlog.partition.storage.folder import Folders

logger = logging.getLogger(__name__)


class LocalReplica(NamedTuple):
    """A partition that this node is to keep."""

    stream: StreamImage
    tp: TopicPartition
    image: PartitionImage
    incarnation: int
    """Of the replica."""


def replicas_here(stream: StreamImage, node_id: NodeId) -> Iterator[LocalReplica]:
    """Those of this stream that the node is to keep."""
    for number, image in enumerate(stream.partitions):
        if node_id in image.replicas:
            tp = TopicPartition(stream.name, number)
            yield LocalReplica(stream, tp, image, image.incarnation(node_id))


@dataclass(frozen=True, slots=True)
class LogOpening:
    """A log to be opened."""

    tp: TopicPartition
    stream_id: UUID
    incarnation: int
    """Of the replica."""
    settings: LogSettings
    offsets: Offsets
    """What the checkpoints say."""


def open_log(
    opening: LogOpening,
    folders: Folders,
    disk: Disk,
    files: FilePool,
    syncs: DeferredSyncs | None = None,
    *,
    power_lost: bool = True,
) -> PartitionLog:
    """The log, recovered. ``syncs``: of logs that are opened with it. Raises CorruptFile,
    StorageFull, StorageFailed.
    """
    tp, known = opening.tp, opening.offsets
    try:
        folders.claim(tp, opening.stream_id, opening.incarnation)
    except OSError as error:
        raise storage_error(error, str(folders.path(tp))) from error
    log = PartitionLog.open(
        folders.path(tp),
        opening.settings,
        disk=disk,
        files=files,
        log_start_offset=known.log_start,
        recovery_point=known.recovery_point,
        syncs=syncs,
        power_lost=power_lost,
        key_scope=scope_of(opening.stream_id, tp.partition),
    )
    if log.log_end_offset < known.kept_end:
        log.recovery.lost_end = True
        log.lost_end.note(known.kept_end)  # the next checkpoint has these offsets no more
    log.first_dirty_offset = min(known.first_dirty, log.log_end_offset)
    known_offset = log.recovery_limit.bound(known.recovery_point)
    log.erasures = load_erasures(log, known_offset=known_offset, kept_end=known.erasures_end)
    if known.high_watermark > log.log_end_offset:
        logger.error(
            "committed records lost",
            extra={
                "stream": tp.stream,
                "partition": tp.partition,
                "offset": log.log_end_offset,
                "high_watermark": known.high_watermark,
            },
        )
    return log


def sweep(
    folders: Folders, image: MetadataImage, deleted: frozenset[UUID], node_id: NodeId
) -> list[TopicPartition]:
    """Move away every folder that is not a partition's of ``image``. Raises CorruptData, OSError.

    Those of streams in ``deleted``, and of partitions that were moved to other nodes, are
    discarded, also if they were moved back since: these are returned. Others are kept as orphans,
    for it may be the metadata that is short. If it knows nothing at all while there are logs,
    nothing is touched.

    A folder of a replica that is assigned later than ``image`` knows stays where it is, and the
    partition cannot be opened: it may be the only copy.
    """
    strange, moved_back = [], []
    for tp, path in folders.present():
        mark = _mark(folders, tp)
        owner = None if mark is None else mark.stream_id
        stream = image.streams.get(tp.stream)
        known = stream is not None and tp.partition < len(stream.partitions)
        if known and stream is not None and owner in (None, stream.stream_id):
            partition = stream.partitions[tp.partition]
            if node_id not in partition.replicas:
                folders.discard(tp, owner)
            elif _is_before(mark, partition.incarnation(node_id)):
                folders.discard(tp, owner)
                moved_back.append(tp)
            continue
        strange.append((tp, path, owner))
    orphans = [(tp, path, owner) for tp, path, owner in strange if owner not in deleted]
    if orphans and not image.streams:
        raise CorruptData(
            f"{folders.streams} holds {len(orphans)} partitions and the metadata knows no stream;"
            " restore the folder metadata, or move the folder streams away"
        )
    for tp, path, owner in strange:
        if owner in deleted:
            folders.discard(tp, owner)
            continue
        kept = folders.orphan(tp, owner)
        logger.error(
            "folder of an unknown stream moved away",
            extra={
                "stream": tp.stream,
                "partition": tp.partition,
                "file": str(path),
                "kept": str(kept),
            },
        )
    return moved_back


def _is_before(mark: PartitionMetadata | None, incarnation: int) -> bool:
    return mark is not None and mark.incarnation is not None and mark.incarnation < incarnation


def _mark(folders: Folders, tp: TopicPartition) -> PartitionMetadata | None:
    """None also where the mark is damaged: the name in the metadata has to do then."""
    try:
        return folders.mark(folders.path(tp))
    except CorruptFile as error:
        logger.error("folder's mark damaged", extra={"problem": str(error)})
        return None
