"""What a crash left of a cleaning: thrown away, or brought to its end."""

import contextlib
from collections.abc import Mapping

from streamlog.log.layout import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    segment_base_offsets,
    segment_stem,
)
from streamlog.log.manifest import ManifestFile, SealedSegment
from streamlog.log.recovery.report import RecoveryReport
from streamlog.log.segment.batch_scan import Damage, scan
from streamlog.log.segment.end_checksums import UNKNOWN_ENDS, EndChecksums, read_end_checksums
from streamlog.log.storage.disk import Disk


def settle_cleanings(
    disk: Disk,
    directory: str,
    names: Mapping[str, int],
    report: RecoveryReport,
    manifest: ManifestFile,
) -> bool:
    """Before the folder, which has ``names`` with their sizes, is read as a log; whether it has
    others now. Raises OSError; may be called again then.

    A swap file is whole and synced before it has that name, so it replaces whatever there is of the
    offsets that it reaches over: the segments it was made of, as far as they are still there.
    """
    cleaned = [name for name in names if name.endswith(LOG_SUFFIX + CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    for name in cleaned:
        disk.unlink(f"{directory}/{name}")
        report.removed.append(name)
    for name in swaps:
        _settle(disk, directory, name, report, manifest)
    return bool(cleaned or swaps)


def _settle(
    disk: Disk,
    directory: str,
    name: str,
    report: RecoveryReport,
    manifest: ManifestFile,
) -> None:
    base = base_offset_of(name)
    if base is None:
        return
    path, final = f"{directory}/{name}", segment_stem(base) + LOG_SUFFIX
    names = disk.sizes(directory)
    size_bytes = names[name]
    end, ends = _end_of(disk, path, size_bytes, base)
    is_whole = ends.is_known
    if not is_whole and final in names:
        disk.unlink(path)  # what it was made of is still there
        report.removed.append(name)
        return
    if is_whole and manifest.names(end):  # before nothing says any more that this was a cleaning
        has_key = segment_stem(base) + KEY_SUFFIX in names
        manifest.note_swapped(SealedSegment(base, end, size_bytes, has_key, ends))
    replaced = [it for it in segment_base_offsets(names) if base <= it < end]
    for old in sorted({base, *replaced}, reverse=True):
        stem = f"{directory}/{segment_stem(old)}"
        suffixes = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)  # the first one's key is the new one's
        for suffix in suffixes if old == base else (LOG_SUFFIX, *suffixes, KEY_SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(stem + suffix)
    disk.sync_directory(directory)
    disk.rename(path, f"{directory}/{final}")
    disk.sync_directory(directory)
    report.rebuilt.append(f"{directory}/{final}")


def _end_of(disk: Disk, path: str, size_bytes: int, base_offset: int) -> tuple[int, EndChecksums]:
    """The offset after its last batch; and its checksums, which are known if all of it is sound."""
    end, last_position, ends = base_offset, 0, UNKNOWN_ENDS
    file = disk.open(path, writable=False)
    try:
        for place in scan(file, 0, size_bytes, base_offset):
            if isinstance(place, Damage):
                return end, UNKNOWN_ENDS
            end, last_position = place.next_offset, place.position
        if end > base_offset:
            ends = read_end_checksums(file, last_position)
    finally:
        file.close()
    return end, ends
