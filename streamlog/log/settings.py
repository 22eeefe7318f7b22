from dataclasses import dataclass
from functools import cached_property

from streamlog.log.encryption.cipher import OVERHEAD_BYTES

UNLIMITED = -1


@dataclass(frozen=True)
class CompactionSettings:
    """How a log is compacted by key. A limit of -1 means none."""

    delete_retention_ms: int = 86_400_000
    """A tombstone stays so long after the first cleaning that has passed it."""
    min_lag_ms: int = 0
    """Younger records are left alone."""
    max_lag_ms: int = UNLIMITED
    """Older ones are cleaned, however few they are."""
    min_dirty_ratio: float = 0.5
    """Of the bytes that could be cleaned: so many must not have been yet."""


@dataclass(frozen=True)
class LogSettings:
    """How one log is kept. A limit of -1 means none."""

    segment_bytes: int = 256 * 1024 * 1024
    """A batch that would make the active segment larger than this goes into a new one."""
    segment_age_ms: int = 7 * 86_400_000
    """... and so does a batch that comes this long after the first one of the segment."""
    early_bytes: int = 2**62
    """Of a log with limits, whose files go as whole segments. From this size on a segment is closed ..."""
    early_age_ms: int = 2**62
    """... this long after its first batch ..."""
    early_records: int = 2**62
    """... or where it would hold more offsets than this."""
    index_interval_bytes: int = 4096
    """One index entry for about so many bytes of batches."""
    retention_bytes: int = UNLIMITED
    retention_ms: int = UNLIMITED
    retention_messages: int = UNLIMITED
    local_retention_bytes: int = UNLIMITED
    """Of a tiered log: so much stays of what is in the object store, too ..."""
    local_retention_ms: int = UNLIMITED
    """... or for so long ..."""
    local_age_min_ms: int = 0
    """... and always for so long: the ids of messages are read from the log."""
    compaction: CompactionSettings | None = None
    """None: records go by retention alone."""
    encrypts: bool = False
    """What is written from now on is encrypted; what was written stays as it is."""
    encrypts_all: bool = False
    """... and so has been all that was written before: what is in the clear was put there."""

    @property
    def overhead_bytes(self) -> int:
        """So much longer is a batch on the disk than as it is appended."""
        return OVERHEAD_BYTES if self.encrypts else 0

    @cached_property
    def is_limited(self) -> bool:
        """Whether anything but a purge takes records away."""
        limits = (self.retention_bytes, self.retention_ms, self.retention_messages)
        return any(limit != UNLIMITED for limit in limits)
