"""A follower truncates its log, which diverges from its leader's or is damaged. On the event loop.

``replication.divergence`` decides at which offset, ``partition_follower`` what that means for this
partition; here it is done: readers make way, a worker thread cuts the files, and the checkpoint of log
starts follows in the order that no crash can turn into a loss.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from streamlog.condition import CRITICAL, NO_ACTION, Condition
from streamlog.errors import Overloaded, StorageFailed, StorageFull, StreamlogError
from streamlog.metadata.image.image_types import TierImage
from streamlog.partition.partition import Partition
from streamlog.partition.replication.partition_follower import FetchPosition, Truncation

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

STORE_TAKEN: Final = Condition(
    "SL-0238",
    "log begins where the object store's copy ends",
    NO_ACTION,
    meaning="A leader that was elected unclean lacked records that the object store has. The partition goes on behind "
    "these: readers find them in the store.",
)

AGAIN_S: Final = 0.5
"""After which a checkpoint that found no room is written again."""


async def repair(partition: Partition, workers: Executor) -> None:
    """Cut off what is damaged, to fetch it again; nothing where that must wait."""
    await partition.wait_quiet()
    cut = partition.following.repair()
    if cut is not None:
        await _truncate(partition, cut, workers, DAMAGE_CUT)


async def truncate(
    partition: Partition, asked: FetchPosition, cut: Truncation, workers: Executor
) -> None:
    await partition.wait_quiet()
    if partition.following.fits(asked):
        await _truncate(partition, cut, workers, LOG_CUT)


async def begin_at_store_end(partition: Partition, image: TierImage, workers: Executor) -> None:
    """Have a leader go on behind what the object store has: all of its log is there, too. Nothing where another
    leadership, or another manifest, has begun meanwhile: its log may be another one. Raises StorageFailed, StorageFull,
    Overloaded.
    """
    epoch = partition.leader_epoch
    await partition.wait_quiet()
    is_same = partition.leader_epoch == epoch and partition.tiered.image == image
    if is_same and partition.state.is_behind_store:
        await _truncate(partition, Truncation(image.end_offset, whole=True), workers, STORE_TAKEN)


async def _truncate(
    partition: Partition, cut: Truncation, workers: Executor, why: Condition
) -> None:
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
    error = await asyncio.shield(_truncate_log(partition, cut, run, workers))
    if error is not None:
        raise error


async def _truncate_log(
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
        if cut.whole and cut.offset > partition.local_log_start_offset:
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
