"""Checks folders of logs as they lie there, without opening, mending or locking anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.errors import CorruptFile
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.disk import OsDisk
from streamlog.log.encryption.segment_key import key_problem
from streamlog.log.epochs import LeaderEpochs
from streamlog.log.layout import (
    DAMAGED_SUFFIX,
    EPOCHS_NAME,
    KEY_SUFFIX,
    LOG_SUFFIX,
    segment_base_offsets,
    segment_stem,
)
from streamlog.log.scrub import IndexCheck, scrub
from streamlog.log.settings import LogSettings

TORN: Final = "the tail is torn: the next start cuts it here"


class Finding(NamedTuple):
    """Something wrong; ``position`` and ``offset`` are None where a whole file is meant."""

    file: Path
    position: int | None
    offset: int | None
    problem: str


class Checked(NamedTuple):
    """A segment that was read from end to end."""

    file: Path
    size_bytes: int


class Aside(NamedTuple):
    """A copy of a segment that a node found damaged, and has mended since."""

    file: Path
    size_bytes: int


def verify(path: Path) -> Iterator[Finding | Checked | Aside]:
    """Each segment at or below ``path``, and what is wrong with it, its indexes and checkpoints.

    ``path`` is a segment file, or any folder: a partition's, a stream's, a node's. A running node
    may be appending: a batch that it has not finished looks like a torn tail. Raises OSError.
    """
    if path.is_file():
        yield from _segment(path, end_offset=None)
        return
    for folder in sorted({file.parent for file in path.rglob(f"*{LOG_SUFFIX}")}):
        bases = segment_base_offsets(file.name for file in folder.iterdir())
        ends = (*bases[1:], None)
        for base, end_offset in zip(bases, ends, strict=False):
            yield from _segment(folder / f"{segment_stem(base)}{LOG_SUFFIX}", end_offset)
    for file in sorted(path.rglob(f"*{LOG_SUFFIX}{DAMAGED_SUFFIX}")):
        yield Aside(file, file.stat().st_size)
    for file in sorted(path.rglob("*-checkpoint")):
        yield from _checkpoint(file)


def _segment(path: Path, end_offset: int | None) -> Iterator[Finding | Checked]:
    """``end_offset``: where the next segment begins; None for the last one."""
    base_offset = segment_base_offsets([path.name])
    if not base_offset:
        yield Finding(path, None, None, "the name is not a segment's")
        return
    disk = OsDisk()
    stem = str(path.with_suffix(""))
    check = IndexCheck(disk, stem, base_offset[0], LogSettings.index_interval_bytes)
    file = disk.open(str(path), writable=False)
    try:
        size_bytes = file.size()
        problem = key_problem(disk, stem + KEY_SUFFIX)
        damages = scrub(file, size_bytes, end_offset, check, key_problem=problem)
    finally:
        file.close()
    for damage in damages:
        torn = end_offset is None and damage.end_position == size_bytes
        problem = f"{damage.problem} ({TORN})" if torn else damage.problem
        yield Finding(path, damage.position, damage.offset, problem)
    if not damages:  # else the indexes point to what cannot be found
        for index_path, problem in check.finish(sealed=False).items():
            yield Finding(Path(index_path), None, None, problem)
    yield Checked(path, size_bytes)


def _checkpoint(path: Path) -> Iterator[Finding]:
    try:
        if path.name == EPOCHS_NAME:
            LeaderEpochs.decode(path.read_bytes(), str(path))
        else:
            OffsetCheckpoint(path, OsDisk()).read()
    except CorruptFile as error:
        yield Finding(path, None, None, str(error).removeprefix(f"{path}: "))
