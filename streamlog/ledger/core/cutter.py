"""Where one block ends and the next begins. Pure.

A record joins the pending ones, and when they are ``batch_size`` they are cut. Where it would make
them more than ``preferred_max_bytes``, they are cut before it joins; where it is larger than that
by itself, they are cut, and then it is, alone. So is one above ``absolute_max_bytes``, which is a
limit at the endpoint: what is in the log is never left out for its size. Before a configuration the
pending ones are cut, and then it is, alone; and they are cut when it is time to.
"""

from enum import Enum
from typing import NamedTuple

from streamlog.ledger.core.channel_config import BatchLimits


class CutReason(Enum):
    """Why a block ended."""

    RECORDS = "records"
    BYTES = "bytes"
    TIME = "time"
    LARGE = "large"
    """A single record, above the preferred size; or the pending ones before it."""
    CONFIGURATION = "configuration"
    """A configuration, or the pending records before it."""


class BlockCut(NamedTuple):
    """What goes into one block."""

    data: bytes
    record_count: int
    first_offset: int
    end_offset: int
    next_offset: int
    reason: CutReason
    is_configuration: bool = False


class Cutter:
    """Gathers encoded records until a block is full. Empty after each block, at its next offset."""

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._first_offset = 0
        self._end_offset = 0

    @property
    def pending_count(self) -> int:
        """Records that are in no block yet."""
        return len(self._parts)

    def add(self, offset: int, encoded: bytes) -> tuple[BlockCut, ...]:
        """The blocks that an ordinary record ends: none, mostly."""
        size = len(encoded)
        parts = self._parts
        if parts:
            if self._size_bytes + size <= self.limits.preferred_max_bytes:
                parts.append(encoded)
                self._size_bytes += size
                self._end_offset = offset + 1
                if len(parts) < self.limits.batch_size:
                    return ()
                return self.cut(offset + 1, CutReason.RECORDS)
            is_large = size > self.limits.preferred_max_bytes
            before = self.cut(offset, CutReason.LARGE if is_large else CutReason.BYTES)
            return before + self._begun(offset, encoded)
        return self._begun(offset, encoded)

    def add_configuration(self, offset: int, encoded: bytes) -> tuple[BlockCut, ...]:
        """The pending records, if there are any, and the configuration alone."""
        before = self.cut(offset, CutReason.CONFIGURATION)
        alone = _alone(offset, encoded, CutReason.CONFIGURATION)
        return (*before, alone._replace(is_configuration=True))

    def cut(self, next_offset: int, reason: CutReason) -> tuple[BlockCut, ...]:
        """The pending records, which there may be none of."""
        parts = self._parts
        if not parts:
            return ()
        cut = BlockCut(
            b"".join(parts), len(parts), self._first_offset, self._end_offset, next_offset, reason
        )
        self._parts = []
        self._size_bytes = 0
        return (cut,)

    def _begun(self, offset: int, encoded: bytes) -> tuple[BlockCut, ...]:
        """With the first record of a block."""
        size = len(encoded)
        if size > self.limits.preferred_max_bytes:
            return (_alone(offset, encoded, CutReason.LARGE),)
        if self.limits.batch_size == 1:
            return (_alone(offset, encoded, CutReason.RECORDS),)
        self._parts.append(encoded)
        self._size_bytes = size
        self._first_offset, self._end_offset = offset, offset + 1
        return ()


def _alone(offset: int, encoded: bytes, reason: CutReason) -> BlockCut:
    return BlockCut(encoded, 1, offset, offset + 1, offset + 1, reason)
