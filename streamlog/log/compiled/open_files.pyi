"""Writes to the end of open files, compiled: each of very many logs writes to another one."""

from streamlog.log.storage.disk import Disk, DiskFile
from streamlog.log.storage.file_pool import PooledFile

SOURCES: int

class OpenFile:
    """An open file that stays open while it is pinned."""

    path: str
    file: DiskFile
    note: object
    """What its readers like to remember of it, some kilobytes."""
    pins: int
    """It may be closed only at 0."""
    used: bool
    """Again, since it was opened or looked at for whether to close it."""
    is_gone: bool
    """It is not found any more, and is closed with the last pin."""

class OpenFiles:
    """Of a pool, what a write needs."""

    disk: Disk
    open_files_max: int

    def write(
        self,
        path: str,
        data: bytes | memoryview,
        position: int,
        known: PooledFile | None = None,
    ) -> PooledFile:
        """Write ``data`` at the end of the file at ``path``, which is ``position``; the file.

        ``known``: what the last call for the path returned. It is used while the pool has it, and
        may be closed between two calls: very many files are written to now and then.
        Raises OSError, when the file ends at ``position`` as before; StorageFailed where it does not.
        """

class FileDescriptor:
    """Of an open file."""

    _fd: int

    def __init__(self, fd: int) -> None: ...
    def device(self) -> int:
        """Of the file system that it is in, as ``os.stat`` has it; asked once. Raises OSError."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        """The count of bytes written, which may be fewer than given. Raises OSError."""

SYNC_REQUEST_BYTES: int
"""A request is a number of the caller's and a file descriptor; the answer the number and an errno, or 0. Both
are of 64 bits in the machine's order.
"""

def serve_syncs(requests: int, answers: int) -> None:
    """Take requests from a pipe, sync each, and put the answer into another pipe, until the first
    one ends. The interpreter lock is not held: a sync does not wait for it, and no other thread waits for
    a sync.
    """
