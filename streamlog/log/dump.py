"""Shows the batches of segment files as they lie there."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamlog.errors import InvalidRequest
from streamlog.log.disk import OsDisk
from streamlog.log.layout import LOG_SUFFIX, segment_base_offsets, segment_stem
from streamlog.log.scan import BatchPlace, Damage, scan_past_damage
from streamlog.record.batch import BatchHeader, read_header


class DumpedBatch(NamedTuple):
    """A whole batch with a right checksum."""

    file: Path
    position: int
    header: BatchHeader
    data: bytes


class DumpedDamage(NamedTuple):
    """Bytes that are no batch."""

    file: Path
    damage: Damage


def dump(path: Path) -> Iterator[DumpedBatch | DumpedDamage]:
    """The batches of a segment file, or of all segments of one partition's folder, in order.

    Raises InvalidRequest if ``path`` is neither, OSError.
    """
    for file in _segments(path):
        yield from _segment(file)


def _segments(path: Path) -> list[Path]:
    folder, names = (path.parent, [path.name]) if path.is_file() else (path, _names(path))
    bases = segment_base_offsets(names)
    if not bases:
        raise InvalidRequest(f"{path}: no segment file, nor a partition's folder")
    return [folder / f"{segment_stem(base)}{LOG_SUFFIX}" for base in bases]


def _names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def _segment(path: Path) -> Iterator[DumpedBatch | DumpedDamage]:
    file = OsDisk().open(str(path), writable=False)
    try:
        base_offset = segment_base_offsets([path.name])[0]
        for item in scan_past_damage(file, 0, file.size(), base_offset):
            if isinstance(item, BatchPlace):
                data = file.pread(item.end_position - item.position, item.position)
                yield DumpedBatch(path, item.position, read_header(data), data)
            else:
                yield DumpedDamage(path, item)
    finally:
        file.close()
