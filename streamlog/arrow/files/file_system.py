"""File systems to read streams from: the machine's own, and any that pyarrow or fsspec know."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from streamlog.errors import ConfigError
from streamlog.log.storage.disk import OsDisk, OsFile, check_small

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class ReadableFile(Protocol):
    """Open for reading. Whatever fails raises OSError."""

    def pread(self, length: int, position: int) -> bytes:
        """At most ``length`` bytes, fewer only at the end of the file."""

    def read_into(self, buffer: bytearray, position: int) -> int:
        """How many bytes were put into the buffer; it need not be full."""

    def size(self) -> int: ...
    def close(self) -> None: ...


class Files(Protocol):
    """One file system; paths are text with slashes. Whatever fails raises OSError."""

    def children(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """The files of a folder with their sizes, and its folders, by name."""

    def open(self, path: str) -> ReadableFile: ...


@contextmanager
def opened(files: Files, path: str) -> Iterator[ReadableFile]:
    """Raises FileNotFoundError."""
    file = files.open(path)
    try:
        yield file
    finally:
        file.close()


def read_small(files: Files, path: str) -> bytes:
    """The whole file. Raises FileNotFoundError, FileTooLarge."""
    with opened(files, path) as file:
        size = file.size()
        check_small(path, size)
        return file.pread(size, 0)


def files_at(url: str) -> tuple[Files, str]:
    """A file system, and the path in it. Raises ConfigError for an unknown URL."""
    if "://" not in url or url.startswith("file://"):
        path = url.removeprefix("file://").removeprefix("file:")
        return LocalFiles(), os.path.abspath(path)  # noqa: PTH100 - text, as everywhere here
    scheme = urlsplit(url).scheme
    if urlsplit(url).password is not None:
        problem = "an option's value is shown in plans and event logs, so no secret may be in it"
        raise ConfigError("path", problem, f"let {scheme} find its credentials on each machine")
    file_system, path = _file_system(url, scheme)
    return ArrowFiles(file_system), path


def _file_system(url: str, scheme: str) -> "tuple[FileSystem, str]":
    from pyarrow import ArrowInvalid, ArrowNotImplementedError
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        file_system, path = FileSystem.from_uri(url)
        return file_system, str(path)
    except (ArrowInvalid, ArrowNotImplementedError):
        pass
    except OSError as error:
        problem = f"{scheme}:// cannot be reached from here ({error})"
        raise ConfigError("path", problem, "see to its address and credentials") from None
    try:
        fsspec: Any = import_module("fsspec.core")
        found, path = fsspec.url_to_fs(url)
        return PyFileSystem(FSSpecHandler(found)), str(path)
    except (ImportError, ValueError) as error:
        problem = f"neither pyarrow nor fsspec can read {scheme}:// here ({error})"
        remedy = "install what it wants on every machine, or mount it and name the folder"
        raise ConfigError("path", problem, remedy) from None


class LocalFile(OsFile):
    """A file descriptor."""

    def read_into(self, buffer: bytearray, position: int) -> int:
        return os.preadv(self.fileno(), [buffer], position)


class LocalFiles:
    """The machine's own, with what is mounted into it."""

    def children(self, folder: str) -> tuple[dict[str, int], list[str]]:
        files: dict[str, int] = {}
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    found = entry.stat()
                except FileNotFoundError:  # it went meanwhile
                    continue
                if stat.S_ISDIR(found.st_mode):
                    folders.append(entry.name)
                else:
                    files[entry.name] = found.st_size
        return files, sorted(folders)

    def open(self, path: str) -> LocalFile:
        return LocalFile(OsDisk().open(path, writable=False).fileno())


class ArrowFile:
    """A random access file of pyarrow's."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def pread(self, length: int, position: int) -> bytes:
        data: bytes = self._file.read_at(length, position)
        return data

    def read_into(self, buffer: bytearray, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def size(self) -> int:
        size: int = self._file.size()
        return size

    def close(self) -> None:
        self._file.close()


class ArrowFiles:
    """What pyarrow reads: S3, GCS, HDFS, and through it what fsspec reads."""

    def __init__(self, file_system: "FileSystem") -> None:
        self._file_system = file_system

    def children(self, folder: str) -> tuple[dict[str, int], list[str]]:
        from pyarrow.fs import FileSelector, FileType

        found = self._file_system.get_file_info(FileSelector(folder))
        files = {it.base_name: it.size for it in found if it.type == FileType.File}
        return files, sorted(it.base_name for it in found if it.type == FileType.Directory)

    def open(self, path: str) -> ArrowFile:
        return ArrowFile(self._file_system.open_input_file(path))
