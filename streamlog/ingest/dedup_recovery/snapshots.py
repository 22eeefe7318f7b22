"""Snapshots of duplicate windows beside their logs: written now and then, read at a start."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from streamlog.condition import Condition
from streamlog.errors import CorruptFile, StreamlogError
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.admission.duplicate_window import DuplicateWindow
from streamlog.ingest.dedup_recovery.hops import InThread, alone
from streamlog.ingest.dedup_recovery.snapshot_format import FILE_NAME, DedupSnapshot, decode, encode
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

IDS_NOT_USED: Final = Condition(
    "SL-0415",
    "snapshot of message ids is not used",
    "nothing: the log is read for them",
    meaning="A file with the message ids of a partition is damaged.",
)
IDS_LEFT_OUT: Final = Condition(
    "SL-0416",
    "snapshots of message ids are left out",
    "the next start reads them from the logs",
    meaning="The time of the stop did not suffice for the files with message ids.",
)
IDS_NOT_WRITTEN: Final = Condition(
    "SL-0417",
    "snapshot of message ids is not written",
    "the next start reads them from the log",
    meaning="The file with the message ids of a partition could not be written.",
)

LOOK_S: Final = 2.0
"""How often it is looked whether a snapshot has become old."""
BEHIND_BYTES: Final = 64 * 1024 * 1024
"""A start may have to read about that much of a log, which takes a fraction of a second."""
NOTHING_BYTES: Final = 1024 * 1024
"""A start reads the last messages of each log anyway. A snapshot that has no id, and saves it no
more than so much, costs more than it spares: a node may have very many logs with a little in each.
"""
SAVED_AT_ONCE: Final = 64
"""Snapshots that one thread writes in one go at a stop."""
SAVE_S: Final = 6.0
"""After which a stop writes no more of them: the next start reads those logs instead."""
SHARE: Final = 20
"""Writing takes at most one part in so many of the time, however large windows are."""


class KeptSnapshot(NamedTuple):
    """A partition, and a deduplicator that knows all ids of its log while the partition is led in that
    epoch. In any other epoch records may have come that the deduplicator was not told of.
    """

    partition: Partition
    deduplicator: Deduplicator
    leader_epoch: int

    @property
    def is_known(self) -> bool:
        """It still does. A failed append took its ids back, and its records may be in the log."""
        return self.partition.leads(self.leader_epoch) and self.partition.failure is None


class DedupSnapshots:
    """``run`` writes those that are due, ``save`` those that a stop should; ``recall`` reads."""

    def __init__(self, take_grown: Callable[[], Iterable[KeptSnapshot]]) -> None:
        """``take_grown`` tells of those that have grown since it was asked last."""
        self._take_grown = take_grown
        self._saved: dict[TopicPartition, int] = {}
        """Up to which offset the file of each knows; where nothing is known of a file: none."""
        self._writing = asyncio.Lock()
        """``run`` may be writing the same file when ``save`` is called."""

    async def run(self) -> None:
        """A node that is killed has little to read at its next start."""
        while True:
            await asyncio.sleep(LOOK_S)
            started = time.monotonic()
            for kept in self._take_grown():
                if self._bytes_behind(kept) >= BEHIND_BYTES:
                    await self._save(kept)
            await asyncio.sleep((time.monotonic() - started) * SHARE)

    async def save(self, all_kept: Iterable[KeptSnapshot]) -> None:
        """Those of them that are worth it: nothing more will be appended.

        They are not synced. A node that stops syncs its logs, and most often its whole file system,
        after this; and of a snapshot that a power cut has torn, nothing is used.
        """
        due = deque(it for it in all_kept if self._saved.get(it.partition.tp) != _end(it))
        ends = time.monotonic() + SAVE_S
        async with self._writing:
            while due and time.monotonic() < ends:
                await self._save_some([due.popleft() for _ in range(min(SAVED_AT_ONCE, len(due)))])
        if due:
            extra = {"partitions": len(due), "seconds": SAVE_S}
            logger.warning(IDS_LEFT_OUT, extra=extra)

    async def _save_some(self, some: list[KeptSnapshot]) -> None:
        taken = [(kept, it) for kept in some if (it := _taken(kept)) is not None]
        due = [(kept, it) for kept, it in taken if self._is_worth_it(kept, it)]
        if not due:
            return
        encoded = await asyncio.to_thread(lambda: [encode(it) for _, it in due])
        # Where an append failed meanwhile, its ids were taken back.
        known = [(*it, data) for it, data in zip(due, encoded, strict=True) if it[0].is_known]
        for kept, snapshot, error in await asyncio.to_thread(_written, known):
            if error is not None:
                _warn(IDS_NOT_WRITTEN, kept.partition.tp, error)
            else:
                self._saved[kept.partition.tp] = snapshot.known_offset

    def _is_worth_it(self, kept: KeptSnapshot, snapshot: DedupSnapshot) -> bool:
        has_ids = snapshot.last is not None or any(snapshot.slots)
        return has_ids or self._bytes_behind(kept) > NOTHING_BYTES

    async def recall(self, kept: KeptSnapshot, since_ms: int, in_thread: InThread = alone) -> int:
        """Have the deduplicator know what the snapshot does; up to which offset that is all.

        0 where there is none, or none that fits the log and has all ids of that time.
        """
        partition, deduplicator = kept.partition, kept.deduplicator
        try:
            found = await in_thread(partial(_read, partition), partition.size_bytes)
        except (CorruptFile, StreamlogError) as error:
            _warn(IDS_NOT_USED, partition.tp, error)
            return 0
        if found is None:
            return 0
        snapshot, window = found
        if not _fits(snapshot, partition, since_ms):
            return 0
        deduplicator.restore(window, complete_since_ms=snapshot.since_ms)
        self._saved[partition.tp] = snapshot.known_offset
        return snapshot.known_offset

    def _bytes_behind(self, kept: KeptSnapshot) -> int:
        """About so many bytes of the log are not in its snapshot."""
        partition = kept.partition
        start, end = partition.local_log_start_offset, partition.log_end_offset
        behind = end - max(start, self._saved.get(partition.tp, start))
        return partition.size_bytes * behind // max(1, end - start)

    async def _save(self, kept: KeptSnapshot) -> None:
        async with self._writing:
            snapshot = _taken(kept)
            if snapshot is None:
                return
            partition = kept.partition
            data = await asyncio.to_thread(encode, snapshot)
            if not kept.is_known:  # an append failed meanwhile, and its ids were taken back
                return
            try:
                await asyncio.to_thread(partition.write_beside, FILE_NAME, data)
            except StreamlogError as error:
                _warn(IDS_NOT_WRITTEN, partition.tp, error)
            else:
                self._saved[partition.tp] = snapshot.known_offset


def _end(kept: KeptSnapshot) -> int:
    return kept.partition.log_end_offset


def _written(
    known: list[tuple[KeptSnapshot, DedupSnapshot, bytes]],
) -> list[tuple[KeptSnapshot, DedupSnapshot, StreamlogError | None]]:
    """What became of each that is still known: others have been written meanwhile. Blocks."""
    done: list[tuple[KeptSnapshot, DedupSnapshot, StreamlogError | None]] = []
    for kept, snapshot, data in known:
        if not kept.is_known:
            continue
        try:
            kept.partition.write_beside(FILE_NAME, data, durable=False)
        except StreamlogError as error:
            done.append((kept, snapshot, error))
        else:
            done.append((kept, snapshot, None))
    return done


def _taken(kept: KeptSnapshot) -> DedupSnapshot | None:
    """What is known now; None where nothing is in the log, where it was cut, and where the
    deduplicator does not know all of it any more.

    Must not wait anywhere: the ids, the offset and the epoch are of one moment, in which this node
    leads in the epoch that the deduplicator is for. Callers waited for other snapshots before.
    """
    partition, deduplicator = kept.partition, kept.deduplicator
    if not kept.is_known:
        return None
    known_offset, epoch = partition.log_end_offset, partition.last_epoch
    slots, last = deduplicator.known()
    if epoch == NO_EPOCH or (last is not None and last[1] >= known_offset):
        return None
    since_ms = deduplicator.complete_since_ms
    return DedupSnapshot(partition.topic_id, known_offset, epoch, since_ms, last, slots)


def _fits(snapshot: DedupSnapshot, partition: Partition, since_ms: int) -> bool:
    """One epoch of one topic has one log: where it reaches as far, it is the log that the snapshot
    knows. A file may have been written while its stream was deleted and created again.
    """
    if snapshot.topic_id != partition.topic_id:
        return False
    if snapshot.since_ms > since_ms:
        return False  # the window was shorter then
    if not partition.files_start <= snapshot.known_offset <= partition.log_end_offset:
        return False
    epoch, end_offset = partition.epoch_end(snapshot.epoch)
    return epoch == snapshot.epoch and end_offset >= snapshot.known_offset


def _read(partition: Partition) -> tuple[DedupSnapshot, DuplicateWindow] | None:
    """It, and its ids as a window, which takes its time where they are many. Blocks."""
    data = partition.read_beside(FILE_NAME)
    if not data:
        return None
    snapshot, window = decode(data, FILE_NAME), DuplicateWindow(0, ids_max=0)
    window.restore(snapshot.slots, snapshot.last)
    return snapshot, window


def _warn(event: Condition, tp: TopicPartition, error: Exception) -> None:
    extra = {"stream": tp.stream, "partition": tp.partition, "problem": str(error)}
    logger.warning(event, extra=extra)
