from typing import Final

from streamlog.errors import CorruptFile
from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.encryption.key_file import WrappedKey
from streamlog.log.storage.disk import Disk
from streamlog.log.storage.file_pool import FilePool

NEVER: Final = 2**63 - 1
"""As ``since``: batches may be in the clear wherever they lie."""
KEY_MISSING: Final = "its segment's data key is missing"


class SegmentKey:
    """A segment's data key, in a file beside it, and the cipher by it once that is needed."""

    __slots__ = ("_cipher", "_pool", "_scope", "_since_max", "is_doubtful", "is_unsynced", "path")

    def __init__(
        self,
        pool: FilePool,
        path: str,
        cipher: BatchCipher | None = None,
        *,
        since_max: int = NEVER,
    ) -> None:
        """``since_max``: from there on all is encrypted, so a file that allows for batches in the
        clear behind it is another segment's.
        """
        self.path = path
        self._scope = pool.key_scope(path)
        self._since_max = since_max
        self.is_unsynced = False  # its file was written since the last ticket
        self.is_doubtful = False  # its file was replaced, and a power cut may undo that
        self._pool = pool
        self._cipher = cipher

    @classmethod
    def made(cls, pool: FilePool, path: str, since: int) -> "SegmentKey":
        """A new one, in the file from now on but not synced; ``since`` is the offset of the first
        batch under it. Raises EncryptionKeyMissing, OSError.

        Who syncs what was encrypted by it has to sync that file, and its name, as well.
        """
        data_key, wrapped = pool.keys.new_data_key(since, pool.key_scope(path))
        pool.write_new(path, key_file.encode(wrapped))
        key = cls(pool, path, BatchCipher(data_key, since))
        key.is_unsynced = True
        return key

    @property
    def cipher(self) -> BatchCipher:
        """Raises CorruptFile, EncryptionKeyMissing, OSError where it has to be read and cannot."""
        if self._cipher is None:
            wrapped = self.wrapped()
            data_key = self._unwrapped(wrapped)
            if wrapped.since > self._since_max:
                raise CorruptFile(
                    f"{self.path}: encryption begins at offset {wrapped.since} by it, and all from"
                    f" offset {self._since_max} on was encrypted"
                )
            self._cipher = BatchCipher(data_key, wrapped.since)
        return self._cipher

    def unbind(self) -> None:
        """From now on batches of the segment may be in the clear. The file is synced; the caller
        makes a new object for it. Blocking. Raises as ``cipher``.
        """
        self._write_since(NEVER)

    def bound_from(self, since: int) -> "SegmentKey":
        """From there on no batch of the segment may be in the clear. The file is synced."""
        return SegmentKey(self._pool, self.path, BatchCipher(self._write_since(since), since))

    def _write_since(self, since: int) -> bytes:
        """The data key."""
        data_key = self._unwrapped(self.wrapped())
        wrapped = self._pool.keys.wrapped(data_key, since, self._scope)
        self._pool.disk.write_small(self.path, key_file.encode(wrapped))
        self._pool.forget(self.path)
        return data_key

    def _unwrapped(self, wrapped: WrappedKey) -> bytes:
        """Raises CorruptFile, EncryptionKeyMissing."""
        data_key = self._pool.keys.unwrapped(wrapped, self.path)
        if wrapped.scope != self._scope:
            raise CorruptFile(f"{self.path}: it is of another partition ({wrapped.scope})")
        return data_key

    def wrapped(self) -> WrappedKey:
        """As it is on the disk. Raises CorruptFile, OSError."""
        return key_file.decode(self._pool.disk.read_small(self.path), self.path)


def key_problem(disk: Disk, path: str) -> str:
    """Why what was encrypted by the key in that file cannot be read; "" where the file is sound.

    Whether anybody has the key that opens it is another question. Raises OSError.
    """
    try:
        key_file.decode(disk.read_small(path), path)
    except FileNotFoundError:
        return KEY_MISSING
    except CorruptFile as error:
        return f"its segment's data key is damaged: {error}"
    return ""
