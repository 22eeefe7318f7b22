"""Taking a backup: what has come since the last one is added, stream by stream."""

import asyncio
import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from streamlog import __version__
from streamlog.backup.batch_file import PieceWriter
from streamlog.backup.folder import BackupFolder
from streamlog.backup.manifest import (
    MetadataBackup,
    PartitionBackup,
    StreamBackup,
)
from streamlog.backup.source import BackupExtent, BackupSource, Batch
from streamlog.clock import wall_ms
from streamlog.errors import (
    CorruptBatch,
    InvalidRequest,
    StorageFull,
    StreamlogError,
)
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.storage.disk import OsDisk, storage_errors
from streamlog.metadata.image.image_types import StreamImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataRecord, PartitionChanged, StreamCreated
from streamlog.metadata.image.snapshot import encode_snapshot, snapshot_id, snapshot_path
from streamlog.metadata.stream.stream_config import is_internal
from streamlog.model import TopicPartition
from streamlog.record.batch import BatchHeader, read_header
from streamlog.record.compacted import gap_from, is_gap
from streamlog.record.compression import Buffer

RUN_BYTES: Final = 1024 * 1024
"""Batches that are given to a piece at once."""
CATCH_UP_ROUNDS: Final = 5
"""Looks for streams that have come while others were copied."""


@dataclass(frozen=True)
class BackupOptions:
    """How a backup is to be taken."""

    names: frozenset[str] = frozenset()
    """Only these streams; the metadata is then left as it is. Empty: all."""
    full: bool = False
    """Copy all again, so that what was compacted or erased goes from the backup, too."""
    prune: bool = False
    """Forget streams that are gone, and pieces that lie wholly below a log's start."""
    in_clear: bool = False
    """Have the records of encrypted streams in the clear in the backup."""


@dataclass
class BackupReport:
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
    folder: BackupFolder, source: BackupSource, wish: BackupOptions, keys: KeyRing | None = None
) -> BackupReport:
    """Bring the backup up to what is committed now.

    What comes of encrypted streams is encrypted by the active one of ``keys``, and so is what
    comes of a stream that is so no more, if the backup or the source has encrypted records of it.

    A partition that cannot be read is told of and stays as it was. Raises InvalidRequest for
    another cluster's backup, unknown streams, and encrypted ones without a key or the wish to have
    them in the clear; StorageFull, and what the cluster answers.
    """
    image = await source.image()
    _check_cluster(folder, image)
    streams = _in_order(image.stream(name) for name in wish.names or image.streams)
    run = _Run(folder, source, wish, keys or KeyRing(), BackupReport(image.cluster_id))
    await run.check_keys(streams)
    folder.tidy()
    for stream in streams:
        await run.take(stream)
    if not wish.names:
        _finish(folder, await run.catch_up(), prune=wish.prune)
    folder.tidy()
    return run.done()


def _in_order(streams: Iterable[StreamImage]) -> list[StreamImage]:
    """The nodes' own first: the records that a group has committed are there before its commit, so
    a copy of them that is made after that of the commit has them.
    """
    return sorted(streams, key=lambda it: (not is_internal(it.name), it.name))


def _check_cluster(folder: BackupFolder, image: MetadataImage) -> None:
    known = folder.manifest.cluster_id
    if known not in (None, image.cluster_id):
        raise InvalidRequest(
            f"{folder.path} is a backup of cluster {known}, not of {image.cluster_id};"
            " name another folder"
        )


def _in_need_of_a_key(names: list[str]) -> InvalidRequest:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    are = "are" if more else "is"
    return InvalidRequest(
        f"{names[0]}{more} {are} encrypted: name a key for the backup (--key NAME=SOURCE), or say"
        " that it may hold such records in the clear (--plaintext); nothing was copied"
    )


class _Run:
    """What one run has taken of which stream, and what was wrong."""

    def __init__(
        self,
        folder: BackupFolder,
        source: BackupSource,
        wish: BackupOptions,
        keys: KeyRing,
        taken: BackupReport,
    ) -> None:
        self._folder = folder
        self._source = source
        self._wish = wish
        self._keys = keys
        self._taken = taken
        self._seen: dict[UUID, int] = {}
        """Streams that were tried, and how many partitions they had."""
        self._problems: dict[UUID, list[str]] = {}
        """Of those in which something is wrong."""

    async def check_keys(self, streams: Iterable[StreamImage]) -> None:
        """Raises InvalidRequest where one is to be encrypted, and there is no key."""
        names = [it.name for it in streams if await self._is_sealed(it)]
        if names and self._keys.active is None:
            raise _in_need_of_a_key(names)

    async def take(self, stream: StreamImage) -> None:
        self._seen[stream.stream_id] = len(stream.partitions)
        problems: list[str] = []
        try:
            await self._take(stream, problems)
        except StorageFull:
            raise
        except StreamlogError as error:
            problems = [f"{stream.name}: {_line(error)}"]
        self._problems[stream.stream_id] = problems

    async def catch_up(self) -> MetadataImage:
        """The metadata, without streams and partitions that the backup does not have.

        Streams come, go and grow while others are copied. Those that have come are copied, too; if
        there are always more, the last ones are for the next run. Those that are gone are none of
        a cluster that is made of this backup.
        """
        for _ in range(CATCH_UP_ROUNDS):
            image = await self._source.image()
            more = _in_order(it for it in image.streams.values() if not self._has(it))
            for stream in more:
                await self.take(stream)
            if not more:
                break
        newest = await self._source.image()
        here = {it.stream_id for it in newest.streams.values()}
        for stream_id in self._seen.keys() - here:
            self._problems.pop(stream_id)
            self._seen.pop(stream_id)
        return without_others(image, self._seen)

    def done(self) -> BackupReport:
        taken = self._taken
        taken.problems = [it for problems in self._problems.values() for it in problems]
        taken.size_bytes = sum(
            partition.size_bytes
            for stream in self._folder.manifest.streams
            for partition in stream.partitions
        )
        return taken

    def _has(self, stream: StreamImage) -> bool:
        return self._seen.get(stream.stream_id, -1) >= len(stream.partitions)

    async def _is_sealed(self, stream: StreamImage) -> bool:
        """What is taken of it is to be encrypted."""
        if self._wish.in_clear:
            return False
        backup = self._folder.manifest.by_id(stream.stream_id)
        is_encrypted = backup is not None and backup.is_encrypted
        return is_encrypted or await self._source.is_sealed(stream)

    async def _take(self, stream: StreamImage, problems: list[str]) -> None:
        """Committed as a whole; a partition that fails stays as it was. Raises StreamlogError, as
        StreamNotFound for a stream that was deleted meanwhile: then all stays as it was.
        """
        folder, taken, keys = self._folder, self._taken, None
        if await self._is_sealed(stream):
            if self._keys.active is None:
                raise _in_need_of_a_key([stream.name])
            keys = self._keys
        backup = folder.manifest.by_id(stream.stream_id) or StreamBackup(
            stream_id=stream.stream_id, config=stream.config, created_ms=stream.created_ms
        )
        backup = backup.model_copy(update={"config": stream.config})
        if self._wish.full:  # beside the old one, which holds until this is whole
            renewed = {"partitions": (), "generation": backup.generation + 1}
            backup = backup.model_copy(update=renewed)
        partitions = {it.number: it for it in backup.partitions}
        for number in range(len(stream.partitions)):
            try:
                partitions[number] = await self._take_partition(stream, backup, number, keys)
            except StorageFull:
                raise
            except StreamlogError as error:
                problems.append(f"{stream.name}/{number}: {_line(error)}")
        await self._source.confirm(stream)
        taken.partitions += len(stream.partitions) - len(problems)
        if problems and self._wish.full:
            return
        kept = [partitions[number] for number in sorted(partitions)]
        if self._wish.prune:
            kept = [_pruned(it) for it in kept]
        backup = backup.model_copy(update={"partitions": tuple(kept)})
        named = folder.manifest.model_copy(update={"cluster_id": taken.cluster_id})
        folder.commit(named.with_stream(backup))
        taken.streams += 1

    async def _take_partition(
        self, stream: StreamImage, backup: StreamBackup, number: int, keys: KeyRing | None
    ) -> PartitionBackup:
        source, tp = self._source, TopicPartition(stream.name, number)
        extent = await source.extent(stream, tp)
        known = backup.partition(number)
        if known is None or not known.pieces:
            known = PartitionBackup(number=number, log_start_offset=extent.log_start_offset)
        writer = PieceWriter(self._folder.partition(backup, number), known, keys)
        with contextlib.closing(writer):
            await _check_history(source, tp, known, extent)
            if extent.high_watermark > writer.next_offset:
                await _copy(source, stream, number, writer, extent)
            pieces = writer.finish()
        self._taken.new_bytes += writer.written_bytes
        self._taken.new_offsets += writer.new_offsets
        return PartitionBackup(
            number=number,
            log_start_offset=extent.log_start_offset,
            last_epoch=writer.last_epoch,
            pieces=pieces,
        )


def _line(error: StreamlogError) -> str:
    return " ".join(str(error).split())


def without_others(image: MetadataImage, partitions: Mapping[UUID, int]) -> MetadataImage:
    """``image`` with no other streams than these, and no more partitions of each."""
    counts = {
        it.name: min(partitions[it.stream_id], len(it.partitions))
        for it in image.streams.values()
        if it.stream_id in partitions
    }
    records = list[MetadataRecord]()
    for record in image.records():
        match record:
            case StreamCreated(config=config):
                if config.name in counts:
                    config = config.changed(partitions=counts[config.name])
                    records.append(record.model_copy(update={"config": config}))
            case PartitionChanged():
                if record.partition < counts.get(record.stream, 0):
                    records.append(record)
            case _:
                records.append(record)
    return MetadataImage(image.cluster_id).restored(records, offset=image.offset, epoch=image.epoch)


def _pruned(partition: PartitionBackup) -> PartitionBackup:
    start = partition.log_start_offset
    pieces = tuple(it for it in partition.pieces if it.next_offset > start)
    return partition.model_copy(update={"pieces": pieces})


async def _check_history(
    source: BackupSource, tp: TopicPartition, known: PartitionBackup, extent: BackupExtent
) -> None:
    """What is here must still be what the cluster has. Raises InvalidRequest."""
    if not known.pieces:
        return
    remedy = "back this stream up in full (--full), or into another folder"
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


async def _copy(
    source: BackupSource,
    stream: StreamImage,
    number: int,
    writer: PieceWriter,
    extent: BackupExtent,
) -> None:
    """Pieces are hashed, encrypted and written in a thread, a run at a time. The writer has files of
    its own and not aiofiles': a piece is synced before the manifest names it, in place of a partial
    write, and both are the disk's to order.
    """
    start = max(writer.next_offset, extent.log_start_offset)
    batches = source.batches(stream, number, start, extent.high_watermark)
    run: list[Batch] = []
    size = 0
    async with contextlib.aclosing(batches) as found:
        async for header, batch in found:
            if not (writer.is_empty and not run) and header.base_offset < start:
                header, batch = _rest(header, batch, start)  # noqa: PLW2901
            if header.next_offset > extent.high_watermark:
                break
            run.append((header, batch))
            size += len(batch)
            if size >= RUN_BYTES:
                await asyncio.to_thread(_add, writer, run)
                run, size = [], 0
    await asyncio.to_thread(_add, writer, run)


def _add(writer: PieceWriter, run: list[Batch]) -> None:
    for header, batch in run:
        writer.add(header, batch)


def _rest(header: BatchHeader, batch: Buffer, start: int) -> Batch:
    """Compaction may have made one gap of what was backed up and what was not."""
    if not is_gap(header):
        raise CorruptBatch(f"a batch of offset {header.base_offset} where {start} begins one")
    rest = gap_from(header, start)
    return read_header(rest), rest


def _finish(folder: BackupFolder, image: MetadataImage, *, prune: bool) -> None:
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
        "finished_ms": wall_ms(),
        "metadata": metadata,
        "streams": streams,
    }
    folder.commit(manifest.model_copy(update=changes))
