"""Streams that take no records of clients: sealed, mirrors, read-only or paused. Pure."""

from enum import Enum

from streamlog.errors import InvalidStreamConfig, StreamStandsStill
from streamlog.metadata.stream.stream_config import StreamConfig


class WriteState(Enum):
    """Why. The value is for people."""

    SEALED = "sealed"
    MIRROR = "a mirror"
    READONLY = "read-only"
    PAUSED = "paused"


def standstill(config: StreamConfig) -> WriteState | None:
    """The strictest reason; None for a stream that takes records."""
    if config.sealed:
        return WriteState.SEALED
    if config.mirror:
        return WriteState.MIRROR
    if config.readonly:
        return WriteState.READONLY
    return WriteState.PAUSED if config.paused else None


def check_takes_records(config: StreamConfig) -> None:
    """Raises StreamStandsStill."""
    why = standstill(config)
    if why is not None:
        raise StreamStandsStill(f"stream {config.name} is {why.value}; nothing was stored")


def check_may_be_cut(config: StreamConfig) -> None:
    """Records may be removed on request. Raises StreamStandsStill."""
    if config.sealed:
        raise StreamStandsStill(f"stream {config.name} is sealed; nothing was removed")


def check_seal(old: StreamConfig | None, new: StreamConfig) -> None:
    """A stream is sealed after it was made, and for ever. Raises InvalidStreamConfig."""
    if old is None and new.sealed:
        raise InvalidStreamConfig("stream configuration for create can not be sealed")
    if old is not None and old.sealed and not new.sealed:
        raise InvalidStreamConfig("stream configuration update can not unseal a sealed stream")
