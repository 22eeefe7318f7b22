import contextlib
from typing import Final

from streamlog.errors import BrokenInvariant
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.segment.end_checksums import UNKNOWN_ENDS, EndChecksums, crc_field
from streamlog.log.segment.segment import Indexer
from streamlog.log.storage.disk import Disk, write_all
from streamlog.record.batch import BatchHeader
from streamlog.record.compacted import GAP_OFFSETS_MAX, gap

_WRITE_BYTES: Final = 1024 * 1024


class CleanedFile:
    """A new segment that is being written. Its methods raise OSError."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        base_offset: int,
        interval_bytes: int,
        cipher: BatchCipher | None = None,
    ) -> None:
        """``cipher``: what encrypts it, if it is to be."""
        self.path = path
        self.indexer = Indexer(base_offset, interval_bytes)
        self.next_offset = base_offset
        """Of what was taken in."""
        self.size_bytes = 0
        self.ends = UNKNOWN_ENDS
        """Of what was taken in, too."""
        self._cipher = cipher
        self._disk = disk
        self._file = disk.create(path)
        self._is_open = True
        self._parts: list[bytes | memoryview] = []
        """Not yet written, ..."""
        self._parts_bytes = 0
        """... and their size."""
        self._gap: tuple[int, int, int, int] | None = None
        """Base and next offset, leader epoch and latest time of batches of which nothing stays."""

    @property
    def reached_bytes(self) -> int:
        """Its size by now, written or not."""
        return self.size_bytes + self._parts_bytes

    def keep(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        """``batch``, which has the offsets that ``header`` says."""
        self._close_gap()
        self._add(header.base_offset, header.next_offset, header.max_timestamp_ms, batch)

    def skip(self, header: BatchHeader) -> None:
        """Nothing is left of it but its offsets."""
        known = self._gap
        if (
            known is None
            or known[2] != header.leader_epoch
            or header.next_offset - known[0] > GAP_OFFSETS_MAX
        ):
            self._close_gap()
            known = header.base_offset, header.next_offset, header.leader_epoch, -1
        latest_ms = max(known[3], header.max_timestamp_ms)
        self._gap = known[0], header.next_offset, known[2], latest_ms

    def finish(self) -> None:
        """All of it is on the disk then, but its name."""
        self._close_gap()
        self._write()
        self.indexer.note_time()
        self._file.sync()
        self._close()

    def abandon(self) -> None:
        """It is no more, finished or not; a disk that does not let go of it will be asked again
        when the log is opened.
        """
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            self._disk.unlink(self.path)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._file.close()

    def _close_gap(self) -> None:
        if self._gap is None:
            return
        base, next_offset, epoch, latest_ms = self._gap
        self._gap = None
        batch = gap(base, next_offset, leader_epoch=epoch, max_timestamp_ms=latest_ms)
        self._add(base, next_offset, latest_ms, batch)

    def _add(
        self, base_offset: int, next_offset: int, time_ms: int, batch: bytes | memoryview
    ) -> None:
        if base_offset != self.next_offset:
            raise BrokenInvariant("batches are dense")
        if self._cipher is not None:
            batch = self._cipher.encrypted(batch)
        position, crc = self.reached_bytes, crc_field(batch)
        first_crc = self.ends.first_crc if position else crc
        self.ends = EndChecksums(first_crc, position, crc)
        self.indexer.add(position, position + len(batch), next_offset, time_ms)
        self.next_offset = next_offset
        self._parts.append(batch)
        self._parts_bytes += len(batch)
        if self._parts_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        self._parts_bytes = 0
        write_all(self._file, data, self.size_bytes)
        self.size_bytes += len(data)
