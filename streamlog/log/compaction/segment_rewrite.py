"""Segments are written again, without what is not to stay. Blocking calls."""

from collections import deque
from collections.abc import Callable

from streamlog.log.compaction.batch_reader import read_batches
from streamlog.log.compaction.cleaned_file import CleanedFile
from streamlog.log.compaction.cleaning_plan import fits
from streamlog.log.compaction.segment_swap import Swap
from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.encryption.segment_key import SegmentKey
from streamlog.log.layout import CLEANED_SUFFIX
from streamlog.log.log import PartitionLog
from streamlog.log.segment.segment import Segment
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import Disk, storage_errors
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import BatchHeader
from streamlog.record.compacted import is_gap

Keep = Callable[[BatchHeader, memoryview], bytes | memoryview | None]
"""A batch as it is to be, itself where nothing changes; None: nothing is left of it."""


class Rewriting:
    """Of one log."""

    def __init__(
        self, log: PartitionLog, pause: Callable[[int], None], *, disk: Disk, pool: FilePool
    ) -> None:
        """``pause`` is called with the bytes of each piece that was read."""
        self.reading_offset = log.log_start_offset
        """Where the segment begins that is read."""
        self._log = log
        self._settings: LogSettings = log.settings
        self._pause = pause
        self._disk = disk
        self._pool = pool

    def group(self, left: deque[Segment], keep: Keep) -> Swap | None:
        """Take as many of ``left`` as fit into one and follow each other; what is to be swapped in
        for them, None where nothing would change.

        Raises CorruptBatch, Unavailable, and then all is as it was, but what was taken.
        """
        first = left[0]
        path = first.path + CLEANED_SUFFIX
        with storage_errors(path):
            interval_bytes = self._settings.index_interval_bytes
            cipher = self._cipher(first) if self._settings.encrypts else None
            cleaned = CleanedFile(self._disk, path, first.base_offset, interval_bytes, cipher)
            try:
                group, changed = self._write(left, cleaned, keep)
                if changed:
                    cleaned.finish()
                    if cipher is None:
                        self._unbind(first)
            except BaseException:
                cleaned.abandon()
                raise
        if not changed:
            cleaned.abandon()
            return None
        return Swap(self._log, group, cleaned, disk=self._disk, pool=self._pool)

    def _cipher(self, first: Segment) -> BatchCipher:
        """By the data key of the segment whose place the new one takes: that file stays where it
        is, so there is no moment at which segment and key are not of each other. One that has none
        gets it now; a segment in the clear does not mind, which there is only where not all of the
        log is encrypted.
        """
        if first.key is None:
            always = self._settings.encrypts_all
            since = first.base_offset if always else first.next_offset
            scope = self._pool.key_scope(first.key_path)
            data_key, wrapped = self._pool.keys.new_data_key(since, scope)
            self._disk.write_small(first.key_path, key_file.encode(wrapped))
            cipher = BatchCipher(data_key, since)
            first.key = SegmentKey(self._pool, first.key_path, cipher)
        return first.key.cipher

    def _unbind(self, first: Segment) -> None:
        """What takes its place is in the clear, beside the same key file. The object goes first, so
        that a change of keys that is under way does not bring the old file back.
        """
        if first.key is not None:
            first.key = SegmentKey(self._pool, first.key_path)
            first.key.unbind()

    def _write(
        self, left: deque[Segment], cleaned: CleanedFile, keep: Keep
    ) -> tuple[list[Segment], bool]:
        """The segments that went into it, and whether anything is other than it was."""
        base_offset, segment_bytes = left[0].base_offset, self._settings.segment_bytes
        group: list[Segment] = []
        changed = False
        while left:
            segment = left[0]
            if group and (
                segment.base_offset != group[-1].next_offset
                or not fits(segment, base_offset, cleaned.reached_bytes, segment_bytes)
            ):
                break
            changed |= self._write_segment(segment, cleaned, keep) or bool(group)
            group.append(left.popleft())
        return group, changed

    def _write_segment(self, segment: Segment, cleaned: CleanedFile, keep: Keep) -> bool:
        changed = False
        self.reading_offset = segment.base_offset
        pooled = self._pool.pin(segment.path)
        try:
            for header, batch in read_batches(pooled.file, segment, self._pause):
                kept = keep(header, batch)
                if kept is None:
                    cleaned.skip(header)
                    changed |= not is_gap(header)
                else:
                    cleaned.keep(header, kept)
                    changed |= kept is not batch
        finally:
            self._pool.unpin(pooled)
        return changed
