"""Small files that others keep in a log's folder, and that go with it."""

import contextlib

from streamlog.log.disk import Disk, storage_error


class Beside:
    """From any thread. Whatever fails raises Unavailable, and the log goes on."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory

    def read(self, name: str) -> bytes:
        """b"" where there is none."""
        path = f"{self.directory}/{name}"
        try:
            return self._disk.read_small(path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error(error, path) from error

    def write(self, name: str, data: bytes) -> None:
        """Replace it as a whole, durably."""
        path = f"{self.directory}/{name}"
        try:
            self._disk.write_small(path, data)
        except OSError as error:
            raise storage_error(error, path) from error

    def remove(self, name: str) -> None:
        """If it is there. A power cut may bring it back."""
        path = f"{self.directory}/{name}"
        try:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
        except OSError as error:
            raise storage_error(error, path) from error
