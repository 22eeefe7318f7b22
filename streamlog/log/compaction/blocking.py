"""A whole cleaning in one go, for who has no event loop to keep free."""

from streamlog.log.compaction.cleaner import Cleaning, Terms
from streamlog.log.compaction.cleaning_plan import standing
from streamlog.log.log import PartitionLog
from streamlog.log.segment.time_search import latest_time
from streamlog.log.settings import CompactionSettings
from streamlog.log.storage.disk import Disk
from streamlog.log.storage.file_pool import FilePool


def clean(
    log: PartitionLog, terms: Terms, *, upper_offset: int, disk: Disk, pool: FilePool
) -> Cleaning:
    """Whatever can be cleaned below ``upper_offset`` is, worth it or not. Raises CorruptBatch,
    Unavailable.
    """
    found = standing(
        log.segments.sealed(),
        log.settings.compaction or CompactionSettings(),
        first_dirty_offset=log.first_dirty_offset,
        upper_offset=min(upper_offset, log.recovery_point),
        now_ms=terms.now_ms,
        latest_time=latest_time,
    )
    cleaning = Cleaning(log, found.segments, terms, disk=disk, pool=pool)
    cleaning.note_keys()
    while cleaning.left:
        swap = cleaning.clean()
        if swap is not None and swap.run():
            cleaning.swapped(swap)
    cleaning.finish()
    return cleaning
