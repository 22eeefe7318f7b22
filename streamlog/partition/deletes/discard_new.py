"""How much a stream with ``discard=new`` may still take in."""

import sys
from typing import Final, NamedTuple, Protocol

from streamlog.errors import StreamFull
from streamlog.metadata.stream.setting_type import NO_LIMIT
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.record.offset_set import OffsetSet

NO_MORE_MESSAGES: Final = "maximum messages exceeded"
NO_MORE_BYTES: Final = "maximum bytes exceeded"


class BoundedPartition(Protocol):
    """What is needed of ``owner.Partition``."""

    config: StreamConfig

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def erased(self) -> OffsetSet: ...


class RoomLeft(NamedTuple):
    """Below zero where the limit was lowered."""

    messages: int = sys.maxsize
    size_bytes: int = sys.maxsize


def room_left(partition: BoundedPartition) -> RoomLeft:
    """Of what has not been committed yet, too: it counts as there."""
    config, room = partition.config, RoomLeft()
    if config.discard != "new":
        return room
    if config.retention_messages != NO_LIMIT:
        start, end = partition.log_start_offset, partition.log_end_offset
        there = end - start - partition.erased.count(start, end)
        room = room._replace(messages=config.retention_messages - there)
    if config.retention_bytes != NO_LIMIT:
        room = room._replace(size_bytes=config.retention_bytes - partition.size_bytes)
    return room


def check_room(partition: BoundedPartition, messages: int, size_bytes: int) -> None:
    """Raises StreamFull if so much is too much."""
    room = room_left(partition)
    if messages > room.messages:
        raise StreamFull(NO_MORE_MESSAGES)
    if size_bytes > room.size_bytes:
        raise StreamFull(NO_MORE_BYTES)
