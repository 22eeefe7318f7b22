"""All partitions of the node: opened, led, reconfigured, closed and deleted as the image says."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from streamlog.client.security import NO_SECURITY, Security
from streamlog.config import LogSection, ReplicationSection
from streamlog.errors import (
    EncryptionKeyMissing,
    NotLeader,
    PartitionNotFound,
    StorageFailed,
    StorageFull,
    StreamlogError,
    StreamNotFound,
    Unavailable,
)
from streamlog.log.disk import Disk, OsDisk
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.files import FilePool, open_files_allowed
from streamlog.log.log import PartitionLog
from streamlog.log.shared_sync import SharedSync
from streamlog.metadata.image import Image, PartitionImage, StreamImage
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.checkpoints import Checkpoints
from streamlog.partition.compaction import Compaction
from streamlog.partition.disk_space import DiskSpace, Reserve
from streamlog.partition.disposal import Disposal
from streamlog.partition.flusher import Flusher
from streamlog.partition.folder import Folders
from streamlog.partition.key_change import KeyChange
from streamlog.partition.limits import log_settings
from streamlog.partition.opening import Opening, open_log, sweep
from streamlog.partition.owner import Partition
from streamlog.partition.replication import Replication, tell_change
from streamlog.partition.resting import Resting
from streamlog.partition.scrubbing import Scrubbing
from streamlog.partition.statistics import PartitionStatistics
from streamlog.partition.subjects.keeping import IndexKeeping
from streamlog.partition.surroundings import Cluster, Surroundings, nothing
from streamlog.partition.trimming import Trimming
from streamlog.partition.upkeep import Upkeep

logger = logging.getLogger(__name__)

WORKERS: Final = 8
"""Threads for opening, checking, checkpoints and deletion. They wait for the disk, most of all, to
which several syncs at once are little more than one."""
_OPENED_AT_ONCE: Final = 64
"""Logs that one worker opens in one go."""

_HEARD_AT_ONCE: Final = 100
"""Partitions that hear of a change before others have their turn of the event loop."""

T = TypeVar("T")
Opened = tuple[Opening, PartitionLog | StreamlogError]


class Here(NamedTuple):
    """A partition that this node is to keep."""

    stream: StreamImage
    tp: TopicPartition
    image: PartitionImage


class Registry:
    """The node's partitions. ``open``; ``run`` as a task, ``reconcile`` each change; ``close``."""

    def __init__(
        self,
        data_dir: Path,
        *,
        node_id: NodeId,
        settings: LogSection,
        metrics: NodeMetrics,
        disk: Disk | None = None,
        replication: ReplicationSection | None = None,
        cluster: Cluster | None = None,
        reserve: Reserve | None = None,
        new_partition: Callable[..., Partition] = Partition,
        security: Security = NO_SECURITY,
        keys: KeyRing | None = None,
    ) -> None:
        """``cluster``: None for a node by itself. ``reserve``, ``keys``: see ``log``."""
        self._new_partition = new_partition
        self._data_dir, self._settings = data_dir, settings
        self._node_id, self._metrics = node_id, metrics
        self._disk = disk = disk or OsDisk()
        self._files = files = FilePool(disk, settings.open_files_max or open_files_allowed(), keys)
        self._folders = Folders(data_dir, disk)
        self._checkpoints = Checkpoints(data_dir, disk)
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="partition")
        self._flusher = Flusher(metrics)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, StreamlogError] = {}
        """Partitions whose log could not be opened, and why."""
        self._upkeep = Upkeep(self._partitions, self._checkpoints, self._workers, settings, reserve)
        self._scrubbing = Scrubbing(settings, self.partitions)
        self._resting = Resting(settings, self.partitions)
        self._compaction = Compaction(settings, self.partitions, metrics, disk=disk, files=files)
        self._trimming = Trimming(self.partitions)
        self._key_change = KeyChange(self.partitions, self._workers, files, metrics)
        self._disposal = Disposal(self._folders, self._workers)
        self._heard: dict[TopicPartition, PartitionImage] = {}  # what was last acted on
        self._cluster = cluster
        self._replication: Replication | None = None
        if cluster is not None:
            cluster.lease.add_listener(self._lease_changed)
            self._replication = Replication(
                node_id=node_id,
                cluster=cluster,
                settings=replication or ReplicationSection(),
                partitions=self.partitions,
                workers=self._workers,
                metrics=metrics,
                security=security,
            )
            self._upkeep.begins_later = self._replication.begins_later
        self._space = DiskSpace(
            data_dir, disk, settings, reserve=reserve, changed=self._space_changed
        )
        self._surroundings = Surroundings(
            node_id,
            settings,
            self._flusher,
            self._upkeep,
            self._workers,
            metrics,
            self._space,
            may_act=(lambda: cluster.lease.held) if cluster is not None else None,
            isr_may_change=self._replication.isr_may_change if self._replication else nothing,
            health_changed=self._health_changed,
            indexes=IndexKeeping(settings.subject_index_bytes),
        )
        self._image: Image | None = None  # as last acted on
        self._changing = asyncio.Lock()
        self._may_open = asyncio.Event()
        self._closed = False

    def partition(self, tp: TopicPartition) -> Partition:
        """Raises PartitionNotFound, or what has put the partition offline before it was open."""
        found = self._partitions.get(tp)
        if found is not None:
            return found
        if tp in self._offline:
            raise self._offline[tp]
        raise PartitionNotFound(f"partition {tp} is not on this node")

    def partitions(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def statistics(self) -> list[PartitionStatistics]:
        return [partition.statistics() for partition in self._partitions.values()]

    @property
    def has_room(self) -> bool:
        """False from a write that found none until there is some."""
        return not self._space.is_full

    @property
    def failures(self) -> dict[TopicPartition, StreamlogError]:
        """Partitions that cannot be written to, and why."""
        failed = {p.tp: p.failure for p in self._partitions.values() if p.failure is not None}
        return {**self._offline, **failed}

    async def open(self, image: Image, recently_deleted: frozenset[UUID] = frozenset()) -> None:
        """Put the folders in order, open what ``image`` has. Raises CorruptData, StorageFailed.

        Nothing is led yet: a node that starts leads in new epochs, of which ``reconcile`` hears
        when it has registered.
        """
        self._flusher.open()
        if type(self._disk) is OsDisk:  # no other is known to write nothing but to its files
            self._flusher.shared = await self._in_worker(self._shared_sync)
        self._image = image
        try:
            await self._in_worker(self._checkpoints.load)
            await self._in_worker(
                lambda: sweep(self._folders, image, recently_deleted, self._node_id)
            )
            leftovers = await self._in_worker(self._folders.leftovers)
        except OSError as error:
            raise StorageFailed(f"{error.filename}: {error.strerror}") from error
        self._disposal.remove_later(leftovers)
        gone = self._missing_folders(image)
        streams = image.streams.values()
        await self._open_missing(
            [here for stream in streams for here in self._replicas_here(stream)]
        )
        for tp in gone:
            if tp in self._partitions:
                self._partitions[tp].following.is_short = True
        await self._upkeep.write_checkpoints()

    async def reconcile(self, old: Image, new: Image) -> None:
        """Be as ``new`` says when this returns. A failing disk puts partitions offline, no more."""
        async with self._changing:
            if self._closed:
                return
            wanted: list[Here] = []
            disposals: list[Coroutine[Any, Any, None]] = []
            for before, after in new.changes(old):
                if after is None:
                    assert before is not None, "a change has two sides"
                    gone = StreamNotFound(f"stream {before.name!r} is deleted")
                    disposals += self._delete(before, range(len(before.partitions)), gone)
                    continue
                if before is not None:
                    moved = NotLeader(f"stream {before.name!r} is kept by other nodes")
                    disposals += self._delete(before, self._kept_before(before, after), moved)
                wanted.extend(self._replicas_here(after))
            await asyncio.gather(*disposals)
            await self._open_missing(wanted)
            for done, here in enumerate(sorted(wanted, key=self._is_busy)):
                await self._hear(here, new)
                if done % _HEARD_AT_ONCE == _HEARD_AT_ONCE - 1:
                    await asyncio.sleep(0)
            if any(self._is_ailing(here.tp) for here in wanted):
                self._tell_offline()
            self._image = new

    async def run(self) -> None:
        """Checkpoints, retention, interval syncs; ends by raising what no partition can handle."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flusher.run())
            group.create_task(self._upkeep.run())
            group.create_task(self._space.run())
            group.create_task(self._scrubbing.run())
            group.create_task(self._resting.run())
            group.create_task(self._compaction.run())
            group.create_task(self._key_change.run())
            group.create_task(self._trimming.run())
            group.create_task(self._surroundings.indexes.run())
            group.create_task(self._open_when_there_is_room())
            if self._replication is not None:
                group.create_task(self._replication.run())

    async def close(self) -> None:
        """Sync everything, write the checkpoints, close the logs. May be called again."""
        async with self._changing:
            if self._closed:
                return
            self._closed = True
            self._key_change.close()
            partitions = list(self._partitions.values())
            for partition in partitions:
                partition.syncing.sync_soon()
            for partition in partitions:
                await partition.syncing.wait_synced()
            logs = [await partition.close(NotLeader("the node stops")) for partition in partitions]
            await self._upkeep.write_checkpoints()
            await self._in_worker(lambda: _close_all(logs))
            self._partitions.clear()
            self._flusher.close()
            await asyncio.to_thread(self._workers.shutdown)  # what is being removed is removed
            self._files.close()

    def _shared_sync(self) -> SharedSync | None:
        return SharedSync.open(self._data_dir)

    def _replicas_here(self, stream: StreamImage) -> Iterator[Here]:
        for number, image in enumerate(stream.partitions):
            if self._node_id in image.replicas:
                yield Here(stream, TopicPartition(stream.name, number), image)

    async def _open_missing(self, wanted: Iterable[Here]) -> None:
        missing = [
            (stream, tp)
            for stream, tp, _ in wanted
            if tp not in self._partitions and tp not in self._offline
        ]
        new = [tp for _, tp in missing if not self._has_folder(tp)]
        try:
            await self._upkeep.forget_strangers(new)
        except Unavailable as error:
            for tp in new:
                self._could_not_open(tp, error)
            missing = [(stream, tp) for stream, tp in missing if tp not in self._offline]
        openings = [
            Opening(
                tp,
                stream.stream_id,
                log_settings(stream.config, self._settings),
                self._checkpoints.get(tp),
            )
            for stream, tp in missing
        ]
        configs = {tp: stream.config for stream, tp in missing}
        size = min(_OPENED_AT_ONCE, -(-len(openings) // WORKERS) or 1)
        chunks = [openings[i : i + size] for i in range(0, len(openings), size)]
        for done in asyncio.as_completed([self._in_worker(self._opener(c)) for c in chunks]):
            for opening, result in await done:
                if isinstance(result, StreamlogError):
                    self._could_not_open(opening.tp, result)
                    continue
                self._metrics.corrupt_batches.inc(len(result.recovery.damages))
                partition = self._partitions[opening.tp] = self._new_partition(
                    opening.tp,
                    result,
                    configs[opening.tp],
                    self._surroundings,
                    topic_id=opening.stream_id.bytes,
                    high_watermark=opening.offsets.high_watermark,
                )
                partition.following.is_short = result.log_end_offset < opening.offsets.kept_end

    def _opener(self, openings: list[Opening]) -> Callable[[], list[Opened]]:
        def open_all() -> list[Opened]:
            opened: list[Opened] = []
            for opening in openings:
                try:
                    log = open_log(opening, self._folders, self._disk, self._files)
                    opened.append((opening, log))
                except StreamlogError as error:
                    opened.append((opening, error))
            return opened

        return open_all

    def _could_not_open(self, tp: TopicPartition, error: StreamlogError) -> None:
        self._offline[tp] = error
        if isinstance(error, StorageFull):
            self._space.ran_out(error)
        extra: dict[str, object] = {"stream": tp.stream, "partition": tp.partition}
        extra["error"] = str(error)
        if isinstance(error, EncryptionKeyMissing):
            extra["remedy"] = "give this node the key, and start it again; docs/encryption.md"
        logger.error("partition offline", extra=extra)

    def _is_busy(self, here: Here) -> bool:
        """Its log is being cut: others need not wait for that."""
        partition = self._partitions.get(here.tp)
        return partition is not None and partition.state.cutting

    async def _hear(self, here: Here, image: Image) -> None:
        partition = self._partitions.get(here.tp)
        if partition is None:
            return
        if partition.config != here.stream.config:
            partition.configure(here.stream.config)
        is_new = await partition.hear(here.image, here.stream.min_isr(here.tp.partition))
        tell_change(
            here.tp,
            self._heard.get(here.tp),
            here.image,
            node_id=self._node_id,
            end_offset=partition.log_end_offset,
            metrics=self._metrics,
        )
        self._heard[here.tp] = here.image
        if self._replication is not None:
            self._replication.heard(partition, image, is_new=is_new)

    def _delete(
        self, stream: StreamImage, numbers: Iterable[int], why: StreamlogError
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Whoever looks finds nothing from now on; what is yielded moves the files away."""
        for number in numbers:
            tp = TopicPartition(stream.name, number)
            self._offline.pop(tp, None)
            self._heard.pop(tp, None)
            if self._replication is not None:
                self._replication.gone(tp)
            partition = self._partitions.pop(tp, None)
            yield self._dispose(tp, stream.stream_id, partition, why)

    async def _dispose(
        self, tp: TopicPartition, stream_id: UUID, partition: Partition | None, why: StreamlogError
    ) -> None:
        await self._disposal.dispose(tp, stream_id, partition, why)
        self._upkeep.dropped(tp)

    def _kept_before(self, old: StreamImage, new: StreamImage) -> list[int]:
        """Partitions that were this node's and are no longer."""
        return [
            number
            for number, image in enumerate(old.partitions)
            if self._node_id in image.replicas
            and self._node_id not in new.partitions[number].replicas
        ]

    def _health_changed(self, partition: Partition) -> None:
        if self._replication is not None:
            self._replication.health_changed(partition)
        self._tell_offline()

    def _tell_offline(self) -> None:
        """Others are to lead what cannot be written or read in full here, and to mend it."""
        if self._cluster is not None:
            self._cluster.tell_offline(
                tp for tp in (*self._offline, *self._partitions) if self._is_ailing(tp)
            )

    def _space_changed(self) -> None:
        is_full = self._space.is_full
        self._metrics.disk_full.set(is_full)
        if self._cluster is not None:
            self._cluster.tell_full(is_full)
        if self._replication is not None:
            for partition in self._partitions.values():
                self._replication.health_changed(partition)
        if not is_full:
            self._may_open.set()

    async def _open_when_there_is_room(self) -> None:
        """What others lead; whoever leads what it could not open has told publishers so."""
        while True:
            await self._may_open.wait()
            self._may_open.clear()
            async with self._changing:
                if not self._closed:
                    await self._open_what_found_no_room()

    async def _open_what_found_no_room(self) -> None:
        image = self._image
        assert image is not None, "open comes first"
        wanted = [
            here
            for stream in image.streams.values()
            for here in self._replicas_here(stream)
            if isinstance(self._offline.get(here.tp), StorageFull)
            and here.image.leader != self._node_id
        ]
        for here in wanted:
            del self._offline[here.tp]
        await self._open_missing(wanted)
        for here in wanted:
            await self._hear(here, image)
        if wanted:
            self._tell_offline()

    def _is_ailing(self, tp: TopicPartition) -> bool:
        partition = self._partitions.get(tp)
        if partition is None:
            return tp in self._offline
        return partition.is_ailing

    def _lease_changed(self, held: bool) -> None:
        """What was appended before may be committed again, although nobody waits for it."""
        if held:
            for partition in self._partitions.values():
                if partition.is_leader and partition.high_watermark < partition.log_end_offset:
                    partition.syncing.settle_soon()

    def _has_folder(self, tp: TopicPartition) -> bool:
        return self._folders.path(tp).exists()

    def _missing_folders(self, image: Image) -> list[TopicPartition]:
        """Those that were there and are gone: their records are lost, and that is said."""
        gone: list[TopicPartition] = []
        for stream in image.streams.values():
            for _, tp, _ in self._replicas_here(stream):
                lost = self._checkpoints.get(tp).high_watermark
                if lost and not self._has_folder(tp):
                    gone.append(tp)
                    logger.error(
                        "partition folder is gone",
                        extra={"stream": tp.stream, "partition": tp.partition, "offset": lost},
                    )
        return gone

    async def _in_worker(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, call)


def _close_all(logs: list[PartitionLog]) -> None:
    for log in logs:
        try:
            log.close()
        except StreamlogError as error:
            logger.error("log not closed in order", extra={"error": str(error)})
