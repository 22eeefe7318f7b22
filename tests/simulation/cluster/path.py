"""Paths on a simulated disk, for code that asks the file system itself what is there."""

import errno
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, ClassVar

from tests.simulation.disk import SimDisk


class SimPath(PurePosixPath):
    """``path_on`` makes one; what is derived from it is on the same disk."""

    disk: ClassVar[SimDisk]

    def exists(self) -> bool:
        return self.is_dir() or self.disk.has_file(str(self))

    def stat(self) -> None:
        """What it would tell is not asked for. Raises FileNotFoundError."""
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))

    def is_dir(self) -> bool:
        return self.disk.has_folder(str(self))

    def is_symlink(self) -> bool:
        return False

    def iterdir(self) -> Iterator["SimPath"]:
        for name in self.disk.names(str(self)):
            yield self / name


def path_on(disk: SimDisk, path: str) -> Any:
    return type("SimPath", (SimPath,), {"disk": disk})(path)
