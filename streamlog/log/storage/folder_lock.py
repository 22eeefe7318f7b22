"""A lock on a folder: the system drops it with the process, however that ends."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final, Self

LOCK: Final = "lock"
"""The file that is locked, unless a folder names it otherwise."""

_NOTE_BYTES_MAX: Final = 20
"""More than the number of any process has."""


class FolderInUse(Exception):
    """Another process holds the folder; ``process`` is the one noted there, if there is one.

    Its text goes behind the folder's name: ``is in use by process 7``. Callers make an error of
    their own of it, which says what to do.
    """

    def __init__(self, process: str) -> None:
        self.process = process
        super().__init__(f"is in use by {f'process {process}' if process else 'another process'}")


class FolderLock:
    """Held until ``close``. A process that holds it alone notes the number of its process in the file."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    @classmethod
    def take(cls, folder: Path, *, name: str = LOCK, shared: bool = False) -> Self:
        """``shared``: with others that share it, and with none that does not.

        Raises FolderInUse at once where it cannot be had, OSError where the file cannot be.
        """
        fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            process = _noted(fd)
            os.close(fd)
            raise FolderInUse(process) from None
        except OSError:
            os.close(fd)
            raise
        _note(fd, b"" if shared else b"%d\n" % os.getpid())
        return cls(fd)

    def close(self) -> None:
        """Let others have the folder; may be called again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _note(fd: int, text: bytes) -> None:
    """In place of the process that held it before."""
    with contextlib.suppress(OSError):  # a full disk: the lock counts, not what is in it
        os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)


def _noted(fd: int) -> str:
    with contextlib.suppress(OSError):
        return os.pread(fd, _NOTE_BYTES_MAX, 0).decode(errors="replace").strip()
    return ""
