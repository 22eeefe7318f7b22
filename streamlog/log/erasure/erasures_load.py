"""What is erased of a log that was just opened. Blocking calls."""

import logging
from collections.abc import Iterator
from typing import Final

from streamlog.condition import NO_ACTION, Condition
from streamlog.errors import CorruptData, CorruptFile
from streamlog.log.erasure.erasures import Erasure, Erasures
from streamlog.log.erasure.erasures_file import FILE_NAME, decode, owner_of
from streamlog.log.log import PartitionLog
from streamlog.log.segment.batch_scan import BatchPlace
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import storage_error
from streamlog.record.batch import CONTROL, check_batch, read_header
from streamlog.record.codec import marked_batches
from streamlog.record.erasure import erased_by, is_placeholder

logger = logging.getLogger(__name__)

ERASURES_READ_FROM_LOG: Final = Condition(
    "SL-0320",
    "erasures are read from the log",
    NO_ACTION,
    meaning="The file with the erased messages of a partition is missing or damaged. The opening "
    "takes longer.",
)


def load(log: PartitionLog, *, known_offset: int, kept_end: int = 0) -> Erasures:
    """``known_offset``: of erasures in the log below it the file knows; above, the log is read.
    ``kept_end``: the file that was written last knew an erasure right below it.

    A file that is missing, older or damaged, or is not of this log, costs reading all of the log.
    Raises Unavailable.
    """
    erasures = Erasures()
    start = max(known_offset, log.log_start_offset)
    if not _recall(erasures, log, kept_end):
        start = log.log_start_offset
    if start < log.log_end_offset:
        _read_on(erasures, log, start)
    erasures.forget_below(log.log_start_offset)
    return erasures


def note_all(erasures: Erasures, records: bytes | memoryview) -> None:
    """Take note of the erasures in whole batches, back to back. Raises CorruptBatch."""
    positions, _ = marked_batches(records)
    for position in positions:
        header = read_header(records, position)
        if header.is_control:
            batch = memoryview(records)[position : position + header.size_bytes]
            erased = erased_by(batch, header)
            if erased is not None:
                stands = not erased and is_placeholder(batch)
                erasures.note(Erasure(header.base_offset, header.leader_epoch, erased, stands))


def _recall(erasures: Erasures, log: PartitionLog, kept_end: int) -> bool:
    """False: the file is of no use, or is not there and should be."""
    data = log.beside.read(FILE_NAME)
    if not data:
        is_missing = kept_end > log.log_start_offset
        if is_missing:
            _warn(log, f"{FILE_NAME}: it is missing, or was emptied")
        return not is_missing
    try:
        kept = decode(data, FILE_NAME, owner_of(log.beside.directory))
    except CorruptFile as error:
        _warn(log, str(error))
        return False
    last = kept.committed
    if not _is_of(log, last):
        _warn(log, f"the log has no erasure at {last.offset} of epoch {last.epoch}")
        return False
    known_end = 1 + max([last.offset, *(erasure.offset for erasure in kept.pending)])
    if known_end < kept_end and kept_end > log.log_start_offset:
        _warn(log, f"{FILE_NAME}: it is older than the one that was written last")
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


def _is_of(log: PartitionLog, erasure: Erasure) -> bool:
    """One epoch has one log. What is below the log's start erases nothing that is there."""
    if erasure.offset < log.log_start_offset:
        return True
    in_log = erasure.offset < log.log_end_offset
    return in_log and log.epochs.epoch_at(erasure.offset) == erasure.epoch


def _read_on(erasures: Erasures, log: PartitionLog, offset: int) -> None:
    """Headers only, but of what erases. The rest of a damaged segment is passed over."""
    for segment in log.segments:
        if segment.next_offset <= offset:
            continue
        try:
            for place in _places(segment, offset):
                if place.attributes & CONTROL:
                    note_all(erasures, _batch(segment, place))
        except CorruptData as error:
            _warn(log, str(error))
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


def _warn(log: PartitionLog, problem: str) -> None:
    extra = {"directory": log.beside.directory, "problem": problem}
    logger.warning(ERASURES_READ_FROM_LOG, extra=extra)
