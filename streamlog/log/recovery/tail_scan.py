"""Reads the end of a log when it is opened: as little as will do, but all that may be torn."""

from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Final

from streamlog.errors import CorruptFile
from streamlog.log.segment.batch_scan import (
    BatchPlace,
    Damage,
    base_offset_at,
    is_beginning,
    next_whole,
    scan,
    tells_its_end,
)
from streamlog.log.segment.index import OFFSET_ENTRY, SECOND, TIME_ENTRY, IndexEntries
from streamlog.log.segment.segment import NO_TIMESTAMP, IndexCheck, Indexer, Segment
from streamlog.log.storage.disk import DiskFile
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import ENCRYPTED

_SAMPLES_MAX: Final = 64
"""So many entries of a stored index are held against the segment before the index is believed."""


@dataclass(frozen=True)
class CutRules:
    """What divides batches to be kept from those to be cut."""

    recovery_point: int
    """Below it all was synced: damage there is not torn, and is kept."""
    epoch_min: int
    """A batch of an older epoch was cut off once, and the disk forgot that."""
    power_lost: bool = True
    """Else the disk has all that was written, synced or not: only a last batch can be torn, of
    which the process had written no more when it was killed.
    """
    limit: int | None = None
    """Where the next segment begins, which is newer than what this one has of those offsets."""
    key_problem: str = ""
    """Why what is encrypted cannot be read."""

    def was_kept(self, offset: int) -> bool:
        """The disk had all of the batch with it."""
        return offset < self.recovery_point or not self.power_lost


@dataclass
class TailScan:
    """What a segment's batches say, whatever its indexes and the folder say."""

    indexer: Indexer
    next_offset: int
    end_position: int = 0
    synced_position: int = 0
    """Up to here the bytes are known to be on the disk, not only in the page cache."""
    last: BatchPlace | None = None
    cut: Damage | None = None
    """Why nothing from ``end_position`` on may be kept."""
    is_loss: bool = False
    """What is cut was not torn: it may have been acknowledged."""
    damages: list[Damage] = field(default_factory=list)
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)
    """Epoch and offset of each batch whose epoch is not that of the batch before."""
    index_problems: dict[str, str] = field(default_factory=dict)
    key_problem: str = ""
    """Why what is encrypted in it cannot be read."""
    indexes_are_stored: bool = False
    """The index files have all that ``indexer`` has."""

    def add(self, place: BatchPlace) -> None:
        if self.last is None or place.leader_epoch != self.last.leader_epoch:
            self.epoch_starts.append((place.leader_epoch, place.base_offset))
        self.last = place
        self.end_position, self.next_offset = place.end_position, place.next_offset


def resume(pool: FilePool, segment: Segment, recovery_point: int) -> TailScan | None:
    """Believe a segment's indexes, and read the headers after their last entry. No checksums.

    None if anything contradicts, or if the segment does not end at ``recovery_point``.
    """
    try:
        offsets = _load(pool, segment.index_path, OFFSET_ENTRY)
        times = _load(pool, segment.time_index_path, TIME_ENTRY)
    except CorruptFile:
        return None
    stored = len(offsets), len(times)
    entry = offsets.last()
    if entry is None:
        times = IndexEntries(TIME_ENTRY)  # all batches are read, so it comes again
    indexer = Indexer.resume(segment.base_offset, segment.interval_bytes, offsets, times)
    found = TailScan(indexer, segment.base_offset)
    pooled = pool.pin(segment.path)
    try:
        if entry is not None:
            if not _samples_fit(pooled.file, segment, offsets, times):
                return None
            found.end_position = entry[1]
            found.next_offset = base_offset_at(pooled.file, entry[1])
        believed = _walk_headers(pooled.file, segment, found)
    finally:
        pool.unpin(pooled)
    found.key_problem = segment.key_problem() if segment.key else ""
    found.indexes_are_stored = stored == (len(offsets), len(times))
    return found if believed and found.next_offset == recovery_point else None


def _walk_headers(file: DiskFile, segment: Segment, found: TailScan) -> bool:
    """Whether the batches after the last index entry, and the times of those before, fit."""
    times, entry = found.indexer.times.last(), found.indexer.offsets.last()
    for place in scan(
        file, found.end_position, segment.size_bytes, found.next_offset, check_crc=False
    ):
        if isinstance(place, Damage):
            return False
        if place.attributes & ENCRYPTED and segment.key is None:
            return False
        if found.last is None and entry is not None:
            fits = place.next_offset - 1 == segment.base_offset + entry[0]
            if not fits or times is None or times[0] < place.max_timestamp_ms:
                return False
        found.indexer.add_place(place)
        found.add(place)
    return times is None or segment.base_offset + times[1] < found.next_offset


def _samples_fit(
    file: DiskFile, segment: Segment, offsets: IndexEntries, times: IndexEntries
) -> bool:
    """Also what the time index tells of the batches that are looked at anyway: its latest time up
    to each of them.
    """
    entries = list(offsets)
    for relative, position in entries[:: len(entries) // _SAMPLES_MAX + 1]:
        base_offset = base_offset_at(file, position)
        place = next(scan(file, position, segment.size_bytes, base_offset, check_crc=False), None)
        if not isinstance(place, BatchPlace):
            return False
        if place.next_offset - 1 != segment.base_offset + relative:
            return False
        latest_ms, last_offset = times.floor(SECOND, relative) or (NO_TIMESTAMP, -1)
        is_its_own = last_offset == relative
        if latest_ms < place.max_timestamp_ms or (
            is_its_own and latest_ms > place.max_timestamp_ms
        ):
            return False
    return True


def _load(pool: FilePool, path: str, entry: Struct) -> IndexEntries:
    try:
        return IndexEntries.load(pool.disk.read_small(path), entry, path)
    except FileNotFoundError:
        return IndexEntries(entry)


def rescan(pool: FilePool, segment: Segment, fences: CutRules) -> TailScan:
    """Read a whole segment, with checksums."""
    check = IndexCheck(pool.disk, segment.stem_path, segment.base_offset, segment.interval_bytes)
    found = TailScan(check.indexer, segment.base_offset)
    problem = segment.key_problem()
    fences, found.key_problem = replace(fences, key_problem=problem), problem
    pooled = pool.pin(segment.path)
    try:
        while found.cut is None and found.end_position < segment.size_bytes:
            damage = _read_on(pooled.file, segment, found, check, fences)
            if damage is None:
                break
            _judge(pooled.file, segment, found, damage, fences)
    finally:
        pool.unpin(pooled)
    found.index_problems = check.finish(sealed=fences.limit is not None)
    return found


def _read_on(
    file: DiskFile,
    segment: Segment,
    found: TailScan,
    check: IndexCheck,
    fences: CutRules,
) -> Damage | None:
    """Add batches up to the first that is not to be added, or to the end."""
    for item in scan(file, found.end_position, segment.size_bytes, found.next_offset):
        if isinstance(item, Damage):
            return item
        epoch = found.last.leader_epoch if found.last else fences.epoch_min
        problem = ""
        if item.base_offset == fences.limit:
            problem = "it belongs to the next segment"
        elif fences.key_problem and item.attributes & ENCRYPTED:
            problem = fences.key_problem
        elif not fences.was_kept(item.base_offset) and item.leader_epoch < epoch:
            problem = f"epoch {item.leader_epoch} comes after {epoch}"
        if problem:
            offset = item.base_offset
            return Damage(item.position, segment.size_bytes, offset, offset, problem)
        check.add(item)
        found.add(item)
        if item.next_offset <= fences.recovery_point:
            found.synced_position = item.end_position
    return None


def _judge(
    file: DiskFile, segment: Segment, found: TailScan, damage: Damage, fences: CutRules
) -> None:
    """Step over a damage if what it hides had been kept, else cut there."""
    size = segment.size_bytes
    if fences.was_kept(damage.offset) and damage.offset != fences.limit:
        limit = fences.limit
        position, next_offset = next_whole(file, damage.position, size, damage.offset, limit)
        next_offset = next_offset if limit is None else min(next_offset, limit)
        if next_offset > damage.offset and (
            position < size
            or limit is not None
            or damage.offset < fences.recovery_point
            or tells_its_end(file, damage.position)
        ):
            found.damages.append(damage._replace(end_position=position, end_offset=next_offset))
            found.end_position, found.next_offset = position, next_offset
            return
        # The hole before another segment is a damage of its own.
        found.is_loss = limit is None and not is_beginning(file, damage.position, size)
    found.cut = damage
