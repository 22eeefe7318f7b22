"""What a log's folder must hold, in a small file beside its segments: absence is damage.

A folder alone cannot tell a file that was lost from one that never was: without its first segment
a log seems to begin later, without its last one to end earlier, and a segment of 0 bytes is a
segment. So the manifest names each sealed segment with its end offset, its size, the checksums of
its first and last batch and whether it has a data key, the base offset of the active segment, how
far all was synced, and where the log starts. Recovery holds the folder against it: what is missing,
empty, of another size or begins or ends with other batches is damage. A file that differs in none
of these, but in between, passes: a digest of all CRC fields, kept while batches are appended and
compared when all of a segment is read anyway, could tell it.

There is no manifest until the log has a second segment, or starts within its first one. Before that
the name of the only segment says where the log starts, and the recovery point in the checkpoint how
long it must be.

A crash between any two system calls leaves a folder that fits its manifest, because of the order:

- *Roll.* A sync ticket syncs the sealed segment, the new one's name, and then writes the manifest.
  Until then the manifest calls the sealed segment the active one, of which any length from the
  synced end on is good, and segments above it are what was not acknowledged. The ticket counts as
  done after that, so every acknowledged record lies in a segment that the manifest names.
- *Deletion.* The log start is durable, here or in the checkpoint of log starts, before a file goes.
  Segments wholly below the log start may be there or not. Where it is in the checkpoint alone, a
  sync of the log follows at once and writes it here: the loss of either file takes nothing back.
- *Truncation.* The manifest forgets first, then files are cut and removed.
- *Compaction, erasure.* The new segment has its ``.swap`` name durably, then the manifest names it
  in place of the old ones, and then these go. Recovery does the same with a swap file that it
  finds: the manifest names the new segment before the swap file gets its last name.
- *Change of keys.* The file of a data key is replaced under its name; the manifest only says that
  there is one.

Writers are in several threads: the ticket's, compaction's, the owner's. Each change is made to what
is stored, under a lock. A truncation begins a new ``era``; a ticket from before adds nothing.

A full disk does not stop a log: a ticket leaves the manifest behind, a truncation removes it, and
the next ticket brings it up to date; less is known meanwhile. A manifest that is missing or damaged
is made again out of the folder, and then each segment's end is looked at. One that is older than the
folder calls segments damaged that are not, or knows less; it never makes a log longer or shorter.
An older copy of the whole folder fits its own manifest: the checkpoints of the node know that it
ends too early.
"""

import contextlib
import struct
import threading
from typing import Final, NamedTuple

from streamlog.errors import CorruptFile
from streamlog.log.checked_file import body_of, checked
from streamlog.log.segment.end_checksums import UNKNOWN_ENDS, EndChecksums
from streamlog.log.storage.disk import Disk, is_full

MANIFEST_NAME: Final = "segment-manifest"
NO_SEGMENT: Final = -1
UNKNOWN_BYTES: Final = -1
"""In place of a size: the segment is damaged, whatever its file holds."""

_MAGIC: Final = b"SLMF\x00\x00\x00\x01"
_HEAD: Final = struct.Struct(">QqqqH")
_SEALED: Final = struct.Struct(">qqq?IqI")


class SealedSegment(NamedTuple):
    """What a sealed segment must be."""

    base_offset: int
    end_offset: int
    size_bytes: int
    has_key: bool = False
    ends: EndChecksums = UNKNOWN_ENDS
    """Not known where the segment is damaged."""


class LogManifest(NamedTuple):
    """What a folder must hold."""

    log_start_offset: int = 0
    """What is below need not be there."""
    active_offset: int = NO_SEGMENT
    """The base offset of the active segment; NO_SEGMENT: there need not be any."""
    synced_end: int = 0
    """All below was synced when this was written."""
    sealed: tuple[SealedSegment, ...] = ()
    """Below the active segment, in order."""
    generation: int = 0
    """Grows with each write."""

    def with_synced(self, synced: "SyncedManifest") -> "LogManifest":
        """After a sync. Sealed segments that are named already stay as they are."""
        end = max(self.active_offset, self.sealed[-1].end_offset if self.sealed else 0)
        new = (it for it in synced.sealed if it.base_offset >= end)
        return self._replace(
            log_start_offset=max(self.log_start_offset, synced.log_start_offset),
            active_offset=synced.active_offset,
            synced_end=synced.end_offset,
            sealed=tuple(
                it
                for it in (*self.sealed, *new)
                if it.end_offset > max(self.log_start_offset, synced.log_start_offset)
            ),
        )

    def with_swapped(self, new: SealedSegment) -> "LogManifest":
        """``new`` is in place of all segments of its offsets."""
        before = [it for it in self.sealed if it.base_offset < new.base_offset]
        after = [it for it in self.sealed if it.base_offset >= new.end_offset]
        return self._replace(sealed=(*before, new, *after))

    def cut_at(self, offset: int, active_offset: int) -> "LogManifest":
        """The log ends at ``offset``, or where a batch of the segment with ``active_offset`` ends
        before that.
        """
        return self._replace(
            active_offset=min(self.active_offset, active_offset),
            synced_end=self.synced_end if self.synced_end <= offset else active_offset,
            sealed=tuple(it for it in self.sealed if it.base_offset < active_offset),
        )


class SyncedManifest(NamedTuple):
    """What a sync makes durable."""

    era: int
    log_start_offset: int
    active_offset: int
    end_offset: int
    sealed: tuple[SealedSegment, ...]
    """At least those that the manifest does not name yet."""


def encode(manifest: LogManifest, owner: bytes) -> bytes:
    """``owner``: whose folder it is; a manifest of another one is no manifest."""
    head = _HEAD.pack(
        manifest.generation,
        manifest.log_start_offset,
        manifest.active_offset,
        manifest.synced_end,
        len(owner),
    )
    body = b"".join((head, owner, *(_SEALED.pack(*it[:4], *it.ends) for it in manifest.sealed)))
    return checked(_MAGIC, body)


def decode(data: bytes, owner: bytes, path: str) -> LogManifest:
    """Raises CorruptFile for what ``encode`` has not written for ``owner``."""
    body = body_of(data, _MAGIC, path, "a manifest")
    generation, log_start, active, synced_end, length = _HEAD.unpack_from(body)
    at = _HEAD.size + length
    if body[_HEAD.size : at] != owner:
        raise CorruptFile(f"{path}: it is of another folder")
    sealed = tuple(
        SealedSegment(base, end, size, has_key, EndChecksums(*ends))
        for base, end, size, has_key, *ends in _SEALED.iter_unpack(body[at:])
    )
    return LogManifest(log_start, active, synced_end, sealed, generation)


class ManifestFile:
    """One log's. From any thread; whatever fails raises OSError, and the file is the old or the
    new one.
    """

    __slots__ = ("_disk", "_lock", "_owner", "era", "path", "stored")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = f"{directory}/{MANIFEST_NAME}"
        self.stored: LogManifest | None = None
        """As it was last written; None: there is none."""
        self.era = 0
        """Grows with each truncation."""
        self._disk = disk
        self._owner = "/".join(directory.split("/")[-2:]).encode()
        self._lock = threading.Lock()

    def load(self) -> None:
        """Raises CorruptFile."""
        try:
            data = self._disk.read_small(self.path)
        except FileNotFoundError:
            return
        self.stored = decode(data, self._owner, self.path)

    def names(self, end_offset: int) -> bool:
        """All sealed segments up to there are named."""
        return self.stored is not None and end_offset <= self.stored.active_offset

    def is_behind(self, *, log_start_offset: int, active_offset: int, first_offset: int) -> bool:
        """``first_offset``: the base offset of the log's first segment."""
        stored = self.stored
        if stored is None:  # the name of the only segment says where the log starts
            return not first_offset == log_start_offset == active_offset
        return (stored.log_start_offset, stored.active_offset) != (log_start_offset, active_offset)

    def write(self, manifest: LogManifest) -> None:
        """Whatever was there before."""
        with self._lock:
            self._write(manifest)

    def note_synced(self, synced: SyncedManifest) -> None:
        with self._lock:
            if synced.era == self.era:
                self._write((self.stored or LogManifest()).with_synced(synced))

    def note_swapped(self, new: SealedSegment) -> None:
        with self._lock:
            self._write((self.stored or LogManifest()).with_swapped(new))

    def begin_at(self, log_start_offset: int) -> None:
        """Before files below go."""
        with self._lock:
            known = self.stored or LogManifest()
            start = max(known.log_start_offset, log_start_offset)
            sealed = tuple(it for it in known.sealed if it.end_offset > start)
            self._write(known._replace(log_start_offset=start, sealed=sealed))

    def end_at(self, offset: int, active_offset: int) -> None:
        """Before the log is cut there. Where the disk is full there is no manifest after that,
        until the next ticket: a cut makes room, and must not wait for it.
        """
        with self._lock:
            self.era += 1
            if self.stored is None:
                return
            try:
                self._write(self.stored.cut_at(offset, active_offset))
            except OSError as error:
                if not is_full(error):
                    raise
                self._remove()

    def lower_start(self, log_start_offset: int) -> None:
        """After the log was cut below its start. A full disk as above."""
        with self._lock:
            if self.stored is None or self.stored.log_start_offset <= log_start_offset:
                return
            try:
                self._write(self.stored._replace(log_start_offset=log_start_offset))
            except OSError as error:
                if not is_full(error):
                    raise
                self._remove()

    def begin_anew(self, offset: int) -> None:
        """Before all files go, and the log begins there."""
        with self._lock:
            self.era += 1
            self._write(LogManifest(offset, synced_end=offset))

    def _remove(self) -> None:
        """Durably, and with it whatever was removed from the folder before."""
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(self.path)
        self._disk.sync_directory(self.path.rpartition("/")[0])
        self.stored = None

    def _write(self, manifest: LogManifest) -> None:
        known = self.stored
        generation = known.generation if known is not None else 0
        if known is not None and manifest._replace(generation=generation) == known:
            return
        manifest = manifest._replace(generation=generation + 1)
        self._disk.write_small(self.path, encode(manifest, self._owner))
        self.stored = manifest
