"""The checksums of a sealed segment's first and last batch: they tell it from another file of the
same size, whose own checksums are right.
"""

import struct
from typing import Final, NamedTuple, Protocol

from streamlog.log.storage.disk import Disk
from streamlog.record.batch import CRC_POSITION

_CRC: Final = struct.Struct(">I")
_NO_POSITION: Final = -1


class _Readable(Protocol):
    def pread(self, length: int, position: int) -> bytes: ...


class EndChecksums(NamedTuple):
    """The CRC fields in the headers of the two batches, as they are stored: of an encrypted batch
    it is that of the ciphertext, which no change of keys alters.
    """

    first_crc: int = 0
    last_position: int = _NO_POSITION
    """Where the last batch begins."""
    last_crc: int = 0

    @property
    def is_known(self) -> bool:
        return self.last_position != _NO_POSITION

    @property
    def positions(self) -> set[int]:
        """Where the batches begin; there may be only one."""
        return {0, self.last_position} if self.is_known else set()

    def contradicts(self, position: int, crc: int) -> bool:
        """The batch that begins there has another checksum."""
        is_other = position == 0 and crc != self.first_crc
        is_other |= position == self.last_position and crc != self.last_crc
        return self.is_known and is_other

    def differing(self, file: _Readable) -> set[int]:
        """Positions of those batches whose checksums are not these. Raises OSError."""
        return {it for it in self.positions if self.contradicts(it, _crc_at(file, it))}

    def differing_at(self, disk: Disk, path: str) -> set[int]:
        """The same, in the file that has that name now. Raises OSError."""
        if not self.is_known:
            return set()
        file = disk.open(path, writable=False)
        try:
            return self.differing(file)
        finally:
            file.close()


UNKNOWN_ENDS: Final = EndChecksums()
"""Such a segment is checked by its size alone."""

OTHER_BATCHES: Final = "its first or last batch is not the one that was stored"


def read_end_checksums(file: _Readable, last_position: int) -> EndChecksums:
    """Of the segment in ``file``. Raises OSError."""
    first, last = (_crc_at(file, it) for it in (0, last_position))
    return EndChecksums(first, last_position, last) if min(first, last) >= 0 else UNKNOWN_ENDS


def crc_field(batch: bytes | memoryview) -> int:
    crc: int = _CRC.unpack_from(batch, CRC_POSITION)[0]
    return crc


def _crc_at(file: _Readable, position: int) -> int:
    """-1: the file ends before it."""
    data = file.pread(_CRC.size, position + CRC_POSITION)
    return int(_CRC.unpack(data)[0]) if len(data) == _CRC.size else -1
