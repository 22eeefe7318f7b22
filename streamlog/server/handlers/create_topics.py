"""CreateTopics (19), versions 2 to 7: streams, with Kafka's topic configs for their settings.

The stream's subjects are the topic config ``subject``, comma separated; default: the topic's name.
What is there already is an error, as Kafka's clients expect, even if it is the very same.

    v4  -1 partitions or replicas stand for the default
    v5  the answer tells the configuration
    v7  the answer tells the id
"""

from collections import Counter
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from streamlog.errors import StreamExists, StreamlogError
from streamlog.metadata import controller
from streamlog.metadata.image import StreamImage
from streamlog.metadata.settings_table import from_topic_configs, to_topic_configs
from streamlog.metadata.stream import PARTITIONS_MAX, StreamConfig, check_stream_name
from streamlog.server.context import Context
from streamlog.server.refusal import Refused, told
from streamlog.wire.control import Message

DEFAULT: Final = -1
_NO_ID: Final = UUID(int=0)

_SOURCE_TOPIC: Final = 1
_SOURCE_DEFAULT: Final = 5


async def handle(request: Message, _version: int, context: Context) -> Message:
    counts = Counter(topic["name"] for topic in request["topics"])
    results = []
    for topic in request["topics"]:
        if counts[topic["name"]] > 1:
            results.append(_error(topic, ErrorCode.invalid_request, "named twice in one request"))
        else:
            results.append(await _create(topic, request["validate_only"], context))
    return {"topics": results}


async def _create(topic: Message, validate_only: bool, context: Context) -> dict[str, Any]:
    try:
        config = _config(topic, context)
        if validate_only:
            controller.create_stream(context.metadata.image, config, new_id=_NO_ID, now_ms=0)
            return _success(topic, config, None)
        stream, created = await context.metadata.create_stream(config)
        if not created:
            raise StreamExists(f"stream {config.name!r} exists")
    except StreamlogError as error:
        return {"name": topic["name"], **told(error)}
    return _success(topic, stream.config, stream)


def _config(topic: Message, context: Context) -> StreamConfig:
    """What is asked for, checked as far as Kafka has codes of its own."""
    name, image = topic["name"], context.metadata.image
    check_stream_name(name)
    if name in image.streams:
        raise StreamExists(f"stream {name!r} exists")
    if topic["assignments"]:
        raise Refused(ErrorCode.invalid_replica_assignment, "replicas are placed by the nodes")
    partitions = 1 if topic["num_partitions"] == DEFAULT else topic["num_partitions"]
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise Refused(
            ErrorCode.invalid_partitions, f"{partitions} partitions: 1 to {PARTITIONS_MAX}"
        )
    replicas = 1 if topic["replication_factor"] == DEFAULT else topic["replication_factor"]
    live = sum(not node.fenced for node in image.nodes.values())
    if not 1 <= replicas <= live:
        raise Refused(
            ErrorCode.invalid_replication_factor, f"{replicas} replicas, {live} live nodes"
        )
    settings = from_topic_configs({entry["name"]: entry["value"] for entry in topic["configs"]})
    return StreamConfig.of(
        **{**settings, "name": name, "partitions": partitions, "replicas": replicas}
    )


def _error(topic: Message, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"name": topic["name"], "error_code": code, "error_message": message}


def _success(topic: Message, config: StreamConfig, stream: StreamImage | None) -> dict[str, Any]:
    given = {entry["name"] for entry in topic["configs"]}
    return {
        "name": config.name,
        "topic_id": None if stream is None else stream.stream_id,
        "error_code": ErrorCode.none,
        "num_partitions": config.partitions,
        "replication_factor": config.replicas,
        "configs": [
            {
                "name": key,
                "value": text,
                "config_source": _SOURCE_TOPIC if key in given else _SOURCE_DEFAULT,
            }
            for key, text in to_topic_configs(config).items()
        ],
    }
