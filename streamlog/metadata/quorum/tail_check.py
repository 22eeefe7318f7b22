"""Tells a torn tail of the metadata log, which is cut, from damage, which must not be cut.
Blocking.

Each batch is synced before the next one is written, so a crash can tear the last one only, and
none that was synced. Anything else would forget streams: the node refuses to start on it.

Whether the last batch was synced is known of the older ones only: the checkpoint is written now and
then. A power cut may leave anything of a batch that was not synced. Where the machine has run on,
its page cache has all that was written, so a killed process leaves the beginning of a batch, and a
write-back that failed leaves zeros. A last batch with any other fault was damaged later, and it may
have been synced, and counted by the quorum: to cut it would forget what is committed.
"""

from itertools import zip_longest
from pathlib import Path
from typing import Final

from crc32c import crc32c

from streamlog.errors import CorruptData
from streamlog.log.layout import LOG_SUFFIX, segment_base_offsets, segment_stem
from streamlog.log.segment.scan import Damage, scan_past_damage
from streamlog.log.storage.disk import Disk, DiskFile
from streamlog.record.batch import CRC_START, HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES

_PAGE_BYTES: Final = 4096


def check_tail(disk: Disk, directory: Path, *, synced_end: int, power_lost: bool) -> None:
    """Raise CorruptData if more than an unsynced last batch is damaged. Raises OSError.

    ``synced_end``: all below is known to have been synced; the log must reach that far.
    ``power_lost``: what was not synced may be lost; else a process was killed at most.
    """
    try:
        sizes = disk.sizes(str(directory))
    except FileNotFoundError:
        sizes = {}
    bases = segment_base_offsets(sizes)
    end = 0
    for base, following in zip_longest(bases, bases[1:]):
        path = directory / (segment_stem(base) + LOG_SUFFIX)
        end = _check_segment(disk, path, sizes[path.name], base, following, power_lost=power_lost)
    if end < synced_end:
        raise CorruptData(f"{directory} ends at offset {end}, and {synced_end} had been synced")


def _check_segment(
    disk: Disk, path: Path, size: int, base: int, following: int | None, *, power_lost: bool
) -> int:
    """The offset where it ends; ``following`` is the base offset of the next segment."""
    file = disk.open(str(path), writable=False)
    try:
        end = base
        for item in scan_past_damage(file, 0, size, base, following):
            if not isinstance(item, Damage):
                end = item.next_offset
            elif following is not None or item.end_position < size:
                raise CorruptData(
                    f"{path}: damaged at byte {item.position}, offset {item.offset}: {item.problem}"
                )
            elif not power_lost and not _is_unfinished(file, item.position, size):
                raise CorruptData(
                    f"{path}: damaged at byte {item.position}, offset {item.offset}:"
                    f" {item.problem}, and no power was lost: the batch may be committed"
                )
        return end
    finally:
        file.close()


def _is_unfinished(file: DiskFile, position: int, size: int) -> bool:
    """Whether the last batch is only a beginning of one, or that and zeros to the end."""
    data = file.pread(size - position, position)
    if len(data) < HEADER_BYTES:
        return True
    _, length, _, _, crc, *_ = HEADER.unpack_from(data)
    if LENGTH_PREFIX_BYTES + length > len(data):
        return bool(crc32c(memoryview(data)[CRC_START:]) != crc)  # else only the length is wrong
    content = len(data.rstrip(b"\0"))
    pages = -(-(position + content) // _PAGE_BYTES)
    return content == 0 or pages * _PAGE_BYTES < size
