"""A bounded set of open files, shared by all logs of a node."""

import threading
from collections import OrderedDict

from streamlog.log.disk import Disk, DiskFile


class PooledFile:
    """An open file that stays open while it is pinned."""

    __slots__ = ("file", "note", "path", "pins", "retired")

    def __init__(self, path: str, file: DiskFile) -> None:
        self.path = path
        self.file = file
        self.note: object = None  # what its readers like to remember of it, some kilobytes
        self.pins = 0  # it may be closed only at 0
        self.retired = False  # its name is gone or means another file; closed with the last pin


class FilePool:
    """Opens files on demand and closes those longest unused; thread-safe.

    At most ``open_files_max`` are open, unless more are pinned at once: by slices on their way to a
    socket, and by a sync or a scrub that is running. A written file may be closed before it is
    synced: the sync opens it again, and the kernel reports a failed write-back to the first who
    opens the file after it.
    """

    def __init__(self, disk: Disk, open_files_max: int) -> None:
        self.disk = disk
        self.open_files_max = open_files_max
        self._lock = threading.Lock()
        self._files: dict[str, PooledFile] = {}  # all but the retired
        self._idle: OrderedDict[str, PooledFile] = OrderedDict()  # not pinned, longest unused first

    @property
    def open_count(self) -> int:
        return len(self._files)

    def pin(self, path: str) -> PooledFile:
        """The file at ``path``, open until as many ``unpin`` as ``pin``. Raises OSError."""
        with self._lock:
            pooled = self._files.get(path)
            if pooled is None:
                pooled = self._add(path, self.disk.open(path))
            elif not pooled.pins:
                del self._idle[path]
            pooled.pins += 1
            return pooled

    def unpin(self, pooled: PooledFile) -> None:
        with self._lock:
            pooled.pins -= 1
            if pooled.pins:
                return
            if pooled.retired:
                pooled.file.close()
            else:
                self._idle[pooled.path] = pooled
                self._evict()

    def create(self, path: str) -> None:
        """An empty file, open. Raises OSError."""
        with self._lock:
            self._forget(path)
            self._idle[path] = self._add(path, self.disk.create(path))

    def forget(self, path: str) -> None:
        """The file was removed or replaced: who has it pinned keeps it, nobody else finds it."""
        with self._lock:
            self._forget(path)

    def close(self) -> None:
        """Close all that is not pinned; the rest goes with its last pin."""
        with self._lock:
            for path in list(self._files):
                self._forget(path)

    def _add(self, path: str, file: DiskFile) -> PooledFile:
        self._files[path] = pooled = PooledFile(path, file)
        self._evict()
        return pooled

    def _evict(self) -> None:
        while len(self._files) > self.open_files_max and self._idle:
            path, pooled = self._idle.popitem(last=False)
            del self._files[path]
            pooled.file.close()

    def _forget(self, path: str) -> None:
        pooled = self._files.pop(path, None)
        if pooled is None:
            return
        if pooled.pins:
            pooled.retired = True
        else:
            del self._idle[path]
            pooled.file.close()
