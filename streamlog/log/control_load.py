"""What is erased of a log that was just opened, and which transactions it has. Blocking calls."""

import logging
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from streamlog.condition import NO_ACTION, Condition
from streamlog.errors import CorruptData, CorruptFile
from streamlog.log.checked_file import owner_of
from streamlog.log.control_batches import note_control
from streamlog.log.erasure import erasures_file
from streamlog.log.erasure.erasures import Erasure, Erasures
from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.log.segment.batch_scan import BatchPlace
from streamlog.log.segment.segment import Segment
from streamlog.log.sidecar_files import SidecarFiles
from streamlog.log.storage.disk import storage_error
from streamlog.log.transactions import transactions_file
from streamlog.log.transactions.transactions import Transactions
from streamlog.log.transactions.transactions_file import LogHistory
from streamlog.record.batch import CONTROL, TRANSACTIONAL, check_batch, read_header

logger = logging.getLogger(__name__)

ERASURES_READ_FROM_LOG: Final = Condition(
    "SL-0320",
    "erasures are read from the log",
    NO_ACTION,
    meaning="The file with the erased messages of a partition is missing or damaged. The opening "
    "takes longer.",
)
TRANSACTIONS_READ_FROM_LOG: Final = Condition(
    "SL-0325",
    "transactions are read from the log",
    NO_ACTION,
    meaning="The file with the transactions of a partition is missing, damaged or of a log that was "
    "cut since. The opening takes longer.",
)


class OpenLog(Protocol):
    """The part of ``log.PartitionLog`` that is needed here."""

    beside: SidecarFiles
    epochs: LeaderEpochs
    erasures: Erasures
    transactions: Transactions

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def segments(self) -> Iterable[Segment]: ...


class ControlState(NamedTuple):
    """What the control batches of a log come to."""

    erasures: Erasures
    transactions: Transactions


def load(
    log: OpenLog, *, known_offset: int, erasures_end: int = 0, transactions_end: int = 0
) -> ControlState:
    """``known_offset``: of what lies below it in the log the files know; above, the log is read. ``erasures_end``,
    ``transactions_end``: the file that was written last knew an erasure, or a transactional batch, right below it.

    A file that is missing, older or damaged, or is not of this log, costs reading all of the log. Raises Unavailable.
    """
    start = log.log_start_offset
    erasures, recalled = Erasures(), _recall_transactions(log, transactions_end)
    if recalled is not None and _recall(erasures, log, erasures_end):
        transactions, start = recalled, max(known_offset, start)
    else:  # an abort erases what only both files together know
        erasures, transactions = Erasures(), Transactions()
    if start < log.log_end_offset:
        _read_on(erasures, transactions, log.segments, start, log.beside.directory)
    erasures.forget_below(log.log_start_offset)
    transactions.forget_below(log.log_start_offset)
    return ControlState(erasures, transactions)


def read_again(log: OpenLog) -> ControlState:
    """Out of all that the log has. Raises Unavailable."""
    found = ControlState(Erasures(), Transactions())
    _read_on(*found, log.segments, log.log_start_offset, log.beside.directory)
    found.erasures.version = log.erasures.version + 1
    found.transactions.version = log.transactions.version + 1
    return found


def history_of(log: OpenLog) -> LogHistory:
    """As it is now."""
    epochs = log.epochs
    starts = [it.start_offset for it in epochs.entries[-1:]]
    return LogHistory(log.log_end_offset, epochs.latest, starts[0] if starts else 0)


def _recall_transactions(log: OpenLog, kept_end: int) -> Transactions | None:
    """None: the file is of no use, or is not there and should be."""
    name, start, end = transactions_file.FILE_NAME, log.log_start_offset, log.log_end_offset
    data = log.beside.read(name)
    if not data:
        if kept_end <= start:
            return Transactions()
        _tell_unusable(log, f"{name}: it is missing, or was emptied")
        return None
    try:
        history, kept = transactions_file.decode(data, name, owner_of(log.beside.directory))
    except CorruptFile as error:
        _tell_unusable(log, str(error))
        return None
    if kept.latest_offset + 1 < kept_end and kept_end > start:
        _tell_unusable(log, f"{name}: it is older than the one that was written last")
        return None
    if history.end_offset <= start:
        return Transactions()  # all of it is gone
    last = min(history.end_offset, end) - 1
    is_same = last >= start and log.epochs.epoch_at(last) == history.epoch
    if end < history.end_offset:
        is_same = is_same and history.epoch_start <= last
    if not is_same or not kept.cut(end):
        _tell_unusable(log, f"{name}: the log has been cut since")
        return None
    kept.unkept_offset, kept.kept_end = None, kept.latest_offset + 1
    return kept


def _tell_unusable(log: OpenLog, problem: str) -> None:
    extra = {"directory": log.beside.directory, "problem": problem}
    logger.warning(TRANSACTIONS_READ_FROM_LOG, extra=extra)


def _recall(erasures: Erasures, log: OpenLog, kept_end: int) -> bool:
    """False: the file is of no use, or is not there and should be."""
    data = log.beside.read(erasures_file.FILE_NAME)
    if not data:
        is_missing = kept_end > log.log_start_offset
        if is_missing:
            _warn(log.beside.directory, f"{erasures_file.FILE_NAME}: it is missing, or was emptied")
        return not is_missing
    try:
        kept = erasures_file.decode(data, erasures_file.FILE_NAME, owner_of(log.beside.directory))
    except CorruptFile as error:
        _warn(log.beside.directory, str(error))
        return False
    last = kept.committed
    if not _is_of(log, last):
        _warn(
            log.beside.directory, f"the log has no erasure at {last.offset} of epoch {last.epoch}"
        )
        return False
    known_end = 1 + max([last.offset, *(erasure.offset for erasure in kept.pending)])
    if known_end < kept_end and kept_end > log.log_start_offset:
        _warn(
            log.beside.directory,
            f"{erasures_file.FILE_NAME}: it is older than the one that was written last",
        )
        return False
    sound = [erasure for erasure in kept.pending if _is_of(log, erasure)]
    erasures.restore(
        last.erased,
        kept.unremoved,
        last,
        sound,
        tail_start=kept.tail_start,
        committed_tail_start=kept.committed_tail_start,
    )
    erasures.kept_end = erasures.latest_offset + 1
    return True


def _is_of(log: OpenLog, erasure: Erasure) -> bool:
    """One epoch has one log. What is below the log's start erases nothing that is there."""
    if erasure.offset < log.log_start_offset:
        return True
    in_log = erasure.offset < log.log_end_offset
    return in_log and log.epochs.epoch_at(erasure.offset) == erasure.epoch


def _read_on(
    erasures: Erasures,
    transactions: Transactions,
    segments: Iterable[Segment],
    offset: int,
    directory: str,
) -> None:
    """Headers only, but of control batches. The rest of a damaged segment is passed over."""
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        try:
            for place in _places(segment, offset):
                if not place.attributes & (CONTROL | TRANSACTIONAL):
                    continue
                if place.attributes & CONTROL:
                    batch = _batch(segment, place)
                    note_control(erasures, transactions, batch, read_header(batch))
                else:
                    transactions.note_records(
                        place.producer_id,
                        place.producer_epoch,
                        base_offset=place.base_offset,
                        next_offset=place.next_offset,
                        timestamp_ms=place.max_timestamp_ms,
                    )
        except CorruptData as error:
            _warn(directory, str(error))
        except OSError as error:
            raise storage_error(error, segment.path) from error


def _places(segment: Segment, offset: int) -> Iterator[BatchPlace]:
    """From ``offset`` on, or from an earlier one where the segment's index, which is not trusted
    before it has been verified, does not fit.
    """
    if offset > segment.base_offset:
        try:
            yield from segment.places(offset)
            return
        except CorruptData:
            pass
    yield from segment.head()


def _batch(segment: Segment, place: BatchPlace) -> bytes | memoryview:
    batch = segment.read_batch(place)
    check_batch(batch)
    return batch


def _warn(directory: str, problem: str) -> None:
    extra = {"directory": directory, "problem": problem}
    logger.warning(ERASURES_READ_FROM_LOG, extra=extra)
