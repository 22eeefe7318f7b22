"""A FUSE file system in memory that records each operation: ``python -m tests.power.recorded_disk MOUNT RECORD``.

The kernel hands each ``write``, ``fsync`` and so on to it before the process that called goes on: there is no cache of
writes between. So the record has all that the process did to its files, in order, and what it may rely on after a sync.
It is written to the file ``RECORD`` when the file system is unmounted.
"""

import errno
import os
import pickle
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tests.simulation.disk import Inode, SimDisk

Kind = Literal[
    "create", "write", "truncate", "sync", "rename", "unlink", "mkdir", "rmdir", "sync names"
]
SYNCS: Final = ("sync", "sync names")
BLOCK: Final = 4_096
BLOCKS: Final = 1 << 20


class Operation(NamedTuple):
    """What a process did. Files are named by the order of their creation, since a name may pass to another."""

    kind: Kind
    at_ns: int
    """By the monotonic clock, when it began."""
    path: str = ""
    file: int = -1
    position: int = 0
    data: bytes = b""
    new_path: str = ""


class Applied:
    """The disk that operations lead to."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.files: list[Inode] = []

    def apply(self, it: Operation) -> None:
        """Raises OSError, as the process saw it."""
        disk = self.disk
        match it.kind:
            case "create":
                disk.create(it.path).close()
                self.files.append(disk.inode(it.path))
            case "write":
                self.files[it.file].write(it.data, it.position)
            case "truncate":
                self.files[it.file].truncate(it.position)
            case "sync":
                self.files[it.file].sync()
            case "rename":
                disk.rename(it.path, it.new_path)
            case "unlink":
                disk.unlink(it.path)
            case "mkdir":
                disk.make_directory(it.path, durable=False)
            case "rmdir":
                disk.remove_directory(it.path)
            case "sync names":
                disk.sync_directory(it.path)


class RecordedDisk:
    """FUSE's operations, by path. An OSError is the process's."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._applied = Applied()
        self._lock = threading.Lock()
        self._open: dict[int, int] = {}
        """The file of each open handle."""
        self._handles = 0
        self._changed_ns: dict[int, int] = {}

    def _do(self, kind: Kind, path: str = "", **fields: Any) -> None:
        with self._lock:
            it = Operation(kind, time.monotonic_ns(), path, **fields)
            self._applied.apply(it)
            self.operations.append(it)
            if it.file >= 0:
                self._changed_ns[it.file] = time.time_ns()

    def _file(self, path: str) -> int:
        inode = self._applied.disk.inode(path)
        return next(i for i, it in enumerate(self._applied.files) if it is inode)

    def _handle(self, file: int) -> int:
        self._handles += 1
        self._open[self._handles] = file
        return self._handles

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        with self._lock:
            disk = self._applied.disk
            if fh is None and disk.has_folder(path):
                return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
            file = self._file(path) if fh is None else self._open[fh]
            size = len(self._applied.files[file].live)
            times = dict.fromkeys(("st_mtime", "st_ctime"), self._changed_ns.get(file, 0))
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": size, **times}

    def readdir(self, path: str, _fh: int) -> list[str]:
        with self._lock:
            return [".", "..", *self._applied.disk.names(path)]

    def statfs(self, _path: str) -> dict[str, int]:
        sizes = dict.fromkeys(("f_bsize", "f_frsize"), BLOCK)
        return sizes | dict.fromkeys(("f_blocks", "f_bfree", "f_bavail"), BLOCKS)

    def mkdir(self, path: str, _mode: int) -> None:
        if self._applied.disk.has_folder(path):
            raise FileExistsError(errno.EEXIST, path)
        self._do("mkdir", path)

    def rmdir(self, path: str) -> None:
        self._do("rmdir", path)

    def unlink(self, path: str) -> None:
        self._do("unlink", path)

    def rename(self, old: str, new: str) -> None:
        self._do("rename", old, new_path=new)

    def create(self, path: str, _mode: int, _info: object = None) -> int:
        self._do("create", path)
        return self._handle(self._file(path))

    def open(self, path: str, _flags: int) -> int:
        with self._lock:
            return self._handle(self._file(path))

    def release(self, _path: str, fh: int) -> None:
        with self._lock:
            del self._open[fh]

    def read(self, _path: str, size: int, offset: int, fh: int) -> bytes:
        with self._lock:
            return bytes(self._applied.files[self._open[fh]].live[offset : offset + size])

    def write(self, _path: str, data: bytes, offset: int, fh: int) -> int:
        self._do("write", file=self._open[fh], position=offset, data=bytes(data))
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        file = self._file(path) if fh is None else self._open[fh]
        self._do("truncate", file=file, position=length)

    def fsync(self, _path: str, _datasync: int, fh: int) -> None:
        self._do("sync", file=self._open[fh])

    def fsyncdir(self, path: str, _datasync: int, _fh: int) -> None:
        self._do("sync names", path)

    def chmod(self, _path: str, _mode: int) -> None: ...
    def chown(self, _path: str, _uid: int, _gid: int) -> None: ...
    def utimens(self, _path: str, _times: object = None) -> None: ...
    def flush(self, _path: str, _fh: int) -> None: ...


def serve(mount: Path, record: Path) -> None:
    """Until it is unmounted."""
    import mfusepy

    disk = RecordedDisk()

    class Operations(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

    for name in [it for it in vars(RecordedDisk) if not it.startswith("_")]:
        setattr(Operations, name, staticmethod(_answering(getattr(disk, name))))
    try:
        mfusepy.FUSE(
            Operations(),
            str(mount),
            foreground=True,
            attr_timeout=0,
            entry_timeout=0,
            fsname="recorded",
        )
    finally:
        record.write_bytes(pickle.dumps([tuple(it) for it in disk.operations]))


def _answering(call: Any) -> Any:
    """What the call returns, or 0, as FUSE wants it."""

    def answer(*arguments: Any, **named: Any) -> Any:
        found = call(*arguments, **named)
        return 0 if found is None else found

    return answer


def recorded(record: Path) -> list[Operation]:
    """Trusted: this test has written it."""
    return [Operation(*it) for it in pickle.loads(record.read_bytes())]


def cannot_mount() -> str:
    """Why there can be no FUSE here; empty: there can."""
    if os.geteuid():
        return "only root may mount"
    if not Path("/dev/fuse").exists():
        return "no /dev/fuse"
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        return f"no mfusepy, or no libfuse: {error}"
    return ""


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
