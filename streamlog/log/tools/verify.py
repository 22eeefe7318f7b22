"""Checks folders of logs as they lie there, without opening, repairing or locking anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.errors import CorruptBatch, CorruptFile, EncryptionKeyMissing
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.opener import SegmentOpener
from streamlog.log.encryption.segment_key import key_problem
from streamlog.log.layout import (
    DAMAGED_SUFFIX,
    EPOCHS_NAME,
    KEY_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    segment_base_offsets,
    segment_stem,
)
from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.log.manifest import UNKNOWN_BYTES, ManifestFile
from streamlog.log.segment.batch_scan import Damage, scan_past_damage
from streamlog.log.segment.end_checksums import OTHER_BATCHES
from streamlog.log.segment.segment import IndexCheck, scrub
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import DiskFile, OsDisk
from streamlog.record.batch import ENCRYPTED

TORN: Final = "the tail is torn: the next start cuts it here"


class FolderFinding(NamedTuple):
    """Something wrong; ``position`` and ``offset`` are None where a whole file is meant."""

    file: Path
    position: int | None
    offset: int | None
    problem: str


class CheckedFolder(NamedTuple):
    """A segment that was read from end to end."""

    file: Path
    size_bytes: int


class Unopened(NamedTuple):
    """Encrypted batches of a segment that were not decrypted: no key was given. Their
    checksums, and the data key's, are looked at all the same.
    """

    file: Path
    key_name: str


class Aside(NamedTuple):
    """A copy of a segment that a node found damaged, and has repaired since."""

    file: Path
    size_bytes: int


def verify(
    path: Path, keys: KeyRing | None = None
) -> Iterator[FolderFinding | CheckedFolder | Unopened | Aside]:
    """Each segment at or below ``path``, and what is wrong with it, its indexes and checkpoints;
    with ``keys`` each encrypted batch is decrypted, too.

    ``path`` is a segment file, or any folder: a partition's, a stream's, a node's. A running node
    may be appending: a batch that it has not finished looks like a torn tail. Raises OSError.
    """
    if path.is_file():
        yield from _segment(path, None, keys or KeyRing())
        return
    for folder in sorted({file.parent for file in path.rglob(f"*{LOG_SUFFIX}")}):
        bases = segment_base_offsets(file.name for file in folder.iterdir())
        ends = (*bases[1:], None)
        for base, end_offset in zip(bases, ends, strict=False):
            file = folder / f"{segment_stem(base)}{LOG_SUFFIX}"
            yield from _segment(file, end_offset, keys or KeyRing())
        yield from _against_manifest(folder)
    for file in sorted(path.rglob(f"*{LOG_SUFFIX}{DAMAGED_SUFFIX}")):
        yield Aside(file, file.stat().st_size)
    for file in sorted(path.rglob("*-checkpoint")):
        yield from _checkpoint(file)


def _against_manifest(folder: Path) -> Iterator[FolderFinding]:
    """Sealed segments that are missing, of another size, or with other batches at their ends. A
    cleaning that was cut short, or that runs, is left to the node.
    """
    manifest = ManifestFile(OsDisk(), str(folder))
    try:
        manifest.load()
    except CorruptFile as error:
        yield FolderFinding(Path(manifest.path), None, None, str(error))
    known = manifest.stored
    if known is None or any(folder.glob(f"*{SWAP_SUFFIX}")):
        return
    for segment in known.sealed:
        file = folder / f"{segment_stem(segment.base_offset)}{LOG_SUFFIX}"
        size = file.stat().st_size if file.exists() else None
        if segment.end_offset <= known.log_start_offset:
            continue
        if size == segment.size_bytes:
            if segment.ends.differing_at(OsDisk(), str(file)):
                yield FolderFinding(file, None, segment.base_offset, OTHER_BATCHES)
        elif size is None:
            yield FolderFinding(file, None, segment.base_offset, "the file is missing")
        elif segment.size_bytes != UNKNOWN_BYTES:
            problem = f"{size} bytes, and {segment.size_bytes} were stored"
            yield FolderFinding(file, None, segment.base_offset, problem)


def _segment(
    path: Path, end_offset: int | None, keys: KeyRing
) -> Iterator[FolderFinding | CheckedFolder | Unopened]:
    """``end_offset``: where the next segment begins; None for the last one."""
    base_offset = segment_base_offsets([path.name])
    if not base_offset:
        yield FolderFinding(path, None, None, "the name is not a segment's")
        return
    disk = OsDisk()
    stem = str(path.with_suffix(""))
    check = IndexCheck(disk, stem, base_offset[0], LogSettings.index_interval_bytes)
    file = disk.open(str(path), writable=False)
    try:
        size_bytes = file.size()
        problem = key_problem(disk, stem + KEY_SUFFIX)
        damages = scrub(file, size_bytes, end_offset, check, key_problem=problem)
        if not problem:
            yield from _encrypted(path, file, size_bytes, keys)
    finally:
        file.close()
    for damage in damages:
        torn = end_offset is None and damage.end_position == size_bytes
        problem = f"{damage.problem} ({TORN})" if torn else damage.problem
        yield FolderFinding(path, damage.position, damage.offset, problem)
    if not damages:  # else the indexes point to what cannot be found
        for index_path, problem in check.finish(sealed=False).items():
            yield FolderFinding(Path(index_path), None, None, problem)
    yield CheckedFolder(path, size_bytes)


def _encrypted(
    path: Path, file: DiskFile, size_bytes: int, keys: KeyRing
) -> Iterator[FolderFinding | Unopened]:
    """What only the keys tell. Batches with wrong checksums are passed over."""
    opener = SegmentOpener(str(path), keys, OsDisk().read_small)
    base_offset = segment_base_offsets([path.name])[0]
    for item in scan_past_damage(file, 0, size_bytes, base_offset):
        if isinstance(item, Damage) or not (item.attributes & ENCRYPTED or opener.has_key):
            continue
        key_name = opener.wrapped().key_name
        if key_name not in keys.names:
            yield Unopened(path, key_name)
            return
        try:
            opener.opened(file.pread(item.end_position - item.position, item.position))
        except EncryptionKeyMissing as error:
            yield FolderFinding(path, None, None, str(error))
            return
        except CorruptBatch as error:
            yield FolderFinding(path, item.position, item.base_offset, str(error))


def _checkpoint(path: Path) -> Iterator[FolderFinding]:
    try:
        if path.name == EPOCHS_NAME:
            LeaderEpochs.decode(path.read_bytes(), str(path))
        else:
            OffsetCheckpoint(path, OsDisk()).read()
    except CorruptFile as error:
        yield FolderFinding(path, None, None, str(error).removeprefix(f"{path}: "))
