"""DescribeLogDirs (35), versions 1 to 4: what the partitions on this node take (KIP-113).

A node has one folder. Partitions that are asked for and not here are left out.

v4  the size of the disk, and what is free of it (KIP-827)
"""

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.fairness import cooperatively
from streamlog.kafka.context import Context
from streamlog.kafka.interfaces import LocalPartition
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    path = context.node_settings.node.data_dir
    result: dict[str, Any] = {"log_dir": str(path.absolute()), "error_code": ErrorCode.none}
    try:
        usage = await asyncio.to_thread(shutil.disk_usage, path)
    except OSError:
        result["error_code"] = ErrorCode.kafka_storage_error
        return {"results": [result]}
    by_name: dict[str, list[dict[str, Any]]] = {}
    async for partition in cooperatively(_asked(request["topics"], context)):
        by_name.setdefault(partition.tp.stream, []).append(_shown(partition))
    result["topics"] = [{"name": name, "partitions": by_name[name]} for name in sorted(by_name)]
    return {"results": [{**result, "total_bytes": usage.total, "usable_bytes": usage.free}]}


def _asked(topics: list[Message] | None, context: Context) -> Iterator[LocalPartition]:
    """Null asks for all."""
    asked = {(topic["topic"], number) for topic in topics or () for number in topic["partitions"]}
    for partition in context.partitions.partitions():
        if topics is None or partition.tp in asked:
            yield partition


def _shown(partition: LocalPartition) -> dict[str, Any]:
    statistics = partition.statistics()
    return {
        "partition_index": partition.tp.partition,
        "partition_size": statistics.size_bytes,
        "offset_lag": max(0, statistics.high_watermark - statistics.log_end_offset),
        "is_future_key": False,
    }
