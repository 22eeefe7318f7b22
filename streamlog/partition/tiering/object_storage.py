"""The object store and the local cache of a node, as its partitions use them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from streamlog.config import TierSection
from streamlog.log.storage.file_pool import FilePool
from streamlog.partition.tiering.tiered_log import PinnedSegment
from streamlog.tier.manifest import TieredSegment, TierManifest
from streamlog.tier.manifest_store import ManifestStore
from streamlog.tier.object_layout import ManifestVersion, PartitionPrefix, StreamPrefix
from streamlog.tier.object_store import ObjectStore, StoreLimits, lower_priority
from streamlog.tier.segment_cache import CachedSegment, SegmentCache
from streamlog.tier.segment_object import SealedFiles, read_parts, upload_segment

T = TypeVar("T")

CACHE_FOLDER: Final = "tier-cache"
"""In ``node.data_dir``."""


class ObjectStorage:
    """``open``, then all else, then ``close``. A ``TierUploads``."""

    def __init__(
        self, settings: TierSection, cluster_id: str, data_dir: Path, *, files: FilePool
    ) -> None:
        """``files``: of the cache. Raises ConfigError: the store's URL or the extra is not as it must be."""
        assert settings.url is not None, "a node without a store has none of these"
        limits = StoreLimits(
            uploads_max=settings.concurrency,
            upload_bytes_per_s=settings.bandwidth_bytes_per_s or None,
        )
        self.store = ObjectStore(settings.url, endpoint=settings.endpoint, limits=limits)
        self._preparing = ThreadPoolExecutor(
            settings.concurrency, thread_name_prefix="tier-upload", initializer=lower_priority
        )
        """Segments that are checked before they are uploaded; cold reads have the store's threads for themselves."""
        self._manifests = ManifestStore(self.store, cluster_id)
        self.cache = SegmentCache(
            self.store,
            str(data_dir / CACHE_FOLDER),
            bytes_max=settings.cache_bytes_max,
            forget=files.forget,
        )

    async def open(self, group: asyncio.TaskGroup) -> None:
        """Its tasks run in ``group``. Raises StorageFailed and its kin."""
        await self.cache.open(group)  # reads may come from the first turn of the event loop on
        await self.store.give_way()

    async def close(self) -> None:
        """Nothing is asked of the store from now on."""
        await self.cache.close()
        self._preparing.shutdown(wait=False)
        await asyncio.to_thread(self.store.close)

    # Reads

    async def read_manifest(self, place: PartitionPrefix, version: ManifestVersion) -> TierManifest:
        return await self._manifests.get(place, version)

    def is_whole(self, segment: TieredSegment) -> bool:
        return self.cache.is_whole(segment)

    async def pin(
        self,
        place: PartitionPrefix,
        segment: TieredSegment,
        following: TieredSegment | None = None,
    ) -> CachedSegment:
        return await self.cache.pin(place, segment, following)

    def unpin(self, pinned: PinnedSegment) -> None:
        assert isinstance(pinned, CachedSegment), "nothing else is pinned"
        self.cache.unpin(pinned)

    async def read_part(self, place: PartitionPrefix, segment: TieredSegment, name: str) -> bytes:
        if segment.part(name) is None:
            return b""
        return (await read_parts(self.store, place, segment))[name]

    # Uploads

    async def run(self, call: Callable[[], T]) -> T:
        return await self.store.run_in(self._preparing, call)

    async def upload(
        self, place: PartitionPrefix, files: SealedFiles, *, leader_epoch: int, upload_id: UUID
    ) -> TieredSegment:
        return await upload_segment(
            self.store, place, files, leader_epoch=leader_epoch, upload_id=upload_id
        )

    async def put_manifest(self, manifest: TierManifest) -> None:
        await self._manifests.put(manifest)

    async def remove_segments(
        self, place: PartitionPrefix, segments: Iterable[TieredSegment]
    ) -> None:
        removed = list(segments)
        self.cache.drop(removed)
        await self._manifests.remove_segments(place, removed)

    async def remove_orphans(
        self, manifest: TierManifest, *, leader_epoch: int, grace_ms: int, now_ms: int
    ) -> int:
        orphans = await self._manifests.orphans(
            manifest, leader_epoch=leader_epoch, grace_ms=grace_ms, now_ms=now_ms
        )
        if orphans.removable:
            await self._manifests.remove_orphans(orphans)
        return len(orphans.removable)

    async def describe(self, stream: StreamPrefix, config: Mapping[str, Any]) -> None:
        await self._manifests.describe(stream, dict(config))

    async def streams(self, cluster_id: str) -> list[tuple[StreamPrefix, int]]:
        newest: dict[UUID, int] = {}
        for it in await self.store.list(cluster_id):
            parts = it.path.split("/")
            try:
                stream_id = UUID(hex=parts[1])
            except (IndexError, ValueError):
                continue  # it is none of ours
            newest[stream_id] = max(it.modified_ms, newest.get(stream_id, 0))
        return [(StreamPrefix(cluster_id, it), ms) for it, ms in newest.items()]

    async def remove_stream(self, stream: StreamPrefix) -> None:
        await self._manifests.remove_stream(stream)
