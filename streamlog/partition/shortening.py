"""A log loses its beginning: whole segments by retention, any part of it on request."""

import logging
from typing import TYPE_CHECKING

from streamlog.errors import Unavailable
from streamlog.partition.surroundings import Upkeep

if TYPE_CHECKING:
    from streamlog.partition.owner import Partition

logger = logging.getLogger(__name__)


async def forget_below(partition: "Partition", offset: int, upkeep: Upkeep) -> None:
    """Of committed records. Raises NotLeader once closed, StorageFull, StorageFailed."""
    partition.reader.check_open()
    if offset <= partition.log_start_offset:
        return
    await upkeep.persist_log_start(partition, offset)
    partition.reader.check_open()
    try:
        partition.state.log.advance_log_start(offset)
    except Unavailable as error:  # the records are gone; their files go with the next retention
        logger.warning("purged files remain", extra=partition.place(error))
    partition.shortened()


async def free_front(partition: "Partition") -> None:
    """Where a whole segment at the log's start is erased, it begins later."""
    log = partition.state.log
    if not log.segments.sealed():
        return
    start = min(log.erasures.erased.first_absent(log.log_start_offset), partition.high_watermark)
    if start >= log.segments.first.next_offset:
        await partition.purge(start)


def retain(partition: "Partition", now_ms: int) -> None:
    """Let go of whole segments that the limits no longer keep; followers follow in that, but where
    the disk is full: they cannot fetch what would tell them. Raises StreamlogError.
    """
    state = partition.state
    may_delete = partition.is_leader or not (state.has_room or state.cutting or partition.closed)
    if may_delete and partition.failure is None:
        deleted = state.log.apply_retention(now_ms, partition.high_watermark)
        partition.syncing.segments_removed()
        if deleted:
            partition.offsets_changed()
            partition.shortened()
