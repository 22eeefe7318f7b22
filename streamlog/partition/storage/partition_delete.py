"""Folders of partitions that this node keeps no longer: out of the way at once, then removed."""

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from streamlog.condition import CORRECT_THEN_RESTART, CRITICAL, Condition
from streamlog.errors import CorruptFile, StreamlogError
from streamlog.log.log import PartitionLog
from streamlog.log.storage.removal import Removal
from streamlog.model import LogId
from streamlog.partition.partition import Partition
from streamlog.partition.storage.folder import Folders

logger = logging.getLogger(__name__)

FOLDER_NOT_MOVED: Final = Condition(
    "SL-0207",
    "partition folder cannot be moved away",
    CORRECT_THEN_RESTART,
    meaning="A deleted partition still has its folder in its place.",
    severity=CRITICAL,
)


class PartitionDelete:
    """Blocking calls are made by the workers."""

    def __init__(self, folders: Folders, workers: ThreadPoolExecutor, removal: Removal) -> None:
        self._folders = folders
        self._workers = workers
        self._removal = removal

    async def delete(
        self,
        log_id: LogId,
        partition: Partition | None,
        reason: StreamlogError,
        log: PartitionLog | None = None,
        *,
        keep_later: bool = False,
    ) -> None:
        """Close it, if it is open, and move its folder away. ``reason`` is the error of requests
        that wait.

        ``log``: where there is a log and no partition. ``keep_later``: the folder of a replica that
        was assigned later stays.
        """
        if partition is not None:
            log = await partition.close(reason)
            log.failure = log.failure or str(reason)  # no sync is needed any more
        loop = asyncio.get_running_loop()
        self.remove_later(
            await loop.run_in_executor(self._workers, self._move_away, log_id, log, keep_later)
        )

    def _move_away(self, log_id: LogId, log: PartitionLog | None, keep_later: bool) -> list[Path]:
        """Where the folder is now, if there is one."""
        tp = log_id.tp
        if log is not None:
            log.close()
        try:
            if not self._folders.path(tp).exists() or (keep_later and self._is_later(log_id)):
                return []
            return [self._folders.discard(tp, log_id.stream_id)]
        except OSError as error:
            logger.error(
                FOLDER_NOT_MOVED,
                extra={"stream": tp.stream, "partition": tp.partition, "error": str(error)},
            )
            return []

    def _is_later(self, log_id: LogId) -> bool:
        try:
            mark = self._folders.mark(self._folders.path(log_id.tp))
        except CorruptFile:
            return False
        if mark is None or mark.incarnation is None:
            return False
        return mark.incarnation > log_id.incarnation

    def remove_later(self, paths: Iterable[Path]) -> None:
        """What cannot be removed now is tried again at the next start."""
        for path in paths:
            self._removal.remove_folder(str(path))
