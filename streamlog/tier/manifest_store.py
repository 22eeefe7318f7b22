"""Manifests and stream descriptions as objects; what is left over in the store.

A manifest is put once under the name of its version and never changed. Which one counts is decided
by the metadata quorum. Where there is no quorum any more, as in a restore from the bucket alone,
the newest one counts: what it names is in the store, for it was put after its segments.

Orphans are objects that the counting manifest does not name: segments of an upload that a crash or
a change of leaders has cut off, segments that retention has removed from the manifest, older
manifests. A list tells when each was written, by the store's clock. An orphan is removed when it is
older than a grace time, so that an upload that is under way is never taken for one. A manifest that
is newer than the counting one is no orphan where the present leader wrote it, and neither is what
it names: the leader may still ask for it to be accepted. One that an earlier leader wrote will
never be accepted, and it goes before the segments that only it names: a restore from the bucket
must not find it without them. A list that is behind shows fewer orphans, or some that are gone;
both do no harm.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson
from crc32c import crc32c

from streamlog.errors import CorruptObject, ObjectNotFound
from streamlog.tier.manifest import TieredSegment, TierManifest
from streamlog.tier.object_layout import (
    ManifestVersion,
    PartitionPrefix,
    StreamPrefix,
    is_segment_name,
)
from streamlog.tier.object_store import ObjectStore, StoredObject

DESCRIPTION_FORMAT: Final = 1


class TieredStream(NamedTuple):
    """What a restore needs of a stream, besides its records."""

    prefix: StreamPrefix
    config: dict[str, Any]
    """The stream's configuration with its name, as the metadata hold it."""


class Orphans(NamedTuple):
    """Objects of a partition that its manifest does not name."""

    removable: tuple[StoredObject, ...]
    """Older than the grace time."""
    young: tuple[StoredObject, ...]

    @property
    def size_bytes(self) -> int:
        return sum(it.size_bytes for it in (*self.removable, *self.young))


class ManifestStore:
    """Of one cluster, in one store. Whatever asks the store raises ObjectStoreUnavailable."""

    def __init__(self, store: ObjectStore, cluster_id: str) -> None:
        self._store = store
        self.cluster_id = cluster_id

    def prefix(self, manifest: TierManifest) -> PartitionPrefix:
        return StreamPrefix(self.cluster_id, manifest.stream_id).partition(manifest.partition)

    async def put(self, manifest: TierManifest) -> None:
        """Raises ObjectExists where the leader epoch has another manifest of that version."""
        path = self.prefix(manifest).manifest(manifest.manifest_version)
        await self._store.create(path, await self._store.run(manifest.encode))

    async def get(self, prefix: PartitionPrefix, version: ManifestVersion) -> TierManifest:
        """Raises ObjectNotFound, CorruptObject, CorruptFile, InvalidRequest for a later format."""
        path = prefix.manifest(version)
        data = await self._store.read(path)
        manifest = await self._store.run(TierManifest.decode, data, path)
        if (self.prefix(manifest), manifest.manifest_version) != (prefix, version):
            raise CorruptObject(f"{path}: it is of another partition, or of another version")
        return manifest

    async def versions(self, prefix: PartitionPrefix) -> list[ManifestVersion]:
        """Those in the store, oldest first; a list may be behind."""
        found = await self._store.list(prefix.manifests)
        versions = (ManifestVersion.parse(_last(it.path)) for it in found)
        return sorted(it for it in versions if it is not None)

    async def newest(self, prefix: PartitionPrefix) -> TierManifest | None:
        """For a restore: the newest one of which all segments are in the store; None: no manifest
        was ever put. Raises as ``get``, and ObjectNotFound where the store lacks a segment of each.
        """
        versions = await self.versions(prefix)
        for version in reversed(versions):
            try:
                manifest = await self.get(prefix, version)
            except ObjectNotFound:  # the list is behind
                continue
            if not await self.missing(manifest):
                return manifest
        if versions:
            raise ObjectNotFound(
                f"{prefix.manifests}: of each manifest that is listed the store lacks a segment;"
                f" {ObjectNotFound.remedy}"
            )
        return None

    async def missing(self, manifest: TierManifest) -> list[TieredSegment]:
        """Segments of which the store does not have all. What a list does not show is asked for."""
        prefix = self.prefix(manifest)
        sizes = {_last(it.path): it.size_bytes for it in await self._store.list(prefix.segments)}
        doubtful = [it for it in manifest.segments if sizes.get(it.name) != it.object_bytes]
        return [
            it
            for it in doubtful
            if await self._store.size_bytes(prefix.segment(it.name)) != it.object_bytes
        ]

    async def remove_segments(
        self, prefix: PartitionPrefix, segments: Sequence[TieredSegment]
    ) -> None:
        """Their objects, which no manifest that counts names any more."""
        await self._store.delete([prefix.segment(it.name) for it in segments])

    async def orphans(
        self, manifest: TierManifest, *, leader_epoch: int, grace_ms: int, now_ms: int
    ) -> Orphans:
        """Of the partition of the manifest that counts, for the leader of ``leader_epoch``.

        ``now_ms``: wall clock; ``grace_ms`` must be far more than its difference to the store's.
        """
        prefix = self.prefix(manifest)
        listed = await self._store.list(prefix.segments)
        named, old = {it.name for it in manifest.segments}, []
        for it in await self._store.list(prefix.manifests):
            version = ManifestVersion.parse(_last(it.path))
            if version is None or version == manifest.manifest_version:
                continue
            if version < manifest.manifest_version or version.leader_epoch < leader_epoch:
                old.append(it)
            else:
                named |= {one.name for one in (await self.get(prefix, version)).segments}
        segments = (it for it in listed if is_segment_name(_last(it.path)))
        found = [*old, *(it for it in segments if _last(it.path) not in named)]
        is_old = [it.modified_ms + grace_ms < now_ms for it in found]
        return Orphans(
            tuple(it for it, old_enough in zip(found, is_old, strict=True) if old_enough),
            tuple(it for it, old_enough in zip(found, is_old, strict=True) if not old_enough),
        )

    async def remove_orphans(self, orphans: Orphans) -> None:
        """Those that are removable, manifests first. The caller has confirmed that it leads the
        partition.
        """
        paths = [it.path for it in orphans.removable]
        await self._store.delete([it for it in paths if ManifestVersion.parse(_last(it))])
        await self._store.delete([it for it in paths if not ManifestVersion.parse(_last(it))])

    async def describe(self, prefix: StreamPrefix, config: dict[str, Any]) -> None:
        """Put the description of a stream in place of an older one."""
        content = {
            "format": DESCRIPTION_FORMAT,
            "stream_id": prefix.stream_id.hex,
            "config": config,
        }
        body = orjson.dumps(content)
        await self._store.replace(
            prefix.description, b'{"crc32c":%d,"stream":%b}\n' % (crc32c(body), body)
        )

    async def description(self, prefix: StreamPrefix) -> TieredStream:
        """Raises ObjectNotFound, CorruptObject."""
        path = prefix.description
        data = await self._store.read(path)
        head, _, rest = data.partition(b',"stream":')
        body = rest.removesuffix(b"}\n")
        if head != b'{"crc32c":%d' % crc32c(body):
            raise CorruptObject(f"{path}: no description of a stream, or it is damaged")
        content = orjson.loads(body)
        if content["format"] != DESCRIPTION_FORMAT or content["stream_id"] != prefix.stream_id.hex:
            raise CorruptObject(f"{path}: of a later streamlog, or of another stream")
        return TieredStream(prefix, content["config"])

    async def streams(self) -> list[StreamPrefix]:
        """Those with a description, of this cluster."""
        found = (StreamPrefix.parse(it.path) for it in await self._store.list(self.cluster_id))
        return [it for it in found if it is not None]

    async def remove_stream(self, prefix: StreamPrefix) -> int:
        """All objects of a stream that is deleted; how many there were. The description goes last,
        so that what a crash leaves is found again.
        """
        found = [it.path for it in await self._store.list(prefix.path)]
        await self._store.delete([it for it in found if it != prefix.description])
        await self._store.delete([prefix.description])
        return len(found)


def _last(path: str) -> str:
    return path.rpartition("/")[2]
