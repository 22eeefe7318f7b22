"""Metadata, DescribeTopicPartitions, DescribeCluster: what any client may ask first."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from streamlog.errors import InvalidStreamName, StreamlogError, StreamNotFound
from streamlog.fairness import cooperatively
from streamlog.kafka.advertised_listeners import (
    live_nodes,
    shown_controller,
    shown_nodes,
    shown_partition,
)
from streamlog.kafka.auth.authorized_operations import cluster_operations, topic_operations
from streamlog.kafka.auth.resource_checks import stream_named
from streamlog.kafka.context import Context
from streamlog.kafka.handlers.topics import NO_ASSIGNMENTS, new_topic_config
from streamlog.kafka.refusal import RequestRefused, told
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.stream_config import check_topic_name, is_internal
from streamlog.model import NodeId
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of


async def metadata(request: Message, version: int, context: Context) -> Message:
    """Metadata (3), versions 0 to 13: nodes, streams, leaders. It creates streams that are named and that there are
    not, if the node is set so (``kafka.auto_create_topics``), and the client agrees.

    v0   no topics named means all of them; later null does, and none means none
    v4   the client says whether topics may be created
    v8   which operations the caller may do, where it asks for that (KIP-430); of the cluster up to v10
    v10  topics may be asked for by id
    v12  one that is not known by its id has no name in the answer, not an empty one
    """
    image = context.metadata.image
    asked = request["topics"]
    tells = request.get("include_topic_authorized_operations", False)

    def operations(name: str) -> int:
        return topic_operations(name, context, asked=tells)

    if asked is None or (version == 0 and not asked):
        live = live_nodes(image)
        streams = image.streams.items()
        topics = [
            _topic(name, stream, live, operations(name))
            async for name, stream in cooperatively(streams)
            if not stream.config.is_restoring
        ]
    else:
        refused: dict[str, ErrorCode] = {}
        if context.settings.auto_create_topics and request.get("allow_auto_topic_creation", True):
            names = dict.fromkeys(it["name"] for it in asked)
            refused = await _create(filter(_finder(context), names), context)
            image = context.metadata.image
        asked_for = _asked_topics(asked, version, refused, context, operations)
        topics = [it async for it in cooperatively(asked_for)]
    return {
        "brokers": list(shown_nodes(context)),
        "cluster_id": image.cluster_id,
        "controller_id": shown_controller(context),
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(
            context, asked=request.get("include_cluster_authorized_operations", False)
        ),
    }


def _finder(context: Context) -> Callable[[str | None], bool]:
    """Whether the client may know of a topic that it names, made or not; a refusal is audited."""
    access = context.access
    return lambda name: name is None or access is None or access.finds(name)


CREATED_MAX: Final = 20
"""Topics that one request creates, one after the other; it is asked again for what there is not yet."""


async def _create(names: Iterable[str | None], context: Context) -> dict[str, ErrorCode]:
    """Why some of them are not created; no names are those of the nodes' own streams."""
    refused: dict[str, ErrorCode] = {}
    tries = 0
    for name in names:
        if name is None or name in context.metadata.image.streams or name.startswith("__"):
            continue
        if tries == CREATED_MAX:
            break
        tries += 1
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "configs": ()}
        try:
            image = context.metadata.image
            config = new_topic_config(topic, NO_ASSIGNMENTS, image, context.settings)
            await context.control.streams.create(config)
        except StreamlogError as error:
            refused[name] = told(error)["error_code"]
    return refused


def _asked_topics(
    asked: Iterable[Message],
    version: int,
    refused: Mapping[str, ErrorCode],
    context: Context,
    operations: Callable[[str], int],
) -> Iterable[Message]:
    """What is named twice is told once. A name that the client may not know of is refused whether there is such a
    topic or not, as in Kafka: a producer would wait for an unknown one until it times out.
    """
    image, finds = context.metadata.image, _finder(context)
    live = live_nodes(image)
    keys = (it.get("topic_id") if it["name"] is None else it["name"] for it in asked)
    for key in dict.fromkeys(keys):
        name = key if isinstance(key, str) else stream_named(key, image)
        stream = None if name is None else image.streams.get(name)
        if name is not None and stream is not None and not stream.config.is_restoring:
            yield _topic(name, stream, live, operations(name))
        elif name is None:
            unnamed = None if version >= 12 else ""
            yield {"error_code": ErrorCode.unknown_topic_id, "name": unnamed, "topic_id": key}
        elif not finds(name):
            yield {"error_code": ErrorCode.topic_authorization_failed, "name": name}
        else:
            code = refused.get(name, code_of(_why_unknown(name)))
            yield {"error_code": code, "name": name}


def _topic(name: str, stream: StreamImage, live: AbstractSet[NodeId], operations: int) -> Message:
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": stream.stream_id,
        "is_internal": is_internal(name),
        "partitions": [
            shown_partition(index, partition, live)
            for index, partition in enumerate(stream.partitions)
        ],
        "topic_authorized_operations": operations,
    }


PAGE_PARTITIONS_MAX: Final = 2_000
"""In one answer, however many are asked for."""


async def describe_topic_partitions(request: Message, _version: int, context: Context) -> Message:
    """DescribeTopicPartitions (75), version 0: topics by name, page by page (KIP-966).

    No topics named means all of them. A page ends after the number of partitions that was asked for;
    the cursor in the answer says where the next one begins. Eligible leaders outside the ISR are not
    kept, so there are none; the field may be null, too, but Java's client fails then.
    """
    image, cursor = context.metadata.image, request["cursor"]
    asked = {topic["name"] for topic in request["topics"]}
    names = sorted(
        asked or (it for it, stream in image.streams.items() if not stream.config.is_restoring)
    )
    limit = min(request["response_partition_limit"], PAGE_PARTITIONS_MAX)
    fault = _page_fault(limit, cursor)
    if fault is not None:
        return {"topics": [_topic_error(name, fault) async for name in cooperatively(names)]}
    if cursor is not None:
        names = [name for name in names if name >= cursor["topic_name"]]
    topics: list[dict[str, Any]] = []
    async for name in cooperatively(names):
        if limit == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        first = 0
        if cursor is not None and name == cursor["topic_name"]:
            first = cursor["partition_index"]
        topic = _described_topic(name, first, limit, image, context)
        topics.append(topic)
        limit -= len(topic["partitions"])
        end = first + len(topic["partitions"])
        if name in image.streams and end < len(image.streams[name].partitions):
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": end}}
    return {"topics": topics, "next_cursor": None}


_OUT_OF_SYNC: Final = {"eligible_leader_replicas": (), "last_known_elr": ()}
"""Replicas outside the ISR that have all that is committed: see above."""


def _page_fault(limit: int, cursor: Message | None) -> RequestRefused | None:
    if limit < 1:
        return RequestRefused(ErrorCode.invalid_request, "a page has at least one partition")
    if cursor is not None and cursor["partition_index"] < 0:
        return RequestRefused(
            ErrorCode.invalid_request, "a cursor does not point below partition 0"
        )
    return None


def _described_topic(
    name: str, first: int, limit: int, image: MetadataImage, context: Context
) -> dict[str, Any]:
    stream = image.streams.get(name)
    if stream is None or stream.config.is_restoring:
        if not _finder(context)(name):
            return {
                "error_code": ErrorCode.topic_authorization_failed,
                "name": name,
                "partitions": [],
            }
        return _topic_error(name, _why_unknown(name))
    live = live_nodes(image)
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": stream.stream_id,
        "is_internal": is_internal(name),
        "partitions": [
            {**shown_partition(first + i, partition, live), **_OUT_OF_SYNC}
            for i, partition in enumerate(stream.partitions[first : first + limit])
        ],
        "topic_authorized_operations": topic_operations(name, context),
    }


def _why_unknown(name: str) -> StreamlogError:
    try:
        check_topic_name(name)
    except InvalidStreamName as error:
        return error
    return StreamNotFound(f"there is no stream {name!r}")


def _topic_error(name: str, error: StreamlogError) -> dict[str, Any]:
    return {"error_code": told(error)["error_code"], "name": name, "partitions": []}


BROKERS: Final = 1
CONTROLLERS: Final = 2


async def describe_cluster(request: Message, _version: int, context: Context) -> Message:
    """DescribeCluster (60), versions 0 to 2: the nodes and the controller (KIP-700).

    v1  brokers or controllers may be asked for; here every node is both on one address
    v2  fenced nodes are told, where they are asked for
    """
    image, endpoints = context.metadata.image, request.get("endpoint_type", BROKERS)
    answer = {"endpoint_type": endpoints, "cluster_id": image.cluster_id}
    if endpoints != BROKERS:
        is_known = endpoints == CONTROLLERS
        return {
            **answer,
            "error_code": ErrorCode.mismatched_endpoint_type
            if is_known
            else ErrorCode.unsupported_endpoint_type,
            "error_message": f"endpoint type {endpoints}: ask for brokers (1)",
        }
    live = live_nodes(image) | {context.node_id}
    brokers = [
        _broker(node, is_fenced=node["node_id"] not in live) for node in shown_nodes(context)
    ]
    if request.get("include_fenced_brokers", False):
        told = {broker["broker_id"] for broker in brokers}
        brokers.extend(
            _broker(
                {"node_id": it.node_id, "host": it.host, "port": it.port, "rack": it.rack},
                is_fenced=True,
            )
            for it in image.nodes.values()
            if it.node_id not in told
        )
    return {
        **answer,
        "error_code": ErrorCode.none,
        "controller_id": shown_controller(context),
        "brokers": brokers,
        "cluster_authorized_operations": cluster_operations(
            context, asked=request["include_cluster_authorized_operations"]
        ),
    }


def _broker(node: Message, *, is_fenced: bool) -> dict[str, Any]:
    return {
        "broker_id": node["node_id"],
        "host": node["host"],
        "port": node["port"],
        "rack": node["rack"],
        "is_fenced": is_fenced,
    }
