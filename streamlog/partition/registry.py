"""All partitions of the node: opened, led, reconfigured, closed and deleted as the image says."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from streamlog.config import LogSection
from streamlog.errors import (
    NotLeader,
    PartitionNotFound,
    StorageFailed,
    StreamlogError,
    StreamNotFound,
    Unavailable,
)
from streamlog.log.disk import Disk, OsDisk
from streamlog.log.files import FilePool
from streamlog.log.log import PartitionLog
from streamlog.metadata.image import Image, PartitionImage, StreamImage
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.checkpoints import Checkpoints
from streamlog.partition.flusher import Flusher
from streamlog.partition.folder import Folders
from streamlog.partition.limits import log_settings
from streamlog.partition.opening import Opening, open_log, sweep
from streamlog.partition.owner import Partition, Surroundings
from streamlog.partition.statistics import PartitionStatistics
from streamlog.partition.upkeep import Upkeep

logger = logging.getLogger(__name__)

WORKERS: Final = 2
"""Threads for opening, checking, checkpoints and deletion."""
_OPENED_AT_ONCE: Final = 64
"""Logs that one worker opens in one go."""

T = TypeVar("T")
Opened = tuple[Opening, PartitionLog | StreamlogError]


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
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._metrics = metrics
        self._disk = disk or OsDisk()
        self._files = FilePool(self._disk, settings.open_files_max)
        self._folders = Folders(data_dir, self._disk)
        self._checkpoints = Checkpoints(data_dir, self._disk)
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="partition")
        self._flusher = Flusher(metrics)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, StreamlogError] = {}
        """Partitions whose log could not be opened, and why."""
        self._upkeep = Upkeep(
            self._partitions, self._checkpoints, self._flusher, self._workers, settings
        )
        self._surroundings = Surroundings(
            node_id, settings, self._flusher, self._upkeep, self._workers, metrics
        )
        self._changing = asyncio.Lock()
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
        try:
            await self._in_worker(self._checkpoints.load)
            await self._in_worker(lambda: sweep(self._folders, image, recently_deleted))
            leftovers = await self._in_worker(self._folders.leftovers)
        except OSError as error:
            raise StorageFailed(f"{error.filename}: {error.strerror}") from error
        self._remove_later(leftovers)
        self._tell_missing(image)
        streams = image.streams.values()
        await self._open_missing(
            [here for stream in streams for here in self._replicas_here(stream)]
        )
        await self._upkeep.write_checkpoints()

    async def reconcile(self, old: Image, new: Image) -> None:
        """Be as ``new`` says when this returns. A failing disk puts partitions offline, no more."""
        async with self._changing:
            if self._closed:
                return
            wanted: list[tuple[StreamImage, TopicPartition, PartitionImage]] = []
            for change in new.changes(old):
                if change.new is None:
                    assert change.old is not None, "a change has two sides"
                    await self._delete(change.old)
                else:
                    wanted.extend(self._replicas_here(change.new))
            await self._open_missing(wanted)
            for stream, tp, image in wanted:
                self._follow(stream, tp, image)

    async def run(self) -> None:
        """Checkpoints, retention, interval syncs; ends by raising what no partition can handle."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flusher.run())
            group.create_task(self._upkeep.run())

    async def close(self) -> None:
        """Sync everything, write the checkpoints, close the logs. May be called again."""
        async with self._changing:
            if self._closed:
                return
            self._closed = True
            partitions = list(self._partitions.values())
            for partition in partitions:
                self._flusher.sync(partition)
            for partition in partitions:
                await partition.wait_synced()
            logs = [await partition.close(NotLeader("the node stops")) for partition in partitions]
            await self._upkeep.write_checkpoints()
            await self._in_worker(lambda: _close_all(logs))
            self._partitions.clear()
            self._flusher.close()
            await asyncio.to_thread(self._workers.shutdown)  # what is being removed is removed
            self._files.close()

    def _replicas_here(
        self, stream: StreamImage
    ) -> Iterator[tuple[StreamImage, TopicPartition, PartitionImage]]:
        for number, image in enumerate(stream.partitions):
            if self._node_id in image.replicas:
                yield stream, TopicPartition(stream.name, number), image

    async def _open_missing(
        self, wanted: Iterable[tuple[StreamImage, TopicPartition, PartitionImage]]
    ) -> None:
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
        chunks = [
            openings[i : i + _OPENED_AT_ONCE] for i in range(0, len(openings), _OPENED_AT_ONCE)
        ]
        for done in asyncio.as_completed([self._in_worker(self._opener(c)) for c in chunks]):
            for opening, result in await done:
                if isinstance(result, StreamlogError):
                    self._could_not_open(opening.tp, result)
                    continue
                self._metrics.corrupt_batches.inc(len(result.recovery.damages))
                self._partitions[opening.tp] = Partition(
                    opening.tp,
                    result,
                    configs[opening.tp],
                    self._surroundings,
                    high_watermark=opening.offsets.high_watermark,
                )

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
        logger.error(
            "partition offline",
            extra={"stream": tp.stream, "partition": tp.partition, "error": str(error)},
        )

    def _follow(self, stream: StreamImage, tp: TopicPartition, image: PartitionImage) -> None:
        partition = self._partitions.get(tp)
        if partition is None:
            return
        if partition.config != stream.config:
            partition.configure(stream.config)
        if image.leader == self._node_id and image.leader_epoch > partition.leader_epoch:
            partition.lead(image.leader_epoch, image.isr)
            logger.info(
                "partition led",
                extra={
                    "stream": tp.stream,
                    "partition": tp.partition,
                    "epoch": image.leader_epoch,
                    "offset": partition.log_end_offset,
                },
            )

    async def _delete(self, stream: StreamImage) -> None:
        """Whoever looks finds nothing from now on; the files go in the background."""
        for number in range(len(stream.partitions)):
            tp = TopicPartition(stream.name, number)
            self._offline.pop(tp, None)
            partition = self._partitions.pop(tp, None)
            if partition is not None:
                gone = StreamNotFound(f"stream {stream.name!r} is deleted")
                log = await partition.close(gone)
                log.failure = log.failure or str(gone)  # nobody needs a sync any more
                await self._in_worker(log.close)
            self._upkeep.dropped(tp)
            if self._has_folder(tp):
                await self._discard(tp, stream.stream_id)

    async def _discard(self, tp: TopicPartition, stream_id: UUID) -> None:
        try:
            path = await self._in_worker(lambda: self._folders.discard(tp, stream_id))
        except OSError as error:
            logger.error(
                "partition folder cannot be moved away",
                extra={"stream": tp.stream, "partition": tp.partition, "error": str(error)},
            )
        else:
            self._remove_later([path])

    def _remove_later(self, paths: list[Path]) -> None:
        """What cannot be removed now is tried again at the next start."""

        def remove() -> None:
            for path in paths:
                try:
                    self._folders.remove(path)
                except OSError as error:
                    logger.warning(
                        "deleted folder remains", extra={"file": str(path), "error": str(error)}
                    )

        if paths:
            self._workers.submit(remove)

    def _has_folder(self, tp: TopicPartition) -> bool:
        return self._folders.path(tp).exists()

    def _tell_missing(self, image: Image) -> None:
        """A folder that was there and is gone: its records are lost, and that is said."""
        for stream in image.streams.values():
            for _, tp, _ in self._replicas_here(stream):
                lost = self._checkpoints.get(tp).high_watermark
                if lost and not self._has_folder(tp):
                    logger.error(
                        "partition folder is gone",
                        extra={"stream": tp.stream, "partition": tp.partition, "offset": lost},
                    )

    async def _in_worker(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, call)


def _close_all(logs: list[PartitionLog]) -> None:
    for log in logs:
        try:
            log.close()
        except StreamlogError as error:
            logger.error("log not closed in order", extra={"error": str(error)})
