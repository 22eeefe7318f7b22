"""Folders of partitions that this node keeps no longer: out of the way at once, then removed."""

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

from streamlog.errors import CorruptFile, StreamlogError
from streamlog.log.log import PartitionLog
from streamlog.log.storage.removal import Removal
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.storage.folder import Folders

logger = logging.getLogger(__name__)


class PartitionDelete:
    """Blocking calls are made by the workers."""

    def __init__(self, folders: Folders, workers: ThreadPoolExecutor, removal: Removal) -> None:
        self._folders = folders
        self._workers = workers
        self._removal = removal

    async def delete(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        partition: Partition | None,
        reason: StreamlogError,
        log: PartitionLog | None = None,
        *,
        incarnation: int | None = None,
    ) -> None:
        """Close it, if it is open, and move its folder away. ``reason`` is told to who waits.

        ``log``: where there is a log and no partition. ``incarnation``: of the replica that is
        gone; a folder of a later one stays. None: any.
        """
        if partition is not None:
            log = await partition.close(reason)
            log.failure = log.failure or str(reason)  # no sync is needed any more
        loop = asyncio.get_running_loop()
        self.remove_later(
            await loop.run_in_executor(
                self._workers, self._move_away, tp, stream_id, log, incarnation
            )
        )

    def _move_away(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        log: PartitionLog | None,
        incarnation: int | None,
    ) -> list[Path]:
        """Where the folder is now, if there is one."""
        if log is not None:
            log.close()
        try:
            if not self._folders.path(tp).exists() or self._is_later(tp, incarnation):
                return []
            return [self._folders.discard(tp, stream_id)]
        except OSError as error:
            logger.error(
                "partition folder cannot be moved away",
                extra={"stream": tp.stream, "partition": tp.partition, "error": str(error)},
            )
            return []

    def _is_later(self, tp: TopicPartition, incarnation: int | None) -> bool:
        try:
            mark = self._folders.mark(self._folders.path(tp))
        except CorruptFile:
            return False
        if mark is None or mark.incarnation is None or incarnation is None:
            return False
        return mark.incarnation > incarnation

    def remove_later(self, paths: Iterable[Path]) -> None:
        """What cannot be removed now is tried again at the next start."""
        for path in paths:
            self._removal.remove_folder(str(path))
