"""Tells a torn tail of the metadata log, which is cut, from damage, which must not be cut.
Blocking.

Each batch is synced before the next one is written, so a crash can tear the last one only, and
none that was synced. Anything else would forget streams: the node refuses to start on it.
"""

from itertools import zip_longest
from pathlib import Path

from streamlog.errors import CorruptData
from streamlog.log.disk import Disk
from streamlog.log.layout import LOG_SUFFIX, segment_base_offsets, segment_stem
from streamlog.log.scan import Damage, scan_past_damage


def check_tail(disk: Disk, directory: Path, *, synced_end: int) -> None:
    """Raise CorruptData if more than an unsynced last batch is damaged. Raises OSError.

    ``synced_end``: all below is known to have been synced; the log must reach that far.
    """
    try:
        sizes = disk.sizes(str(directory))
    except FileNotFoundError:
        sizes = {}
    bases = segment_base_offsets(sizes)
    end = 0
    for base, following in zip_longest(bases, bases[1:]):
        path = directory / (segment_stem(base) + LOG_SUFFIX)
        end = _check_segment(disk, path, sizes[path.name], base, following)
    if end < synced_end:
        raise CorruptData(f"{directory} ends at offset {end}, and {synced_end} had been synced")


def _check_segment(disk: Disk, path: Path, size: int, base: int, following: int | None) -> int:
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
        return end
    finally:
        file.close()
