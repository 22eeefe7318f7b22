"""A follower's append: takes the leader's answer, and truncates where it must. On the event loop."""

import asyncio
import logging
from concurrent.futures import Executor
from typing import Final

from streamlog.errors import NotLeader, StorageFailed, StorageFull
from streamlog.model import EpochEnd
from streamlog.partition.partition import Partition
from streamlog.partition.replication.partition_follower import FetchPosition
from streamlog.partition.replication.truncation import truncate
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import check
from streamlog.wire.fetch import FetchedRecords

logger = logging.getLogger(__name__)

BEGINS_AGAIN: Final = (
    ErrorCode.offset_out_of_range,
    ErrorCode.offset_moved_to_tiered_storage,
)
"""The leader's log has nothing that follows, or the object store has it: the replica begins where that log does.
"""


async def take(
    partition: Partition, asked: FetchPosition, answer: FetchedRecords, workers: Executor
) -> int:
    """Append, cut or go on, as the leader says; how many bytes were appended.

    An answer to what is no longer asked does nothing. Raises what the leader answered, CorruptData
    where its answer cannot be right, NotLeader where it has records of a later leader, StorageFull,
    StorageFailed. What was appended is to be synced before the next fetch.
    """
    following, fetched = partition.following, answer.fetched
    if not following.fits(asked):
        return 0
    if fetched.error_code in BEGINS_AGAIN:
        await truncate(partition, asked, following.out_of_range(fetched.log_start_offset), workers)
        return 0
    check(fetched.error_code, str(partition.tp))
    if fetched.diverging is not None:
        cut = following.diverged(EpochEnd(*fetched.diverging))
        await truncate(partition, asked, cut, workers)
        return 0
    size = await _append(partition, asked, answer.records)
    _advance(partition, asked, fetched.high_watermark, fetched.log_start_offset)
    return size


def is_cut(answer: FetchedRecords) -> bool:
    """The leader asks for a cut, which takes its time."""
    fetched = answer.fetched
    return fetched.diverging is not None or fetched.error_code in BEGINS_AGAIN


async def _append(partition: Partition, asked: FetchPosition, records: memoryview) -> int:
    """In pieces, between which others have their turn."""
    following, position = partition.following, 0
    while position < len(records):
        try:
            size = following.append(records[position:])
        except (StorageFailed, StorageFull) as error:
            partition.disk_refused(error)
            raise
        if not size:
            partition.keep()
            raise NotLeader(f"{partition.tp}: the answer has records of a later leader epoch")
        partition.producing.fetched(records[position : position + size])
        partition.erasing.fetched(records[position : position + size])
        position += size
        partition.grown()
        if position < len(records):
            await asyncio.sleep(0)
            if not following.follows(asked.leader_epoch):
                break
    if position:
        partition.keep()
    return position


def _advance(
    partition: Partition, asked: FetchPosition, high_watermark: int, log_start: int
) -> None:
    following = partition.following
    if not following.follows(asked.leader_epoch):
        return
    partition.carry_out(following.advance(high_watermark))
    start = following.log_start(log_start)
    if start > partition.local_log_start_offset:
        partition.begin_later(start)
