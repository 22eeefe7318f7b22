"""Damaged segments are kept aside, as they were found, before a log is cut to be fetched again."""

import contextlib
import logging
from typing import Final

from streamlog.condition import NO_ACTION, Condition
from streamlog.log.layout import DAMAGED_SUFFIX, LOG_SUFFIX, TEMPORARY_SUFFIX
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import write_all
from streamlog.log.storage.file_pool import FilePool

logger = logging.getLogger(__name__)

SEGMENT_KEPT_ASIDE: Final = Condition(
    "SL-0316",
    "damaged segment kept aside",
    "remove it when it is not needed; look at the disk",
    meaning="A damaged segment was copied before it is fetched again. The copy counts as used "
    "space.",
)
SEGMENT_NOT_KEPT: Final = Condition(
    "SL-0317",
    "damaged segment not kept aside",
    NO_ACTION,
    meaning="The folder has four copies of damaged segments already, or the copy could not be "
    "written. The segment is fetched again all the same.",
)

KEPT_MAX: Final = 4
"""Files in one folder; what is damaged beyond them goes without a copy."""
_PIECE_BYTES: Final = 1024 * 1024


def keep_aside(pool: FilePool, directory: str, segment: Segment) -> None:
    """Copy the segment's file, and that of its key, if there is room. Blocking.

    The copy is for an operator: whatever goes wrong with it is told, and no more.
    """
    kept = segment.path + DAMAGED_SUFFIX
    try:
        suffix = LOG_SUFFIX + DAMAGED_SUFFIX
        names = [name for name in pool.disk.sizes(directory) if name.endswith(suffix)]
        if len(names) >= KEPT_MAX:
            extra = {"file": segment.path, "kept": sorted(names)}
            logger.warning(SEGMENT_NOT_KEPT, extra=extra)
            return
        _copy(pool, segment, kept)
        if segment.key is not None:
            pool.disk.write_small(
                segment.key.path + DAMAGED_SUFFIX, pool.disk.read_small(segment.key.path)
            )
    except OSError as error:
        problem = error.strerror or str(error)
        logger.warning(SEGMENT_NOT_KEPT, extra={"file": segment.path, "problem": problem})
    else:
        logger.warning(SEGMENT_KEPT_ASIDE, extra={"file": segment.path, "kept": kept})


def _copy(pool: FilePool, segment: Segment, kept: str) -> None:
    temporary = kept + TEMPORARY_SUFFIX
    source, copy = pool.pin(segment.path), pool.disk.create(temporary)
    try:
        position = 0
        while position < segment.size_bytes:
            length = min(_PIECE_BYTES, segment.size_bytes - position)
            piece = source.file.pread(length, position)
            if not piece:
                break
            write_all(copy, piece, position)
            position += len(piece)
        copy.sync()
        pool.disk.rename(temporary, kept)
        pool.disk.sync_directory(kept.rpartition("/")[0])
    except OSError:
        with contextlib.suppress(OSError):
            pool.disk.unlink(temporary)
        raise
    finally:
        copy.close()
        pool.unpin(source)
