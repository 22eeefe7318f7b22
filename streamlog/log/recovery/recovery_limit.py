"""How far a recovery point from a checkpoint may be believed, which may be older than a cut.

The checkpoint is written now and then, for all logs at once. A log that was cut below it goes on
with other records, and until the next checkpoint the old one would say of these that they are
synced, and that what they erase is known. So before anything is appended again, a small file
beside the log says where it was cut; it goes when a checkpoint has been written since.
"""

import struct
from typing import Final

from crc32c import crc32c

from streamlog.log.sidecar_files import SidecarFiles

FILE_NAME: Final = "recovery-point-limit"
_OFFSET: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")


class RecoveryLimit:
    """One log's. Single owner; ``lower`` may block."""

    def __init__(self, beside: SidecarFiles) -> None:
        self.offset: int | None = None
        """None: the checkpoint is as good as it says."""
        self.cuts = 0
        """Grows with each cut, so that a checkpoint is known to be younger than the last one."""
        self._beside = beside

    def load(self) -> None:
        """Of a file that is damaged nothing is believed. Raises Unavailable."""
        data = self._beside.read(FILE_NAME)
        if data:
            self.offset = _decoded(data)

    def bound(self, recovery_point: int) -> int:
        """As much of it as is true."""
        return recovery_point if self.offset is None else min(recovery_point, self.offset)

    def lower(self, offset: int) -> None:
        """The log was cut there; durable when this returns. Raises Unavailable."""
        self.cuts += 1
        if self.bound(offset) != self.offset:
            packed = _OFFSET.pack(self.bound(offset))
            self._beside.write(FILE_NAME, packed + _CRC.pack(crc32c(packed)))
            self.offset = self.bound(offset)

    def lift(self) -> None:
        """A checkpoint that is younger than the last cut is durable. Raises Unavailable.

        A power cut may bring the limit back, which costs the next start some reading.
        """
        if self.offset is not None:
            self._beside.remove(FILE_NAME)
            self.offset = None


def _decoded(data: bytes) -> int:
    packed, checksum = data[: _OFFSET.size], data[_OFFSET.size :]
    if checksum != _CRC.pack(crc32c(packed)):
        return 0
    return int(_OFFSET.unpack(packed)[0])
