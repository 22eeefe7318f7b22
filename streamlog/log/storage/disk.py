"""All access to files, so that a simulated disk can lose, tear and refuse what a real one might."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Final, NamedTuple, Protocol

from streamlog.errors import Overloaded, StorageFailed, StorageFull, Unavailable
from streamlog.log.compiled.open_files import FileDescriptor
from streamlog.log.layout import TEMPORARY_SUFFIX

SMALL_FILE_BYTES_MAX: Final = 1 << 30
"""Of a file that is read and written as a whole. A metadata snapshot takes 1.2 KiB for a plain
stream, a snapshot of message ids 12 bytes and the id for each.
"""


DESCRIPTORS_PAUSE_S: Final = 0.05
DESCRIPTORS_TRIES: Final = 200
"""Ten seconds in all."""


class FileTooLarge(OSError):
    """The file is neither read nor written: a part of it would pass for the whole."""

    def __init__(self, path: str, length: int) -> None:
        text = f"{length} bytes, and a file of this kind has at most {SMALL_FILE_BYTES_MAX}"
        super().__init__(errno.EFBIG, text, path)


def check_small(path: str, length: int) -> None:
    """Asked before a write as well, so that what is written can be read. Raises FileTooLarge."""
    if length > SMALL_FILE_BYTES_MAX:
        raise FileTooLarge(path, length)


class FileState(NamedTuple):
    """What a folder tells of a file without opening it."""

    size_bytes: int
    version: tuple[int, int]
    """Its inode and the time of its last change: another file, or another content, has another."""


class DiskFile(Protocol):
    """An open file. Whatever fails raises OSError."""

    def pread(self, length: int, position: int) -> bytes:
        """At most ``length`` bytes, fewer only at the end of the file."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        """The count of bytes written, which may be fewer than given."""

    def truncate(self, length: int) -> None: ...
    def sync(self) -> None:
        """fdatasync: content and size are on the disk, the folder's entry need not be."""

    def size(self) -> int: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """The files of one file system. Whatever fails raises OSError."""

    def open(self, path: str, *, writable: bool = True) -> DiskFile:
        """An existing file."""

    def create(self, path: str) -> DiskFile:
        """An empty file, whatever was there before."""

    def sizes(self, directory: str) -> dict[str, int]:
        """The plain files of a folder with their sizes."""

    def states(self, directory: str) -> dict[str, FileState]:
        """The plain files of a folder."""

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        """With its parents; no error if it is there. Whether it was made. Not ``durable``: a power cut
        may take what was made, until the folders around it are synced.
        """

    def remove_directory(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def read_small(self, path: str) -> bytes:
        """The whole file. Raises FileTooLarge."""

    def write_small(self, path: str, data: bytes) -> None:
        """Replace the file as a whole, or not at all, and durably. Raises FileTooLarge."""


def write_all(file: DiskFile, data: bytes | bytearray | memoryview, position: int) -> None:
    """However often that takes. Raises OSError, also where the file takes nothing more."""
    with memoryview(data) as view:
        written = 0
        while written < len(view):
            count = file.pwrite(view[written:], position + written)
            if not count:
                raise OSError(errno.EIO, f"nothing of {len(view) - written} bytes was written")
            written += count


class OsFile(FileDescriptor):
    """A file descriptor."""

    __slots__ = ()

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]  # a signal or the end of the file
        got = len(data)
        while got < length and (data := os.pread(self._fd, length - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class OsDisk:
    """The machine's own file system."""

    def open(self, path: str, *, writable: bool = True) -> OsFile:
        return OsFile(os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC))

    def create(self, path: str) -> OsFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return OsFile(os.open(path, flags, 0o644))

    def sizes(self, directory: str) -> dict[str, int]:
        return {name: state.size_bytes for name, state in self.states(directory).items()}

    def states(self, directory: str) -> dict[str, FileState]:
        found = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed or renamed meanwhile
                    if entry.is_file(follow_symlinks=False):
                        stat = entry.stat()
                        version = stat.st_ino, stat.st_ctime_ns
                        found[entry.name] = FileState(stat.st_size, version)
        return found

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        """Each folder made is synced into its parent, else a power cut could take the log with it."""
        if not durable:
            return _make_directory(path)
        made, missing, is_new = Path(path), [], False
        while not made.exists():
            missing.append(made)
            made = made.parent
        for folder in reversed(missing):
            is_new = True
            try:
                folder.mkdir()
            except FileExistsError:
                is_new = False
            self.sync_directory(str(folder.parent))
        return is_new

    def remove_directory(self, path: str) -> None:
        Path(path).rmdir()

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        Path(old).rename(new)

    def unlink(self, path: str) -> None:
        os.unlink(path)  # noqa: PTH108  (thousands at a time)

    def read_small(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a start reads thousands
        try:
            check_small(path, size := os.fstat(fd).st_size)
            data = os.read(fd, size + 1)
            while len(data) < size and (more := os.read(fd, size + 1 - len(data))):
                data += more
            return data
        finally:
            os.close(fd)

    def write_small(self, path: str, data: bytes) -> None:
        check_small(path, len(data))
        temporary = path + TEMPORARY_SUFFIX
        try:
            with Path(temporary).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
            raise
        self.sync_directory(str(Path(path).parent))


def _make_directory(path: str) -> bool:
    """With its parents, and no system call more than that takes: thousands are made at a time."""
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileExistsError:
        return False
    except FileNotFoundError:
        parent = os.path.dirname(path)  # noqa: PTH120
        if parent in ("", path):
            raise
        _make_directory(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)  # noqa: PTH102
            return True
        return False
    return True


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_full(error: OSError) -> bool:
    return error.errno in _FULL


def with_descriptors(call: Callable[[], None]) -> None:
    """``call`` opens files, and blocks. Where there are no file descriptors it has done nothing,
    and is called again for a while: a lack of them passes, and what fails here is closed until a
    restart. Raises what it raises.
    """
    for _ in range(DESCRIPTORS_TRIES):
        try:
            call()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        else:
            return
        sleep(DESCRIPTORS_PAUSE_S)
    call()


def storage_error(error: OSError, path: str) -> Unavailable:
    """What to raise in place of ``error``."""
    text = f"{path}: {error.strerror or error}"
    if is_full(error):
        return StorageFull(text)
    return Overloaded(text) if error.errno in _SHORT_OF_FILES else StorageFailed(text)


@contextlib.contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """What a disk raises in there comes out as ``storage_error``."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error
