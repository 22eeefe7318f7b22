"""Metadata (3), versions 0 to 12: nodes, streams, leaders. It never creates a stream.

v0   no topics named means all of them; later null does, and none means none
v10  topics may be asked for by id
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.metadata.image import Image, PartitionImage, StreamImage
from streamlog.model import NO_LEADER, NodeId
from streamlog.server.context import Context
from streamlog.server.guards import stream_named
from streamlog.wire.control import Message

OPERATIONS_UNKNOWN: Final = -(2**31)


async def handle(request: Message, version: int, context: Context) -> Message:
    image = context.metadata.image
    asked = request["topics"]
    if asked is None or (version == 0 and not asked):
        live = _live(image)
        topics = [_topic(name, stream, live) for name, stream in image.streams.items()]
    else:
        topics = list(_asked_topics(asked, image))
    return {
        "brokers": list(_nodes(context)),
        "cluster_id": image.cluster_id,
        "controller_id": _controller_id(context),
        "topics": topics,
        "cluster_authorized_operations": OPERATIONS_UNKNOWN,
    }


def _nodes(context: Context) -> Iterable[Message]:
    """Those that are alive, and always this one, although it may still be fenced.

    Clients forget the nodes that are not listed: librdkafka that is told of none at all, while a
    whole cluster starts, never asks again.
    """
    own, nodes = context.node_id, context.metadata.image.nodes
    if own not in nodes:
        host, port = context.address()
        yield {"node_id": own, "host": host, "port": port, "rack": None}
    for node_id, node in sorted(nodes.items()):
        if node_id == own or not node.fenced:
            yield {"node_id": node_id, "host": node.host, "port": node.port, "rack": node.rack}


def _controller_id(context: Context) -> int:
    """Where clients send what changes streams; any node would take it."""
    found = context.metadata.controller_id
    return context.node_id if found is None else found


def _asked_topics(asked: Iterable[Message], image: Image) -> Iterable[Message]:
    live = _live(image)
    for topic in asked:
        name, topic_id = topic["name"], topic.get("topic_id")
        if name is None:
            name = stream_named(topic_id, image)
        stream = None if name is None else image.streams.get(name)
        if stream is not None:
            yield _topic(name, stream, live)
        elif name is None:
            yield {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": topic_id}
        else:
            yield {"error_code": ErrorCode.unknown_topic_or_partition, "name": name}


def _topic(name: str, stream: StreamImage, live: AbstractSet[NodeId]) -> Message:
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": stream.stream_id,
        "partitions": [
            _partition(index, partition, live) for index, partition in enumerate(stream.partitions)
        ],
        "topic_authorized_operations": OPERATIONS_UNKNOWN,
    }


def _partition(index: int, partition: PartitionImage, live: AbstractSet[NodeId]) -> dict[str, Any]:
    leaderless = partition.leader == NO_LEADER
    return {
        "error_code": ErrorCode.leader_not_available if leaderless else ErrorCode.none,
        "partition_index": index,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [it for it in partition.replicas if it not in live],
    }


def _live(image: Image) -> AbstractSet[NodeId]:
    return {it.node_id for it in image.nodes.values() if not it.fenced}
