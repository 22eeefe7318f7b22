"""All partitions of the node (Kafka's ReplicaManager): opened, led, closed and deleted by the image.

What an image says of who leads, in which epoch, and of which stream a log is, takes effect when it
is applied, and waits for nothing: from then on no partition that is led no longer acknowledges
anything. Opening a log, waiting for the end of a cut and moving the folder of a deleted stream away
take their time, and one slow disk or partition must not hold up others. So each partition that is
behind has one task, see ``Reconciliation``, which works towards the newest image and ends when
nothing is left to do; what changes meanwhile it finds when it looks again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID, uuid4

from streamlog.client.security import NO_SECURITY, Security
from streamlog.clock import monotonic_ms
from streamlog.condition import Condition
from streamlog.config import LogSection, ReplicationSection, TierSection
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
from streamlog.log.recovery.lost_end import FILE_NAME as LOST_END_NAME
from streamlog.log.recovery.lost_end import Gone
from streamlog.log.storage.disk import Disk, OsDisk
from streamlog.log.storage.file_pool import FilePool, open_files_allowed
from streamlog.log.storage.removal import Removal
from streamlog.log.storage.shared_sync import SharedSync
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.node_condition import PARTITION_OFFLINE
from streamlog.metadata.service import MetadataService
from streamlog.metrics import NodeMetrics
from streamlog.model import LogId, NodeId, TopicPartition
from streamlog.partition.deletes.message_limits_task import MessageLimitsTask
from streamlog.partition.maintenance.auto_pause import AutoPause
from streamlog.partition.maintenance.key_rotation import KeyRotation
from streamlog.partition.maintenance.log_cleaner import LogCleaner
from streamlog.partition.maintenance.scheduled_tasks import ScheduledTasks
from streamlog.partition.maintenance.scrub_task import ScrubTask
from streamlog.partition.partition import Partition, PartitionContext, nothing
from streamlog.partition.replication.replication import Replication, tell_change
from streamlog.partition.storage.checkpoints import Checkpoints
from streamlog.partition.storage.disk_space import DiskReserve, DiskSpace
from streamlog.partition.storage.flusher import Flusher
from streamlog.partition.storage.folder import Folders, sweep
from streamlog.partition.storage.log_opener import (
    WORKERS,
    LocalReplica,
    LogOpener,
    Opened,
    replicas_here,
)
from streamlog.partition.storage.partition_delete import PartitionDelete
from streamlog.partition.subjects.index_cache import SubjectIndexCache
from streamlog.partition.tiering.cold_reads import ColdReads
from streamlog.partition.tiering.tier_manager import TierManager, TierUploads
from streamlog.partition.tiering.tiered_log import TierContext

logger = logging.getLogger(__name__)

LOG_NOT_CLOSED: Final = Condition(
    "SL-0222",
    "log not closed in order",
    "the next start recovers it; look at the error",
    meaning="A log was not synced and closed when the node stopped.",
)

_APPLIED_AT_ONCE: Final = 200
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
"""Between two looks whether an operator has confirmed records that are gone; nothing where there are none.
"""

T = TypeVar("T")
Listener = Callable[[TopicPartition], None]


class RemovedReplica(NamedTuple):
    """A replica that this node keeps no longer: its folder is to make room for whatever follows."""

    log_id: LogId
    partition: Partition | None
    """Open, and fenced already; None where it was not open."""
    why: StreamlogError
    is_moved: bool
    """The stream is still there, and the folder of a later replica stays."""
    log: PartitionLog | None = None
    """Opened when it was not wanted any more."""


class NodeTier(NamedTuple):
    """The object store of a node."""

    settings: TierSection
    cluster_id: str
    storage: TierUploads
    files: FilePool
    """Of the cache."""


class PendingReconciliation:
    """One partition's task. Invariant: the folders in ``leaving`` go before another is opened."""

    __slots__ = ("done", "leaving", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.leaving: list[RemovedReplica] = []
        """In the order in which they were kept."""
        self.done = asyncio.Event()


class Reconciliation:
    """``add`` at any time; ``run`` as a task. At most one task for each partition."""

    def __init__(
        self, catch_up: Callable[[PendingReconciliation], Coroutine[Any, Any, None]]
    ) -> None:
        """``catch_up`` is ``working_on`` its partition from its first step to its last. It ends when
        nothing is left to do, without having waited since it looked.
        """
        self._catch_up = catch_up
        self._behind: dict[str, dict[TopicPartition, PendingReconciliation]] = {}
        """By stream."""
        self._unbegun: list[PendingReconciliation] = []
        """Added while nothing runs."""
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._behind.values())

    def add(self, tp: TopicPartition) -> PendingReconciliation:
        """There may be something to do; the task for it, new or not."""
        partitions = self._behind.setdefault(tp.stream, {})
        behind = partitions.get(tp)
        if behind is None:
            behind = partitions[tp] = PendingReconciliation(tp)
            if self._group is None:
                self._unbegun.append(behind)
            else:
                self._group.create_task(self._catch_up(behind))
        return behind

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """For the tasks of several partitions; only out of one of them."""
        assert self._group is not None, "some partition's task runs"
        self._group.create_task(work)

    async def settled(self, stream: str | None = None) -> None:
        """Return when those of ``stream``, or all, that are behind now have caught up."""
        if self._group is None:
            await self._drain()
            return
        streams = [self._behind.get(stream, {})] if stream is not None else self._behind.values()
        for behind in [it for partitions in streams for it in partitions.values()]:
            await behind.done.wait()

    async def run(self) -> None:
        """Whatever ``work`` raises ends it."""
        async with asyncio.TaskGroup() as group:
            try:
                self._begin(group)
                await asyncio.get_running_loop().create_future()  # until cancelled
            finally:
                self._group = None

    async def _drain(self) -> None:
        """Nothing runs, as before a start is over."""
        async with asyncio.TaskGroup() as group:
            try:
                self._begin(group)
                while self._behind:
                    await next(iter(next(iter(self._behind.values())).values())).done.wait()
            finally:
                self._group = None

    def _begin(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        unbegun, self._unbegun = self._unbegun, []
        for behind in unbegun:
            group.create_task(self._catch_up(behind))

    @contextmanager
    def working_on(self, behind: PendingReconciliation) -> Iterator[None]:
        """The partition's task, from its beginning to its end."""
        try:
            yield
        finally:
            partitions = self._behind[behind.tp.stream]
            del partitions[behind.tp]
            if not partitions:
                del self._behind[behind.tp.stream]
            behind.done.set()


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
        cluster: MetadataService | None = None,
        reserve: DiskReserve | None = None,
        new_partition: Callable[..., Partition] = Partition,
        security: Security = NO_SECURITY,
        keys: KeyRing | None = None,
        power_lost: bool = True,
        tier: NodeTier | None = None,
        awake_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """``tier``: None for a node without an object store. ``awake_ms``: see ``Flusher``.
        ``cluster``: None for a node by itself. ``reserve``,
        ``keys``: see ``log``. ``power_lost``: logs may lack what had not been synced before this run.
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
        self._flusher = Flusher(metrics, awake_ms=awake_ms)
        self.stall_ms, self.oldest_sync_ms = self._flusher.stall_ms, self._flusher.oldest_sync_ms
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, StreamlogError] = {}
        """Partitions whose log could not be opened, and why."""
        self._perhaps_ailing: dict[Partition, None] = {}
        """Those that may be ailing, in the order in which they told of a change of their health."""
        self._gone: dict[Partition, None] = {}
        """Those of which records are gone for good, see ``Partition.gone``."""
        self._all_looked_at = -ALL_S
        self._tasks = ScheduledTasks(
            self._partitions, self._checkpoints, self._workers, settings, reserve
        )
        self._scrub = ScrubTask(settings, self.partitions)
        self._auto_pause = AutoPause(settings, self.partitions)
        self._log_cleaner = LogCleaner(settings, self.partitions, metrics, disk=disk, files=files)
        self._message_limits = MessageLimitsTask()
        self._key_rotation = KeyRotation(
            self.partitions, self._workers, files, metrics, self._unopened
        )
        self._deletes = PartitionDelete(self._folders, self._workers, self._removal)
        self._wanted: dict[TopicPartition, LocalReplica] = {}  # by the newest image
        self._applied: dict[TopicPartition, LocalReplica] = {}  # what each has acted on
        self._unapplied: dict[TopicPartition, None] = {}  # to do as it says, soon
        self._any_unapplied = asyncio.Event()
        self._some_applied = asyncio.Event()  # of them; another one for the next time
        self._reconciliation = Reconciliation(self._catch_up)
        self._opening_sync: SharedSync | None = None
        """By itself, since one is told only once of a write-back that failed."""
        self._opener = LogOpener(
            self._folders, self._checkpoints, self._tasks, self._workers, settings,
            disk=disk, files=files, power_lost=power_lost, spawn=self._reconciliation.spawn,
            shared=lambda: self._opening_sync,
        )  # fmt: skip
        self._listeners: list[Listener] = []
        self._cluster = cluster
        self._replication: Replication | None = None
        if cluster is not None:
            cluster.lease.add_listener(self._lease_changed)
            self._replication = self._replicated(
                cluster, replication or ReplicationSection(), security
            )
            self._tasks.begins_later = self._replication.begins_later
        self._tier = tier
        tier_settings = TierSection() if tier is None else tier.settings
        self._cold_reads = ColdReads(concurrency=tier_settings.concurrency)
        self._tier_manager: TierManager | None = None
        if cluster is not None:
            self._tier_manager = TierManager(
                node_id=node_id,
                cluster=cluster,
                settings=tier_settings,
                partitions=self.partitions,
                storage=None if tier is None else tier.storage,
                disk=disk,
                metrics=metrics,
                new_id=uuid4,
                workers=self._workers,
            )
        self._space = DiskSpace(
            data_dir, disk, settings, reserve=reserve, changed=self._space_changed,
            removal=self._removal,
        )  # fmt: skip
        self._context = PartitionContext(
            node_id, settings, self._flusher, self._tasks, self._workers, metrics, self._space,
            may_act=(lambda: cluster.lease.held) if cluster is not None else None,
            isr_may_change=self._replication.isr_may_change if self._replication else nothing,
            health_changed=self._health_changed,
            indexes=SubjectIndexCache(settings.subject_index_bytes),
            first_producer_id=self._first_producer_id,
            tier=None if tier is None else TierContext(
                tier.cluster_id, tier.storage, tier.files, self._cold_reads.want
            ),
            tier_starts=self._tier_manager,
        )  # fmt: skip
        self._image: MetadataImage | None = None  # the newest
        self._may_open = asyncio.Event()
        self._closed = self._is_running = False

    def _first_producer_id(self) -> int:
        """The lowest that is given in this metadata log."""
        log = None if self._image is None else self._image.log
        return 0 if log is None else log.first_producer_id

    def _replicated(
        self, cluster: MetadataService, settings: ReplicationSection, security: Security
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

    def moved(self, *, go_on: bool) -> set[Partition]:
        """Partitions whose offsets have changed since the last call; the first one begins with
        none. With ``go_on`` false they are not noted any more.
        """
        return self._tasks.moved(go_on=go_on)

    @property
    def has_room(self) -> bool:
        """False from a write that found none until there is some."""
        return not self._space.is_full

    @property
    def unopened(self) -> Mapping[TopicPartition, StreamlogError]:
        """Partitions whose log could not be opened, and why."""
        return self._offline

    def ailing(self) -> list[Partition]:
        """Those that are. All are looked at now and then, so that a change that was not told
        is found, too; between that only those that have told of one, for there may be very many.
        """
        now = time.monotonic()
        if now - self._all_looked_at >= ALL_S:
            self._all_looked_at = now
            self._perhaps_ailing = dict.fromkeys(self._partitions.values())
        self._perhaps_ailing = {
            it: None for it in self._perhaps_ailing if it.is_ailing and not it.closed
        }
        return list(self._perhaps_ailing)

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
        return any(it.is_damaged and it.state.isr <= {self._node_id} for it in self.ailing())

    def _unopened(self) -> list[Path]:
        folders = [self._folders.path(tp) for tp in tuple(self._offline)]
        return [folder for folder in folders if folder.exists()]

    async def open(
        self,
        image: MetadataImage,
        recently_deleted: frozenset[UUID] = frozenset(),
        *,
        is_log_known: bool = False,
    ) -> None:
        """Put the folders in order, open what ``image`` has; see ``sweep`` for ``is_log_known``.

        Raises CorruptData, StorageFailed.

        Nothing is led yet: a node that starts leads in new epochs, of which ``apply`` hears when it
        has registered.
        """
        self._flusher.open()
        if type(self._disk) is OsDisk:  # no other is known to write nothing but to its files
            self._flusher.shared = await self._in_worker(self._shared_sync)
            self._opening_sync = await self._in_worker(self._shared_sync)
        shared = self._flusher.shared
        # Whatever a killed process left in the page cache, of whichever log, is durable after this.
        is_synced = shared is not None and await self._in_worker(shared.sync)
        self._image = image
        try:
            await self._in_worker(self._checkpoints.load)
            await self._in_worker(
                lambda: sweep(
                    self._folders,
                    image,
                    recently_deleted,
                    self._node_id,
                    self._checkpoints.written(),
                    is_log_known=is_log_known,
                )
            )
            leftovers = await self._in_worker(self._folders.leftovers)
        except OSError as error:
            raise StorageFailed(f"{error.filename}: {error.strerror}") from error
        self._deletes.remove_later(leftovers)
        streams = image.streams.values()
        here = [it for stream in streams for it in replicas_here(stream, self._node_id)]
        self._wanted = {it.tp: it for it in here}
        self._tasks.dropped(self._gone_logs(image))
        wanted = [(it, partial(self._opened, it)) for it in here]
        await self._opener.open_all(wanted, shared=shared if is_synced else None)
        await self._tasks.write_checkpoints()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """A partition that leads no longer, or is deleted, acknowledges nothing after this; what is open
        does as ``new`` says. What has to be opened follows, see ``settled``.
        """
        if self._closed:
            return
        self._image = new
        if self._tier_manager is not None:
            self._tier_manager.apply(old, new)
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
                    if heard <= _APPLIED_AT_ONCE or self._is_deposed(here, partition):
                        self._apply_to(partition, here)
                    else:
                        self._unapplied[here.tp] = None
                        self._any_unapplied.set()
                elif here.tp not in self._offline:
                    self._reconciliation.add(here.tp)
                is_ailing = is_ailing or self._is_ailing(here.tp)
        if is_ailing:
            self._report_offline()

    async def settled(self, stream: str | None = None) -> None:
        """Return when the partitions of ``stream``, or all, that have to be opened, cut or moved
        away by now are. A failing disk puts partitions offline, no more.
        """
        if self._image is not None and not self._is_running:
            self._apply_some(len(self._unapplied))
        while self._unapplied if stream is None else self._is_unapplied(stream):
            await self._some_applied.wait()
        await self._reconciliation.settled(stream)

    async def run(self) -> None:
        """Checkpoints, retention, interval syncs; ends by raising what no partition can handle."""
        async with asyncio.TaskGroup() as group:
            if self._tier is not None:
                await self._tier.storage.open(group)
            group.create_task(self._apply_the_rest())
            group.create_task(self._reconciliation.run())
            group.create_task(self._flusher.run())
            group.create_task(self._tasks.run())
            group.create_task(self._space.run())
            group.create_task(self._scrub.run())
            group.create_task(self._auto_pause.run())
            group.create_task(self._log_cleaner.run())
            group.create_task(self._key_rotation.run())
            group.create_task(self._message_limits.run())
            group.create_task(self._context.indexes.run())
            group.create_task(self._open_when_there_is_room())
            group.create_task(self._look_who_knows_of_losses())
            group.create_task(self._cold_reads.run())
            if self._tier_manager is not None:
                group.create_task(self._tier_manager.run())
            if self._replication is not None:
                group.create_task(self._replication.run())

    async def close(self) -> None:
        """Sync everything, write the checkpoints, close the logs. May be called again."""
        if self._closed:
            return
        self._closed = True
        await self._reconciliation.settled()
        self._key_rotation.close()
        partitions = list(self._partitions.values())
        self._flusher.hurry()
        for partition in partitions:
            partition.sync_soon()
        for partition in partitions:
            await partition.wait_synced()
        logs = [await partition.close(NotLeader("the node stops")) for partition in partitions]
        await self._tasks.write_checkpoints()
        parts = (logs[at : at + _CLOSED_AT_ONCE] for at in range(0, len(logs), _CLOSED_AT_ONCE))
        await asyncio.gather(*(self._in_worker(partial(_close_all, part)) for part in parts))
        self._partitions.clear()
        self._flusher.close()
        await asyncio.to_thread(self._workers.shutdown)
        if self._tier is not None:
            await self._tier.storage.close()
            self._tier.files.close()
        if self._opening_sync is not None:
            self._opening_sync.close()
        self._files.close()
        await asyncio.to_thread(self._removal.stop, REMOVAL_STOP_S)

    def give_up(self) -> None:
        """Where ``close`` took too long: what its threads have not begun is left to a recovery."""
        self._flusher.give_up()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._removal.stop_soon()

    def _shared_sync(self) -> SharedSync | None:
        return SharedSync.open(self._data_dir)

    async def _catch_up(self, behind: PendingReconciliation) -> None:
        """Until nothing is left to be opened, cut or moved away; see ``Reconciliation``."""
        tp = behind.tp
        with self._reconciliation.working_on(behind):
            while behind.leaving or not self._closed:
                if behind.leaving:
                    log_id, partition, why, is_moved, log = behind.leaving[0]
                    await self._deletes.delete(log_id, partition, why, log, keep_later=is_moved)
                    self._tasks.dropped([log_id])
                    del behind.leaving[0]
                    continue
                here, partition = self._wanted.get(tp), self._partitions.get(tp)
                if here is None or tp in self._offline:
                    return
                if partition is None:
                    opened = await self._opener.open(here)
                    if behind.leaving or self._closed:
                        self._discard_opened(behind, here, opened)
                        continue
                    # As it was asked for: the log has those settings until newer ones are applied.
                    self._opened(here, opened)
                    if tp in self._offline:
                        self._report_offline()
                        break
                elif partition.state.cutting:
                    await partition.wait_uncut()
                else:
                    if self._applied.get(tp) is not here:
                        self._apply_to(partition, here)
                    break
            else:
                return
            for listener in self._listeners:
                listener(tp)

    def _discard_opened(
        self, behind: PendingReconciliation, asked: LocalReplica, opened: Opened
    ) -> None:
        """The log is not wanted any more. The replica that has left meanwhile takes it along,
        also where another one has come since.
        """
        _, result = opened
        if isinstance(result, StreamlogError):
            return
        if behind.leaving:
            gone = StreamNotFound(f"{asked.tp} is not kept here any more")
            behind.leaving.insert(
                0, RemovedReplica(asked.log_id, None, gone, is_moved=True, log=result)
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
            self._context,
            topic_id=opening.stream_id.bytes,
            incarnation=opening.incarnation,
            high_watermark=opening.offsets.high_watermark,
        )
        partition.following.is_short = result.recovery.lost_end
        partition.tiered.heard(here.image.tier)
        self._tasks.opened(partition)
        self._perhaps_ailing[partition] = None
        if partition.gone is not None:
            self._gone[partition] = None
        if result.segment_count > 1:
            self._scrub.opened(partition)

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
        logger.error(PARTITION_OFFLINE, extra=extra)

    def _apply_to(self, partition: Partition, here: LocalReplica) -> None:
        image, tp = self._image, here.tp
        if image is None:
            raise AssertionError("open comes first")
        config, known = here.stream.config, self._applied.get(tp)
        if partition.config is not config and partition.config != config:
            partition.configure(config)
        is_new = partition.hear(here.image, here.stream.min_isr(tp.partition))
        self._message_limits.heard(partition)
        if self._tier_manager is not None and is_new and config.tiered and partition.is_leader:
            self._tier_manager.look_at(partition)
        tell_change(
            tp,
            None if known is None else known.image,
            here.image,
            node_id=self._node_id,
            end_offset=partition.log_end_offset,
            metrics=self._metrics,
        )
        self._applied[tp] = here
        if self._replication is not None:
            self._replication.heard(partition, image, is_new=is_new)

    def _is_deposed(self, here: LocalReplica, partition: Partition) -> bool:
        """It leads, and must not any more, or in another epoch."""
        is_same = here.image.leader_epoch == partition.leader_epoch
        return partition.is_leader and not (is_same and here.image.leader == self._node_id)

    async def _apply_the_rest(self) -> None:
        """What an image of very many partitions left for later."""
        self._is_running = True
        try:
            while True:
                await self._any_unapplied.wait()
                self._any_unapplied.clear()
                while self._unapplied:
                    self._apply_some(_APPLIED_AT_ONCE)
                    some_applied, self._some_applied = self._some_applied, asyncio.Event()
                    some_applied.set()
                    await asyncio.sleep(0)
        finally:
            self._is_running = False
            self._unapplied.clear()  # the node stops
            self._some_applied.set()

    def _apply_some(self, count: int) -> None:
        for tp in tuple(islice(self._unapplied, count)):
            del self._unapplied[tp]
            here, partition = self._wanted.get(tp), self._partitions.get(tp)
            if here is None or partition is None or self._closed:
                continue
            if partition.state.cutting:
                self._reconciliation.add(tp)
            elif self._applied.get(tp) is not here:
                self._apply_to(partition, here)
                for listener in self._listeners:
                    listener(tp)

    def _is_unapplied(self, stream: str) -> bool:
        here = self._image.streams.get(stream) if self._image is not None else None
        numbers = range(len(here.partitions)) if here is not None else ()
        return any(TopicPartition(stream, it) in self._unapplied for it in numbers)

    def _leave(
        self,
        stream: StreamImage,
        numbers: Iterable[int],
        why: StreamlogError,
        *,
        is_moved: bool = False,
    ) -> None:
        """From now on it is not found, and nothing is acknowledged; the files
        are moved away later. ``is_moved``: the stream is still there, and may be back here.
        """
        for number in numbers:
            tp = TopicPartition(stream.name, number)
            if self._wanted.pop(tp, None) is None:
                continue
            self._offline.pop(tp, None)
            self._applied.pop(tp, None)
            partition = self._partitions.pop(tp, None)
            if self._replication is not None:
                self._replication.gone(tp, partition)
            if partition is not None:
                partition.fence(why)
            incarnation = stream.partitions[number].incarnation(self._node_id)
            log_id = LogId(tp, stream.stream_id, incarnation)
            self._reconciliation.add(tp).leaving.append(
                RemovedReplica(log_id, partition, why, is_moved)
            )

    def _kept_before(self, old: StreamImage, new: StreamImage) -> list[int]:
        """Partitions that were this node's and are no longer, or are again: then the replica is
        another one, which begins again.
        """
        here = self._node_id
        return [
            number
            for number, image in enumerate(old.partitions)
            if here in image.replicas
            and image.incarnation(here) != new.partitions[number].incarnation(here)
        ]

    def _health_changed(self, partition: Partition) -> None:
        self._perhaps_ailing[partition] = None
        if partition.gone is not None:
            self._gone[partition] = None
        if self._replication is not None:
            self._replication.health_changed(partition)
        self._report_offline()

    def _report_offline(self) -> None:
        """Others are to lead what cannot be written or read in full here, and to repair it."""
        if self._cluster is not None:
            ailing = (it.tp for it in self.ailing() if self._partitions.get(it.tp) is it)
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
                    self._reconciliation.add(tp)
            await self._reconciliation.settled()
            self._report_offline()

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
        """What was appended before may be committed again, although no publisher waits for it."""
        if held:
            for partition in self._partitions.values():
                if partition.is_leader and partition.high_watermark < partition.log_end_offset:
                    partition.settle_soon()

    def _gone_logs(self, image: MetadataImage) -> list[LogId]:
        """Those that the checkpoints know and this node keeps no longer. One that was assigned
        later than the image knows may be kept: it is for a later image to say.
        """
        here = {it.log_id for it in self._wanted.values()}
        written = self._checkpoints.written()
        return [it for it in written if it not in here and it.incarnation < image.offset]

    async def _in_worker(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, call)


def _close_all(logs: list[PartitionLog]) -> None:
    for log in logs:
        try:
            log.close()
        except StreamlogError as error:
            logger.error(LOG_NOT_CLOSED, extra={"error": str(error)})
