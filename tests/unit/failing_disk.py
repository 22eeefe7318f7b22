"""The machine's disk, which fails when a test says so."""

import errno
import os
from dataclasses import dataclass, field

from streamlog.log.storage.disk import OsDisk, OsFile


@dataclass
class Faults:
    """What fails, by the name of the operation: the errno, and for which paths."""

    active: dict[str, tuple[int, str]] = field(default_factory=dict)

    def break_(self, operation: str, *, code: int = errno.EIO, path: str = "") -> None:
        self.active[operation] = code, path

    def mend(self) -> None:
        self.active.clear()

    def check(self, operation: str, path: str) -> None:
        code, part = self.active.get(operation, (0, ""))
        if code and part in path:
            raise OSError(code, os.strerror(code), path)


class FailingFile(OsFile):
    """An open file of a FailingDisk."""

    __slots__ = ("_faults", "_path")

    def __init__(self, fd: int, path: str, faults: Faults) -> None:
        super().__init__(fd)
        self._path = path
        self._faults = faults

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        self._faults.check("pwrite", self._path)
        return super().pwrite(data, position)

    def sync(self) -> None:
        self._faults.check("sync", self._path)
        super().sync()


class FailingDisk(OsDisk):
    """An OsDisk with ``faults``."""

    def __init__(self) -> None:
        self.faults = Faults()

    def open(self, path: str, *, writable: bool = True) -> OsFile:
        self.faults.check("open", path)
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        return FailingFile(os.open(path, flags), path, self.faults)

    def create(self, path: str) -> OsFile:
        self.faults.check("create", path)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return FailingFile(os.open(path, flags, 0o644), path, self.faults)

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        self.faults.check("make_directory", path)
        return super().make_directory(path, durable=durable)

    def rename(self, old: str, new: str) -> None:
        self.faults.check("rename", old)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.faults.check("unlink", path)
        super().unlink(path)

    def write_small(self, path: str, data: bytes) -> None:
        self.faults.check("write_small", path)
        super().write_small(path, data)
