"""A bounded set of open files, shared by all logs of a node."""

import contextlib
import resource
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from streamlog.log.compiled.open_files import OpenFile, OpenFiles
from streamlog.log.encryption.key_file import NO_SCOPE
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.layout import DELETED_SUFFIX
from streamlog.log.storage.disk import Disk, DiskFile, write_all
from streamlog.log.storage.removal import Removal

OPEN_FILES_BOUND: Final = 65_536
"""Even where the process may have more."""


def open_files_allowed() -> int:
    """A share of what the process may have open: connections need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_BOUND if soft < 0 else min(soft * 3 // 4, OPEN_FILES_BOUND)


class PooledFile(OpenFile):
    """An open file that stays open while it is pinned."""

    __slots__ = ()

    def __init__(self, path: str, file: DiskFile) -> None:
        self.path = path
        self.file = file
        self.note = None  # what its readers like to remember of it, some kilobytes
        self.pins = 0  # it may be closed only at 0
        self.used = False  # again, since it was opened or looked at for whether to close it
        self.is_gone = False  # it is not found any more, and is closed with the last pin


class FilePool(OpenFiles):
    """Opens files on demand and closes those long unused; thread-safe.

    At most ``open_files_max`` are open, unless more are pinned at once: by slices on their way to a
    socket, and by a sync or a scrub that is running. A written file may be closed before it is
    synced: the sync opens it again, and the kernel reports a failed write-back to the first who
    opens the file after it.

    Which one is closed is found by a second chance: each that was used again since it was last
    looked at is passed over once. Thus a use costs a mark, and a file that is read once goes first.
    """

    def __init__(
        self,
        disk: Disk,
        open_files_max: int,
        keys: KeyRing | None = None,
        *,
        removal: Removal | None = None,
    ) -> None:
        """``removal``: None where the caller may wait until files are removed."""
        self.disk = disk
        self._removal = removal
        self.keys = keys or KeyRing()  # to what is encrypted in them
        self._scopes: dict[str, tuple[str, int]] = {}  # of data keys, by folder; logs that use it
        self.open_files_max = open_files_max
        self._lock = threading.Lock()
        self._files: OrderedDict[str, PooledFile] = OrderedDict()  # next to be looked at first

    def bind_keys(self, directory: str, scope: str) -> None:
        """Data keys in that folder are bound to ``scope``, and those of another one open nothing
        there, until as many ``release_keys``.
        """
        with self._lock:
            known, count = self._scopes.get(directory, (scope, 0))
            self._scopes[directory] = scope, count + 1 if known == scope else 1

    def release_keys(self, directory: str, scope: str) -> None:
        with self._lock:
            known, count = self._scopes.get(directory, (NO_SCOPE, 0))
            if known == scope and count > 1:
                self._scopes[directory] = scope, count - 1
            elif known == scope:
                self._scopes.pop(directory, None)

    def key_scope(self, path: str) -> str:
        """Of a data key's file."""
        return self._scopes.get(path.rpartition("/")[0], (NO_SCOPE, 0))[0]

    @property
    def open_count(self) -> int:
        return len(self._files)

    def pin(self, path: str) -> PooledFile:
        """The file at ``path``, open until as many ``unpin`` as ``pin``. Raises OSError."""
        with self._lock:
            pooled = self._files.get(path)
            if pooled is None:
                pooled = self._add(path, self.disk.open(path))
            else:
                pooled.used = True
            pooled.pins += 1
            return pooled

    def unpin(self, pooled: PooledFile) -> None:
        with self._lock:
            pooled.pins -= 1
            is_closed = not pooled.pins and pooled.is_gone
            if not is_closed and len(self._files) > self.open_files_max:
                self._evict()
        if is_closed:
            self._close(pooled)

    def _write_rest(
        self, pooled: OpenFile, data: bytes | memoryview, position: int, written: int
    ) -> None:
        """What one write has left. Raises OSError."""
        write_all(pooled.file, memoryview(data)[written:], position + written)

    def _close(self, pooled: PooledFile) -> None:
        """It was forgotten, and has lost its last pin."""
        if self._removal is None:
            pooled.file.close()
        else:
            self._removal.close_file(pooled.file)

    def create(self, path: str) -> None:
        """An empty file, open. Raises OSError."""
        with self._lock:
            self._forget(path)
            self._add(path, self.disk.create(path))

    def write_new(self, path: str, data: bytes) -> None:
        """A file with that content, and nothing of an older one; not synced. Raises OSError, and
        there is none then.
        """
        self.create(path)
        pooled = self.pin(path)
        try:
            write_all(pooled.file, data, 0)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(path)
            raise
        finally:
            self.unpin(pooled)

    def forget(self, path: str) -> None:
        """The file was removed or replaced: who has it pinned keeps it, no one else finds it."""
        with self._lock:
            self._forget(path)

    def remove(self, *paths: str) -> None:
        """The files are no more, if they ever were, and are not found any more. Raises OSError."""
        for path in paths:
            self.forget(path)
            with contextlib.suppress(FileNotFoundError):
                self.disk.unlink(path)

    def discard(self, *paths: str) -> None:
        """As ``remove``, for who must not wait until the room is free. Raises OSError."""
        if self._removal is None:
            self.remove(*paths)
            return
        for path in paths:
            self.forget(path)
            self._removal.put_away(path)

    def clear_discarded(self, directory: str, names: Iterable[str]) -> None:
        """Have those of ``names`` removed that an earlier process has discarded. Raises OSError."""
        found = [f"{directory}/{name}" for name in names if name.endswith(DELETED_SUFFIX)]
        if found and self._removal is not None:
            self._removal.clear(directory)
        else:
            self.remove(*found)

    def close(self) -> None:
        """Close all that is not pinned; the rest goes with its last pin."""
        with self._lock:
            for path in list(self._files):
                self._forget(path)

    def _add(self, path: str, file: DiskFile) -> PooledFile:
        self._evict(room=1)
        self._files[path] = pooled = PooledFile(path, file)
        return pooled

    def _evict(self, room: int = 0) -> None:
        """Make room for so many more, as far as there are files without pins."""
        chances = 2 * len(self._files)
        while len(self._files) + room > self.open_files_max and chances:
            chances -= 1
            path, pooled = self._files.popitem(last=False)
            if pooled.pins or pooled.used:
                pooled.used = False
                self._files[path] = pooled
            else:
                pooled.is_gone = True
                pooled.file.close()

    def _forget(self, path: str) -> None:
        pooled = self._files.pop(path, None)
        if pooled is None:
            return
        pooled.is_gone = True
        if not pooled.pins:
            pooled.file.close()
