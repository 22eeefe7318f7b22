"""CreatePartitions (37), versions 0 to 3: more partitions for a stream (KIP-195).

Nodes may be named for each new partition; else the controller chooses. Partition i listens on
``<subject>.<i>``; what is stored stays where it is.
"""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.errors import InvalidStreamConfig, InvalidSubject, StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_bindings, check_topic
from streamlog.kafka.configs.replica_assignment import Assignments, check_assignments
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.kafka.topology import live_nodes
from streamlog.metadata import controller
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.alteration import SettingChange, altered
from streamlog.metadata.stream.config import PARTITIONS_MAX
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    image = await newest_image(context)
    counts = Counter(topic["name"] for topic in request["topics"])
    results: list[dict[str, Any]] = []
    async for topic in cooperatively(request["topics"]):
        outcome: dict[str, Any] = {"error_code": ErrorCode.none}
        try:
            if counts[topic["name"]] > 1:
                raise RequestRefused(ErrorCode.invalid_request, NAMED_TWICE)
            check_topic(Operation.ALTER, topic["name"], context)
            _check(topic, image)
            await _add(topic, image, request["validate_only"], context)
        except (InvalidStreamConfig, InvalidSubject) as error:
            outcome = told(RequestRefused(ErrorCode.invalid_partitions, str(error)))
        except StreamlogError as error:
            outcome = told(error)
        results.append({"name": topic["name"], **outcome})
    return {"results": results}


def _check(topic: Message, image: MetadataImage) -> None:
    stream, count = image.stream(topic["name"]), topic["count"]
    known, live = len(stream.partitions), len(live_nodes(image))
    if not known < count <= PARTITIONS_MAX:
        raise RequestRefused(
            ErrorCode.invalid_partitions,
            f"{count} partitions: there are {known}, and can be more, up to {PARTITIONS_MAX}",
        )
    if topic["assignments"]:
        check_assignments(
            _assignments(topic), image,
            replicas=stream.config.replicas, numbers=range(known, count),
        )  # fmt: skip
    if stream.config.replicas > live:
        raise RequestRefused(
            ErrorCode.invalid_replication_factor,
            f"{stream.config.replicas} replicas, {live} live nodes",
        )


def _assignments(topic: Message) -> Assignments:
    return tuple(tuple(it["broker_ids"]) for it in topic["assignments"] or ())


async def _add(topic: Message, image: MetadataImage, validate_only: bool, context: Context) -> None:
    name, assignments = topic["name"], _assignments(topic)
    changes = (SettingChange(setting="partitions", text=str(topic["count"])),)
    known = image.stream(name).config
    check_bindings(altered(known, changes), context, known)
    if validate_only:
        config = altered(known, changes)
        controller.update_stream(image, config, assignments=assignments)
    else:
        seen = None if context.access is None else known
        await context.metadata.alter_stream(name, changes, assignments, seen)
