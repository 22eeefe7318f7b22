"""ListPartitionReassignments (46), version 0: the moves that are under way (KIP-455).

Null asks for all; partitions that do not move, or are not there, are left out.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    image, asked = await newest_image(context), request["topics"]
    wanted = {(it["name"], number) for it in asked or () for number in it["partition_indexes"]}
    names = sorted(image.streams if asked is None else {it["name"] for it in asked})
    topics: list[dict[str, Any]] = []
    for name in names:
        stream = image.streams.get(name)
        moving = [
            {
                "partition_index": number,
                "replicas": partition.replicas,
                "adding_replicas": partition.adding,
                "removing_replicas": partition.removing,
            }
            for number, partition in enumerate(stream.partitions if stream else ())
            if partition.is_moving and (asked is None or (name, number) in wanted)
        ]
        if moving:
            topics.append({"name": name, "partitions": moving})
    return {"error_code": ErrorCode.none, "error_message": None, "topics": topics}
