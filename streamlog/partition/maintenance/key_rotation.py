"""After a change of keys: data keys that are under another key than the active one get under it.

Once all are, which the metrics tell, the old key is not needed any more. Segments are not written
again, and their records may be read all the while.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from streamlog.condition import CRITICAL, Condition
from streamlog.errors import CorruptFile, StreamlogError
from streamlog.log.encryption.inventory import data_keys
from streamlog.log.encryption.rewrap import Rewrap, is_outdated
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.file_pool import FilePool
from streamlog.metrics import NodeMetrics
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

OLD_KEY_IN_USE: Final = Condition(
    "SL-0232",
    "data key is still under an old key",
    "keep the old key configured; look at the disk",
    meaning="The rotation of encryption keys could not write the data key of a partition under "
    "the new key.",
    severity=CRITICAL,
)

AGAIN_S: Final = 60.0
"""After which what could not be done is tried again."""

T = TypeVar("T")


class _ClosedError(Exception):
    """The node stops: its threads take no more work."""


class KeyRotation:
    """One data key at a time. ``run`` as a task: ends when there is nothing left to be done, or
    soon after ``close``.
    """

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        workers: Executor,
        files: FilePool,
        metrics: NodeMetrics,
        unopened: Callable[[], Iterable[Path]] = tuple,
    ) -> None:
        """``unopened``: folders of partitions that could not be opened. Their keys stay as they
        are, and count.
        """
        self._partitions = partitions
        self._workers = workers
        self._files = files
        self._metrics = metrics
        self._unopened = unopened
        self._closed = False

    def close(self) -> None:
        """Before its workers are shut down; the next start goes on."""
        self._closed = True

    async def run(self) -> None:
        if self._files.keys.active is not None:
            with contextlib.suppress(_ClosedError):
                await self._change_all()

    async def _change_all(self) -> None:
        while True:
            outdated = await self._outdated()
            out_of_reach = await self._in_worker(self._out_of_reach)
            self._metrics.old_data_keys.set(len(outdated) + out_of_reach)
            if not outdated and not out_of_reach:
                break
            done = [await self._is_changed(*each) for each in outdated].count(True)
            if done:
                extra = {"count": done, "key": self._files.keys.active}
                logger.info("data keys are under the active key now", extra=extra)
            else:
                await asyncio.sleep(AGAIN_S)

    async def _outdated(self) -> list[tuple[Partition, Segment]]:
        found = []
        for partition in tuple(self._partitions()):
            keyed = [it for it in partition.state.log.segments if it.key is not None]
            if keyed:
                found += [(partition, it) for it in await self._in_worker(partial(self._of, keyed))]
        return found

    def _out_of_reach(self) -> int:
        """Blocking. A folder that cannot be read counts as one key."""
        count = 0
        for folder in self._unopened():
            try:
                count += sum(it.key_name != self._files.keys.active for it in data_keys(folder))
            except OSError:
                count += 1
        return count

    def _of(self, keyed: list[Segment]) -> list[Segment]:
        """Blocking. A damaged key counts for no partition; one that cannot be read counts."""
        found = []
        for segment in keyed:
            with contextlib.suppress(FileNotFoundError, CorruptFile):
                try:
                    outdated = is_outdated(segment, self._files)
                except FileNotFoundError:
                    raise  # retention was quicker
                except OSError:
                    outdated = True
                if outdated:
                    found.append(segment)
        return found

    async def _is_changed(self, partition: Partition, segment: Segment) -> bool:
        change = Rewrap(segment, self._files)
        try:
            await self._in_worker(change.prepare)
            if partition.closed:  # its folder may be another stream's by now
                change.abandon()
                return False
            if not change.commit(partition.state.log.segments):
                return False
            await self._in_worker(change.finish)
        except FileNotFoundError:
            return False  # the segment has gone meanwhile
        except (StreamlogError, OSError) as error:
            extra = {
                "stream": partition.tp.stream,
                "partition": partition.tp.partition,
                "file": segment.key_path,
                "problem": str(error),
            }
            logger.error(OLD_KEY_IN_USE, extra=extra)
            return False
        return True

    async def _in_worker(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise _ClosedError
        return await asyncio.get_running_loop().run_in_executor(self._workers, call)
