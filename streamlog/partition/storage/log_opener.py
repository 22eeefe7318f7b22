"""Logs are opened by worker threads, those that are asked for in one turn together."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, Final

from streamlog.config import LogSection
from streamlog.errors import StreamlogError, Unavailable
from streamlog.log.log import PartitionLog
from streamlog.log.recovery.recovery import DeferredSyncs
from streamlog.log.storage.disk import Disk, storage_error
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.storage.shared_sync import SharedSync
from streamlog.model import TopicPartition
from streamlog.partition.maintenance.scheduled_tasks import ScheduledTasks
from streamlog.partition.storage.checkpoints import Checkpoints
from streamlog.partition.storage.folder import Folders
from streamlog.partition.storage.open_log import LocalReplica, LogOpening, open_log
from streamlog.partition.stream_limits import log_settings

WORKERS: Final = 8
"""Threads for opening, checking, checkpoints and deletion. They wait for the disk, most of all, to
which several syncs at once are little more than one."""
_OPENED_AT_ONCE: Final = 256
"""Logs that one worker opens in one go, and syncs at once."""

Opened = tuple[LogOpening, PartitionLog | StreamlogError]
Told = Callable[[LocalReplica, Opened], None]


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
    ) -> None:
        """``power_lost``: before this run, see ``log``; ``spawn`` runs what nobody waits for."""
        self._folders = folders
        self._checkpoints = checkpoints
        self._upkeep = upkeep
        self._workers = workers
        self._settings = settings
        self._disk = disk
        self._files = files
        self._power_lost = power_lost
        self._spawn = spawn
        self.lost: set[TopicPartition] = set()
        """Their folders are gone, and were there when the node ran last."""
        self._shared_lock = threading.Lock()
        self._asked: list[tuple[LocalReplica, asyncio.Future[Opened]]] = []

    async def open(self, here: LocalReplica) -> Opened:
        """The log, or why it cannot be opened. Others that are asked for by now go with it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Opened] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._launch)
        self._asked.append((here, answer))
        return await answer

    async def open_all(
        self, wanted: Sequence[LocalReplica], told: Told, *, shared: SharedSync | None = None
    ) -> None:
        """``told`` of each as soon as it is open or has failed, in any order. ``shared``: at a
        start, where that has synced the file system already, so that logs need no syncs of their
        own.
        """
        here_of = {here.tp: here for here in wanted}
        failed = await self._forget_strangers(wanted)
        for here, error in failed:
            told(here, (self._opening(here), error))
        skipped = {here.tp for here, _ in failed}
        openings = [self._opening(here) for here in wanted if here.tp not in skipped]
        size = min(_OPENED_AT_ONCE, -(-len(openings) // WORKERS) or 1)
        chunks = [openings[i : i + size] for i in range(0, len(openings), size)]
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(self._workers, self._open_some, it, shared) for it in chunks]
        for done in asyncio.as_completed(jobs):
            for opened in await done:
                told(here_of[opened[0].tp], opened)

    def _launch(self) -> None:
        asked, self._asked = self._asked, []
        answers = {here.tp: answer for here, answer in asked}

        def told(here: LocalReplica, opened: Opened) -> None:
            if not answers[here.tp].done():
                answers[here.tp].set_result(opened)

        self._spawn(self.open_all([here for here, _ in asked], told))

    def _opening(self, here: LocalReplica) -> LogOpening:
        return LogOpening(
            here.tp,
            here.stream.stream_id,
            here.incarnation,
            replace(
                log_settings(here.stream.config, self._settings),
                encrypts_all=not here.stream.once_clear,
            ),
            self._checkpoints.get(here.tp),
        )

    async def _forget_strangers(
        self, wanted: Sequence[LocalReplica]
    ) -> list[tuple[LocalReplica, StreamlogError]]:
        """Those without a folder, of which a checkpoint still speaks and cannot be rewritten."""
        new = [here for here in wanted if not self._folders.path(here.tp).exists()]
        try:
            await self._upkeep.forget_strangers([here.tp for here in new], lost=self.lost)
        except Unavailable as error:
            return [(here, error) for here in new]
        return []

    def _open_some(self, openings: list[LogOpening], shared: SharedSync | None) -> list[Opened]:
        syncs = None if shared is None else DeferredSyncs()
        opened: list[Opened] = []
        for opening in openings:
            try:
                log = open_log(
                    opening,
                    self._folders,
                    self._disk,
                    self._files,
                    syncs,
                    power_lost=self._power_lost,
                )
                opened.append((opening, log))
            except StreamlogError as error:
                opened.append((opening, error))
        if syncs is None or shared is None:
            return opened
        failed = syncs.run(self._disk, self._files, partial(self._sync_all, shared))
        return [self._unless_failed(it, failed) for it in opened]

    def _sync_all(self, shared: SharedSync) -> bool:
        with self._shared_lock:
            return shared.sync()

    def _unless_failed(self, opened: Opened, failed: Mapping[str, OSError]) -> Opened:
        opening, log = opened
        path = str(self._folders.path(opening.tp))
        error = failed.get(path)
        if error is None or isinstance(log, StreamlogError):
            return opened
        unavailable = storage_error(error, error.filename or path)
        log.fail(str(unavailable))
        log.close()
        return opening, unavailable
