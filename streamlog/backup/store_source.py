"""The object store of tiered storage, read where no node of its cluster is left.

What is in a bucket are the streams' descriptions, manifests and segments. Of each partition the newest manifest counts
of which all segments are there. What was never copied to the store is not in such a backup: the records of the last
segments.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from streamlog.backup.folder_source import RUN_BATCHES, read_folder
from streamlog.backup.source import BackupExtent, Batch
from streamlog.errors import InvalidRequest, PartitionNotFound
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.transactions.transactions import AbortedBatches
from streamlog.metadata.image.feature_level import LEVEL_MAX
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.image.records import (
    FeatureLevelChanged,
    MetadataRecord,
    PartitionChanged,
    StreamCreated,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.record.aborted import without_records
from streamlog.record.batch import read_header
from streamlog.tier.manifest import TieredSegment, TierManifest
from streamlog.tier.manifest_store import ManifestStore
from streamlog.tier.object_layout import StreamPrefix
from streamlog.tier.object_store import ObjectStore
from streamlog.tier.segment_object import download_segment
from streamlog.tier.segment_transactions import (
    TRANSACTIONS_PART,
    SegmentTransactions,
    decode_transactions,
)

_END: Final = 2**63 - 1


class StoredCluster:
    """A ``BackupSource``."""

    def __init__(self, store: ObjectStore, cluster_id: str, keys: KeyRing | None = None) -> None:
        """``keys``: to what is encrypted there."""
        self._store = store
        self._cluster_id = cluster_id
        self._keys = keys or KeyRing()
        self._manifests = ManifestStore(store, cluster_id)
        self._known: dict[TopicPartition, TierManifest] = {}

    async def image(self) -> MetadataImage:
        """Of the streams alone. Raises InvalidRequest where the store has nothing of the cluster."""
        records: list[MetadataRecord] = [FeatureLevelChanged(level=LEVEL_MAX)]
        prefixes = await self._manifests.streams()
        for prefix in prefixes:
            config = StreamConfig.of(**(await self._manifests.description(prefix)).config)
            records.append(StreamCreated(stream_id=prefix.stream_id, config=config, created_ms=0))
            records += [
                await self._partition(prefix, config, number) for number in range(config.partitions)
            ]
        if not prefixes:
            raise InvalidRequest(
                f"{self._store.url} has no stream of cluster {self._cluster_id!r}: see the names of its folders"
            )
        return MetadataImage(self._cluster_id).restored(records, offset=len(records), epoch=1)

    async def _partition(
        self, prefix: StreamPrefix, config: StreamConfig, number: int
    ) -> MetadataRecord:
        manifest = await self._manifests.newest(prefix.partition(number))
        if manifest is not None:
            self._known[TopicPartition(config.name, number)] = manifest
        replicas = tuple(NodeId(it) for it in range(1, config.replicas + 1))
        return PartitionChanged(
            stream=config.name,
            partition=number,
            replicas=replicas,
            leader=NodeId(NO_LEADER),
            leader_epoch=0 if manifest is None else manifest.leader_epoch + 1,
            isr=replicas,
            partition_epoch=0,
        )

    async def is_sealed(self, stream: StreamImage) -> bool:
        return stream.config.encrypted or any(
            segment.part(".key") is not None
            for tp, manifest in self._known.items()
            if tp.stream == stream.name
            for segment in manifest.segments
        )

    async def extent(self, stream: StreamImage, tp: TopicPartition) -> BackupExtent:
        manifest = self._known.get(tp)
        if manifest is None:
            return BackupExtent(0, 0)
        return BackupExtent(manifest.log_start_offset, manifest.end_offset)

    async def confirm(self, stream: StreamImage) -> None:
        """Objects never change."""

    async def epoch_end(self, tp: TopicPartition, epoch: int) -> int | None:
        manifest = self._known.get(tp)
        epochs = () if manifest is None else manifest.leader_epochs
        for at, it in enumerate(epochs):
            if it.epoch == epoch:
                return epochs[at + 1].start_offset if at + 1 < len(epochs) else _END
        return None

    async def batches(
        self, stream: StreamImage, number: int, start: int, stop: int
    ) -> AsyncGenerator[Batch, None]:
        manifest = self._known.get(TopicPartition(stream.name, number))
        if manifest is None:
            raise PartitionNotFound(f"{stream.name}-{number}: nothing of it is in the store")
        while start < stop:
            segment = manifest.segment_at(start)
            if segment is None:
                return
            end = min(stop, segment.end_offset)
            folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="streamlog-restore-"))
            try:
                prefix = self._manifests.prefix(manifest)
                await download_segment(self._store, prefix, segment, str(folder))
                aborted = await asyncio.to_thread(_aborted_in, folder, segment)
                found = read_folder(folder, start, end, self._keys)
                while run := await asyncio.to_thread(_next_run, found):
                    for header, batch in run:
                        is_aborted = header.is_transactional and aborted.has(
                            header.producer_id, header.base_offset
                        )
                        if is_aborted:
                            left = without_records(header)
                            yield read_header(left), left
                        else:
                            yield header, batch
            finally:
                with suppress(OSError):
                    await asyncio.to_thread(shutil.rmtree, folder)
            start = segment.end_offset


def _next_run(found: Iterator[Batch]) -> list[Batch]:
    return list(islice(found, RUN_BATCHES))


def _aborted_in(folder: Path, segment: TieredSegment) -> AbortedBatches:
    """Blocking."""
    told = SegmentTransactions()
    if segment.part(TRANSACTIONS_PART) is not None:
        path = folder / f"{segment.base_offset:020d}{TRANSACTIONS_PART}"
        told = decode_transactions(path.read_bytes(), str(path))
    return AbortedBatches(list(told.aborted))
