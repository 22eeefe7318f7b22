"""Checks all batches of one segment, and its indexes against them.

Blocking; meant for a worker thread.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from streamlog.errors import CorruptFile
from streamlog.log.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from streamlog.log.segment.index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY,
    SECOND,
    TIME_ENTRY,
    Entry,
    IndexEntries,
    Indexer,
)
from streamlog.log.segment.scan import BatchPlace, Damage, scan_past_damage
from streamlog.log.storage.disk import Disk, DiskFile
from streamlog.record.batch import ENCRYPTED

MISSING: Final = "is missing"

_MISSING_TAIL_MAX: Final = 2
"""A sealed index counts as cut short if so many entries are missing at its end."""


class _Audit:
    """Holds stored indexes against the batches of their segment, one batch after the other."""

    def __init__(
        self, base_offset: int, offsets: IndexEntries | None, times: IndexEntries | None
    ) -> None:
        """None stands for a file that is missing or cannot be read."""
        self.offsets_are_true = offsets is not None
        self.times_are_true = times is not None
        self._base_offset = base_offset
        self._offsets: Iterator[Entry] = iter(offsets or ())
        self._times: Iterator[Entry] = iter(times or ())
        self._offset_entry = next(self._offsets, None)
        self._time_entry = next(self._times, None)
        self._latest_ms = NO_TIMESTAMP
        self._told_ms = NO_TIMESTAMP
        self._to_be_told_ms = NO_TIMESTAMP

    @property
    def lacks_times(self) -> bool:
        """With each offset entry comes one for the latest time, unless there is one."""
        return self._told_ms < self._to_be_told_ms

    def add(self, place: BatchPlace) -> None:
        last_offset = place.next_offset - 1 - self._base_offset
        entry = self._offset_entry
        if entry is not None and entry[1] <= place.position:
            self.offsets_are_true &= entry == (last_offset, place.position)
            self._offset_entry = next(self._offsets, None)
        timed = self._time_entry
        if timed is not None and timed[1] <= last_offset:
            self.times_are_true &= timed == (place.max_timestamp_ms, last_offset)
            self.times_are_true &= timed[0] > self._latest_ms
            self._told_ms = timed[0]
            self._time_entry = next(self._times, None)
        self._latest_ms = max(self._latest_ms, place.max_timestamp_ms)
        if entry is not None and entry[0] == last_offset:
            self._to_be_told_ms = self._latest_ms

    def finish(self) -> None:
        """An entry that no batch has claimed is wrong."""
        self.offsets_are_true &= self._offset_entry is None
        self.times_are_true &= self._time_entry is None


class IndexCheck:
    """Builds a segment's indexes from its batches, and says what is wrong with the files'."""

    def __init__(self, disk: Disk, stem_path: str, base_offset: int, interval_bytes: int) -> None:
        self.indexer = Indexer(base_offset, interval_bytes)
        self.problems: dict[str, str] = {}  # by path
        self._offset_path = stem_path + INDEX_SUFFIX
        self._time_path = stem_path + TIME_INDEX_SUFFIX
        self._offsets = self._load(disk, self._offset_path, OFFSET_ENTRY)
        self._times = self._load(disk, self._time_path, TIME_ENTRY)
        self._audit = _Audit(base_offset, self._offsets, self._times)

    def _load(self, disk: Disk, path: str, entry: Struct) -> IndexEntries | None:
        try:
            return IndexEntries.load(disk.read_small(path), entry, path)
        except FileNotFoundError:
            self.problems[path] = MISSING
        except CorruptFile as error:
            self.problems[path] = str(error)
        return None

    def add(self, place: BatchPlace) -> None:
        self.indexer.add_place(place)
        self._audit.add(place)

    def contradictions(self) -> dict[str, str]:
        """What is wrong so far, by path: of a segment that grows the files may know more by now."""
        if self._offsets is not None and not self._audit.offsets_are_true:
            self.problems[self._offset_path] = "an entry points to no such batch"
        if self._times is not None and not self._audit.times_are_true:
            self.problems[self._time_path] = "an entry tells a wrong time"
        elif self._times is not None and self._offsets is not None and self._audit.lacks_times:
            self.problems[self._time_path] = "its end is missing"
        return {path: problem for path, problem in self.problems.items() if problem != MISSING}

    def finish(self, *, sealed: bool) -> dict[str, str]:
        """What is wrong, by path.

        Only a sealed segment's indexes must be there and reach its end.
        """
        self._audit.finish()
        found = self.contradictions()
        if sealed:
            self.indexer.note_time()
            self._check_ends()
            return self.problems
        return found

    def _check_ends(self) -> None:
        ours, theirs = self.indexer, self._offsets
        if theirs is not None:
            last = theirs.last()
            reached = ours.offsets.count_up_to(SECOND, last[1] if last else -1)
            missing = len(ours.offsets) - reached
            if missing >= _MISSING_TAIL_MAX or (missing and not reached):
                self.problems.setdefault(self._offset_path, "its end is missing")
        if self._times is not None and self._times.last() != ours.times.last():
            self.problems.setdefault(self._time_path, "its end is missing")


def without_key(
    found: Iterable[BatchPlace | Damage], key_problem: str
) -> Iterator[BatchPlace | Damage]:
    """What was ``found``, but encrypted batches are damages if there is a problem with their key;
    those next to each other are one.
    """
    pending: Damage | None = None
    for item in found:
        if key_problem and isinstance(item, BatchPlace) and item.attributes & ENCRYPTED:
            first = pending or Damage(item.position, 0, item.base_offset, 0, key_problem)
            pending = first._replace(end_position=item.end_position, end_offset=item.next_offset)
            continue
        if pending is not None:
            yield pending
            pending = None
        yield item
    if pending is not None:
        yield pending


def scrub(
    file: DiskFile,
    size_bytes: int,
    end_offset: int | None,
    check: IndexCheck,
    *,
    key_problem: str,
) -> tuple[Damage, ...]:
    """The damages in a segment's first ``size_bytes``, which should end at ``end_offset`` if known.

    ``key_problem``: see ``without_key``. Raises OSError.
    """
    damages = []
    found = scan_past_damage(file, 0, size_bytes, check.indexer.base_offset, end_offset)
    for item in without_key(found, key_problem):
        if isinstance(item, Damage):
            damages.append(item)
        else:
            check.add(item)
    return tuple(damages)
