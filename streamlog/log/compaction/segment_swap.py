"""A cleaned segment takes the place of those it was made of, safely whatever happens when."""

from collections.abc import Callable
from pathlib import PurePath

from streamlog.errors import StorageFailed
from streamlog.log.compaction.cleaned_file import CleanedFile
from streamlog.log.layout import SWAP_SUFFIX
from streamlog.log.log import PartitionLog
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import Disk, is_full, storage_error
from streamlog.log.storage.file_pool import FilePool, PooledFile


class Swap:
    """Five steps, one after the other. Those for a worker thread block; the others are the log's
    owner's. Between ``begin`` and ``finish`` the owner may not truncate or close the log.

    A step that raises has marked the log as failed, but ``commit``, which may leave it as it was.
    """

    def __init__(
        self,
        log: PartitionLog,
        old: list[Segment],
        cleaned: CleanedFile,
        *,
        disk: Disk,
        pool: FilePool,
    ) -> None:
        """``cleaned`` is finished."""
        self._log = log
        self._old = old
        self._cuts = [segment.cuts for segment in old]
        self._cleaned = cleaned
        self._disk = disk
        self._pool = pool
        self._directory = str(PurePath(cleaned.path).parent)
        self._new = self._segment()
        self._final_path = self._new.path
        self._swap_path = self._final_path + SWAP_SUFFIX
        self._indexes_are_stored = False
        self._held: PooledFile | None = None
        """The old file, so that its end, which takes its time, is not the owner's to wait for."""

    @property
    def removed_bytes(self) -> int:
        """So much less there is to keep."""
        return sum(segment.size_bytes for segment in self._old) - self._cleaned.size_bytes

    @property
    def offsets(self) -> tuple[int, int]:
        """Records of that range may have gone: from the first one on, before the second one."""
        return self._old[0].base_offset, self._old[-1].next_offset

    def begin(self) -> bool:
        """The owner's. False: the segments are not what they were, so all is for nothing, and
        ``abandon`` is to follow.
        """
        log = self._log
        present = set(log.segments.sealed())
        is_same = all(it in present and not it.damages for it in self._old)
        is_same &= [segment.cuts for segment in self._old] == self._cuts
        is_same &= log.manifest.names(self._old[-1].next_offset)
        if not is_same or log.failed or log.is_swapping:
            return False
        log.is_swapping = True
        return True

    def abandon(self) -> None:
        """A worker's, in place of ``commit``: nothing is swapped."""
        self._cleaned.abandon()

    def commit(self) -> None:
        """A worker's. From here on the new segment counts. Raises Unavailable."""
        try:
            self._disk.rename(self._cleaned.path, self._swap_path)
        except OSError as error:
            self._log.is_swapping = False
            self._cleaned.abandon()
            raise storage_error(error, self._swap_path) from error
        self._checked(lambda: self._disk.sync_directory(self._directory))
        try:
            self._log.manifest.note_swapped(self._new.as_sealed())
        except OSError as error:
            if not is_full(error):
                self._log.fail(str(error))
                raise StorageFailed(str(error)) from error
            self._checked(self._take_back)
            self._log.is_swapping = False
            raise storage_error(error, self._swap_path) from error

    def replace(self) -> None:
        """The owner's."""
        self._new.path = self._swap_path
        self._log.replace(self._old, self._new)

    def remove_old(self) -> None:
        """A worker's. Raises StorageFailed."""
        self._checked(self._remove_old)

    def rename(self) -> None:
        """The owner's; quick. Raises StorageFailed."""
        self._checked(lambda: self._disk.rename(self._swap_path, self._final_path))
        self._pool.forget(self._swap_path)
        self._pool.forget(self._final_path)
        self._new.path = self._final_path

    def settle(self) -> None:
        """A worker's. Raises StorageFailed."""
        self._checked(self._settle)

    def finish(self) -> None:
        """The owner's."""
        if self._indexes_are_stored:
            self._new.open_indexes()
        self._log.is_swapping = False

    def run(self) -> bool:
        """All of it, for who has no threads; whether it was done. Raises Unavailable."""
        if not self.begin():
            self.abandon()
            return False
        self.commit()
        self.replace()
        self.remove_old()
        self.rename()
        self.settle()
        self.finish()
        return True

    def _take_back(self) -> None:
        self._disk.unlink(self._swap_path)
        self._disk.sync_directory(self._directory)

    def _segment(self) -> Segment:
        """Written by this process, so it need not be verified; its indexes are in memory."""
        first, cleaned = self._old[0], self._cleaned
        segment = Segment(
            self._pool,
            first.stem_path,
            base_offset=first.base_offset,
            next_offset=cleaned.next_offset,
            size_bytes=cleaned.size_bytes,
            interval_bytes=cleaned.indexer.interval_bytes,
        )
        segment.key = first.key
        segment.ends = cleaned.ends
        segment.unverified_bytes = 0
        segment.offsets, segment.times = cleaned.indexer.offsets, cleaned.indexer.times
        segment.max_timestamp_ms = cleaned.indexer.max_timestamp_ms
        return segment

    def _remove_old(self) -> None:
        """The first one's file stays until another is renamed over it: who lists the folder finds
        all offsets at any time but between these.
        """
        first, *others = self._old
        for segment in self._old:
            segment.retire()
        for segment in others:
            self._pool.remove(*segment.paths)
        self._pool.remove(first.index_path, first.time_index_path)
        self._disk.sync_directory(self._directory)
        self._held = self._pool.pin(first.path)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._pool.unpin(held)

    def _settle(self) -> None:
        self._let_go()
        self._disk.sync_directory(self._directory)
        indexer = self._cleaned.indexer
        try:
            self._disk.write_small(self._new.index_path, indexer.offsets.packed())
            self._disk.write_small(self._new.time_index_path, indexer.times.packed())
        except OSError as error:
            if not is_full(error):
                raise
            return  # they stay in memory, and are made again when the log is opened
        self._indexes_are_stored = True

    def _checked(self, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            self._let_go()
            problem = f"{self._swap_path}: {error.strerror or error}"
            self._log.fail(problem)
            raise StorageFailed(problem) from error
