from types import TracebackType
from typing import Final

from streamlog.errors import BrokenInvariant, CorruptBatch
from streamlog.log.encryption.segment_key import SegmentKey
from streamlog.log.storage.disk import storage_errors
from streamlog.log.storage.file_pool import FilePool, PooledFile

DECRYPTED_BYTES_MAX: Final = 1024 * 1024
"""The most that a slice of an encrypted segment has, but for a first batch that is larger."""


class FileSlice:
    """A range of whole batches in a segment file, which stays open and readable until ``close``.

    Neither retention nor the file pool can take the bytes away before. Made for ``sendfile``:
    ``fileno``, ``position``, ``len``. One of an encrypted segment has to be decrypted first, and is
    ``held`` in memory then.
    """

    __slots__ = ("_key", "_length", "_pool", "_pooled", "end_offset", "held", "position")

    def __init__(
        self,
        pool: FilePool,
        pooled: PooledFile | None,
        position: int,
        length: int,
        key: SegmentKey | None = None,
        *,
        end_offset: int = 0,
    ) -> None:
        """Takes over one pin of ``pooled``. An empty slice needs no file."""
        self.end_offset = end_offset  # after its last batch; 0: it is empty, or that is not known
        self.held: bytes | None = None  # the batches as they were appended, in place of the file
        self._pool = pool
        self._pooled = pooled
        self._length = length
        self._key = key  # of those that are encrypted
        self.position = position

    @property
    def is_encrypted(self) -> bool:
        """Some of it may be, so the file cannot be sent."""
        return self._key is not None

    def is_sealed_as(self, other: "FileSlice") -> bool:
        """They are of one encrypted segment, neither of them decrypted."""
        return self._key is not None and self._key is other._key

    def decrypt(self) -> None:
        """Have it in memory instead. Blocking; from any thread; of no effect a second time.

        Raises CorruptData, Unavailable; the slice is to be closed all the same.
        """
        key, pooled = self._key, self._pooled
        if key is None or pooled is None:
            return
        try:
            with storage_errors(pooled.path):
                held = key.cipher.decrypted_all(pooled.file.pread(self._length, self.position))
        except CorruptBatch as error:
            raise CorruptBatch(f"{pooled.path}: {error}") from None
        self.held, self._length, self._key = held, len(held), None
        self.close()

    def __len__(self) -> int:
        return self._length

    def __enter__(self) -> "FileSlice":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        assert self._pooled is not None, "an empty, closed or decrypted slice has no file"
        if self._key is not None:
            raise BrokenInvariant("encrypted batches are not sent")
        return self._pooled.file.fileno()

    def read(self) -> bytes:
        """The bytes, for those who cannot send a file."""
        if not self._length:
            return b""
        self.decrypt()
        if self.held is not None:
            return self.held
        assert self._pooled is not None, "the slice is closed"
        return self._pooled.file.pread(self._length, self.position)

    def close(self) -> None:
        """Let go of the file; may be called again."""
        pooled, self._pooled = self._pooled, None
        if pooled is not None:
            self._pool.unpin(pooled)
