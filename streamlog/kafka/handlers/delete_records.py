"""DeleteRecords (21), versions 0 to 2: a partition forgets what is below an offset (KIP-107).

Offset -1 stands for the high watermark. Only the partition's leader does it; the other replicas
follow with what they fetch, and the answer waits until all that are in sync have. Who is already
past the offset is a success. The low watermark of the answer is the first offset that they all have
gone past.
"""

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.errors import InvalidRequest, NotLeader, OffsetOutOfRange, StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_topic, led_partition
from streamlog.kafka.context import Context
from streamlog.metadata.stream.config import check_writable_by_clients
from streamlog.metadata.stream.write_state import check_may_be_cut
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.wire.control import Message
from streamlog.wire.errors import code_of

AT_ONCE: Final = 100
"""Partitions of a topic whose replicas are waited for together."""
HIGH_WATERMARK: Final = -1
UNKNOWN: Final = -1


async def handle(request: Message, _version: int, context: Context) -> Message:
    timeout_s = min(max(0, request["timeout"]), context.settings.idle_timeout_ms) / 1000
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": await _partitions(topic, context, timeout_s),
            }
            async for topic in cooperatively(request["topics"])
        ]
    }


async def _partitions(topic: Message, context: Context, timeout_s: float) -> list[dict[str, Any]]:
    """Some at once: tasks that have nothing to wait for run in one turn of the event loop."""
    found: list[dict[str, Any]] = []
    for start in range(0, len(topic["partitions"]), AT_ONCE):
        asked = topic["partitions"][start : start + AT_ONCE]
        found += await asyncio.gather(
            *(_partition(topic["name"], it, context, timeout_s) for it in asked)
        )
    return found


async def _partition(
    name: str, asked: Message, context: Context, timeout_s: float
) -> dict[str, Any]:
    index, code, low_watermark = asked["partition_index"], ErrorCode.none, UNKNOWN
    tp = TopicPartition(name, index)
    try:
        low_watermark = await _delete(tp, asked["offset"], context, timeout_s)
    except StreamlogError as error:
        code = code_of(error)
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": code}


async def _delete(tp: TopicPartition, offset: int, context: Context, timeout_s: float) -> int:
    """The low watermark. Whoever may lead no longer, or does not know yet what is committed, is no
    leader here: the client then asks again, and perhaps elsewhere.
    """
    check_writable_by_clients(tp.stream)
    config = context.metadata.image.stream(tp.stream).config
    check_topic(Operation.DELETE, tp.stream, context)
    check_may_be_cut(config)
    if config.deny_purge:
        raise InvalidRequest(f"{tp.stream!r} denies to be purged")
    partition = led_partition(tp, NO_EPOCH, context)
    if not (context.metadata.lease.held and partition.high_watermark_known):
        raise NotLeader(f"this node cannot say just now what is committed of {tp}")
    end = partition.high_watermark
    if offset == HIGH_WATERMARK:
        offset = end
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(offset, partition.log_start_offset, end)
    await partition.purge(offset, timeout_s=timeout_s)
    return partition.log_start_offset
