"""CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NoReturn
from uuid import UUID

from streamlog.config import KafkaSection
from streamlog.control.streams import PartitionTrim
from streamlog.errors import (
    InvalidStreamConfig,
    InvalidSubject,
    NotLeader,
    StreamExists,
    StreamlogError,
    StreamNotFound,
)
from streamlog.fairness import cooperatively
from streamlog.kafka.advertised_listeners import live_nodes
from streamlog.kafka.auth.resource_checks import stream_named
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import PartitionLookup, newest_image
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.settings_translation import from_topic_configs, to_topic_configs
from streamlog.metadata.stream.stream_config import (
    PARTITIONS_MAX,
    StreamConfig,
    check_stream_name,
    check_writable_by_clients,
)
from streamlog.model import NodeId, TopicPartition
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_named, code_of

Assignments = tuple[tuple[NodeId, ...], ...]
"""The nodes of each partition, in order; empty: the controller chooses."""

NO_ASSIGNMENTS: Final[Assignments] = ()


def check_assignments(
    assignments: Assignments, image: MetadataImage, *, replicas: int, numbers: Sequence[int]
) -> None:
    """Raises Refused unless there are ``replicas`` live nodes for each of the ``numbers``."""
    if len(assignments) != len(numbers):
        refuse_assignments(
            f"nodes are named for {len(assignments)} new partitions, of {len(numbers)}"
        )
    live = live_nodes(image)
    for number, nodes in zip(numbers, assignments, strict=True):
        if not nodes or len(nodes) != replicas or len(set(nodes)) != replicas:
            refuse_assignments(
                f"partition {number}: {list(nodes)} are not {replicas} different nodes"
            )
        if not live >= set(nodes):
            refuse_assignments(
                f"partition {number}: of {list(nodes)} only {sorted(live)} are live nodes"
            )


def refuse_assignments(text: str) -> NoReturn:
    """Raises Refused."""
    raise RequestRefused(ErrorCode.invalid_replica_assignment, text)


CREATED_AT_ONCE: Final = 100
"""Topics of one request. Each waits for the metadata log's disk more than once, and those waits are shared."""

DEFAULT: Final = -1
_NO_ID: Final = UUID(int=0)

_SOURCE_TOPIC: Final = 1
_SOURCE_DEFAULT: Final = 5


async def create_topics(request: Message, _version: int, context: Context) -> Message:
    """CreateTopics (19), versions 2 to 7: streams, with Kafka's topic configs for their settings.

    The stream's subjects are the topic config ``subject``, comma separated; default: the topic's name.
    What is there already is an error, as Kafka's clients expect, even if it is the very same.

    Nodes may be named for every partition, the first of each to lead it; else the controller chooses.
    The topics of a request are created side by side.

        v4  -1 partitions or replicas stand for the node's defaults
        v5  the answer tells the configuration
        v7  the answer tells the id
    """
    counts = Counter(topic["name"] for topic in request["topics"])
    results: list[dict[str, Any]] = [{} for _ in request["topics"]]
    places = asyncio.Semaphore(CREATED_AT_ONCE)

    async def create(number: int, topic: Message) -> None:
        try:
            if counts[topic["name"]] > 1:
                raise RequestRefused(ErrorCode.invalid_request, NAMED_TWICE)
            results[number] = await _create_topic(topic, request["validate_only"], context)
        except StreamlogError as error:
            results[number] = {"name": topic["name"], **told(error)}
        finally:
            places.release()

    async with asyncio.TaskGroup() as group:
        async for number, topic in cooperatively(enumerate(request["topics"])):
            await places.acquire()
            group.create_task(create(number, topic))
            await asyncio.sleep(0)  # one task begins in a turn of the event loop
    return {"topics": results}


async def _create_topic(topic: Message, validate_only: bool, context: Context) -> dict[str, Any]:
    """Raises StreamlogError."""
    image = context.metadata.image
    assignments = _topic_assignments(topic, image)
    config = new_topic_config(topic, assignments, image, context.settings)
    stream, created = await context.control.streams.create(
        config, assignments, validate_only=validate_only
    )
    if not created:
        raise StreamExists(f"stream {config.name!r} exists")
    return _created(topic, config, None if validate_only else stream)


def _topic_assignments(topic: Message, image: MetadataImage) -> Assignments:
    """Who keeps each partition, if the caller says so: then that tells the numbers, too."""
    given = sorted((it["partition_index"], tuple(it["broker_ids"])) for it in topic["assignments"])
    if not given:
        return NO_ASSIGNMENTS
    if (topic["num_partitions"], topic["replication_factor"]) != (DEFAULT, DEFAULT):
        text = "assignments tell the numbers of partitions and replicas: leave those at -1"
        raise RequestRefused(ErrorCode.invalid_request, text)
    if [index for index, _ in given] != list(range(len(given))):
        refuse_assignments(f"name nodes for each of the partitions 0 to {len(given) - 1}, once")
    assignments = tuple(nodes for _, nodes in given)
    replicas = max(1, len(assignments[0]))
    check_assignments(assignments, image, replicas=replicas, numbers=range(len(assignments)))
    return assignments


def new_topic_config(
    topic: Message, assignments: Assignments, image: MetadataImage, settings: KafkaSection
) -> StreamConfig:
    """What is asked for, checked as far as Kafka has codes of its own. Raises StreamlogError."""
    name = topic["name"]
    check_stream_name(name)
    if name in image.streams:
        raise StreamExists(f"stream {name!r} exists")
    if assignments:
        partitions, replicas = len(assignments), len(assignments[0])
    else:
        partitions, replicas = topic["num_partitions"], topic["replication_factor"]
        partitions = settings.default_partitions if partitions == DEFAULT else partitions
        replicas = settings.default_replicas if replicas == DEFAULT else replicas
    if not 1 <= partitions <= PARTITIONS_MAX:
        text = f"{partitions} partitions: 1 to {PARTITIONS_MAX}"
        raise RequestRefused(ErrorCode.invalid_partitions, text)
    live = len(live_nodes(image))
    if not 1 <= replicas <= live:
        text = f"{replicas} replicas, {live} live nodes"
        raise RequestRefused(ErrorCode.invalid_replication_factor, text)
    given = from_topic_configs({entry["name"]: entry["value"] for entry in topic["configs"]})
    return StreamConfig.of(
        **{**given, "name": name, "partitions": partitions, "replicas": replicas}
    )


def _created(topic: Message, config: StreamConfig, stream: StreamImage | None) -> dict[str, Any]:
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


async def create_partitions(request: Message, _version: int, context: Context) -> Message:
    """CreatePartitions (37), versions 0 to 3: more partitions for a stream (KIP-195).

    Nodes may be named for each new partition; else the controller chooses. Partition i listens on
    ``<subject>.<i>``; what is stored stays where it is.
    """
    image = await newest_image(context)
    counts = Counter(topic["name"] for topic in request["topics"])
    results: list[dict[str, Any]] = []
    async for topic in cooperatively(request["topics"]):
        outcome: dict[str, Any] = {"error_code": ErrorCode.none}
        try:
            if counts[topic["name"]] > 1:
                raise RequestRefused(ErrorCode.invalid_request, NAMED_TWICE)
            _check_new_partitions(topic, image)
            await context.control.streams.alter(
                topic["name"],
                (SettingChange(setting="partitions", text=str(topic["count"])),),
                _new_assignments(topic),
                validate_only=request["validate_only"],
            )
        except (InvalidStreamConfig, InvalidSubject) as error:
            outcome = told(RequestRefused(ErrorCode.invalid_partitions, str(error)))
        except StreamlogError as error:
            outcome = told(error)
        results.append({"name": topic["name"], **outcome})
    return {"results": results}


def _check_new_partitions(topic: Message, image: MetadataImage) -> None:
    stream, count = image.stream(topic["name"]), topic["count"]
    known, live = len(stream.partitions), len(live_nodes(image))
    if not known < count <= PARTITIONS_MAX:
        raise RequestRefused(
            ErrorCode.invalid_partitions,
            f"{count} partitions: there are {known}, and can be more, up to {PARTITIONS_MAX}",
        )
    if topic["assignments"]:
        check_assignments(
            _new_assignments(topic), image,
            replicas=stream.config.replicas, numbers=range(known, count),
        )  # fmt: skip
    if stream.config.replicas > live:
        raise RequestRefused(
            ErrorCode.invalid_replication_factor,
            f"{stream.config.replicas} replicas, {live} live nodes",
        )


def _new_assignments(topic: Message) -> Assignments:
    return tuple(tuple(it["broker_ids"]) for it in topic["assignments"] or ())


async def delete_topics(request: Message, _version: int, context: Context) -> Message:
    """DeleteTopics (20), versions 1 to 6: streams and all their records.

    v5  errors have a text
    v6  a topic may be named by its id
    """
    named = [{"name": name, "topic_id": None} for name in request.get("topic_names", ())]
    return {
        "responses": [
            await _delete_topic(topic["name"], topic["topic_id"], context)
            async for topic in cooperatively((*named, *request.get("topics", ())))
        ]
    }


async def _delete_topic(
    name: str | None, topic_id: UUID | None, context: Context
) -> dict[str, Any]:
    image = context.metadata.image
    if name is None:
        name = stream_named(topic_id, image)
        if name is None:
            return _deletion(None, topic_id, ErrorCode.unknown_topic_id, "no stream has this id")
    stream = image.streams.get(name)
    try:
        if stream is None:
            raise StreamNotFound(f"there is no stream {name!r}")
        check_writable_by_clients(name)
        await context.control.streams.delete(name, topic_id)
    except StreamlogError as error:
        return _deletion(name, topic_id, code_of(error), str(error))
    return _deletion(name, stream.stream_id, ErrorCode.none, None)


def _deletion(
    name: str | None, topic_id: UUID | None, code: ErrorCode, message: str | None
) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}


HIGH_WATERMARK: Final = -1
UNKNOWN_OFFSET: Final = -1


async def delete_records(request: Message, _version: int, context: Context) -> Message:
    """DeleteRecords (21), versions 0 to 2: a partition forgets what is below an offset (KIP-107).

    Offset -1 stands for the high watermark. Only the partition's leader does it; the other replicas
    follow with what they fetch, and the answer waits until all that are in sync have. Who is already
    past the offset is a success. The low watermark of the answer is the first offset that they all have
    gone past. One request is one line of the audit log: Connect and Streams send them for ever.
    """
    lookup = PartitionLookup(context)
    timeout_ms = min(max(0, request["timeout"]), context.settings.idle_timeout_ms)
    results: dict[str, list[dict[str, Any]]] = {it["name"]: [] for it in request["topics"]}
    trims: list[PartitionTrim] = []
    waiting: list[dict[str, Any]] = []
    asked = ((topic["name"], it) for topic in request["topics"] for it in topic["partitions"])
    async for name, it in cooperatively(asked):
        tp = TopicPartition(name, it["partition_index"])
        result = {"partition_index": tp.partition, "low_watermark": UNKNOWN_OFFSET, "error_code": 0}
        results[name].append(result)
        try:
            await _check_trimmable(tp, lookup, context)
        except StreamlogError as error:
            result["error_code"] = code_of(error)
            continue
        offset = None if it["offset"] == HIGH_WATERMARK else it["offset"]
        trims.append(PartitionTrim(name, tp.partition, offset))
        waiting.append(result)
    if trims:
        done = await context.control.streams.trim_partitions(tuple(trims), timeout_ms)
        for result, trimmed in zip(waiting, done, strict=True):
            if trimmed.low_watermark is None:
                result["error_code"] = code_named(trimmed.error)
            else:
                result["low_watermark"] = trimmed.low_watermark
    return {"topics": [{"name": name, "partitions": it} for name, it in results.items()]}


async def _check_trimmable(tp: TopicPartition, lookup: PartitionLookup, context: Context) -> None:
    """A node that may lead no longer, or does not know yet what is committed, is no leader here: the client then
    asks again, and perhaps elsewhere. Raises StreamlogError.
    """
    check_writable_by_clients(tp.stream)
    await lookup.look_up(tp)
    context.metadata.image.stream(tp.stream)  # raises StreamNotFound for one that may not be seen
    partition = await lookup.partition(tp)
    if not (context.metadata.lease.held and partition.high_watermark_known):
        raise NotLeader(f"this node cannot say just now what is committed of {tp}")
