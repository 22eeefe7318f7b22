"""Metadata (3), versions 0 to 13: nodes, streams, leaders. It never creates a stream.

v0   no topics named means all of them; later null does, and none means none
v10  topics may be asked for by id
v12  one that is not known by its id has no name in the answer, not an empty one
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from kio.schema.errors import ErrorCode

from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import stream_named
from streamlog.kafka.context import Context
from streamlog.kafka.topology import (
    OPERATIONS_UNKNOWN,
    live_nodes,
    shown_controller,
    shown_nodes,
    shown_partition,
)
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.config import is_internal
from streamlog.model import NodeId
from streamlog.wire.control import Message


async def handle(request: Message, version: int, context: Context) -> Message:
    image = context.metadata.image
    asked = request["topics"]
    if asked is None or (version == 0 and not asked):
        live = live_nodes(image)
        streams = image.streams.items()
        topics = [_topic(name, stream, live) async for name, stream in cooperatively(streams)]
    else:
        topics = [it async for it in cooperatively(_asked_topics(asked, version, image))]
    return {
        "brokers": list(shown_nodes(context)),
        "cluster_id": image.cluster_id,
        "controller_id": shown_controller(context),
        "topics": topics,
        "cluster_authorized_operations": OPERATIONS_UNKNOWN,
    }


def _asked_topics(
    asked: Iterable[Message], version: int, image: MetadataImage
) -> Iterable[Message]:
    """What is named twice is told once."""
    live = live_nodes(image)
    keys = (it.get("topic_id") if it["name"] is None else it["name"] for it in asked)
    for key in dict.fromkeys(keys):
        name = key if isinstance(key, str) else stream_named(key, image)
        stream = None if name is None else image.streams.get(name)
        if name is not None and stream is not None:
            yield _topic(name, stream, live)
        elif name is None:
            unnamed = None if version >= 12 else ""
            yield {"error_code": ErrorCode.unknown_topic_id, "name": unnamed, "topic_id": key}
        else:
            yield {"error_code": ErrorCode.unknown_topic_or_partition, "name": name}


def _topic(name: str, stream: StreamImage, live: AbstractSet[NodeId]) -> Message:
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": stream.stream_id,
        "is_internal": is_internal(name),
        "partitions": [
            shown_partition(index, partition, live)
            for index, partition in enumerate(stream.partitions)
        ],
        "topic_authorized_operations": OPERATIONS_UNKNOWN,
    }
