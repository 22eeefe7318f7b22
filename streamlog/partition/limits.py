"""A stream's settings over the node's: what holds for a log."""

from streamlog.config import LogSection, SyncPolicy
from streamlog.log.settings import LogSettings
from streamlog.metadata.stream import StreamConfig


def log_settings(config: StreamConfig, node: LogSection) -> LogSettings:
    """How the log of each partition of the stream is kept."""
    return LogSettings(
        segment_bytes=_either(config.segment_bytes, node.segment_bytes),
        segment_age_ms=_either(config.segment_age_ms, node.segment_age_ms),
        index_interval_bytes=_either(config.index_interval_bytes, node.index_interval_bytes),
        retention_bytes=config.retention_bytes,
        retention_ms=config.retention_ms,
        retention_messages=config.retention_messages,
    )


def sync_policy(config: StreamConfig, node: LogSection) -> SyncPolicy:
    """When the log is synced."""
    return config.sync or node.sync


def _either(own: int | None, node: int) -> int:
    return node if own is None else own
