from types import TracebackType

from streamlog.log.files import FilePool, PooledFile


class FileSlice:
    """A range of whole batches in a segment file, which stays open and readable until ``close``.

    Neither retention nor the file pool can take the bytes away before. Made for ``sendfile``:
    ``fileno``, ``position``, ``len``.
    """

    __slots__ = ("_length", "_pool", "_pooled", "position")

    def __init__(
        self, pool: FilePool, pooled: PooledFile | None, position: int, length: int
    ) -> None:
        """Takes over one pin of ``pooled``. An empty slice needs no file."""
        self._pool = pool
        self._pooled = pooled
        self._length = length
        self.position = position

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
        assert self._pooled is not None, "an empty or closed slice has no file"
        return self._pooled.file.fileno()

    def read(self) -> bytes:
        """The bytes, for those who cannot send a file."""
        if not self._length:
            return b""
        assert self._pooled is not None, "the slice is closed"
        return self._pooled.file.pread(self._length, self.position)

    def close(self) -> None:
        """Let go of the file; may be called again."""
        pooled, self._pooled = self._pooled, None
        if pooled is not None:
            self._pool.unpin(pooled)
