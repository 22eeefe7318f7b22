"""Moves sealed segments of the partitions that this node leads to the object store (Kafka's RemoteLogManager).

Each led partition of a tiered stream has one task at a time, every ``tier.interval_ms`` and when something is asked of
it. What it does, in this order, and what a crash leaves between two steps:

1. The metadata quorum learns that the partition is tiered: version 0. From then on it alone moves the log start.
2. A segment's object is put. A crash leaves an orphan.
3. A manifest that names it is put, as the next version of this leader epoch. A crash leaves two orphans.
4. The controller accepts the manifest, if this node leads in that epoch and the version before it still counts. From
now
   on local retention may remove the segment on all replicas.
5. Log starts move: the controller first, then the logs. A manifest without what is below is put and accepted, and then
   the objects go. A crash leaves orphans.
6. Orphans that are old enough go, once the controller has confirmed that this node leads.

Before 2, a leader that was elected unclean compares its log with the manifest. Where all of its log is in the store,
the log goes on behind that; else the manifest is cut where the two part. Until then it takes no records.

So nothing is removed, here or in the store, before what replaces it counts. A leader that does not know what became of
a request asks the same again: the answer is the same.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from streamlog.clock import wall_ms
from streamlog.condition import CRITICAL, NO_ACTION, Condition
from streamlog.config import TierSection
from streamlog.errors import (
    CorruptData,
    NotLeader,
    ObjectExists,
    ObjectStoreUnavailable,
    RequestTimedOut,
    StorageFailed,
    StreamlogError,
)
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import Disk
from streamlog.metadata.commands import AlterTier, TierChange
from streamlog.metadata.image.image_types import TierImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.service import MetadataService
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId
from streamlog.partition.partition import Partition
from streamlog.partition.replication.truncation import begin_at_store_end
from streamlog.partition.tiering.sealed_segment import ReadySegment, SegmentDamaged, make_ready
from streamlog.partition.tiering.tier_plan import cut_at, expired_start, shared_end
from streamlog.partition.tiering.tiered_log import TierStorage
from streamlog.tier.manifest import TieredSegment, TierManifest
from streamlog.tier.object_layout import PartitionPrefix, StreamPrefix
from streamlog.tier.segment_object import SealedFiles
from streamlog.tier.segment_transactions import SegmentTransactions

logger = logging.getLogger(__name__)

T = TypeVar("T")

NOT_TIERED: Final = Condition(
    "SL-0234",
    "segments are not copied to the object store",
    "see whether tier.url is reachable and its credentials are valid; until then the disks keep all",
    meaning="A leader could not bring the closed segments of a tiered stream to the object store. "
    "They stay on the disks of the replicas.",
    severity=CRITICAL,
)
TIER_CUT: Final = Condition(
    "SL-0235",
    "object store had more than the new leader",
    "an unclean election has lost these records: see docs/durability.md",
    meaning="A leader lacks records that were committed and copied to the object store. They are not "
    "read any more.",
    severity=CRITICAL,
)
ORPHANS_REMOVED: Final = Condition(
    "SL-0236",
    "orphaned objects removed",
    NO_ACTION,
    meaning="The object store had objects that no manifest names: a crash or a change of leaders "
    "left them.",
)

SEGMENTS_AT_ONCE: Final = 8
"""Of one partition, before others have their turn."""
BEGIN_S: Final = 30.0
"""So long a purge waits for its partition's turn and for the controller."""
SWEEPS_MIN_S: Final = 1.0


class TierUploads(TierStorage, Protocol):
    """The object store, as the leader's work needs it: ``object_storage.ObjectStorage``. Raises
    ObjectStoreUnavailable.
    """

    async def open(self, group: asyncio.TaskGroup) -> None: ...
    async def close(self) -> None: ...

    async def run(self, call: Callable[[], T]) -> T:
        """Blocking work, in a thread that gives way to publishers."""

    async def upload(
        self, place: PartitionPrefix, files: SealedFiles, *, leader_epoch: int, upload_id: UUID
    ) -> TieredSegment: ...
    async def put_manifest(self, manifest: TierManifest) -> None:
        """Raises ObjectExists where there is another one of that version."""

    async def remove_segments(
        self, place: PartitionPrefix, segments: Iterable[TieredSegment]
    ) -> None: ...
    async def remove_orphans(
        self, manifest: TierManifest, *, leader_epoch: int, grace_ms: int, now_ms: int
    ) -> int:
        """How many old ones there were."""

    async def describe(self, stream: StreamPrefix, config: Mapping[str, Any]) -> None: ...
    async def streams(self, cluster_id: str) -> list[tuple[StreamPrefix, int]]:
        """Those that have objects, each with the time of the newest in milliseconds."""

    async def remove_stream(self, stream: StreamPrefix) -> None: ...


class _Proposal(NamedTuple):
    """What the controller was asked, and may have accepted."""

    change: TierChange
    manifest: TierManifest | None
    """That it names, if it is a new one."""


class _Work:
    """Of one led partition."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Whatever asks the controller has it: proposals follow one another."""
        self.unanswered: _Proposal | None = None
        self.wanted_start = 0
        self.put: TierManifest | None = None
        """A manifest of this leader epoch that is in the store, and is not proposed yet."""
        self.removable: tuple[TieredSegment, ...] = ()
        """No manifest that counts names them any more."""
        self.uploaded: tuple[int, TieredSegment] | None = None
        """In the store, by the leader of that epoch, and in no manifest yet."""
        self.refused: int | None = None
        """The offset of the metadata by which the controller was asked what it refused: it knew later ones."""
        self.is_failing = False


class TierManager:
    """``look_at`` and ``apply`` at any time; ``run`` as a task."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        cluster: MetadataService,
        settings: TierSection,
        partitions: Callable[[], Iterator[Partition]],
        storage: TierUploads | None,
        disk: Disk,
        metrics: NodeMetrics,
        new_id: Callable[[], UUID],
        workers: Executor,
    ) -> None:
        """``storage``: None on a node without an object store: it still moves log starts."""
        self._node_id = node_id
        self._cluster = cluster
        self._settings = settings
        self._partitions = partitions
        self._storage = storage
        self._disk = disk
        self._metrics = metrics
        self._new_id = new_id
        self._workers = workers
        self._works: dict[Partition, _Work] = {}
        self._due: dict[Partition, None] = {}
        self._running: set[Partition] = set()
        self._some_due = asyncio.Event()
        self._turns = asyncio.Semaphore(settings.concurrency)
        self._group: asyncio.TaskGroup | None = None
        self._described: dict[UUID, object] = {}
        """By the id of the stream: the configuration that its description has."""
        self._deleted: dict[UUID, None] = {}
        """Streams whose objects are to go."""
        self._missing: dict[UUID, int] = {}
        """Streams in the store that the metadata do not know, and since when."""

    # What is asked of it

    def look_at(self, partition: Partition) -> None:
        """There may be something to be done."""
        self._due[partition] = None
        self._some_due.set()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """Objects of streams that are deleted go."""
        for before, after in new.changes(old):
            if before is not None and after is None and before.config.tiered:
                self._deleted[before.stream_id] = None
                self._described.pop(before.stream_id, None)

    def begin_later(self, partition: Partition, offset: int) -> None:
        """See ``partition.partition.TierStarts``."""
        work = self._work_of(partition)
        if offset <= partition.log_start_offset:
            partition.begin_later(offset)
        elif offset > work.wanted_start:
            work.wanted_start = offset
            self.look_at(partition)

    async def begin_at(self, partition: Partition, offset: int) -> None:
        """See ``partition.partition.TierStarts``. Raises RequestTimedOut, too."""
        work = self._work_of(partition)
        try:
            async with asyncio.timeout(BEGIN_S), work.turn:
                await self._settle_unanswered(partition, work)
                await self._begin(partition, work)
                await self._raise_start(partition, work, offset)
        except TimeoutError:
            raise RequestTimedOut(f"{partition.tp}: its log start could not be moved") from None

    def _work_of(self, partition: Partition) -> _Work:
        found = self._works.get(partition)
        if found is None:
            found = self._works[partition] = _Work()
        return found

    # Turns

    async def run(self) -> None:
        """For as long as the node runs."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._look_at_all())
                group.create_task(self._sweep_streams())
                while True:
                    await self._some_due.wait()
                    self._some_due.clear()
                    due, self._due = self._due, {}
                    for partition in due:
                        if partition in self._running:
                            self._due[partition] = None
                        else:
                            self._running.add(partition)
                            group.create_task(self._run_one(partition))
        finally:
            self._group = None

    async def _look_at_all(self) -> None:
        while True:
            here = [it for it in self._partitions() if it.config.tiered and it.is_leader]
            for partition in here:
                self.look_at(partition)
            for gone in [it for it in self._works if it.closed or not it.is_leader]:
                if gone not in self._running:
                    del self._works[gone]
            await asyncio.sleep(self._settings.interval_ms / 1000)

    async def _run_one(self, partition: Partition) -> None:
        work = self._work_of(partition)
        try:
            async with self._turns:
                await self._tend(partition, work)
        except StreamlogError as error:
            if self._may_tend(partition):
                self._tell_failed(partition, work, error)
        else:
            work.is_failing = False
        finally:
            self._running.discard(partition)
            if partition in self._due:
                self._some_due.set()

    def _tell_failed(self, partition: Partition, work: _Work, error: StreamlogError) -> None:
        """Once for each run of failures. The controller may be another node meanwhile: that is none."""
        is_grave = isinstance(error, CorruptData | StorageFailed | ObjectStoreUnavailable)
        if is_grave:
            self._metrics.tier_failures.labels(type(error).__name__).inc()
        level = logging.ERROR if is_grave and not work.is_failing else logging.DEBUG
        logger.log(level, NOT_TIERED, extra=partition.place(error))
        work.is_failing |= is_grave

    def _may_tend(self, partition: Partition) -> bool:
        return (
            partition.config.tiered
            and partition.is_leader
            and partition.high_watermark_known
            and self._cluster.lease.held
        )

    async def _tend(self, partition: Partition, work: _Work) -> None:
        if not self._may_tend(partition):
            return
        if work.refused == self._cluster.image.offset:
            return  # what the controller knows comes
        async with work.turn:
            await self._settle_unanswered(partition, work)
            image = await self._begin(partition, work)
            wanted_start = work.wanted_start
            if image.end_offset < partition.local_log_start_offset:  # what is between is nowhere
                wanted_start = max(wanted_start, partition.local_log_start_offset)
            if wanted_start > image.log_start_offset:
                await self._raise_start(partition, work, wanted_start)
            self._follow_start(partition, work)
        if self._storage is None or partition.tiered.place is None:
            raise ObjectStoreUnavailable(f"{partition.tp}: this node has no tier.url")
        await self._describe(partition, partition.tiered.place.stream)
        async with work.turn:
            manifest = await self._fitting(partition, work)
        for _ in range(SEGMENTS_AT_ONCE):
            segment = self._next_segment(partition, manifest)
            if segment is None or not self._may_tend(partition):
                break
            manifest = await self._upload(partition, work, manifest, segment)
        else:
            self.look_at(partition)
        async with work.turn:
            manifest = await self._retain(partition, work, manifest)
            await self._drop(partition, work, manifest)
        await self._remove(partition, work)

    # The controller

    async def _ask(self, partition: Partition, work: _Work, proposal: _Proposal) -> bool:
        """Whether it was accepted. What is not answered is asked again before anything else."""
        work.unanswered = proposal
        # As of now: what comes while the controller decides may be all that it knew.
        asked_by = self._cluster.image.offset
        command = AlterTier(
            node_id=self._node_id, node_epoch=self._cluster.node_epoch, changes=(proposal.change,)
        )
        granted = await self._cluster.request(command)
        work.unanswered = None
        (verdict,) = granted.result["verdicts"]
        is_granted = bool(verdict == "granted")
        work.refused = None if is_granted else asked_by
        if is_granted and proposal.manifest is not None:
            partition.tiered.wrote_manifest(proposal.manifest)
        return is_granted

    async def _settle_unanswered(self, partition: Partition, work: _Work) -> None:
        proposal = work.unanswered
        if proposal is None:
            return
        if proposal.change.leader_epoch != partition.leader_epoch:
            work.unanswered = None  # refused, or in the image by which this node leads again
            return
        await self._ask(partition, work, proposal)

    def _change(
        self, partition: Partition, *, version: int, log_start_offset: int, end_offset: int
    ) -> TierChange:
        known = partition.tiered.image
        return TierChange(
            stream_id=partition.log_id.stream_id,
            stream=partition.tp.stream,
            partition=partition.tp.partition,
            leader_epoch=partition.leader_epoch,
            expected=None if known is None else (known.leader_epoch, known.version),
            version=version,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
        )

    async def _begin(self, partition: Partition, work: _Work) -> TierImage:
        """The metadata know that it is tiered. Raises NotLeader."""
        if partition.tiered.image is None:
            if not self._may_tend(partition):
                raise NotLeader(f"{partition.tp} is not led by this node")
            start = partition.local_log_start_offset
            change = self._change(partition, version=0, log_start_offset=start, end_offset=start)
            await self._ask(partition, work, _Proposal(change, None))
        image = partition.tiered.image
        if image is None:
            raise NotLeader(f"{partition.tp} is led by another node now")
        return image

    async def _raise_start(self, partition: Partition, work: _Work, offset: int) -> None:
        """Raises NotLeader."""
        known = partition.tiered.image
        if known is None or not self._may_tend(partition):
            raise NotLeader(f"{partition.tp} is not led by this node")
        if offset <= known.log_start_offset:
            return
        change = self._change(
            partition,
            version=known.version,
            log_start_offset=offset,
            end_offset=max(offset, known.end_offset),
        )
        if not await self._ask(partition, work, _Proposal(change, None)):
            raise NotLeader(f"{partition.tp}: the controller knows another leader, or manifest")

    def _follow_start(self, partition: Partition, work: _Work) -> None:
        """The log here begins no earlier than the partition."""
        image = partition.tiered.image
        if image is not None and image.log_start_offset > partition.local_log_start_offset:
            partition.begin_later(min(image.log_start_offset, partition.high_watermark))
        work.wanted_start = max(work.wanted_start, partition.log_start_offset)

    async def _propose(
        self, partition: Partition, work: _Work, manifest: TierManifest
    ) -> TierManifest:
        """Put it, and have it accepted. Raises NotLeader where it is not."""
        storage, _ = self._store(partition)
        if work.put is not None and work.put.manifest_version == manifest.manifest_version:
            manifest = work.put  # as it is in the store, whatever was to be said since
        try:
            await storage.put_manifest(manifest)
        except ObjectExists:
            raise NotLeader(f"{partition.tp}: this epoch has that manifest already") from None
        work.put = manifest
        image = partition.tiered.image
        start = 0 if image is None else image.log_start_offset
        change = self._change(
            partition,
            version=manifest.version,
            log_start_offset=max(start, manifest.log_start_offset),
            end_offset=max(start, manifest.end_offset),
        )
        if not await self._ask(partition, work, _Proposal(change, manifest)):
            raise NotLeader(f"{partition.tp}: the controller knows another leader, or manifest")
        work.put = None
        return manifest

    def _store(self, partition: Partition) -> tuple[TierUploads, PartitionPrefix]:
        if self._storage is None or partition.tiered.place is None:
            raise ObjectStoreUnavailable(f"{partition.tp}: this node has no tier.url")
        return self._storage, partition.tiered.place

    # Uploads

    async def _fitting(self, partition: Partition, work: _Work) -> TierManifest:
        """The manifest that counts, once this leader's log fits it; a new one where that names another history."""
        manifest, log = await partition.tiered.read_manifest(), partition.state.log
        image, is_behind = partition.tiered.image, partition.state.is_behind_store
        is_own = manifest.leader_epoch == partition.leader_epoch or not manifest.segments
        if is_own and not is_behind:
            return manifest
        end = shared_end(
            manifest,
            log.epochs.entries,
            local_start=log.log_start_offset,
            log_end=log.log_end_offset,
        )
        if (
            is_behind
            and image is not None
            and log.log_end_offset <= max(end, image.log_start_offset)
        ):
            # All that this log has is in the store, or was removed: nothing is lost by going on behind that.
            await begin_at_store_end(partition, image, self._workers)
            return manifest
        if end >= manifest.end_offset:
            return manifest
        extra = {"stream": partition.tp.stream, "partition": partition.tp.partition}
        extra |= {"epoch": partition.leader_epoch, "offset": end, "end": manifest.end_offset}
        logger.error(TIER_CUT, extra=extra)
        cut = cut_at(manifest, end).next_version(partition.leader_epoch)
        return await self._propose(partition, work, cut)

    def _next_segment(self, partition: Partition, manifest: TierManifest) -> Segment | None:
        """The sealed segment with the first offset that is not in the store, once all of it is decided for good."""
        log, image = partition.state.log, partition.tiered.image
        if image is None:
            return None
        start = max(manifest.end_offset, image.log_start_offset)
        if not log.files_start <= start < log.sealed_end:
            return None
        segment = log.segments.floor(start)
        end = segment.next_offset
        decided = min(partition.high_watermark, partition.stable_offset, log.recovery_point)
        is_erased = bool(log.erasures.unremoved.between(segment.base_offset, end))
        if end > decided or segment.damages or is_erased or log.is_swapping:
            return None
        return segment

    async def _upload(
        self, partition: Partition, work: _Work, manifest: TierManifest, segment: Segment
    ) -> TierManifest:
        """The manifest that counts then."""
        storage, place = self._store(partition)
        epoch, log = partition.leader_epoch, partition.state.log
        begun = self._begun(partition, manifest)
        # An empty manifest begins with the whole segment in which the partition begins.
        start = begun.end_offset if begun.segments else segment.base_offset
        end = segment.next_offset
        transactions = SegmentTransactions(
            tuple(log.transactions.aborted_between(start, end)),
            log.erasures.erased.between(start, end),
        )
        epochs = tuple(log.epochs.between(start, end))
        known = work.uploaded
        if known is not None and (known[0], known[1].base_offset, known[1].end_offset) == (
            epoch,
            start,
            end,
        ):
            return await self._name(partition, work, manifest, known[1])
        try:
            ready = await storage.run(
                lambda: make_ready(
                    segment, start=start, epochs=epochs, transactions=transactions, disk=self._disk
                )
            )
        except SegmentDamaged:
            await partition.reader.recheck(start)
            raise
        try:
            tiered = await storage.upload(
                place, ready.files, leader_epoch=epoch, upload_id=self._new_id()
            )
        finally:
            if ready.temporary:
                await storage.run(lambda: self._remove_files(ready))
        self._metrics.tier_uploads.inc()
        self._metrics.tier_uploaded_bytes.inc(tiered.size_bytes)
        if partition.leader_epoch != epoch:
            raise NotLeader(f"{partition.tp}: epoch {epoch} is over")
        work.uploaded = epoch, tiered
        return await self._name(partition, work, manifest, tiered)

    async def _name(
        self, partition: Partition, work: _Work, manifest: TierManifest, tiered: TieredSegment
    ) -> TierManifest:
        """The manifest that counts then, with the segment that is in the store."""
        async with work.turn:
            await self._settle_unanswered(partition, work)
            image = partition.tiered.image
            if image is None or image.log_start_offset >= tiered.end_offset:
                work.uploaded = None
                return await partition.tiered.read_manifest()  # purged meanwhile: an orphan
            counting = await partition.tiered.read_manifest()
            if counting.manifest_version != manifest.manifest_version:
                return counting  # another one was accepted after all
            following = self._begun(partition, manifest).with_segment(tiered)
            following = following.next_version(partition.leader_epoch)
            accepted = await self._propose(partition, work, following)
            work.uploaded = None
            work.removable += accepted.removed_since(manifest)
            return accepted

    def _begun(self, partition: Partition, manifest: TierManifest) -> TierManifest:
        """Without what is below the log start."""
        image = partition.tiered.image
        if image is None or image.log_start_offset <= manifest.log_start_offset:
            return manifest
        return manifest.without_below(image.log_start_offset)

    def _remove_files(self, ready: ReadySegment) -> None:
        for path in ready.temporary:
            with suppress(OSError):
                self._disk.unlink(path)

    # What goes

    async def _retain(
        self, partition: Partition, work: _Work, manifest: TierManifest
    ) -> TierManifest:
        log, image = partition.state.log, partition.tiered.image
        if image is None or not self._may_tend(partition):
            return manifest
        behind = max(manifest.end_offset, log.log_start_offset)
        local_bytes = sum(it.size_bytes for it in log.segments if it.base_offset >= behind)
        start = expired_start(
            manifest,
            log.settings,
            start=image.log_start_offset,
            local_bytes=local_bytes,
            now_ms=wall_ms(),
        )
        if start > image.log_start_offset:
            await self._raise_start(partition, work, min(start, partition.high_watermark))
            self._follow_start(partition, work)
        return manifest

    async def _drop(self, partition: Partition, work: _Work, manifest: TierManifest) -> None:
        """The manifest names no more what is below the log start."""
        image = partition.tiered.image
        if image is None or not self._may_tend(partition):
            return
        if manifest.segments and manifest.segments[0].end_offset <= image.log_start_offset:
            following = self._begun(partition, manifest).next_version(partition.leader_epoch)
            accepted = await self._propose(partition, work, following)
            work.removable += accepted.removed_since(manifest)

    async def _remove(self, partition: Partition, work: _Work) -> None:
        storage, place = self._store(partition)
        removable, work.removable = work.removable, ()
        if removable:
            await storage.remove_segments(place, removable)

    async def _describe(self, partition: Partition, stream: StreamPrefix) -> None:
        """For a restore from the store alone."""
        config = partition.config
        if partition.tp.partition == 0 and self._described.get(stream.stream_id) != config:
            storage, _ = self._store(partition)
            await storage.describe(stream, config.model_dump(mode="json"))
            self._described[stream.stream_id] = config

    # Orphans and deleted streams

    async def _sweep_streams(self) -> None:
        interval_s = max(self._settings.interval_ms / 1000, SWEEPS_MIN_S)
        grace_s = self._settings.orphan_grace_ms / 1000
        loop = asyncio.get_running_loop()
        next_sweep = loop.time() + grace_s
        while True:
            await asyncio.sleep(interval_s)
            if self._storage is None:
                continue
            try:
                await self._remove_deleted()
                if loop.time() >= next_sweep:
                    next_sweep = loop.time() + max(grace_s / 2, interval_s)
                    await self._remove_orphans()
                    await self._look_for_deleted()
            except StreamlogError as error:
                logger.warning(NOT_TIERED, extra={"error": str(error)})

    async def _remove_deleted(self) -> None:
        """Streams of whose deletion this node has heard; by the controller's node, and the sweep by the next one."""
        if self._cluster.controller_id != self._node_id:
            self._deleted.clear()
        for stream_id in tuple(self._deleted):
            assert self._storage is not None, "asked before"
            await self._storage.remove_stream(self._stream(stream_id))
            self._deleted.pop(stream_id, None)

    def _stream(self, stream_id: UUID) -> StreamPrefix:
        return StreamPrefix(self._cluster.image.cluster_id, stream_id)

    async def _look_for_deleted(self) -> None:
        """Streams in the store that are not in the metadata, now and a grace time ago, are gone for good."""
        if self._storage is None or self._cluster.controller_id != self._node_id:
            self._missing.clear()
            return
        cluster_id, now_ms = self._cluster.image.cluster_id, wall_ms()
        grace_ms = self._settings.orphan_grace_ms
        found = dict(await self._storage.streams(cluster_id))
        known = self._cluster.image.names
        missing = {
            it.stream_id: newest for it, newest in found.items() if it.stream_id.bytes not in known
        }
        self._missing = {it: self._missing.get(it, now_ms) for it in missing}
        for stream_id, newest_ms in missing.items():
            since_ms = max(self._missing[stream_id], newest_ms)
            if now_ms - since_ms >= grace_ms:
                await self._storage.remove_stream(self._stream(stream_id))
                logger.info(ORPHANS_REMOVED, extra={"stream_id": str(stream_id)})
                self._missing.pop(stream_id, None)

    async def _remove_orphans(self) -> None:
        for partition in [it for it in self._partitions() if it.config.tiered]:
            if self._may_tend(partition):
                await self._remove_orphans_of(partition)

    async def _remove_orphans_of(self, partition: Partition) -> None:
        storage, _ = self._store(partition)
        work = self._work_of(partition)
        async with work.turn:
            await self._settle_unanswered(partition, work)
            image = partition.tiered.image
            if image is None:
                return
            manifest = await partition.tiered.read_manifest()
            # The same again: granted to the leader of this epoch alone, while that manifest counts.
            change = self._change(
                partition,
                version=image.version,
                log_start_offset=image.log_start_offset,
                end_offset=image.end_offset,
            )
            if not await self._ask(partition, work, _Proposal(change, None)):
                return
            count = await storage.remove_orphans(
                manifest,
                leader_epoch=change.leader_epoch,
                grace_ms=self._settings.orphan_grace_ms,
                now_ms=wall_ms(),
            )
        if count:
            self._metrics.tier_orphans.inc(count)
            extra: dict[str, object] = {"stream": partition.tp.stream, "count": count}
            extra["partition"] = partition.tp.partition
            logger.info(ORPHANS_REMOVED, extra=extra)
