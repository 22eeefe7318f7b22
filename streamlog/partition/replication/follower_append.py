"""A follower's append: takes the leader's answer, and truncates where it must. On the event loop."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.condition import CRITICAL, NO_ACTION, Condition
from streamlog.errors import NotLeader, Overloaded, StorageFailed, StorageFull, StreamlogError
from streamlog.model import EpochEnd
from streamlog.partition.partition import Partition
from streamlog.partition.replication.partition_follower import FetchPosition, Truncation
from streamlog.wire.errors import check
from streamlog.wire.fetch import FetchedRecords

logger = logging.getLogger(__name__)

COMMITTED_RECORDS_CUT: Final = Condition(
    "SL-0211",
    "committed records cut off",
    "an unclean election, or a disk that lied, has lost them: see docs/durability.md",
    meaning="The new leader does not have records that were committed. This replica cut them off "
    "to follow it.",
    severity=CRITICAL,
)
LOG_CUT: Final = Condition(
    "SL-0212",
    "log cut where the leader's goes on otherwise",
    NO_ACTION,
    meaning="A follower had records that were never committed, and cut them off to follow the "
    "leader.",
)
DAMAGE_CUT: Final = Condition(
    "SL-0213",
    "damaged records cut off, to be fetched again",
    "look at the disk if it happens again",
    meaning="A follower cut off what was damaged, and fetches it from the leader.",
)

AGAIN_S: Final = 0.5
"""After which a checkpoint that found no room is written again."""


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
    if fetched.error_code == ErrorCode.offset_out_of_range:
        await _cut(partition, asked, following.out_of_range(fetched.log_start_offset), workers)
        return 0
    check(fetched.error_code, str(partition.tp))
    if fetched.diverging is not None:
        cut = following.diverged(EpochEnd(*fetched.diverging))
        await _cut(partition, asked, cut, workers)
        return 0
    size = await _append(partition, asked, answer.records)
    _advance(partition, asked, fetched.high_watermark, fetched.log_start_offset)
    return size


def is_cut(answer: FetchedRecords) -> bool:
    """The leader asks for a cut, which takes its time."""
    fetched = answer.fetched
    return fetched.diverging is not None or fetched.error_code == ErrorCode.offset_out_of_range


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
    if start > partition.log_start_offset:
        partition.begin_later(start)


async def repair(partition: Partition, workers: Executor) -> None:
    """Cut off what is damaged, to fetch it again; nothing where that must wait."""
    await partition.wait_quiet()
    cut = partition.following.repair()
    if cut is not None:
        await _run(partition, cut, workers, DAMAGE_CUT)


async def _cut(
    partition: Partition, asked: FetchPosition, cut: Truncation, workers: Executor
) -> None:
    await partition.wait_quiet()
    if partition.following.fits(asked):
        await _run(partition, cut, workers, LOG_CUT)


async def _run(partition: Partition, cut: Truncation, workers: Executor, why: Condition) -> None:
    logger.warning(
        why,
        extra={
            "stream": partition.tp.stream,
            "partition": partition.tp.partition,
            "epoch": partition.leader_epoch,
            "offset": cut.offset,
            "end": partition.log_end_offset,
        },
    )
    partition.reader.make_way()
    run = partition.following.begin_cut(cut)
    error = await asyncio.shield(_cut_log(partition, cut, run, workers))
    if error is not None:
        raise error


async def _cut_log(
    partition: Partition, cut: Truncation, run: Callable[[], None], workers: Executor
) -> StreamlogError | None:
    """To its end, also where no caller waits for it any more; what has failed. Nothing is said of the
    log before that.

    The checkpoint of log starts rises before any file goes. It falls before the leader is asked for
    what comes after the cut: records below what it says would be removed at the next start.

    A full disk, or a lack of file descriptors, leaves the log as it was: it is cut another time.
    """
    was_damaged = partition.following.is_damaged
    failure: StreamlogError | None = None
    try:
        if cut.whole and cut.offset > partition.log_start_offset:
            await partition.keep_log_start(cut.offset)
        await asyncio.get_running_loop().run_in_executor(workers, run)
    except StreamlogError as error:
        failure = error
    except Exception as error:
        failure = StorageFailed(str(error))
    if failure is None or _passes(failure):
        try:
            await _lower_log_start(partition)
        except StreamlogError as error:
            failure = StorageFailed(str(error))
    _done(partition, was_damaged, failure)
    return failure


def _passes(failure: StreamlogError) -> bool:
    """By itself; the log is as it was."""
    return isinstance(failure, StorageFull | Overloaded)


async def _lower_log_start(partition: Partition) -> None:
    """To where the log starts, cut or not: nothing may be appended before. Raises what passes by
    itself only where the partition closes.
    """
    while True:
        try:
            await partition.keep_log_start()
        except (StorageFull, Overloaded):
            if partition.closed:
                raise
            await asyncio.sleep(AGAIN_S)
        else:
            return


def _done(partition: Partition, was_damaged: bool, failure: StreamlogError | None) -> None:
    is_left = failure is not None and _passes(failure)
    error = StorageFailed(str(failure)) if failure is not None and not is_left else None
    step, lost = partition.following.finish_cut(error)
    partition.carry_out(step)
    if isinstance(failure, StorageFull):
        partition.disk_refused(failure)
    if is_left:
        return
    if was_damaged and error is None:
        partition.repaired()
    elif lost:
        problem = StreamlogError(f"{lost} committed records are not on the new leader")
        logger.error(COMMITTED_RECORDS_CUT, extra=partition.place(problem))
    partition.was_cut()
