"""Pieces of a log into an index of subjects."""

from collections.abc import Callable
from typing import Final

from streamlog.errors import Overloaded
from streamlog.record.batch import BatchHeader, batches
from streamlog.record.codec import opened
from streamlog.record.compiled.subjects import NOTHING, SubjectIndex
from streamlog.record.compression import Buffer
from streamlog.record.erasure import erased_by

Erasing = Callable[[SubjectIndex, BatchHeader, memoryview], None]
"""Has the index, which knows all below a control batch, forget what that batch erases."""


def nothing_erased(_index: SubjectIndex, _header: BatchHeader, _batch: memoryview) -> None:
    """No control batch erases anything."""


def erase_offsets(index: SubjectIndex, header: BatchHeader, batch: memoryview) -> None:
    """Those that the batch erases, if it is an erasure."""
    for offset in erased_by(batch, header) or ():
        index.erase(offset)


ROOM_REMEDY: Final = "raise log.subject_index_bytes"


def note_batches(index: SubjectIndex, data: Buffer, erasing: Erasing) -> int:
    """Take in whole batches that follow one another; the end of the last control batch, or -1.

    Batches below ``index.next_offset`` are passed over, and their records where it is in the middle
    of one. Raises CorruptBatch, and Overloaded where the memory does not suffice.
    """
    control_end = NOTHING
    for header, batch in batches(data):
        if header.next_offset <= index.next_offset:
            continue
        if header.is_control:
            erasing(index, header, batch)
            control_end = header.next_offset
        elif header.record_count:
            full_at = index.note(
                opened(header, batch), header.record_count, header.base_offset, header.next_offset
            )
            if full_at != NOTHING:
                raise Overloaded(
                    f"the index of subjects has no room beyond offset {full_at}; {ROOM_REMEDY}"
                )
        index.advance(header.next_offset)
    return control_end
