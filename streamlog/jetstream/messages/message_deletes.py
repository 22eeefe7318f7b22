"""Purges and deletions: which messages are meant, and their end. On the node that leads."""

from typing import Final, Protocol

from streamlog.jetstream.errors import ApiRefused, message_delete_failed, sequence_not_found
from streamlog.jetstream.messages.matching import Matching
from streamlog.jetstream.messages.stored_messages import ReadablePartition, message_at
from streamlog.record.offset_set import OffsetSet

ALL: Final = ("", ">")
"""Filters that any subject matches."""
OFFSETS_AT_ONCE: Final = 20_000
"""Noted before others have their turn of the event loop."""


class AwaitedDeletes(Protocol):
    """What is needed of ``partition.deletes.message_deletes.MessageDeletes``."""

    async def erase(self, erased: OffsetSet) -> None: ...


class ShrinkingPartition(ReadablePartition, Protocol):
    """What is needed of ``partition.partition.Partition``."""

    @property
    def erasing(self) -> AwaitedDeletes: ...
    async def purge(self, up_to_offset: int) -> int: ...
    async def shorten(self, up_to_offset: int) -> None: ...


async def purge(
    partition: ShrinkingPartition, *, sequence: int = 0, keep: int = 0, pattern: str = ""
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
        await partition.purge(upper)
    else:
        found = await _matching(partition, pattern, upper)
        if keep:
            found.keep_between(start, _start_of_last(found, keep, upper))
        count = len(found)
        await partition.erasing.erase(found)
    await _forget_front(partition)
    return count


async def delete(partition: ShrinkingPartition, sequence: int) -> None:
    """Have one message go. Returns when that is committed. Raises Refused, as ``purge`` else."""
    offset = sequence - 1
    if offset >= partition.high_watermark:
        raise ApiRefused(message_delete_failed("stream store EOF"))
    if offset < partition.log_start_offset:
        raise ApiRefused(message_delete_failed("no message found"))
    try:
        await message_at(partition, sequence)
    except ApiRefused:
        raise ApiRefused(sequence_not_found(sequence)) from None
    await partition.erasing.erase(OffsetSet([offset]))
    await _forget_front(partition)


async def _forget_front(partition: ShrinkingPartition) -> None:
    """What is erased at the log's start need not be there at all. Nobody need wait for that: the
    replicas have the erasures.
    """
    start = partition.erased.first_absent(partition.log_start_offset)
    await partition.shorten(min(start, partition.high_watermark))


async def _matching(partition: ShrinkingPartition, pattern: str, upper: int) -> OffsetSet:
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
