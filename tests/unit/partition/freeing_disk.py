"""The machine's disk, which notes in which thread the room of each file is freed."""

import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

from streamlog.log.storage.disk import OsDisk, OsFile

Key = tuple[int, int]
"""A file, whatever its names."""


class FreeingFile(OsFile):
    __slots__ = ("_disk", "_key", "_path")

    def __init__(self, fd: int, path: str, disk: "FreeingDisk") -> None:
        super().__init__(fd)
        self._path, self._disk = path, disk
        stat = os.fstat(fd)
        self._key = stat.st_dev, stat.st_ino
        disk.opened(self._key)

    def close(self) -> None:
        stat = os.fstat(self.fileno())
        super().close()
        self._disk.closed(self._key)
        if not stat.st_nlink:
            self._disk.lost(self._key, self._path, stat.st_size)


class FreeingDisk(OsDisk):
    """A file's room is free once it has no name and nobody has it open, or it is made empty."""

    def __init__(self) -> None:
        self.freed: list[tuple[str, int]] = []
        """The name and the thread, for each file of a segment that had a byte."""
        self._open: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def freed_in(self, thread: int) -> list[str]:
        return [name for name, where in self.freed if where == thread]

    @property
    def open_count(self) -> int:
        """Of the handles that are open."""
        return self._open.total()

    def opened(self, key: Key) -> None:
        with self._lock:
            self._open[key] += 1

    def closed(self, key: Key) -> None:
        with self._lock:
            self._open[key] -= 1

    def lost(self, key: Key, path: str, size_bytes: int) -> None:
        """One name or one handle less, and it was the last name."""
        if size_bytes and ".log" in path and not self._open[key]:
            self.freed.append((path.rpartition("/")[2], threading.get_ident()))

    def open(self, path: str, *, writable: bool = True) -> OsFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        return FreeingFile(os.open(path, flags), path, self)

    def create(self, path: str) -> OsFile:
        with suppress(FileNotFoundError):
            stat = Path(path).stat()
            self.lost((0, 0), path, stat.st_size)  # truncated, open or not
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return FreeingFile(os.open(path, flags, 0o644), path, self)

    def rename(self, old: str, new: str) -> None:
        replaced = None
        with suppress(FileNotFoundError):
            replaced = Path(new).stat()
        super().rename(old, new)
        if replaced is not None:
            self.lost((replaced.st_dev, replaced.st_ino), new, replaced.st_size)

    def unlink(self, path: str) -> None:
        stat = Path(path).stat()
        super().unlink(path)
        self.lost((stat.st_dev, stat.st_ino), path, stat.st_size)
