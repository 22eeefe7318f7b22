import contextlib
import threading
from collections.abc import Callable
from functools import partial

from streamlog.errors import StorageFailed
from streamlog.log.layout import TEMPORARY_SUFFIX
from streamlog.log.manifest import ManifestFile, SyncedManifest
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import Disk, DiskFile, is_full, with_descriptors, write_all
from streamlog.log.storage.file_pool import FilePool, PooledFile


class SyncTicket:
    """One sync of what a log had not synced at a moment: made by the owner, run by a worker thread.

    Content first, then what refers to it (epochs, the folder's entries, the manifest). All below
    ``end_offset`` is synced once ``run`` has returned and the log has taken the ticket back.
    """

    def __init__(
        self,
        disk: Disk,
        pool: FilePool,
        files: list[PooledFile],
        *,
        end_offset: int,
        epochs: tuple[str, bytes] | None,
        directory: str | None,
        manifest: tuple[ManifestFile, SyncedManifest] | None,
        on_failure: Callable[[str], None],
    ) -> None:
        """Takes over one pin of each file. ``epochs``: the checkpoint's path and new content;
        ``manifest``: what it is to say.
        """
        self.end_offset = end_offset  # lowered by the owner if the log is cut meanwhile
        self.done = False
        self.epochs_are_stored = True
        self.manifest_is_stored = True
        self._disk = disk
        self._pool = pool
        self._files = files
        self._epochs = epochs
        self._directory = directory
        self._manifest = manifest
        self._on_failure = on_failure
        self._placed_in: str | None = None  # the folder in which they have replaced it
        self._is_staged = False  # the new epochs are in a file beside the old one
        self._lock = threading.Lock()  # of ``release``, which owner and worker may both call

    @property
    def files(self) -> list[DiskFile]:
        """What is to be synced, while they are open: up to ``release``."""
        return [pooled.file for pooled in self._files]

    @property
    def needs_own_syncs(self) -> bool:
        """A manifest is written after all else is durable, and others may write it at any time."""
        return self._manifest is not None

    @property
    def is_placed(self) -> bool:
        """New epochs have their name, and the folder is not synced yet."""
        return self._placed_in is not None

    def stage(self) -> None:
        """Write the new epochs beside the old ones, and sync nothing. Blocking; what fails here is
        tried again by ``run``.
        """
        if self._epochs is None:
            return
        path, content = self._epochs
        with contextlib.suppress(OSError):
            file = self._disk.create(path + TEMPORARY_SUFFIX)
            try:
                write_all(file, content, 0)
                self._is_staged = True
            finally:
                file.close()

    def put_in_place(self) -> None:
        """What was staged, and has been synced, replaces the old file. The folder is yet to be
        synced. Blocking; raises StorageFailed as ``run``.
        """
        if not self._is_staged or self._epochs is None:
            return
        path = self._epochs[0]
        try:
            self._disk.rename(path + TEMPORARY_SUFFIX, path)
        except OSError as error:
            self.release()
            raise self._failed(error) from error
        self._placed_in, self._epochs = path.rpartition("/")[0], None

    def _failed(self, error: OSError) -> StorageFailed:
        problem = f"sync failed: {error.strerror or error}"
        self._on_failure(problem)
        return StorageFailed(problem)

    def run(self, *, is_synced: bool = False, are_placed: bool = True) -> None:
        """Blocking; from any thread. Raises StorageFailed, after which the log takes no appends.

        ``is_synced``: the files and the folder are already; not ``are_placed``: but for epochs that
        were put in place since.
        """
        try:
            if not is_synced:
                for pooled in self._files:
                    pooled.file.sync()
            if self._epochs is not None:
                with_descriptors(partial(self._write_epochs, *self._epochs))
            if self._directory is not None and not is_synced:
                with_descriptors(partial(self._disk.sync_directory, self._directory))
            elif self._placed_in is not None and not are_placed:
                with_descriptors(partial(self._disk.sync_directory, self._placed_in))
            if self._manifest is not None:
                with_descriptors(partial(self._write_manifest, *self._manifest))
        except OSError as error:
            raise self._failed(error) from error
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
        """A full disk is no failure here.

        The batches tell their epochs as well, and the next ticket tries again.
        """
        try:
            self._disk.write_small(path, content)
        except OSError as error:
            if not is_full(error):
                raise
            self.epochs_are_stored = False

    def _write_manifest(self, manifest: ManifestFile, synced: SyncedManifest) -> None:
        """Nor here: less is known of the folder until the next ticket tries again."""
        end_offset = min(synced.end_offset, self.end_offset)
        try:
            manifest.note_synced(synced._replace(end_offset=end_offset))
        except OSError as error:
            if not is_full(error):
                raise
            self.manifest_is_stored = False


class DirtyState:
    """What a log has written and not yet synced, and the ticket that is out for some of it."""

    __slots__ = ("epochs", "folder", "manifest", "segments", "ticket")

    def __init__(self) -> None:
        self.folder = False  # entries have come or gone
        self.epochs = False  # the checkpoint is behind
        self.manifest = False  # so is it
        self.segments: dict[Segment, None] = {}  # written, or sealed, since the last ticket
        self.ticket: SyncTicket | None = None

    def __bool__(self) -> bool:
        return bool(self.segments) or self.folder or self.epochs or self.manifest

    def abandon(self, segments: list[Segment]) -> None:
        """Nobody will run the ticket that is out, or say that it has: all is unsynced again."""
        if self.ticket is not None:
            self.ticket.release()
            self.ticket = None
            self.segments |= dict.fromkeys(segments)
            for segment in segments:
                if segment.key is not None:
                    segment.key.is_unsynced = True
            self.folder = self.epochs = self.manifest = True

    def clear(self) -> None:
        """A ticket has all of it."""
        for segment in self.segments:
            if segment.key is not None:
                segment.key.is_unsynced = False
        self.segments.clear()
        self.folder = self.epochs = self.manifest = False

    def pin_files(self, pool: FilePool) -> list[PooledFile]:
        """A sealed segment's indexes are synced with it, a new data key always. Raises OSError."""
        pinned: list[PooledFile] = []
        try:
            for segment in self.segments:
                paths = segment.paths if segment.sealed else segment.written_paths
                pinned.extend(pool.pin(path) for path in paths)
        except OSError:
            for pooled in pinned:
                pool.unpin(pooled)
            raise
        return pinned
