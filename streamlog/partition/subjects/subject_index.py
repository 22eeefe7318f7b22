"""One partition's index of subjects: made when it is asked for, and following the log."""

import asyncio
import logging
import os
import time
from typing import Final, Protocol

from streamlog.errors import NotLeader, OffsetOutOfRange, StreamlogError
from streamlog.model import TopicPartition
from streamlog.partition.subjects.index_build import Erasing, note_batches, nothing_erased
from streamlog.partition.subjects.index_cache import SubjectIndexCache
from streamlog.partition.tiering.tiered_log import TieredLog
from streamlog.record.compiled.subjects import NOTHING, SEED_BYTES, SubjectIndex
from streamlog.record.offset_set import OffsetSet

logger = logging.getLogger(__name__)

READ_BYTES: Final = 4 * 1024 * 1024
"""Taken in by a worker thread in one go."""
AT_ONCE_BYTES: Final = 1024 * 1024
"""... and on the event loop: what is new, or the whole log if it is no more than this."""

FORGOTTEN_AT_ONCE: Final = 100_000
"""Offsets that have left the log; about 25 ms where each is the last one of its subject."""


class IndexedLog(Protocol):
    """What is needed of ``log.log.PartitionLog``."""

    log_end_offset: int

    @property
    def known_start(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class Subjects:
    """``await know()``, then ask the index until the next ``await``. On the event loop.

    It has all up to the log end, on followers, too; what is committed alone is asked for by the
    ``below`` of each question. Costs nothing until it is asked for.
    """

    __slots__ = (
        "_closed", "_control_end", "_cuts", "_erasing", "_index", "_keeping", "_log", "_reader",
        "_reading", "_replaced", "is_followed", "tp", "used_s",
    )  # fmt: skip

    def __init__(
        self,
        tp: TopicPartition,
        log: IndexedLog,
        reader: TieredLog,
        keeping: SubjectIndexCache,
        *,
        erasing: Erasing = nothing_erased,
    ) -> None:
        self.tp = tp
        self.used_s = 0.0
        self.is_followed = False
        self._log = log
        self._reader = reader
        self._keeping = keeping
        self._erasing = erasing
        self._index: SubjectIndex | None = None
        """None also while it is built."""
        self._reading: asyncio.Lock | None = None
        self._cuts = 0
        """How often the log became another: what was read meanwhile is of no use."""
        self._control_end = NOTHING
        """The end of the last control batch that was read: what it erased is not known any more."""
        self._replaced: list[tuple[int, int]] = []
        """Ranges of which compaction has taken messages since they were read."""
        self._closed = False

    @property
    def size_bytes(self) -> int:
        """Of the index; 0 where there is none."""
        return 0 if self._index is None else self._index.size_bytes

    @property
    def is_ready(self) -> bool:
        """It is there, or is not wanted."""
        return self._index is not None or not self.is_followed

    async def know(self) -> SubjectIndex:
        """The index, of all that is in the log now; whatever it takes.

        Raises Overloaded where there is no memory for it, CorruptBatch where the log is damaged,
        StorageFailed, NotLeader once closed.
        """
        self.used_s = time.monotonic()
        if self._reading is None:
            self._reading = asyncio.Lock()
        if self._index is not None and self._index.next_offset > self._log.log_end_offset:
            self._index.cut(self._log.log_end_offset)
        while (index := self.at_hand()) is None:
            async with self._reading:
                if self._index is None:
                    await self._build()
                else:
                    await self._catch_up(self._index)
        return index

    def at_hand(self, bytes_max: int = AT_ONCE_BYTES) -> SubjectIndex | None:
        """The index, if no more than so many bytes of the log must be read for it.

        Blocks for those. Raises as ``know``.
        """
        if self._closed:
            raise NotLeader(f"{self.tp} is closed")
        log, index = self._log, self._index
        if index is None:
            is_read = self._reading is not None and self._reading.locked()
            if is_read or log.size_bytes > bytes_max:
                return None
            index = self._new()
        elif self._replaced:
            return None
        if index.start_offset < log.known_start and index.next_offset <= log.known_start:
            index = self._index = self._new()  # quicker than to forget each
        elif index.start_offset < log.known_start:
            index.forget_below(min(log.known_start, index.start_offset + FORGOTTEN_AT_ONCE))
            if index.start_offset < log.known_start:
                return None
        if index.next_offset < log.log_end_offset and not self._read_now(index, bytes_max):
            return None
        self._index = index
        return index

    def want(self) -> None:
        """Have the index made soon, and kept as new as the log until ``let_go``."""
        self.used_s = time.monotonic()
        self.is_followed = True
        self._keeping.want(self)

    def let_go(self) -> None:
        """It need not stay any more."""
        self.is_followed = False

    def drop(self, offsets: OffsetSet) -> None:
        """These messages go: they do not count from now on."""
        if self._index is not None:
            for offset in offsets:
                self._index.erase(offset)

    def was_cut(self) -> None:
        """The log is shorter now, or begins again."""
        self._cuts += 1
        index, log = self._index, self._log
        if index is None:
            return
        if log.log_end_offset < max(self._control_end, index.start_offset):
            self.forget()
        else:
            index.cut(log.log_end_offset)

    def was_compacted(self, base_offset: int, next_offset: int) -> None:
        """Records of that range may have gone."""
        if self._index is not None:
            self._replaced.append((base_offset, next_offset))
        else:
            self._cuts += 1

    def forget(self) -> None:
        """Until it is asked for again."""
        self._cuts += 1
        self._index = None
        self._replaced.clear()
        self._control_end = NOTHING
        self._keeping.holds(self, 0)

    def close(self) -> None:
        """For good."""
        self._closed = True
        self.is_followed = False
        self.forget()

    def _new(self) -> SubjectIndex:
        return SubjectIndex(
            os.urandom(SEED_BYTES),
            bytes_max=self._keeping.room_for(self),
            start_offset=self._log.known_start,
        )

    def _read_now(self, index: SubjectIndex, bytes_max: int) -> bool:
        """Whether so many bytes sufficed."""
        left = bytes_max
        try:
            index.bytes_max = self._keeping.room_for(self)
            while index.next_offset < self._log.log_end_offset:
                part = self._reader.read_now(index.next_offset, left, self._end)
                if part is None:
                    return False
                with part:
                    left -= len(part)
                    if left < 0 or not len(part):
                        return False
                    self._note(index, part.read())
        except StreamlogError:
            self.forget()
            raise
        self._keeping.holds(self, index.size_bytes)
        return True

    def _note(self, index: SubjectIndex, data: bytes) -> None:
        control_end = note_batches(index, data, self._erasing)
        self._control_end = max(self._control_end, control_end)

    def _end(self) -> int:
        return self._log.log_end_offset

    async def _build(self) -> None:
        """In worker threads; no other thread looks at it meanwhile."""
        cuts, started = self._cuts, time.perf_counter()
        index = self._new()
        try:
            while cuts == self._cuts and index.next_offset < self._log.log_end_offset:
                index.bytes_max = self._keeping.room_for(self)
                await self._read_part(index, self._erasing)
                if cuts == self._cuts:
                    self._keeping.holds(self, index.size_bytes)
        except BaseException:
            self.forget()
            raise
        if cuts == self._cuts:
            self._index = index
            self._tell(index, time.perf_counter() - started)

    async def _catch_up(self, index: SubjectIndex) -> None:
        """Read elsewhere, and taken in here, a little at a time: others go on using it."""
        replaced, self._replaced = self._replaced, []
        try:
            for base_offset, next_offset in replaced:
                await self._reread(index, base_offset, next_offset)
            while self._index is index and index.start_offset < self._log.known_start:
                start = index.start_offset + FORGOTTEN_AT_ONCE
                index.forget_below(min(start, self._log.known_start))
                await asyncio.sleep(0)
            while self._index is index and index.next_offset < self._log.log_end_offset:
                data = await self._read(index.next_offset, AT_ONCE_BYTES)
                if self._index is index:
                    index.bytes_max = self._keeping.room_for(self)
                    self._note(index, data)
                    self._keeping.holds(self, index.size_bytes)
        except OffsetOutOfRange:  # retention was quicker
            index.forget_below(self._log.known_start)
        except BaseException:
            self.forget()
            raise

    async def _reread(self, index: SubjectIndex, base_offset: int, next_offset: int) -> None:
        """What compaction has left of that range is all that there is."""
        end = min(next_offset, index.next_offset)
        left = SubjectIndex(
            os.urandom(SEED_BYTES),
            bytes_max=self._keeping.room_for(self),
            start_offset=max(base_offset, self._log.known_start),
        )
        while self._index is index and left.next_offset < end:
            await self._read_part(left, nothing_erased)
        if self._index is index:
            left.cut(end)
            index.keep_only(left)

    async def _read_part(self, index: SubjectIndex, erasing: Erasing) -> None:
        """Into an index that no other thread has."""
        try:
            with await self._reader.read(index.next_offset, READ_BYTES, self._end) as part:
                control_end = await asyncio.to_thread(
                    lambda: note_batches(index, part.read(), erasing)
                )
        except OffsetOutOfRange:  # retention was quicker
            index.forget_below(self._log.known_start)
            return
        if erasing is not nothing_erased:
            self._control_end = max(self._control_end, control_end)

    async def _read(self, offset: int, max_bytes: int) -> bytes:
        with await self._reader.read(offset, max_bytes, self._end) as part:
            return await asyncio.to_thread(part.read)

    def _tell(self, index: SubjectIndex, seconds: float) -> None:
        logger.info(
            "subjects read from the log",
            extra={
                "stream": self.tp.stream,
                "partition": self.tp.partition,
                "subjects": len(index),
                "messages": index.message_count,
                "size_bytes": index.size_bytes,
                "ms": round(seconds * 1000),
            },
        )
