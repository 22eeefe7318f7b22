"""OffsetCommit (8), versions 2 to 8: refused, partition by partition; see ``find_coordinator``."""

from kio.schema.errors import ErrorCode

from streamlog.server.context import Context
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, _context: Context) -> Message:
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": partition["partition_index"],
                        "error_code": ErrorCode.group_authorization_failed,
                    }
                    for partition in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
    }
