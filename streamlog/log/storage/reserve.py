"""Room kept aside on a disk, so that the little that must be written still is when it is full."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from streamlog.log.storage.disk import OsDisk, OsFile, is_full

T = TypeVar("T")


class Reserve:
    """A file of ``size_bytes`` that is given up when the disk is full. Thread-safe."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._is_kept = False

    @property
    def is_kept(self) -> bool:
        """As far as is known; False before the first ``keep``."""
        return self._is_kept

    def keep(self) -> None:
        """Have the file, unless it is there. Blocking. Raises OSError, and leaves nothing then."""
        with self._lock:
            if not self._path.exists() or self._path.stat().st_size != self._size_bytes:
                self._write()
            self._is_kept = True

    def give_up(self) -> bool:
        """Let others have the room; whether there was any."""
        with self._lock:
            self._is_kept = False
            try:
                self._path.unlink()
            except OSError:
                return False
            return True

    def _write(self) -> None:
        """Noise, which no file system can store in less."""
        try:
            with self._path.open("wb") as file:
                file.write(os.urandom(self._size_bytes))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._path.unlink()
            raise


class ReservingDisk(OsDisk):
    """For what must be written: where there is no room, the reserve is given up for it."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve

    def open(self, path: str, *, writable: bool = True) -> OsFile:
        return _ReservingFile(super().open(path, writable=writable), self.with_room)

    def create(self, path: str) -> OsFile:
        return _ReservingFile(
            self.with_room(lambda: super(ReservingDisk, self).create(path)), self.with_room
        )

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        return self.with_room(
            lambda: super(ReservingDisk, self).make_directory(path, durable=durable)
        )

    def write_small(self, path: str, data: bytes) -> None:
        self.with_room(lambda: super(ReservingDisk, self).write_small(path, data))

    def with_room(self, call: Callable[[], T]) -> T:
        """Raises OSError."""
        try:
            return call()
        except OSError as error:
            if not is_full(error) or not self._reserve.give_up():
                raise
        return call()


class _ReservingFile(OsFile):
    __slots__ = ("_with_room",)

    def __init__(self, file: OsFile, with_room: Callable[[Callable[[], int]], int]) -> None:
        super().__init__(file.fileno())
        self._with_room = with_room

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        return self._with_room(lambda: super(_ReservingFile, self).pwrite(data, position))
