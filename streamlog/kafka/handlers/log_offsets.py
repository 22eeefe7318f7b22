"""ListOffsets, OffsetForLeaderEpoch: offsets of a partition's log, by time and by leader epoch (KIP-101, KIP-320)."""

from typing import Any, Final

from streamlog.acl.rules import Operation
from streamlog.errors import (
    NotLeader,
    OffsetNotAvailable,
    StreamlogError,
    UnknownLeaderEpoch,
    UnsupportedVersion,
)
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_topic
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import PartitionLookup
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of
from streamlog.wire.fetch import READ_COMMITTED
from streamlog.wire.special_offsets import EARLIEST, LATEST, MAX_TIMESTAMP

EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_KNOWN_FROM: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version in which a number below zero is no time."""
UNKNOWN: Final = -1

Found = tuple[int, int, int]
"""An offset, its timestamp, its leader epoch; each may be UNKNOWN."""


async def list_offsets(request: Message, version: int, context: Context) -> Message:
    """ListOffsets (2), versions 1 to 11: earliest, latest, by time, of the largest time.

    v2  the isolation level: who reads committed records is told of none above the last stable offset
    v4  the caller's leader epoch is checked, ours comes back with the latest offset
    v5  a new leader that does not know yet what is committed says so (KIP-207); LEADER_NOT_AVAILABLE
        before that
    v7  the offset of the largest timestamp
    v8  the earliest on a local disk (KIP-405)
    v9  the latest in tiered storage (KIP-1005), v11 the earliest that waits for it (KIP-1023); unknown where
        the stream is not tiered
    """
    lookup = PartitionLookup(context)
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    await _partition_offset(
                        topic["name"],
                        asked,
                        version,
                        lookup,
                        context,
                        isolation_level=request.get("isolation_level", 0),
                    )
                    async for asked in cooperatively(topic["partitions"])
                ],
            }
            async for topic in cooperatively(request["topics"])
        ]
    }


async def _partition_offset(
    name: str,
    asked: Message,
    version: int,
    lookup: PartitionLookup,
    context: Context,
    *,
    isolation_level: int,
) -> dict[str, Any]:
    index = asked["partition_index"]
    try:
        _check_timestamp(asked["timestamp"], version)
        partition = await lookup.partition(
            TopicPartition(name, index), asked.get("current_leader_epoch", NO_EPOCH)
        )
        check_topic(Operation.DESCRIBE, name, context)
        stable = isolation_level == READ_COMMITTED
        offset, timestamp_ms, epoch = await _find_offset(
            partition, asked["timestamp"], context, stable=stable
        )
    except StreamlogError as error:
        code = code_of(error)
        if code == ErrorCode.offset_not_available and version < 5:
            code = ErrorCode.leader_not_available
        return {"partition_index": index, "error_code": code}
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "timestamp": timestamp_ms,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _check_timestamp(timestamp_ms: int, version: int) -> None:
    if timestamp_ms < 0 and version < _KNOWN_FROM.get(timestamp_ms, version + 1):
        raise UnsupportedVersion(f"timestamp {timestamp_ms} in version {version}")


async def _find_offset(
    partition: Partition, timestamp_ms: int, context: Context, *, stable: bool
) -> Found:
    """Nothing at or after the time asked for is no error: the offset is unknown then. ``stable``: of what is below
    the last stable offset.
    """
    if timestamp_ms == LATEST:
        _check_known(partition, context)
        end = partition.stable_offset if stable else partition.high_watermark
        return end, UNKNOWN, partition.leader_epoch
    if timestamp_ms == EARLIEST:
        return partition.log_start_offset, UNKNOWN, UNKNOWN
    if timestamp_ms == EARLIEST_LOCAL:
        return partition.local_log_start_offset, UNKNOWN, UNKNOWN
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _tiered_offset(partition, timestamp_ms), UNKNOWN, UNKNOWN
    if timestamp_ms == MAX_TIMESTAMP:
        _check_known(partition, context)
        found = await partition.latest_timestamp(stable=stable)
    else:
        found = await partition.offset_for_timestamp(timestamp_ms, stable=stable)
    if found is None:
        _check_known(partition, context)
        return UNKNOWN, UNKNOWN, UNKNOWN
    return *found, UNKNOWN


def _tiered_offset(partition: Partition, asked: int) -> int:
    """Of the last record in the object store, or of the first one that is not there; of a stream that is not tiered
    both are unknown.
    """
    if not partition.config.tiered:
        return UNKNOWN
    end = partition.tiered.tiered_end_offset
    if asked == LATEST_TIERED:
        return UNKNOWN if end is None else end - 1
    return partition.log_start_offset if end is None else end


def _check_known(partition: Partition, context: Context) -> None:
    """The end of what is committed is known here.

    Not so without the lease: another leader may have acknowledged more. A consumer that is told of an
    older end, or that nothing is as late as it asks for, would begin in the wrong place or miss
    records. Nor on a new leader, whose high watermark may be below what consumers have seen from
    the last. Raises NotLeader, OffsetNotAvailable.
    """
    if not context.metadata.lease.held:
        raise NotLeader(f"{partition.tp}: this node may lead no longer")
    if not partition.high_watermark_known:
        raise OffsetNotAvailable("what is committed shows when the followers have fetched")


async def offset_for_leader_epoch(request: Message, _version: int, context: Context) -> Message:
    """OffsetForLeaderEpoch (23), versions 2 to 4: where an epoch ends in the leader's log.

    A client that has read batches of that epoch past this end has read what was cut off since.
    """
    lookup = PartitionLookup(context)
    return {
        "topics": [
            {
                "topic": topic["topic"],
                "partitions": [
                    await _epoch_end(topic["topic"], asked, lookup, context)
                    async for asked in cooperatively(topic["partitions"])
                ],
            }
            async for topic in cooperatively(request["topics"])
        ]
    }


async def _epoch_end(
    name: str, asked: Message, lookup: PartitionLookup, context: Context
) -> dict[str, Any]:
    index = asked["partition"]
    try:
        partition = await lookup.partition(
            TopicPartition(name, index), asked["current_leader_epoch"]
        )
        check_topic(Operation.DESCRIBE, name, context)
        if asked["leader_epoch"] > partition.leader_epoch and not context.metadata.lease.held:
            raise UnknownLeaderEpoch(f"{partition.tp} is in epoch {partition.leader_epoch} here")
        end = await partition.find_epoch_end(asked["leader_epoch"])
    except StreamlogError as error:
        return {"partition": index, "error_code": code_of(error)}
    return {
        "partition": index,
        "error_code": ErrorCode.none,
        "leader_epoch": end.epoch,
        "end_offset": end.end_offset,
    }
