"""Reads a partition of an internal stream for its new coordinator, off the event loop."""

import asyncio
import logging
import time
from collections.abc import Callable, Sized
from typing import Any, Final, Generic, Protocol, TypeVar

from streamlog.condition import Condition
from streamlog.coordination.shard import Shard
from streamlog.errors import OffsetOutOfRange, StreamlogError
from streamlog.log.segment.file_slice import FileSlice
from streamlog.partition.internal_partition import InternalPartition, until

logger = logging.getLogger(__name__)

LOAD_BYTES: Final = 256 * 1024
"""Read and decoded in a thread at once; others have their turn after each."""
LOADS_AT_ONCE: Final = 2
RETRY_S: Final = 1.0
"""After the log could not be read; nothing may be left out of it, or what was kept would go back."""

T = TypeVar("T", bound=Sized)
T_co = TypeVar("T_co", bound=Sized, covariant=True)


class Replayed(Protocol[T_co]):
    """From the log to what the coordinator keeps. May be used in any one thread."""

    next_offset: int
    """All below has been read."""
    records: int

    def feed(self, data: bytes | memoryview) -> None:
        """Whole batches, back to back. Raises CorruptBatch."""
        ...

    def built(self) -> T_co:
        """What was kept when the last record was written."""
        ...


class CoordinatorLoader(Generic[T]):
    """Loads shards, a few at a time (Kafka: CoordinatorLoader)."""

    def __init__(self, replay: Callable[[], Replayed[T]], what: str, unreadable: Condition) -> None:
        """``what`` is kept, as the log names it; ``unreadable``: what it says while it cannot be read."""
        self._replay = replay
        self._what = what
        self._unreadable = unreadable
        self._room = asyncio.Semaphore(LOADS_AT_ONCE)

    async def load(self, shard: Shard[Any]) -> T | None:
        """What is kept; None where the shard was no leader's any more."""
        await _until_known(shard)
        async with self._room:
            started = time.perf_counter()
            while shard.leads:
                try:
                    replay = await self._read(shard)
                except StreamlogError as error:
                    extra = {**_place(shard.partition), "error": str(error)}
                    logger.error(self._unreadable, extra=extra)
                    await asyncio.sleep(RETRY_S)
                    continue
                if replay is not None:
                    return await self._built(shard, replay, started)
        return None

    async def _read(self, shard: Shard[Any]) -> Replayed[T] | None:
        """None where the shard was no leader's any more. Raises StreamlogError."""
        partition, replay = shard.partition, self._replay()
        end = partition.high_watermark
        replay.next_offset = partition.log_start_offset
        while replay.next_offset < end and shard.leads:
            before = replay.next_offset
            try:
                part = await partition.read(before, LOAD_BYTES)
            except OffsetOutOfRange:  # it begins later by now
                replay.next_offset = max(before, partition.log_start_offset)
                continue
            try:
                await asyncio.to_thread(_feed, replay, part)
            finally:
                part.close()
            if replay.next_offset == before:
                break
        return replay if shard.leads else None

    async def _built(self, shard: Shard[Any], replay: Replayed[T], started: float) -> T:
        built = await asyncio.to_thread(replay.built)
        logger.info(
            f"{self._what} loaded",
            extra={
                **_place(shard.partition),
                self._what: len(built),
                "records": replay.records,
                "ms": round((time.perf_counter() - started) * 1000),
            },
        )
        return built


async def _until_known(shard: Shard[Any]) -> None:
    """What the leaders before have committed shows when the followers have fetched (KIP-207)."""
    partition = shard.partition
    await until(partition, lambda: not shard.leads or partition.high_watermark_known)


def _feed(replay: Replayed[Any], part: FileSlice) -> None:
    replay.feed(part.read())


def _place(partition: InternalPartition) -> dict[str, object]:
    return {"stream": partition.tp.stream, "partition": partition.tp.partition,
            "epoch": partition.leader_epoch}  # fmt: skip
