"""One sync for all files of a file system, in place of one for each of many."""

import ctypes
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from streamlog.condition import CRITICAL, Condition
from streamlog.log.compiled.open_files import FileDescriptor

logger = logging.getLogger(__name__)

SHARED_SYNC_FAILED: Final = Condition(
    "SL-0319",
    "sync of the file system failed",
    "files are synced one by one; look at the disk",
    meaning="One sync for the files of many partitions failed.",
    severity=CRITICAL,
)

FILE_SYSTEMS: Final = frozenset({"ext4", "xfs", "btrfs"})
"""Of which it is known that syncfs waits for content and for what refers to it, and flushes the
device. Those over a network or in user space may do less."""
KERNEL: Final = (5, 8)
"""The first whose syncfs tells of failed write-backs."""
WORTH_S: Final = 0.02
WORTH_FOR_FILE_S: Final = 0.000_2
"""With this for each file, which it takes alone. Above it others write much to the file system, and
we would wait for that ..."""
PAUSE_S: Final = 2.0
"""... so files are synced by themselves for so long."""


class _File(Protocol):
    def fileno(self) -> int: ...


class SharedSync:
    """``sync`` from one thread at a time.

    A write-back that failed is told once to the next that asks, whichever file it was. So after
    one failure no sync is believed any more: each file is asked by itself, for good.
    """

    def __init__(self, directory_fd: int) -> None:
        self._fd = directory_fd  # kept open: the kernel notes on it which failures were told
        self._device = os.fstat(directory_fd).st_dev
        self._syncfs = ctypes.CDLL(None, use_errno=True).syncfs
        self._has_failed = False
        self._not_before = 0.0

    @classmethod
    def open(cls, directory: Path) -> "SharedSync | None":
        """None where there is no such thing, or where it promises less than a sync of a file."""
        try:
            if _kernel() < KERNEL or _file_system(directory.stat().st_dev) not in FILE_SYSTEMS:
                return None
            return cls(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except (OSError, ValueError, AttributeError):
            return None

    @property
    def is_usable(self) -> bool:
        return not self._has_failed

    @property
    def is_advisable(self) -> bool:
        """It is also no slower than syncs of the files, as far as is known."""
        return self.is_usable and time.monotonic() >= self._not_before

    def sync(self, files: Iterable[_File] = (), *, others: int = 0) -> bool:
        """Whether all of them are synced now, with their folders; else each is to be by itself.

        ``others``: so many more syncs it takes the place of, of what certainly is on this file system.
        """
        files = list(files)
        if self._has_failed or any(_device(it) != self._device for it in files):
            return False
        started = time.monotonic()
        if self._syncfs(self._fd):
            self._has_failed = True
            problem = os.strerror(ctypes.get_errno())
            logger.error(SHARED_SYNC_FAILED, extra={"problem": problem})
            return False
        ended = time.monotonic()
        if ended - started > WORTH_S + WORTH_FOR_FILE_S * (len(files) + others):
            self._not_before = ended + PAUSE_S
        return True

    def close(self) -> None:
        self._has_failed = True
        os.close(self._fd)


def _device(file: _File) -> int:
    """Of its file system. An open file stays in it, and each sync asks for all files."""
    if isinstance(file, FileDescriptor):
        return file.device()
    return os.fstat(file.fileno()).st_dev


def _kernel() -> tuple[int, int]:
    if os.uname().sysname != "Linux":
        return 0, 0
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int(minor.partition("-")[0])


def _file_system(device: int) -> str:
    """Its type, as /proc has it."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == wanted:
            return right.split()[0]
    return ""
