"""Taking a backup: what has come since the last one is added, stream by stream."""

import contextlib
import hashlib
import time
from dataclasses import dataclass, field

from streamlog import __version__
from streamlog.backup.folder import BackupFolder
from streamlog.backup.manifest import (
    MetadataBackup,
    PartitionBackup,
    StreamBackup,
)
from streamlog.backup.piece import PieceWriter
from streamlog.backup.source import Batch, Extent, Source
from streamlog.errors import (
    CorruptBatch,
    InvalidRequest,
    StorageFull,
    StreamlogError,
)
from streamlog.log.disk import OsDisk, storage_errors
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.metadata.entries import StreamImage
from streamlog.metadata.image import Image
from streamlog.metadata.snapshot import encode_snapshot, snapshot_id, snapshot_path
from streamlog.model import TopicPartition
from streamlog.record.batch import BatchHeader, read_header
from streamlog.record.compacted import gap_from, is_gap
from streamlog.record.compression import Buffer


@dataclass(frozen=True)
class Wish:
    """How a backup is to be taken."""

    names: frozenset[str] = frozenset()
    """Only these streams; the metadata is then left as it is. Empty: all."""
    anew: bool = False
    """Copy all again, so that what was compacted or erased goes from the backup, too."""
    prune: bool = False
    """Forget streams that are gone, and pieces that lie wholly below a log's start."""
    in_clear: bool = False
    """Have the records of encrypted streams in the clear in the backup."""


@dataclass
class Taken:
    """What a backup came to."""

    cluster_id: str
    streams: int = 0
    partitions: int = 0
    new_offsets: int = 0
    """From the first to the last record that was added, over all partitions."""
    new_bytes: int = 0
    size_bytes: int = 0
    """Of the whole backup."""
    problems: list[str] = field(default_factory=list)
    """Partitions that stay as they were in the backup, or out of it."""


async def take(
    folder: BackupFolder, source: Source, wish: Wish, keys: KeyRing | None = None
) -> Taken:
    """Bring the backup up to what is committed now.

    What comes of encrypted streams is encrypted by the current one of ``keys``, and so is what
    comes of a stream that is so no more, if the backup or the source has encrypted records of it.

    A partition that cannot be read is told of and stays as it was. Raises InvalidRequest for
    another cluster's backup, unknown streams, and encrypted ones without a key or the wish to have
    them in the clear; StorageFull, and what the cluster answers.
    """
    image = await source.image()
    _check_cluster(folder, image)
    streams = [image.stream(name) for name in sorted(wish.names or image.streams)]
    sealed = {it.stream_id for it in streams if await _is_sealed(folder, source, it, wish)}
    keys = keys or KeyRing()
    if sealed and keys.current is None:
        raise _in_need_of_a_key([it.name for it in streams if it.stream_id in sealed])
    folder.tidy()
    taken = Taken(image.cluster_id)
    for stream in streams:
        by = keys if stream.stream_id in sealed else None
        await _take_stream(folder, source, stream, taken, anew=wish.anew, prune=wish.prune, keys=by)
    if not wish.names:
        _finish(folder, image, prune=wish.prune)
    folder.tidy()
    taken.size_bytes = sum(
        partition.size_bytes for it in folder.manifest.streams for partition in it.partitions
    )
    return taken


def _check_cluster(folder: BackupFolder, image: Image) -> None:
    known = folder.manifest.cluster_id
    if known not in (None, image.cluster_id):
        raise InvalidRequest(
            f"{folder.path} is a backup of cluster {known}, not of {image.cluster_id};"
            " name another folder"
        )


async def _is_sealed(folder: BackupFolder, source: Source, stream: StreamImage, wish: Wish) -> bool:
    """What is taken of it is to be encrypted."""
    if wish.in_clear:
        return False
    backup = folder.manifest.by_id(stream.stream_id)
    return (backup is not None and backup.is_encrypted) or await source.is_sealed(stream)


def _in_need_of_a_key(names: list[str]) -> InvalidRequest:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    are = "are" if more else "is"
    return InvalidRequest(
        f"{names[0]}{more} {are} encrypted: name a key for the backup (--key NAME=SOURCE), or say"
        " that it may hold such records in the clear (--in-clear); nothing was copied"
    )


async def _take_stream(
    folder: BackupFolder,
    source: Source,
    stream: StreamImage,
    taken: Taken,
    *,
    anew: bool,
    prune: bool,
    keys: KeyRing | None,
) -> None:
    """Committed as a whole; a partition that fails stays as it was. ``keys``: to encrypt it by."""
    backup = folder.manifest.by_id(stream.stream_id) or StreamBackup(
        stream_id=stream.stream_id, config=stream.config, created_ms=stream.created_ms
    )
    backup = backup.model_copy(update={"config": stream.config})
    if anew:  # beside the old one, which holds until this is whole
        backup = backup.model_copy(update={"partitions": (), "generation": backup.generation + 1})
    partitions = {it.number: it for it in backup.partitions}
    problems = []
    for number in range(len(stream.partitions)):
        tp = TopicPartition(stream.name, number)
        try:
            extent = await source.extent(stream, tp)
            known = backup.partition(number)
            if known is None or not known.pieces:
                known = PartitionBackup(number=number, log_start_offset=extent.log_start_offset)
            writer = PieceWriter(folder.partition(backup, number), known, keys)
            with contextlib.closing(writer):
                await _check_history(source, tp, known, extent)
                partitions[number] = await _take_partition(source, tp, writer, extent)
            taken.new_bytes += writer.written_bytes
            taken.new_offsets += writer.new_offsets
        except StorageFull:
            raise
        except StreamlogError as error:
            problems.append(f"{stream.name}/{number}: {' '.join(str(error).split())}")
    taken.problems += problems
    taken.partitions += len(stream.partitions) - len(problems)
    if problems and anew:
        return
    kept = [partitions[number] for number in sorted(partitions)]
    if prune:
        kept = [_pruned(it) for it in kept]
    backup = backup.model_copy(update={"partitions": tuple(kept)})
    named = folder.manifest.model_copy(update={"cluster_id": taken.cluster_id})
    folder.commit(named.with_stream(backup))
    taken.streams += 1


def _pruned(partition: PartitionBackup) -> PartitionBackup:
    start = partition.log_start_offset
    pieces = tuple(it for it in partition.pieces if it.next_offset > start)
    return partition.model_copy(update={"pieces": pieces})


async def _take_partition(
    source: Source, tp: TopicPartition, writer: PieceWriter, extent: Extent
) -> PartitionBackup:
    if extent.high_watermark > writer.next_offset:
        await _copy(source, tp, writer, extent)
    pieces = writer.finish()
    return PartitionBackup(
        number=tp.partition,
        log_start_offset=extent.log_start_offset,
        last_epoch=writer.last_epoch,
        pieces=pieces,
    )


async def _check_history(
    source: Source, tp: TopicPartition, known: PartitionBackup, extent: Extent
) -> None:
    """What is here must still be what the cluster has. Raises InvalidRequest."""
    if not known.pieces:
        return
    remedy = "take this stream anew (--anew), or into another folder"
    if extent.log_start_offset > known.next_offset:
        raise InvalidRequest(
            f"the records from {known.next_offset} to {extent.log_start_offset} are gone from the"
            f" cluster before they were in the backup; {remedy}"
        )
    end = await source.epoch_end(tp, known.last_epoch)
    if extent.high_watermark < known.next_offset or (end is not None and end < known.next_offset):
        raise InvalidRequest(
            f"the backup has records up to {known.next_offset} of epoch {known.last_epoch}, and the"
            f" cluster's log has gone on otherwise (an unclean election?); {remedy}"
        )


async def _copy(source: Source, tp: TopicPartition, writer: PieceWriter, extent: Extent) -> None:
    start = max(writer.next_offset, extent.log_start_offset)
    async with contextlib.aclosing(source.batches(tp, start, extent.high_watermark)) as found:
        async for header, batch in found:
            if not writer.is_empty and header.base_offset < start:
                header, batch = _rest(header, batch, start)  # noqa: PLW2901
            if header.next_offset > extent.high_watermark:
                return
            writer.add(header, batch)


def _rest(header: BatchHeader, batch: Buffer, start: int) -> Batch:
    """Compaction may have made one gap of what was backed up and what was not."""
    if not is_gap(header):
        raise CorruptBatch(f"a batch of offset {header.base_offset} where {start} begins one")
    rest = gap_from(header, start)
    return read_header(rest), rest


def _finish(folder: BackupFolder, image: Image, *, prune: bool) -> None:
    """The metadata, and all that goes with it, hold from here on."""
    at, data = snapshot_id(image), encode_snapshot(image)
    path = snapshot_path(folder.metadata, at)
    with storage_errors(str(path)):
        disk = OsDisk()
        disk.make_directory(str(folder.metadata))
        disk.write_small(str(path), data)
    metadata = MetadataBackup(
        name=path.name,
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        offset=at.end_offset,
        epoch=at.epoch,
    )
    manifest = folder.manifest
    streams = manifest.streams
    if prune:
        here = {it.stream_id for it in image.streams.values()}
        streams = tuple(it for it in streams if it.stream_id in here)
    changes = {
        "cluster_id": image.cluster_id,
        "written_by": f"streamlog {__version__}",
        "finished_ms": time.time_ns() // 1_000_000,
        "metadata": metadata,
        "streams": streams,
    }
    folder.commit(manifest.model_copy(update=changes))
