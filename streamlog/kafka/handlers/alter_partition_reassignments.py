"""AlterPartitionReassignments (45), versions 0 and 1: other replicas for partitions (KIP-455).

A list of nodes begins a move, the first one preferred as leader; null cancels the move that is
under way. The old replicas stay until the new ones are in sync. Each partition is by itself.

v1  a caller may insist on the number of replicas; here it is the stream's in any case
"""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.errors import InvalidRequest, PartitionNotFound, StreamlogError, StreamNotFound
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.metadata.commands import CancelMove, Command, MovePartition
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    counts = Counter(
        (topic["name"], asked["partition_index"])
        for topic in request["topics"]
        for asked in topic["partitions"]
    )
    image = await newest_image(context)
    responses: list[dict[str, Any]] = []
    for topic in request["topics"]:
        results: list[dict[str, Any]] = []
        for asked in topic["partitions"]:
            index = asked["partition_index"]
            if counts[topic["name"], index] > 1:
                outcome = told(RequestRefused(ErrorCode.invalid_request, NAMED_TWICE))
            else:
                outcome = await _reassign(topic["name"], asked, image, context)
            results.append({"partition_index": index, **outcome})
        responses.append({"name": topic["name"], "partitions": results})
    return {
        "allow_replication_factor_change": request.get("allow_replication_factor_change", True),
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": responses,
    }


async def _reassign(
    name: str, asked: Message, image: MetadataImage, context: Context
) -> dict[str, Any]:
    try:
        await context.metadata.request(_command(name, asked, image))
    except (StreamNotFound, PartitionNotFound, RequestRefused) as error:
        return told(error)
    except InvalidRequest as error:
        return told(RequestRefused(ErrorCode.invalid_replica_assignment, str(error)))
    except StreamlogError as error:
        return told(error)
    return {"error_code": ErrorCode.none, "error_message": None}


def _command(name: str, asked: Message, image: MetadataImage) -> Command:
    """Checked as far as Kafka has codes of its own; the controller checks the rest."""
    number, replicas, stream = asked["partition_index"], asked["replicas"], image.stream(name)
    partition = stream.partition(number)
    if replicas is None:
        if not partition.is_moving:
            text = f"{name}-{number} is not being moved"
            raise RequestRefused(ErrorCode.no_reassignment_in_progress, text)
        return CancelMove(stream=name, partition=number)
    if not replicas or len(set(replicas)) != len(replicas):
        text = f"{replicas}: name nodes, each of them once; null cancels a move"
        raise RequestRefused(ErrorCode.invalid_replica_assignment, text)
    if len(replicas) != stream.config.replicas:
        raise RequestRefused(
            ErrorCode.invalid_replication_factor,
            f"{len(replicas)} replicas named, and stream {name!r} has {stream.config.replicas};"
            " change that for the whole stream (streamlog stream edit --replicas)",
        )
    return MovePartition(stream=name, partition=number, replicas=tuple(replicas))
