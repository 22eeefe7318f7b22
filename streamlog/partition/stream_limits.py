"""A stream's settings over the node's: what holds for a log."""

from typing import Final

from streamlog.config import LogSection, SyncPolicy
from streamlog.log.settings import UNLIMITED, CompactionSettings, LogSettings
from streamlog.metadata.stream.stream_config import StreamConfig

EARLY_PART: Final = 4
"""Files go as whole segments, so a log with limits has about a quarter more in its files than it keeps."""
NEVER: Final = LogSettings.early_age_ms
EARLY_BYTES: Final = 8 * 1024 * 1024
"""A smaller segment costs more than the room that it frees: to close it takes syncs of its own."""


def log_settings(config: StreamConfig, node: LogSection) -> LogSettings:
    """How the log of each partition of the stream is kept."""
    segment_bytes = _either(config.segment_bytes, node.segment_bytes)
    kept_bytes = config.local_limit_bytes if config.tiered else config.retention_bytes
    if config.segment_bytes is None and kept_bytes != UNLIMITED:
        segment_bytes = min(segment_bytes, max(kept_bytes // EARLY_PART, EARLY_BYTES))
    segment_age_ms = _either(config.segment_age_ms, node.segment_age_ms)
    if config.is_compacted and config.max_compaction_lag_ms != UNLIMITED:
        segment_age_ms = min(segment_age_ms, config.max_compaction_lag_ms)
    kept = config.is_retained
    goes = kept and config.discard == "old"  # else the limits hold for what comes
    return LogSettings(
        segment_bytes=segment_bytes,
        segment_age_ms=segment_age_ms,
        early_bytes=EARLY_BYTES,
        early_age_ms=_part(config.local_limit_ms if config.tiered else config.retention_ms),
        early_records=_part(config.retention_messages),
        index_interval_bytes=_either(config.index_interval_bytes, node.index_interval_bytes),
        retention_bytes=config.retention_bytes if goes else UNLIMITED,
        retention_ms=config.retention_ms if kept and not config.leaves_markers else UNLIMITED,
        retention_messages=config.retention_messages if goes else UNLIMITED,
        local_retention_bytes=config.local_limit_bytes if config.tiered else UNLIMITED,
        local_retention_ms=config.local_limit_ms if config.tiered else UNLIMITED,
        local_age_min_ms=local_age_min_ms(config) if config.tiered else 0,
        compaction=_compaction(config) if config.is_compacted else None,
        encrypts=config.encrypted,
    )


def local_age_min_ms(config: StreamConfig) -> int:
    """So long records stay on the disks, whatever is in the object store: a new leader reads from its log alone which
    message ids are known.
    """
    return config.duplicate_window_ms


def auto_pause_ms(config: StreamConfig, node: LogSection) -> int:
    """How long a partition is not written to before it lets go of what it can; 0: it never does."""
    return _either(config.auto_pause_ms, node.idle_close_ms)


def _compaction(config: StreamConfig) -> CompactionSettings:
    """The ids of messages are read from the log, for as long as they count: so long they stay."""
    return CompactionSettings(
        delete_retention_ms=config.delete_retention_ms,
        min_lag_ms=max(config.min_compaction_lag_ms, config.duplicate_window_ms),
        max_lag_ms=config.max_compaction_lag_ms,
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
    )


def sync_policy(config: StreamConfig, node: LogSection) -> SyncPolicy:
    """When the log is synced."""
    return config.sync_by(node.sync)


def _part(limit: int) -> int:
    return NEVER if limit == UNLIMITED else limit // EARLY_PART


def _either(own: int | None, node: int) -> int:
    return node if own is None else own
