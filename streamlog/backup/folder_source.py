"""Nodes' data folders, read as they lie there: running nodes are not disturbed.

What is committed is known from each folder's checkpoint, which a running node writes every few
seconds; the rest is for the next backup.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import aiofiles

from streamlog.backup.batch_file import opened_batch, opener_of
from streamlog.backup.source import BackupExtent, Batch
from streamlog.errors import (
    CorruptBatch,
    CorruptData,
    CorruptFile,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    StreamNotFound,
)
from streamlog.log.checkpoint import OffsetCheckpoint, offset_of
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.layout import (
    EPOCHS_NAME,
    KEY_SUFFIX,
    LOG_SUFFIX,
    METADATA_NAME,
    PartitionMetadata,
    decode_mark,
    segment_base_offsets,
    segment_stem,
)
from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.log.segment.batch_scan import BatchPlace, scan
from streamlog.log.storage.disk import OsDisk, storage_errors
from streamlog.log.transactions.folder_transactions import FolderTransactions
from streamlog.log.transactions.transactions_file import FILE_NAME as TRANSACTIONS_NAME
from streamlog.metadata.image.image_types import StreamImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import decode_snapshot, find_snapshots, snapshot_path
from streamlog.metadata.nodes.data_dir import NodeFile
from streamlog.metadata.quorum.store import METADATA_LOG_ID, decode_batches
from streamlog.model import TopicPartition
from streamlog.record.aborted import without_records
from streamlog.record.batch import BatchHeader, read_header
from streamlog.record.compression import Buffer

HIGH_WATERMARKS = "high-watermark-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
RUN_BATCHES: Final = 64
"""Read at once in a thread: a log is read by the log's own scan, which knows no event loop."""


class KeptFolders:
    """A ``Source``; of each partition the copy of which most is known to be committed."""

    def __init__(self, paths: Sequence[Path], keys: KeyRing | None = None) -> None:
        """``keys``: to what is encrypted there. Raises InvalidRequest if they are no nodes'
        folders, or not of one cluster.
        """
        self._paths = list(paths)
        self._keys = keys or KeyRing()
        self._disk = OsDisk()
        self._places: dict[TopicPartition, Path] = {}
        clusters = {_node_file(path).cluster_id for path in paths}
        if len(clusters) > 1:
            raise InvalidRequest(f"the folders belong to several clusters: {sorted(clusters)}")
        (self._cluster_id,) = clusters

    async def image(self) -> MetadataImage:
        """The newest of the folders'. Raises CorruptData where none is whole."""
        found, problems = list[MetadataImage](), list[str]()
        for path in self._paths:
            try:
                found.append(await asyncio.to_thread(self._image, path / "metadata"))
            except CorruptData as error:
                problems.append(str(error))
        if not found:
            raise CorruptData("; ".join(problems))
        return max(found, key=lambda image: (image.epoch, image.offset))

    def _image(self, folder: Path) -> MetadataImage:
        with storage_errors(str(folder)):
            committed = OffsetCheckpoint(folder / HIGH_WATERMARKS, self._disk).read()
            image = self._snapshot(folder)
            end = committed.get(METADATA_LOG_ID, 0)
            if end > image.offset:
                data = b"".join(
                    bytes(it)
                    for _, it in read_folder(folder / "log", image.offset, end, self._keys)
                )
                for batch in decode_batches(data, image.offset, str(folder)):
                    if batch.end_offset <= end:
                        image = image.apply_all(
                            batch.records, offset=batch.base_offset, epoch=batch.epoch
                        )
        return image

    def _snapshot(self, folder: Path) -> MetadataImage:
        problem = ""
        for snapshot in find_snapshots(self._disk, folder):
            path = snapshot_path(folder, snapshot)
            try:
                return decode_snapshot(self._disk.read_small(str(path)), str(path))
            except (CorruptFile, FileNotFoundError) as error:  # a newer one may have come
                problem = str(error)
        if problem:
            raise CorruptData(problem)
        return MetadataImage(self._cluster_id)

    async def is_sealed(self, stream: StreamImage) -> bool:
        folders = [
            path / "streams" / stream.name / str(number)
            for path in self._paths
            for number in range(len(stream.partitions))
        ]
        if stream.config.encrypted:
            return True
        for folder in folders:
            if any(folder.glob(f"*{KEY_SUFFIX}")) and await _is_of(folder, stream):
                return True
        return False

    async def extent(self, stream: StreamImage, tp: TopicPartition) -> BackupExtent:
        found: tuple[int, Path] | None = None
        log_start = 0
        for path in self._paths:
            folder = path / "streams" / tp.stream / str(tp.partition)
            metadata = await _metadata_of(folder, stream)
            if metadata is None:
                continue
            end = self._offset(path, HIGH_WATERMARKS, tp, metadata)
            if found is None or end > found[0]:
                found, log_start = (end, path), self._offset(path, LOG_STARTS, tp, metadata)
        if found is None:
            raise PartitionNotFound(
                f"{tp} is on no node whose folder was named; name one of {_owners(stream, tp)} too"
            )
        end, path = found
        self._places[tp] = path / "streams" / tp.stream / str(tp.partition)
        first = _bases(self._places[tp])[:1]
        start = max(log_start, first[0] if first else log_start)
        tier = stream.partition(tp.partition).tier
        if tier is not None and tier.log_start_offset < start:
            raise InvalidRequest(
                f"{tp}: offsets {tier.log_start_offset} to {start} are in the object store alone; take"
                " the backup of the running cluster, or of the store (--store)"
            )
        transactions = self._transactions_of(self._places[tp])
        return BackupExtent(start, max(start, transactions.stable_offset(end, start)))

    def _transactions_of(self, place: Path) -> FolderTransactions:
        try:
            data = self._disk.read_small(str(place / TRANSACTIONS_NAME))
        except FileNotFoundError:
            data = b""
        return FolderTransactions(data, str(place))

    def _offset(
        self, path: Path, name: str, tp: TopicPartition, metadata: PartitionMetadata
    ) -> int:
        return offset_of(OffsetCheckpoint(path / name, self._disk).read(), tp, metadata)

    async def epoch_end(self, tp: TopicPartition, epoch: int) -> int | None:
        path = self._places[tp] / EPOCHS_NAME
        try:
            async with aiofiles.open(path, "rb") as file:
                epochs = LeaderEpochs.decode(await file.read(), str(path))
        except FileNotFoundError:
            return None
        if epoch == epochs.latest:
            return 2**63 - 1  # it goes on
        end = epochs.end_offset_for(epoch, 2**63 - 1)
        return end.end_offset if end.epoch == epoch else None

    async def confirm(self, stream: StreamImage) -> None:
        for number in range(len(stream.partitions)):
            place = self._places.get(TopicPartition(stream.name, number))
            if place is not None and not await _is_of(place, stream):
                raise StreamNotFound(f"{place} is no longer of stream {stream.name}")

    async def batches(
        self, stream: StreamImage, number: int, start: int, stop: int
    ) -> AsyncGenerator[Batch, None]:
        place = self._places[TopicPartition(stream.name, number)]
        found = read_folder(place, start, stop, self._keys)
        transactions = await asyncio.to_thread(self._transactions_of, place)
        while run := await asyncio.to_thread(lambda: list(islice(found, RUN_BATCHES))):
            for header, batch in run:
                if transactions.is_aborted(header):
                    left = without_records(header)
                    yield read_header(left), left
                else:
                    yield header, batch


def _node_file(path: Path) -> NodeFile:
    try:
        return NodeFile.model_validate_json((path / "node.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidRequest(f"{path} is no node's folder: it has no node.json") from None
    except ValueError:
        raise CorruptFile(f"{path}/node.json: is damaged") from None


async def _is_of(folder: Path, stream: StreamImage) -> bool:
    return await _metadata_of(folder, stream) is not None


async def _metadata_of(folder: Path, stream: StreamImage) -> PartitionMetadata | None:
    """Which log the folder is for; None where it is none of ``stream``."""
    try:
        async with aiofiles.open(folder / METADATA_NAME, "rb") as file:
            metadata = decode_mark(await file.read())
    except (OSError, ValueError):
        return None
    return metadata if metadata.stream_id == stream.stream_id else None


def _owners(stream: StreamImage, tp: TopicPartition) -> str:
    nodes = stream.partition(tp.partition).replicas
    return (
        "those of nodes " + ", ".join(map(str, nodes)) if len(nodes) > 1 else f"node {nodes[0]}'s"
    )


def _bases(folder: Path) -> list[int]:
    with storage_errors(str(folder)):
        return segment_base_offsets(entry.name for entry in folder.iterdir())


def read_folder(
    folder: Path, start: int, stop: int, keys: KeyRing
) -> Iterator[tuple[BatchHeader, Buffer]]:
    """From the batch with ``start`` on. A segment that goes meanwhile is looked for again: another
    has taken its place, or retention was quicker.
    """
    tries = 3
    while start < stop:
        bases = _bases(folder)
        if not bases or start < bases[0]:
            raise OffsetOutOfRange(start, bases[0] if bases else stop, stop)
        base = max(it for it in bases if it <= start)
        path = folder / (segment_stem(base) + LOG_SUFFIX)
        before = start
        try:
            for header, data in _segment(path, base, start, stop, keys):
                yield header, data
                start = header.next_offset
        except FileNotFoundError:
            pass
        tries = 3 if start > before else tries - 1
        if not tries:
            raise CorruptBatch(f"{path}: no record at {start}, where the log goes to {stop}")


def _segment(
    path: Path, base: int, start: int, stop: int, keys: KeyRing
) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Raises FileNotFoundError where it went meanwhile."""
    opener = opener_of(path, keys)
    file = OsDisk().open(str(path), writable=False)
    try:
        for place in scan(file, 0, file.size(), base, check_crc=False):
            if not isinstance(place, BatchPlace):
                raise CorruptBatch(f"{path}: position {place.position}: {place.problem}")
            if place.next_offset <= start:
                continue
            data = file.pread(place.end_position - place.position, place.position)
            try:
                header, batch = opened_batch(data, opener)
            except CorruptBatch as error:
                raise CorruptBatch(f"{path}: position {place.position}: {error}") from None
            except CorruptFile:
                if not path.exists():  # and its key went with it
                    raise FileNotFoundError from None
                raise
            yield header, batch
            if place.next_offset >= stop:
                return
    finally:
        file.close()
