"""Small files that others keep in a log's folder, and that go with it."""

import contextlib

from streamlog.log.encryption.envelope import enveloped, is_enveloped, opened
from streamlog.log.encryption.key_file import NO_SCOPE
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.layout import TEMPORARY_SUFFIX
from streamlog.log.storage.disk import Disk, storage_error, write_all


class SidecarFiles:
    """From any thread. Whatever fails raises Unavailable, and the log goes on."""

    def __init__(
        self, disk: Disk, directory: str, keys: KeyRing | None = None, scope: str = NO_SCOPE
    ) -> None:
        """``keys``: for those that are encrypted; ``scope``: of the log's partition."""
        self._disk = disk
        self._scope = scope
        self._keys = keys or KeyRing()
        self.directory = directory

    def read(self, name: str) -> bytes:
        """b"" where there is none. Raises CorruptFile for one that was encrypted and changed."""
        path = f"{self.directory}/{name}"
        try:
            data = self._disk.read_small(path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error(error, path) from error
        return opened(data, self._keys, path, self._scope) if is_enveloped(data) else data

    def write(
        self, name: str, data: bytes, *, encrypts: bool = False, durable: bool = True
    ) -> None:
        """Replace it as a whole. Not ``durable``: a power cut may leave the old one, none, or one
        that is torn, so that the file must tell that by itself.
        """
        path = f"{self.directory}/{name}"
        if encrypts:
            data = enveloped(data, self._keys, self._scope)
        try:
            if durable:
                self._disk.write_small(path, data)
            else:
                self._replace(path, data)
        except OSError as error:
            raise storage_error(error, path) from error

    def _replace(self, path: str, data: bytes) -> None:
        temporary = path + TEMPORARY_SUFFIX
        try:
            file = self._disk.create(temporary)
            try:
                write_all(file, data, 0)
            finally:
                file.close()
            self._disk.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.unlink(temporary)
            raise

    def remove(self, name: str) -> None:
        """If it is there. A power cut may bring it back."""
        path = f"{self.directory}/{name}"
        try:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
        except OSError as error:
            raise storage_error(error, path) from error
