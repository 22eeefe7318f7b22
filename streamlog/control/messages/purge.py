"""Purge and deletion of messages of a partition that this node leads: which ones are meant, and their end."""

from typing import Final

from streamlog.control.messages.matching import Matching
from streamlog.control.messages.stored_messages import message_at
from streamlog.errors import NotLeader
from streamlog.partition.deletes.replicated import COMMIT_S
from streamlog.partition.partition import Partition
from streamlog.record.offset_set import OffsetSet

ALL: Final = ("", ">")
"""Filters that any subject matches."""


OFFSETS_AT_ONCE: Final = 20_000
"""Noted before others have their turn of the event loop."""


async def purge(
    partition: Partition, *, sequence: int = 0, keep: int = 0, pattern: str = ""
) -> int:
    """Have messages go whose subjects match, those before ``sequence`` (0: all), or all but the
    last ``keep``; how many they were. Returns when that is committed.

    Raises NotLeader, NotEnoughReplicas, StorageFull, ...
    """
    start, end = partition.log_start_offset, partition.high_watermark
    upper = min(sequence - 1, end) if sequence else end
    erased = partition.erased
    if pattern in ALL:
        if keep:
            upper = erased.start_of_last_absent(keep, start, end)
        count = max(0, upper - start) - erased.count(start, upper)
        await cut(partition, upper)
    else:
        found = await _matching(partition, pattern, upper)
        if keep:
            found.keep_between(start, _start_of_last(found, keep, upper))
        count = len(found)
        await partition.erasing.erase(found)
        # Nothing was looked for below the log start. What is there may be so by a purge or a limit of which the other
        # replicas have not heard, and one of them may lead next.
        await partition.purge(partition.log_start_offset)
    await _forget_front(partition)
    return count


async def cut(partition: Partition, upper: int, *, timeout_s: float = COMMIT_S) -> None:
    """Have all below ``upper`` go; what the log says of its sources is said again first, above that. Raises
    NotLeader, too, where that is not known yet.
    """
    if partition.places is not None:
        await partition.places.renew()
    # The feed may have ended since, and the next one may look for the places yet: then nothing goes, and a purge that
    # was acknowledged would have done nothing.
    if partition.config.sources and partition.latest_start < upper:
        raise NotLeader(f"{partition.tp}: how far its sources have come is not known yet")
    await partition.purge(upper, timeout_s=timeout_s)


async def delete(partition: Partition, sequence: int) -> None:
    """Have one message go. Returns when that is committed. Raises MessageNotFound, as ``purge`` else."""
    await message_at(partition, sequence)
    await partition.erasing.erase(OffsetSet([sequence - 1]))
    await _forget_front(partition)


async def _forget_front(partition: Partition) -> None:
    """What is erased at the log's start need not be there at all. No client need wait for that: the
    replicas have the erasures.
    """
    await partition.shorten(partition.erased.first_absent(partition.log_start_offset))


async def _matching(partition: Partition, pattern: str, upper: int) -> OffsetSet:
    """The offsets of messages below ``upper`` that are there."""
    matching, found = Matching(partition.subjects, pattern, upper), OffsetSet()
    start = partition.log_start_offset
    while start < upper:
        offsets, start = await matching.offsets(start, upper, limit=OFFSETS_AT_ONCE)
        for offset in offsets:
            found.add(offset)
    found.keep_between(partition.log_start_offset, upper)
    found.remove_all(partition.erased)
    return found


def _start_of_last(found: OffsetSet, keep: int, upper: int) -> int:
    """From where on there are at most ``keep`` of them below ``upper``."""
    low, high = 0, upper
    while low < high:
        middle = (low + high) // 2
        if found.count(middle, upper) <= keep:
            high = middle
        else:
            low = middle + 1
    return low
