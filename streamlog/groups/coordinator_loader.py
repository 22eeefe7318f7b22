"""Reads a partition of ``__consumer_offsets`` for its new coordinator, off the event loop."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from streamlog.condition import ANOTHER_REPLICA, CRITICAL, Condition
from streamlog.errors import OffsetOutOfRange, StreamlogError
from streamlog.groups.group import Group
from streamlog.groups.offsets_topic import Shard
from streamlog.groups.replay import Replay
from streamlog.log.segment.file_slice import FileSlice
from streamlog.partition.internal_partition import InternalPartition, until

logger = logging.getLogger(__name__)

GROUPS_NOT_READ: Final = Condition(
    "SL-0507",
    "groups cannot be read from the log",
    ANOTHER_REPLICA,
    meaning="The coordinator cannot read the committed offsets of its groups. These groups wait.",
    severity=CRITICAL,
)

LOAD_BYTES: Final = 256 * 1024
"""Read and decoded in a thread at once; others have their turn after each."""
LOADS_AT_ONCE: Final = 2
RETRY_S: Final = 1.0
"""After the log could not be read; nothing may be left out of it, or an offset would go back."""


class LoadedGroups(NamedTuple):
    """What the log of a partition says."""

    groups: list[Group]
    share_configs: Mapping[str, Mapping[str, str]]
    """Of share groups, by group."""


class CoordinatorLoader:
    """Loads shards, a few at a time (Kafka: CoordinatorLoader)."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(LOADS_AT_ONCE)

    async def load(self, shard: Shard) -> LoadedGroups | None:
        """Its groups; None where it was no leader's any more."""
        await _until_known(shard)
        async with self._room:
            started = time.perf_counter()
            while shard.leads:
                try:
                    replay = await _read(shard)
                except StreamlogError as error:
                    extra = {**_place(shard.partition), "error": str(error)}
                    logger.error(GROUPS_NOT_READ, extra=extra)
                    await asyncio.sleep(RETRY_S)
                    continue
                if replay is not None:
                    return await _built(shard, replay, started)
        return None


async def _until_known(shard: Shard) -> None:
    """What the leaders before have committed shows when the followers have fetched (KIP-207)."""
    partition = shard.partition
    await until(partition, lambda: not shard.leads or partition.high_watermark_known)


async def _read(shard: Shard) -> Replay | None:
    """None where the shard was no leader's any more. Raises StreamlogError."""
    partition, replay = shard.partition, Replay()
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


def _feed(replay: Replay, part: FileSlice) -> None:
    replay.feed(part.read())


async def _built(shard: Shard, replay: Replay, started: float) -> LoadedGroups:
    groups = await asyncio.to_thread(replay.groups)
    logger.info(
        "groups loaded",
        extra={
            **_place(shard.partition),
            "groups": len(groups),
            "records": replay.records,
            "ms": round((time.perf_counter() - started) * 1000),
        },
    )
    return LoadedGroups(groups, replay.share_configs)


def _place(partition: InternalPartition) -> dict[str, object]:
    return {"stream": partition.tp.stream, "partition": partition.tp.partition,
            "epoch": partition.leader_epoch}  # fmt: skip
