"""An object store as a simulated cluster has it: it answers late or not at all, does what it says it has not done, and
shows old lists. What is in it outlives every node.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from crc32c import crc32c

from streamlog.errors import ObjectExists, ObjectNotFound, ObjectStoreUnavailable
from streamlog.log.layout import LOG_SUFFIX, segment_stem
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import storage_errors
from streamlog.log.storage.file_pool import FilePool
from streamlog.partition.tiering.tiered_log import PinnedSegment
from streamlog.tier.manifest import SegmentPart, TieredSegment, TierManifest
from streamlog.tier.object_layout import (
    ManifestVersion,
    PartitionPrefix,
    StreamPrefix,
    segment_name,
)
from streamlog.tier.segment_object import SealedFiles
from tests.simulation.cluster.host import Host
from tests.simulation.disk import SimDisk

T = TypeVar("T")

CACHE = "/tier-cache"


class SimStore:
    """Of all nodes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"store {seed}")
        self.objects: dict[str, tuple[bytes, int]] = {}
        """With the time of each in milliseconds."""
        self.failing = self.rng.choice((0.0, 0.05, 0.3))
        """So many requests fail, before or after they are done."""
        self.delay_ms = self.rng.choice((1, 20, 300))
        self.is_away = False

    async def request(self, now_ms: int, path: str) -> None:
        """Takes its time. Raises ObjectStoreUnavailable."""
        await asyncio.sleep(self.rng.random() * self.delay_ms / 1000)
        if self.is_away or self.rng.random() < self.failing / 2:
            raise ObjectStoreUnavailable(f"{path}: 503")

    async def answer(self, path: str) -> None:
        """The answer may be lost."""
        await asyncio.sleep(self.rng.random() * self.delay_ms / 1000)
        if self.rng.random() < self.failing / 2:
            raise ObjectStoreUnavailable(f"{path}: no answer")

    def put(self, path: str, data: bytes, now_ms: int) -> None:
        """Raises ObjectExists."""
        known = self.objects.get(path)
        if known is not None and known[0] != data:
            raise ObjectExists(path)
        if known is None:
            self.objects[path] = data, now_ms

    def get(self, path: str) -> bytes:
        """Raises ObjectNotFound."""
        known = self.objects.get(path)
        if known is None:
            raise ObjectNotFound(f"{path} is not there")
        return known[0]

    def listed(self, prefix: str) -> list[tuple[str, int]]:
        """Perhaps without the newest."""
        found = [(path, it[1]) for path, it in self.objects.items() if path.startswith(prefix)]
        found.sort(key=lambda it: it[1])
        if found and self.rng.random() < 0.3:
            del found[-self.rng.randint(1, 3) :]
        return found


class SimPinned:
    """Its files are on the disk of the node."""

    def __init__(self, tiered: TieredSegment, stem_path: str, disk: SimDisk) -> None:
        self.stem_path = stem_path
        self._tiered = tiered
        self._disk = disk

    def opened(self, pool: FilePool, interval_bytes: int) -> Segment:
        tiered = self._tiered
        segment = Segment(
            pool,
            self.stem_path,
            base_offset=tiered.base_offset,
            next_offset=tiered.end_offset,
            size_bytes=tiered.size_bytes,
            interval_bytes=interval_bytes,
            has_key=tiered.part(".key") is not None,
        )
        segment.unverified_bytes = 0
        segment.max_timestamp_ms = tiered.max_timestamp_ms
        return segment

    async def prepare(self, offset: int, max_bytes: int) -> None:
        """All of it is."""

    async def prepare_all(self) -> None:
        """It is."""

    def part(self, name: str) -> bytes:
        if self._tiered.part(name) is None:
            return b""
        with storage_errors(self.stem_path):
            return self._disk.read_small(self.stem_path + name)


class SimTierStorage:
    """The store as one life of a node sees it. A ``TierUploads``."""

    def __init__(self, host: Host, store: SimStore) -> None:
        self._host = host
        self._disk: SimDisk = host.disk
        self._store = store
        self._cached: dict[str, SimPinned] = {}

    @property
    def _now_ms(self) -> int:
        return int(self._host.clock.wall_ns // 1_000_000)

    async def open(self, _group: asyncio.TaskGroup) -> None:
        self._disk.make_directory(CACHE)

    async def close(self) -> None:
        """Nothing is open."""

    async def run(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    async def read_manifest(self, place: PartitionPrefix, version: ManifestVersion) -> TierManifest:
        path = place.manifest(version)
        await self._store.request(self._now_ms, path)
        data = self._store.get(path)
        await self._store.answer(path)
        return TierManifest.decode(data, path)

    def is_whole(self, segment: TieredSegment) -> bool:
        return segment.name in self._cached

    async def pin(
        self,
        place: PartitionPrefix,
        segment: TieredSegment,
        following: TieredSegment | None = None,
    ) -> SimPinned:
        known = self._cached.get(segment.name)
        if known is not None:
            return known
        path = place.segment(segment.name)
        await self._store.request(self._now_ms, path)
        data = self._store.get(path)
        await self._store.answer(path)
        folder = f"{CACHE}/{segment.name}"
        stem = f"{folder}/{segment_stem(segment.base_offset)}"
        with storage_errors(folder):
            self._disk.make_directory(folder, durable=False)
            self._disk.write_small(stem + LOG_SUFFIX, data[: segment.size_bytes])
            for part in segment.parts:
                self._disk.write_small(stem + part.name, data[part.position : part.end_position])
        pinned = self._cached[segment.name] = SimPinned(segment, stem, self._disk)
        return pinned

    def unpin(self, pinned: PinnedSegment) -> None:
        """It stays."""

    async def read_part(self, place: PartitionPrefix, segment: TieredSegment, name: str) -> bytes:
        part = segment.part(name)
        if part is None:
            return b""
        path = place.segment(segment.name)
        await self._store.request(self._now_ms, path)
        return self._store.get(path)[part.position : part.end_position]

    async def upload(
        self, place: PartitionPrefix, files: SealedFiles, *, leader_epoch: int, upload_id: UUID
    ) -> TieredSegment:
        name = segment_name(files.base_offset, leader_epoch, upload_id)
        path = place.segment(name)
        await self._store.request(self._now_ms, path)
        with storage_errors(files.log_path):
            file = self._disk.open(files.log_path)
            try:
                log = file.pread(files.size_bytes, 0)
            finally:
                file.close()
            beside = {it: self._disk.read_small(where) for it, where in files.files.items()}
        contents = {**beside, **files.states}
        parts, data = [], log
        for part, content in contents.items():
            parts.append(SegmentPart(part, len(data), len(content), crc32c(content)))
            data += content
        self._store.put(path, data, self._now_ms)
        await self._store.answer(path)
        return TieredSegment(
            base_offset=files.base_offset,
            end_offset=files.end_offset,
            max_timestamp_ms=files.max_timestamp_ms,
            size_bytes=files.size_bytes,
            crc32c=crc32c(log),
            leader_epochs=files.leader_epochs,
            name=name,
            parts=tuple(parts),
        )

    async def put_manifest(self, manifest: TierManifest) -> None:
        place = StreamPrefix("c", manifest.stream_id).partition(manifest.partition)
        path = place.manifest(manifest.manifest_version)
        await self._store.request(self._now_ms, path)
        self._store.put(path, manifest.encode(), self._now_ms)
        await self._store.answer(path)

    async def remove_segments(
        self, place: PartitionPrefix, segments: Iterable[TieredSegment]
    ) -> None:
        await self._remove(place.segment(it.name) for it in segments)

    async def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            await self._store.request(self._now_ms, path)
            self._store.objects.pop(path, None)

    async def remove_orphans(
        self, manifest: TierManifest, *, leader_epoch: int, grace_ms: int, now_ms: int
    ) -> int:
        place = StreamPrefix("c", manifest.stream_id).partition(manifest.partition)
        await self._store.request(self._now_ms, place.path)
        listed = self._store.listed(f"{place.segments}/")
        named = {place.segment(it.name) for it in manifest.segments}
        newer = []
        for path, made_ms in self._store.listed(f"{place.manifests}/"):
            version = ManifestVersion.parse(path.rpartition("/")[2])
            assert version is not None, "nothing else is there"
            is_old = version < manifest.manifest_version or version.leader_epoch < leader_epoch
            if version != manifest.manifest_version and is_old:
                listed.append((path, made_ms))
            else:
                newer.append(path)
        for path in newer:
            found = TierManifest.decode(self._store.get(path), path)
            named |= {place.segment(it.name) for it in found.segments}
        orphans = [
            path for path, made_ms in listed if path not in named and made_ms + grace_ms < now_ms
        ]
        await self._remove(orphans)
        return len(orphans)

    async def describe(self, stream: StreamPrefix, config: Mapping[str, Any]) -> None:
        await self._store.request(self._now_ms, stream.description)
        self._store.objects[stream.description] = b"described", self._now_ms

    async def streams(self, cluster_id: str) -> list[tuple[StreamPrefix, int]]:
        await self._store.request(self._now_ms, cluster_id)
        newest: dict[UUID, int] = {}
        for path, made_ms in self._store.listed(f"{cluster_id}/"):
            stream_id = UUID(hex=path.split("/")[1])
            newest[stream_id] = max(made_ms, newest.get(stream_id, 0))
        return [(StreamPrefix(cluster_id, it), ms) for it, ms in newest.items()]

    async def remove_stream(self, stream: StreamPrefix) -> None:
        await self._remove([it for it in self._store.objects if it.startswith(f"{stream.path}/")])
