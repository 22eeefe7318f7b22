"""All partitions of the node: opened, led, reconfigured, closed and deleted as the image says.

What an image says of who leads, in which epoch, and of which stream a log is, takes effect when it
is applied, and waits for nothing: from then on no partition that is led no longer acknowledges
anything. Files are opened and moved away by tasks of their own, see ``converging``.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from streamlog.client.security import NO_SECURITY, Security
from streamlog.config import LogSection, ReplicationSection
from streamlog.errors import (
    EncryptionKeyMissing,
    NotLeader,
    Overloaded,
    PartitionNotFound,
    StorageFailed,
    StorageFull,
    StreamlogError,
    StreamNotFound,
)
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.log import PartitionLog
from streamlog.log.lost_end import FILE_NAME as LOST_END_NAME
from streamlog.log.lost_end import Gone
from streamlog.log.storage.disk import Disk, OsDisk
from streamlog.log.storage.file_pool import FilePool, open_files_allowed
from streamlog.log.storage.removal import Removal
from streamlog.log.storage.shared_sync import SharedSync
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.deletes.message_limits_task import MessageLimitsTask
from streamlog.partition.maintenance.auto_pause import AutoPause
from streamlog.partition.maintenance.key_rotation import KeyRotation
from streamlog.partition.maintenance.log_cleaner import LogCleaner
from streamlog.partition.maintenance.scheduled_tasks import ScheduledTasks
from streamlog.partition.maintenance.scrub_task import ScrubTask
from streamlog.partition.partition import Partition, PartitionContext, nothing
from streamlog.partition.replication.cluster import ClusterMetadata
from streamlog.partition.replication.replication import Replication, tell_change
from streamlog.partition.storage.checkpoints import Checkpoints
from streamlog.partition.storage.disk_space import DiskReserve, DiskSpace
from streamlog.partition.storage.flusher import Flusher
from streamlog.partition.storage.folder import Folders
from streamlog.partition.storage.log_opener import WORKERS, LogOpener, Opened
from streamlog.partition.storage.open_log import LocalReplica, replicas_here, sweep
from streamlog.partition.storage.partition_delete import PartitionDelete
from streamlog.partition.storage.reconciliation import Behind, Leaving, Reconciliation
from streamlog.partition.subjects.index_cache import SubjectIndexCache

logger = logging.getLogger(__name__)

_HEARD_AT_ONCE: Final = 200
"""Partitions that do as an image says in the turn in which it is applied. Of more, those that have
to be fenced do so, too, and the others have their turns after it."""

_CLOSED_AT_ONCE: Final = 64
"""Logs that one worker closes in one go."""

OPEN_AGAIN_S: Final = 1.0
"""After which a log is opened again for which there were no file descriptors."""

REMOVAL_STOP_S: Final = 2.0
"""For so long a stop waits until removed files are unlinked; the next start unlinks the others."""

ALL_S: Final = 10.0
"""Between two looks at the health of all partitions, whether or not they have told of it."""

LOSSES_S: Final = 2.0
"""Between two looks whether somebody knows of records that are gone; nothing where there are none.
"""

T = TypeVar("T")
Listener = Callable[[TopicPartition], None]


class ReplicaManager:
    """The node's partitions. ``open``; ``run`` as a task, ``apply`` each change; ``close``.

    Invariant: a partition in ``_partitions`` is of the stream, and of the replica, that the newest
    image has here, and leads only in the epoch which that image says.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        node_id: NodeId,
        settings: LogSection,
        metrics: NodeMetrics,
        disk: Disk | None = None,
        replication: ReplicationSection | None = None,
        cluster: ClusterMetadata | None = None,
        reserve: DiskReserve | None = None,
        new_partition: Callable[..., Partition] = Partition,
        security: Security = NO_SECURITY,
        keys: KeyRing | None = None,
        power_lost: bool = True,
    ) -> None:
        """``cluster``: None for a node by itself. ``reserve``, ``keys``: see ``log``.
        ``power_lost``: logs may lack what had not been synced before this run.
        """
        self._new_partition = new_partition
        self._data_dir, self._settings = data_dir, settings
        self._node_id, self._metrics = node_id, metrics
        self._disk = disk = disk or OsDisk()
        self._removal = Removal(disk)
        self._files = files = FilePool(
            disk, settings.open_files_max or open_files_allowed(), keys, removal=self._removal
        )
        self._folders = Folders(data_dir, disk)
        self._checkpoints = Checkpoints(data_dir, disk)
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="partition")
        self._flusher = Flusher(metrics)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, StreamlogError] = {}
        """Partitions whose log could not be opened, and why."""
        self._ill: dict[Partition, None] = {}
        """Those that may be ailing, in the order in which they told of a change of their health."""
        self._gone: dict[Partition, None] = {}
        """Those of which records are gone for good, see ``Partition.gone``."""
        self._all_looked_at = -ALL_S
        self._upkeep = ScheduledTasks(
            self._partitions, self._checkpoints, self._workers, settings, reserve
        )
        self._scrubbing = ScrubTask(settings, self.partitions)
        self._resting = AutoPause(settings, self.partitions)
        self._compaction = LogCleaner(settings, self.partitions, metrics, disk=disk, files=files)
        self._trimming = MessageLimitsTask()
        self._key_change = KeyRotation(
            self.partitions, self._workers, files, metrics, self._unopened
        )
        self._disposal = PartitionDelete(self._folders, self._workers, self._removal)
        self._wanted: dict[TopicPartition, LocalReplica] = {}  # by the newest image
        self._heard: dict[TopicPartition, LocalReplica] = {}  # what each has acted on
        self._unheard: dict[TopicPartition, None] = {}  # to do as it says, soon
        self._any_unheard = asyncio.Event()
        self._some_heard = asyncio.Event()  # of them; another one for the next time
        self._converging = Reconciliation(self._catch_up)
        self._opener = LogOpener(
            self._folders, self._checkpoints, self._upkeep, self._workers, settings,
            disk=disk, files=files, power_lost=power_lost, spawn=self._converging.spawn,
        )  # fmt: skip
        self._listeners: list[Listener] = []
        self._cluster = cluster
        self._replication: Replication | None = None
        if cluster is not None:
            cluster.lease.add_listener(self._lease_changed)
            self._replication = self._replicated(
                cluster, replication or ReplicationSection(), security
            )
            self._upkeep.begins_later = self._replication.begins_later
        self._space = DiskSpace(
            data_dir, disk, settings, reserve=reserve, changed=self._space_changed,
            removal=self._removal,
        )  # fmt: skip
        self._surroundings = PartitionContext(
            node_id, settings, self._flusher, self._upkeep, self._workers, metrics, self._space,
            may_act=(lambda: cluster.lease.held) if cluster is not None else None,
            isr_may_change=self._replication.isr_may_change if self._replication else nothing,
            health_changed=self._health_changed,
            indexes=SubjectIndexCache(settings.subject_index_bytes),
            first_producer_id=self._first_producer_id,
        )  # fmt: skip
        self._image: MetadataImage | None = None  # the newest
        self._may_open = asyncio.Event()
        self._closed = self._is_running = False

    def _first_producer_id(self) -> int:
        """The lowest that is given in this metadata log."""
        log = None if self._image is None else self._image.log
        return 0 if log is None else log.first_producer_id

    def _replicated(
        self, cluster: ClusterMetadata, settings: ReplicationSection, security: Security
    ) -> Replication:
        return Replication(
            node_id=self._node_id,
            cluster=cluster,
            settings=settings,
            workers=self._workers,
            metrics=self._metrics,
            security=security,
        )

    def add_listener(self, listener: Listener) -> None:
        """``listener`` is called when a partition does what the newest image says of it later than
        that was applied, as its log had to be opened or cut first; or when it went offline instead.
        """
        self._listeners.append(listener)

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

    @property
    def has_room(self) -> bool:
        """False from a write that found none until there is some."""
        return not self._space.is_full

    @property
    def unopened(self) -> Mapping[TopicPartition, StreamlogError]:
        """Partitions whose log could not be opened, and why."""
        return self._offline

    def _ailing(self) -> list[Partition]:
        """Those that are. All are looked at now and then, so that a change that was told to nobody
        is found, too; between that only those that have told of one, for there may be very many.
        """
        now = time.monotonic()
        if now - self._all_looked_at >= ALL_S:
            self._all_looked_at = now
            self._ill = dict.fromkeys(self._partitions.values())
        self._ill = {it: None for it in self._ill if it.is_ailing and not it.closed}
        return list(self._ill)

    def gone(self) -> dict[TopicPartition, Gone]:
        """Partitions that have lost records of which no replica has any more, and which."""
        self._gone = {it: None for it in self._gone if it.gone is not None and not it.closed}
        return {it.tp: gone for it in self._gone if (gone := it.gone) is not None}

    def gone_path(self, tp: TopicPartition) -> str:
        """Of the file that an operator removes who knows of it."""
        return str(self._folders.path(tp) / LOST_END_NAME)

    def is_damaged_alone(self) -> bool:
        """Some partition has records that cannot be read, and no other replica in sync to fetch
        them from.
        """
        return any(it.is_damaged and it.state.isr <= {self._node_id} for it in self._ailing())

    def _unopened(self) -> list[Path]:
        folders = [self._folders.path(tp) for tp in tuple(self._offline)]
        return [folder for folder in folders if folder.exists()]

    async def open(
        self, image: MetadataImage, recently_deleted: frozenset[UUID] = frozenset()
    ) -> None:
        """Put the folders in order, open what ``image`` has. Raises CorruptData, StorageFailed.

        Nothing is led yet: a node that starts leads in new epochs, of which ``apply`` hears when it
        has registered.
        """
        self._flusher.open()
        if type(self._disk) is OsDisk:  # no other is known to write nothing but to its files
            self._flusher.shared = await self._in_worker(self._shared_sync)
        shared = self._flusher.shared
        # Whatever a killed process left in the page cache, of whichever log, is durable after this.
        is_synced = shared is not None and await self._in_worker(shared.sync)
        self._image = image
        try:
            await self._in_worker(self._checkpoints.load)
            moved_back = await self._in_worker(
                lambda: sweep(self._folders, image, recently_deleted, self._node_id)
            )
            leftovers = await self._in_worker(self._folders.leftovers)
        except OSError as error:
            raise StorageFailed(f"{error.filename}: {error.strerror}") from error
        self._disposal.remove_later(leftovers)
        self._opener.lost.update(self._missing_folders(image, frozenset(moved_back)))
        streams = image.streams.values()
        here = [it for stream in streams for it in replicas_here(stream, self._node_id)]
        self._wanted = {it.tp: it for it in here}
        await self._opener.open_all(here, self._opened, shared=shared if is_synced else None)
        await self._upkeep.write_checkpoints()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """Whoever leads no longer, or is deleted, acknowledges nothing after this; what is open
        does as ``new`` says. What has to be opened follows, see ``settled``.
        """
        if self._closed:
            return
        self._image = new
        heard, is_ailing = 0, False
        for before, after in new.changes(old):
            if after is None:
                if before is None:
                    raise AssertionError("a change has one side at least")
                gone = StreamNotFound(f"stream {before.name!r} is deleted")
                self._leave(before, range(len(before.partitions)), gone)
                continue
            if before is not None:
                moved = NotLeader(f"stream {before.name!r} is kept by other nodes")
                self._leave(before, self._kept_before(before, after), moved, is_moved=True)
            for here in replicas_here(after, self._node_id):
                self._wanted[here.tp] = here
                partition = self._partitions.get(here.tp)
                if partition is not None and not partition.state.cutting:
                    heard += 1
                    if heard <= _HEARD_AT_ONCE or self._is_deposed(here, partition):
                        self._hear(here, partition)
                    else:
                        self._unheard[here.tp] = None
                        self._any_unheard.set()
                elif here.tp not in self._offline:
                    self._converging.add(here.tp)
                is_ailing = is_ailing or self._is_ailing(here.tp)
        if is_ailing:
            self._tell_offline()

    async def settled(self, stream: str | None = None) -> None:
        """Return when the partitions of ``stream``, or all, that have to be opened, cut or moved
        away by now are. A failing disk puts partitions offline, no more.
        """
        if self._image is not None and not self._is_running:
            self._hear_some(len(self._unheard))
        while self._unheard if stream is None else self._is_unheard(stream):
            await self._some_heard.wait()
        await self._converging.settled(stream)

    async def run(self) -> None:
        """Checkpoints, retention, interval syncs; ends by raising what no partition can handle."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear_the_rest())
            group.create_task(self._converging.run())
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
            group.create_task(self._look_who_knows_of_losses())
            if self._replication is not None:
                group.create_task(self._replication.run())

    async def close(self) -> None:
        """Sync everything, write the checkpoints, close the logs. May be called again."""
        if self._closed:
            return
        self._closed = True
        await self._converging.settled()
        self._key_change.close()
        partitions = list(self._partitions.values())
        self._flusher.hurry()
        for partition in partitions:
            partition.sync_soon()
        for partition in partitions:
            await partition.wait_synced()
        logs = [await partition.close(NotLeader("the node stops")) for partition in partitions]
        await self._upkeep.write_checkpoints()
        parts = (logs[at : at + _CLOSED_AT_ONCE] for at in range(0, len(logs), _CLOSED_AT_ONCE))
        await asyncio.gather(*(self._in_worker(partial(_close_all, part)) for part in parts))
        self._partitions.clear()
        self._flusher.close()
        await asyncio.to_thread(self._workers.shutdown)
        self._files.close()
        await asyncio.to_thread(self._removal.stop, REMOVAL_STOP_S)

    def give_up(self) -> None:
        """Where ``close`` took too long: what its threads have not begun is left to a recovery."""
        self._flusher.give_up()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._removal.stop_soon()

    def _shared_sync(self) -> SharedSync | None:
        return SharedSync.open(self._data_dir)

    async def _catch_up(self, behind: Behind) -> None:
        """Until nothing is left to be opened, cut or moved away; see ``Reconciliation``."""
        tp = behind.tp
        while behind.leaving or not self._closed:
            if behind.leaving:
                stream_id, partition, why, incarnation, log = behind.leaving[0]
                await self._disposal.dispose(
                    tp, stream_id, partition, why, log, incarnation=incarnation
                )
                self._upkeep.dropped(tp)
                del behind.leaving[0]
                continue
            here, partition = self._wanted.get(tp), self._partitions.get(tp)
            if here is None or tp in self._offline:
                return
            if partition is None:
                self._opened_late(behind, here, await self._opener.open(here))
            elif partition.state.cutting:
                await partition.wait_uncut()
            else:
                if self._heard.get(tp) is not here:
                    self._hear(here, partition)
                self._tell_listeners(tp)
                return

    def _opened_late(self, behind: Behind, asked: LocalReplica, opened: Opened) -> None:
        """Perhaps nobody wants it any more: what has left meanwhile, whoever has come since, takes
        this log along.
        """
        tp, (_, result) = asked.tp, opened
        if not behind.leaving and not self._closed:
            self._opened(self._wanted[tp], opened)
            if tp in self._offline:
                self._tell_offline()
                self._tell_listeners(tp)
        elif isinstance(result, StreamlogError):
            return
        elif behind.leaving:
            gone = StreamNotFound(f"{tp} is not kept here any more")
            behind.leaving.insert(
                0, Leaving(asked.stream.stream_id, None, gone, asked.incarnation, result)
            )
        else:
            result.close()

    def _opened(self, here: LocalReplica, opened: Opened) -> None:
        opening, result = opened
        if isinstance(result, StreamlogError):
            self._could_not_open(here.tp, result)
            return
        self._metrics.corrupt_batches.inc(len(result.recovery.damages))
        partition = self._partitions[here.tp] = self._new_partition(
            here.tp,
            result,
            here.stream.config,
            self._surroundings,
            topic_id=opening.stream_id.bytes,
            incarnation=opening.incarnation,
            high_watermark=opening.offsets.high_watermark,
        )
        partition.following.is_short = result.recovery.lost_end
        self._upkeep.opened(partition)
        self._ill[partition] = None
        if partition.gone is not None:
            self._gone[partition] = None
        if result.segment_count > 1:
            self._scrubbing.opened(partition)

    def _tell_listeners(self, tp: TopicPartition) -> None:
        for listener in self._listeners:
            listener(tp)

    def _could_not_open(self, tp: TopicPartition, error: StreamlogError) -> None:
        self._offline[tp] = error
        if isinstance(error, StorageFull):
            self._space.ran_out(error)
        elif isinstance(error, Overloaded):
            asyncio.get_running_loop().call_later(OPEN_AGAIN_S, self._may_open.set)
        extra: dict[str, object] = {"stream": tp.stream, "partition": tp.partition}
        extra["error"] = str(error)
        if isinstance(error, EncryptionKeyMissing):
            extra["remedy"] = error.remedy
        logger.error("partition offline", extra=extra)

    def _hear(self, here: LocalReplica, partition: Partition) -> None:
        image, tp = self._image, here.tp
        if image is None:
            raise AssertionError("open comes first")
        config, known = here.stream.config, self._heard.get(tp)
        if partition.config is not config and partition.config != config:
            partition.configure(config)
        is_new = partition.hear(here.image, here.stream.min_isr(tp.partition))
        self._trimming.heard(partition)
        tell_change(
            tp,
            None if known is None else known.image,
            here.image,
            node_id=self._node_id,
            end_offset=partition.log_end_offset,
            metrics=self._metrics,
        )
        self._heard[tp] = here
        if self._replication is not None:
            self._replication.heard(partition, image, is_new=is_new)

    def _is_deposed(self, here: LocalReplica, partition: Partition) -> bool:
        """It leads, and must not any more, or in another epoch."""
        is_same = here.image.leader_epoch == partition.leader_epoch
        return partition.is_leader and not (is_same and here.image.leader == self._node_id)

    async def _hear_the_rest(self) -> None:
        """What an image of very many partitions left for later."""
        self._is_running = True
        try:
            while True:
                await self._any_unheard.wait()
                self._any_unheard.clear()
                while self._unheard:
                    self._hear_some(_HEARD_AT_ONCE)
                    some_heard, self._some_heard = self._some_heard, asyncio.Event()
                    some_heard.set()
                    await asyncio.sleep(0)
        finally:
            self._is_running = False
            self._unheard.clear()  # the node stops
            self._some_heard.set()

    def _hear_some(self, count: int) -> None:
        for tp in tuple(islice(self._unheard, count)):
            del self._unheard[tp]
            here, partition = self._wanted.get(tp), self._partitions.get(tp)
            if here is None or partition is None or self._closed:
                continue
            if partition.state.cutting:
                self._converging.add(tp)
            elif self._heard.get(tp) is not here:
                self._hear(here, partition)
                self._tell_listeners(tp)

    def _is_unheard(self, stream: str) -> bool:
        here = self._image.streams.get(stream) if self._image is not None else None
        numbers = range(len(here.partitions)) if here is not None else ()
        return any(TopicPartition(stream, it) in self._unheard for it in numbers)

    def _leave(
        self,
        stream: StreamImage,
        numbers: Iterable[int],
        why: StreamlogError,
        *,
        is_moved: bool = False,
    ) -> None:
        """Whoever looks finds nothing from now on, and nobody is acknowledged anything; the files
        are moved away later. ``is_moved``: the stream is still there, and may be back here.
        """
        for number in numbers:
            tp = TopicPartition(stream.name, number)
            if self._wanted.pop(tp, None) is None:
                continue
            self._offline.pop(tp, None)
            self._heard.pop(tp, None)
            self._opener.lost.discard(tp)
            partition = self._partitions.pop(tp, None)
            if self._replication is not None:
                self._replication.gone(tp, partition)
            if partition is not None:
                partition.fence(why)
            incarnation = stream.partitions[number].incarnation(self._node_id)
            leaving = Leaving(stream.stream_id, partition, why, incarnation if is_moved else None)
            self._converging.add(tp).leaving.append(leaving)

    def _kept_before(self, old: StreamImage, new: StreamImage) -> list[int]:
        """Partitions that were this node's and are no longer, or are again: then the replica is
        another one, which begins anew.
        """
        here = self._node_id
        return [
            number
            for number, image in enumerate(old.partitions)
            if here in image.replicas
            and image.incarnation(here) != new.partitions[number].incarnation(here)
        ]

    def _health_changed(self, partition: Partition) -> None:
        self._ill[partition] = None
        if partition.gone is not None:
            self._gone[partition] = None
        if self._replication is not None:
            self._replication.health_changed(partition)
        self._tell_offline()

    def _tell_offline(self) -> None:
        """Others are to lead what cannot be written or read in full here, and to mend it."""
        if self._cluster is not None:
            ailing = (it.tp for it in self._ailing() if self._partitions.get(it.tp) is it)
            self._cluster.tell_offline(dict.fromkeys((*self._offline, *ailing)))

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
        """What could not be opened on a full disk, or for want of file descriptors. Also what this
        node leads: it may have the only replica.
        """
        while True:
            await self._may_open.wait()
            self._may_open.clear()
            for tp, error in tuple(self._offline.items()):
                is_full = isinstance(error, StorageFull) and not self.has_room
                may_open = isinstance(error, StorageFull | Overloaded) and not is_full
                if may_open and tp in self._wanted and not self._closed:
                    del self._offline[tp]
                    self._converging.add(tp)
            await self._converging.settled()
            self._tell_offline()

    async def _look_who_knows_of_losses(self) -> None:
        """An operator who knows of lost records removes the file that says which they were."""
        while True:
            await asyncio.sleep(LOSSES_S)
            for partition in tuple(self._gone):
                if self._closed:
                    return
                lost_end, before = partition.state.log.lost_end, partition.gone
                try:
                    lost_end.store()  # the disk may have been full
                    is_acknowledged = await self._in_worker(lost_end.is_acknowledged)
                except StreamlogError:
                    continue
                if is_acknowledged and partition.gone is before:
                    lost_end.gone = None

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
                    partition.settle_soon()

    def _has_folder(self, tp: TopicPartition) -> bool:
        return self._folders.path(tp).exists()

    def _missing_folders(
        self, image: MetadataImage, moved_back: frozenset[TopicPartition]
    ) -> list[TopicPartition]:
        """Those that were there and are gone: their records are lost, and that is said. Not so of
        replicas that were moved away and back, which begin anew.
        """
        gone: list[TopicPartition] = []
        for stream in image.streams.values():
            for _, tp, _, _ in replicas_here(stream, self._node_id):
                lost = self._checkpoints.get(tp).high_watermark
                if lost and tp not in moved_back and not self._has_folder(tp):
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
