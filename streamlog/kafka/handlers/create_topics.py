"""CreateTopics (19), versions 2 to 7: streams, with Kafka's topic configs for their settings.

The stream's subjects are the topic config ``subject``, comma separated; default: the topic's name.
What is there already is an error, as Kafka's clients expect, even if it is the very same.

Nodes may be named for every partition, the first of each to lead it; else the controller chooses.

    v4  -1 partitions or replicas stand for the default
    v5  the answer tells the configuration
    v7  the answer tells the id
"""

from collections import Counter
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from streamlog.errors import StreamExists, StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_bindings
from streamlog.kafka.configs.replica_assignment import NONE, Assignments, check_assignments, refuse
from streamlog.kafka.context import Context
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.kafka.topology import live_nodes
from streamlog.metadata import controller
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.config import PARTITIONS_MAX, StreamConfig, check_stream_name
from streamlog.metadata.stream.settings_table import from_topic_configs, to_topic_configs
from streamlog.wire.control import Message

DEFAULT: Final = -1
_NO_ID: Final = UUID(int=0)

_SOURCE_TOPIC: Final = 1
_SOURCE_DEFAULT: Final = 5


async def handle(request: Message, _version: int, context: Context) -> Message:
    counts = Counter(topic["name"] for topic in request["topics"])
    results = []
    async for topic in cooperatively(request["topics"]):
        if counts[topic["name"]] > 1:
            results.append(_error(topic, ErrorCode.invalid_request, NAMED_TWICE))
        else:
            results.append(await _create(topic, request["validate_only"], context))
    return {"topics": results}


async def _create(topic: Message, validate_only: bool, context: Context) -> dict[str, Any]:
    image = context.metadata.image
    try:
        if context.access is not None:
            context.access.check_creation(topic["name"])
        assignments = _assignments(topic, image)
        config = _config(topic, assignments, image)
        check_bindings(config, context)
        stream = await _made(config, assignments, validate_only, context)
    except StreamlogError as error:
        return {"name": topic["name"], **told(error)}
    return _success(topic, config, stream)


async def _made(
    config: StreamConfig, assignments: Assignments, validate_only: bool, context: Context
) -> StreamImage | None:
    """None where it is only validated."""
    if validate_only:
        controller.create_stream(
            context.metadata.image, config, new_id=_NO_ID, now_ms=0, assignments=assignments
        )
        return None
    stream, created = await context.metadata.create_stream(config, assignments)
    if not created:
        raise StreamExists(f"stream {config.name!r} exists")
    return stream


def _assignments(topic: Message, image: MetadataImage) -> Assignments:
    """Who keeps each partition, if the caller says so: then that tells the numbers, too."""
    given = sorted((it["partition_index"], tuple(it["broker_ids"])) for it in topic["assignments"])
    if not given:
        return NONE
    if (topic["num_partitions"], topic["replication_factor"]) != (DEFAULT, DEFAULT):
        text = "assignments tell the numbers of partitions and replicas: leave those at -1"
        raise RequestRefused(ErrorCode.invalid_request, text)
    if [index for index, _ in given] != list(range(len(given))):
        refuse(f"name nodes for each of the partitions 0 to {len(given) - 1}, once")
    assignments = tuple(nodes for _, nodes in given)
    replicas = max(1, len(assignments[0]))
    check_assignments(assignments, image, replicas=replicas, numbers=range(len(assignments)))
    return assignments


def _config(topic: Message, assignments: Assignments, image: MetadataImage) -> StreamConfig:
    """What is asked for, checked as far as Kafka has codes of its own."""
    name = topic["name"]
    check_stream_name(name)
    if name in image.streams:
        raise StreamExists(f"stream {name!r} exists")
    if assignments:
        partitions, replicas = len(assignments), len(assignments[0])
    else:
        partitions = 1 if topic["num_partitions"] == DEFAULT else topic["num_partitions"]
        replicas = 1 if topic["replication_factor"] == DEFAULT else topic["replication_factor"]
    if not 1 <= partitions <= PARTITIONS_MAX:
        text = f"{partitions} partitions: 1 to {PARTITIONS_MAX}"
        raise RequestRefused(ErrorCode.invalid_partitions, text)
    live = len(live_nodes(image))
    if not 1 <= replicas <= live:
        text = f"{replicas} replicas, {live} live nodes"
        raise RequestRefused(ErrorCode.invalid_replication_factor, text)
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
