import threading
from collections.abc import Callable

from streamlog.errors import StorageFailed
from streamlog.log.disk import is_full
from streamlog.log.files import FilePool, PooledFile


class SyncTicket:
    """One sync of what a log had not synced at a moment: made by the owner, run by a worker thread.

    Content first, then what refers to it (epochs, the folder's entries). All below ``end_offset``
    is synced once ``run`` has returned and the log has taken the ticket back.
    """

    def __init__(
        self,
        pool: FilePool,
        files: list[PooledFile],
        *,
        end_offset: int,
        epochs: tuple[str, bytes] | None,
        directory: str | None,
        on_failure: Callable[[str], None],
    ) -> None:
        """Takes over one pin of each file. ``epochs``: the checkpoint's path and new content."""
        self.end_offset = end_offset  # lowered by the owner if the log is cut meanwhile
        self.done = False
        self.epochs_are_stored = True
        self._pool = pool
        self._files = files
        self._epochs = epochs
        self._directory = directory
        self._on_failure = on_failure
        self._lock = threading.Lock()

    def run(self) -> None:
        """Blocking; from any thread. Raises StorageFailed, after which the log takes no appends."""
        try:
            for pooled in self._files:
                pooled.file.sync()
            if self._epochs is not None:
                self._write_epochs(*self._epochs)
            if self._directory is not None:
                self._pool.disk.sync_directory(self._directory)
        except OSError as error:
            problem = f"sync failed: {error.strerror or error}"
            self._on_failure(problem)
            raise StorageFailed(problem) from error
        finally:
            self.release()
        self.done = True

    def release(self) -> None:
        """Let go of the files; may be called again."""
        with self._lock:
            files, self._files = self._files, []
        for pooled in files:
            self._pool.unpin(pooled)

    def _write_epochs(self, path: str, content: bytes) -> None:
        """A full disk is no failure here: batches tell their epochs, the next ticket tries again."""
        try:
            self._pool.disk.write_small(path, content)
        except OSError as error:
            if not is_full(error):
                raise
            self.epochs_are_stored = False
