"""From folders to open logs, in worker threads: those that are asked for in one turn together."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.condition import ANOTHER_REPLICA, CRITICAL, Condition
from streamlog.config import LogSection
from streamlog.errors import StreamlogError, Unavailable
from streamlog.log import control_load
from streamlog.log.encryption.key_file import scope_of
from streamlog.log.log import PartitionLog
from streamlog.log.recovery.recovery import DeferredSyncs
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import Disk, storage_error
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.storage.shared_sync import SharedSync
from streamlog.metadata.image.metadata_image import PartitionImage, StreamImage
from streamlog.model import LogId, NodeId, TopicPartition
from streamlog.partition.maintenance.scheduled_tasks import ScheduledTasks
from streamlog.partition.storage.checkpoints import NOTHING, Checkpoints, Offsets
from streamlog.partition.storage.folder import Folders
from streamlog.partition.stream_limits import log_settings

logger = logging.getLogger(__name__)

PARTITION_FOLDER_GONE: Final = Condition(
    "SL-0206",
    "partition folder is gone",
    "mount the disk that had it, and restart; else it is fetched from the other replicas",
    meaning="A replica was in sync, and its folder is not there at this start.",
    severity=CRITICAL,
)
COMMITTED_RECORDS_LOST: Final = Condition(
    "SL-0210",
    "committed records lost",
    ANOTHER_REPLICA,
    meaning="The log ends below what was committed: this replica lost records that were "
    "acknowledged.",
    severity=CRITICAL,
)

WORKERS: Final = 8
"""Threads for opening, checking, checkpoints and deletion. They wait for the disk, most of all, to
which several syncs at once are little more than one."""
_OPENED_AT_ONCE: Final = 256
"""Logs that one worker opens in one go, and syncs at once."""
_OPENED_TOGETHER: Final = 16
"""At least so many of more than there are workers: new ones of one go share a sync of the file system."""


class LocalReplica(NamedTuple):
    """A partition that this node is to keep."""

    stream: StreamImage
    tp: TopicPartition
    image: PartitionImage
    incarnation: int
    """Of the replica."""

    @property
    def log_id(self) -> LogId:
        return LogId(self.tp, self.stream.stream_id, self.incarnation)


def replicas_here(stream: StreamImage, node_id: NodeId) -> Iterator[LocalReplica]:
    """Those of this stream that the node is to keep."""
    for number, image in enumerate(stream.partitions):
        if node_id in image.replicas:
            tp = TopicPartition(stream.name, number)
            yield LocalReplica(stream, tp, image, image.incarnation(node_id))


@dataclass(frozen=True, slots=True)
class LogOpening:
    """A log to be opened."""

    tp: TopicPartition
    stream_id: UUID
    incarnation: int
    """Of the replica."""
    settings: LogSettings
    offsets: Offsets
    """What the checkpoints say."""
    first_offset: int = 0
    """The log begins there, or after it."""

    @property
    def log_id(self) -> LogId:
        return LogId(self.tp, self.stream_id, self.incarnation)

    @property
    def may_be_new(self) -> bool:
        """Nothing is known of it: it is new, if it has no folder."""
        return self.offsets == NOTHING and not self.first_offset


Opened = tuple[LogOpening, PartitionLog | StreamlogError]
Wanted = tuple[LocalReplica, Callable[[Opened], None]]
"""What is called as soon as the log is open, or has failed."""


class LogOpener:
    """``open`` one of many, which go together, or ``open_all``."""

    def __init__(
        self,
        folders: Folders,
        checkpoints: Checkpoints,
        upkeep: ScheduledTasks,
        workers: Executor,
        settings: LogSection,
        *,
        disk: Disk,
        files: FilePool,
        power_lost: bool,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        shared: Callable[[], SharedSync | None] = lambda: None,
    ) -> None:
        """``power_lost``: before this run, see ``log``; ``spawn`` runs what no caller waits for.
        ``shared``: for new logs, once the node runs; no one else may use it.
        """
        self._shared = shared
        self._folders = folders
        self._checkpoints = checkpoints
        self._upkeep = upkeep
        self._workers = workers
        self._settings = settings
        self._disk = disk
        self._files = files
        self._power_lost = power_lost
        self._spawn = spawn
        self._shared_lock = threading.Lock()
        self._wanted: list[Wanted] = []
        """In this turn of the event loop; empty until one is."""

    async def open(self, here: LocalReplica) -> Opened:
        """The log, or why it cannot be opened. Others that are asked for by now go with it."""
        answer: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        if not self._wanted:
            self._spawn(self.open_all(self._wanted))
        self._wanted.append((here, partial(_tell, answer)))
        return await answer

    async def open_all(self, wanted: Sequence[Wanted], *, shared: SharedSync | None = None) -> None:
        """In any order. ``shared``: at a start, where that has synced the file system already, so
        that logs need no syncs of their own.
        """
        if wanted is self._wanted:
            self._wanted = []  # what is asked for from now on goes together, too
        told = {here.tp: opened for here, opened in wanted}
        failed = await self._begin_again([here for here, _ in wanted])
        for here, error in failed:
            told[here.tp]((self._opening(here), error))
        skipped = {here.tp for here, _ in failed}
        openings = [self._opening(here) for here, _ in wanted if here.tp not in skipped]
        least = _OPENED_TOGETHER if len(openings) > WORKERS else 1
        size = min(_OPENED_AT_ONCE, max(least, -(-len(openings) // WORKERS)))
        chunks = [openings[i : i + size] for i in range(0, len(openings), size)]
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(self._workers, self._open_some, it, shared) for it in chunks]
        for done in asyncio.as_completed(jobs):
            for opened in await done:
                told[opened[0].tp](opened)

    def _opening(self, here: LocalReplica) -> LogOpening:
        return LogOpening(
            here.tp,
            here.stream.stream_id,
            here.incarnation,
            replace(
                log_settings(here.stream.config, self._settings),
                encrypts_all=not here.stream.once_clear,
            ),
            self._checkpoints.get(here.log_id),
            here.stream.config.first_offset,
        )

    async def _begin_again(
        self, wanted: Sequence[LocalReplica]
    ) -> list[tuple[LocalReplica, StreamlogError]]:
        """Those whose folders are gone: their records are lost, and that is logged. Returned where
        that cannot be noted, or where it is not known.
        """
        known = [it for it in wanted if self._checkpoints.get(it.log_id) != NOTHING]
        failed: list[tuple[LocalReplica, StreamlogError]] = []
        gone: list[LocalReplica] = []
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._workers, self._folders_there, known)
        for here, is_there in zip(known, found, strict=True):
            if isinstance(is_there, StreamlogError):
                failed.append((here, is_there))
            elif not is_there:
                gone.append(here)
                lost = self._checkpoints.get(here.log_id).kept_end
                extra = {"stream": here.tp.stream, "partition": here.tp.partition, "offset": lost}
                if lost:
                    logger.error(PARTITION_FOLDER_GONE, extra=extra)
        try:
            await self._upkeep.begin_again([here.log_id for here in gone])
        except Unavailable as error:
            failed += [(here, error) for here in gone]
        return failed

    def _folders_there(self, wanted: Sequence[LocalReplica]) -> list[bool | StreamlogError]:
        """Whether each has one, or why that is not known: what cannot be read is not gone."""
        return [self._folder_is_there(here.tp) for here in wanted]

    def _folder_is_there(self, tp: TopicPartition) -> bool | StreamlogError:
        path = self._folders.path(tp)
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            return storage_error(error, str(path))
        return True

    def _open_some(self, openings: list[LogOpening], shared: SharedSync | None) -> list[Opened]:
        if shared is not None:
            return self._open_known(openings, shared)
        made = self._folders.make_new(
            (it.log_id for it in openings if it.may_be_new), self._sync_new_folders
        )
        known = [it for it in openings if it.log_id not in made]
        new = [self._begin(it, made[it.log_id]) for it in openings if it.log_id in made]
        failed = self._folders.sync_new(
            [it.log_id for it, log in new if isinstance(log, PartitionLog)], self._sync_new_folders
        )
        return [
            *(self._unless_failed(it, failed.get(it[0].log_id)) for it in new),
            *self._open_known(known, None),
        ]

    def _begin(self, opening: LogOpening, error: OSError | None) -> Opened:
        """``error``: why its folder could not be made."""
        path = self._folders.path(opening.tp)
        if error is not None:
            return opening, storage_error(error, str(path))
        try:
            return opening, PartitionLog.open(
                path,
                opening.settings,
                disk=self._disk,
                files=self._files,
                key_scope=scope_of(opening.stream_id, opening.tp.partition),
                is_new=True,
            )
        except StreamlogError as refused:
            return opening, refused

    def _sync_new_folders(self, count: int) -> bool:
        """In place of syncs of so many files and folders."""
        shared = self._shared()
        if shared is None or not shared.is_advisable:
            return False
        with self._shared_lock:
            return shared.sync(others=count)

    def _open_known(self, openings: list[LogOpening], shared: SharedSync | None) -> list[Opened]:
        syncs = None if shared is None else DeferredSyncs()
        opened: list[Opened] = []
        for opening in openings:
            tp, known, path = opening.tp, opening.offsets, self._folders.path(opening.tp)
            try:
                self._folders.claim(tp, opening.stream_id, opening.incarnation)
                log = PartitionLog.open(
                    path,
                    opening.settings,
                    disk=self._disk,
                    files=self._files,
                    log_start_offset=max(known.log_start, opening.first_offset),
                    recovery_point=known.recovery_point,
                    high_watermark=known.high_watermark,
                    first_dirty_offset=known.first_dirty,
                    syncs=syncs,
                    power_lost=self._power_lost,
                    key_scope=scope_of(opening.stream_id, tp.partition),
                )
                limit = log.recovery_limit.bound(known.recovery_point)
                log.erasures, log.transactions = control_load.load(
                    log,
                    known_offset=limit,
                    erasures_end=known.erasures_end,
                    transactions_end=known.transactions_end,
                )
            except StreamlogError as error:
                opened.append((opening, error))
                continue
            except OSError as error:
                opened.append((opening, storage_error(error, str(path))))
                continue
            opened.append((opening, log))
            if known.high_watermark > log.log_end_offset:
                extra = {"stream": tp.stream, "partition": tp.partition}
                extra |= {"offset": log.log_end_offset, "high_watermark": known.high_watermark}
                logger.error(COMMITTED_RECORDS_LOST, extra=extra)
        if syncs is None or shared is None:
            return opened
        failed = syncs.run(self._disk, self._files, partial(self._sync_all, shared))
        return [
            self._unless_failed(it, failed.get(str(self._folders.path(it[0].tp)))) for it in opened
        ]

    def _sync_all(self, shared: SharedSync) -> bool:
        with self._shared_lock:
            return shared.sync()

    def _unless_failed(self, opened: Opened, error: OSError | None) -> Opened:
        opening, log = opened
        if error is None or isinstance(log, StreamlogError):
            return opened
        path = str(self._folders.path(opening.tp))
        unavailable = storage_error(error, error.filename or path)
        log.fail(str(unavailable))
        log.close()
        return opening, unavailable


def _tell(answer: asyncio.Future[Opened], opened: Opened) -> None:
    if not answer.done():  # the task that asked may have been cancelled
        answer.set_result(opened)
