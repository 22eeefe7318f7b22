"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders, DescribeLogDirs: where the
replicas of partitions are, and which of them leads.
"""

from collections import Counter
from typing import Any, Final

from streamlog.control.placement import needs_election, partitions_that_need_election
from streamlog.errors import (
    InvalidRequest,
    PartitionNotFound,
    StorageFailed,
    StreamlogError,
    StreamNotFound,
)
from streamlog.fairness import cooperatively
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode


async def alter_partition_reassignments(
    request: Message, _version: int, context: Context
) -> Message:
    """AlterPartitionReassignments (45), versions 0 and 1: other replicas for partitions (KIP-455).

    A list of nodes begins a move, the first one preferred as leader; null cancels the move that is
    under way. The old replicas stay until the new ones are in sync. Each partition is by itself.

    v1  a caller may insist on the number of replicas; here it is the stream's in any case
    """
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
        number, replicas = asked["partition_index"], _checked_replicas(name, asked, image)
        if replicas is None:
            await context.control.placement.cancel_move(name, number)
        else:
            await context.control.placement.move(name, number, replicas)
    except (StreamNotFound, PartitionNotFound, RequestRefused) as error:
        return told(error)
    except InvalidRequest as error:
        return told(RequestRefused(ErrorCode.invalid_replica_assignment, str(error)))
    except StreamlogError as error:
        return told(error)
    return {"error_code": ErrorCode.none, "error_message": None}


def _checked_replicas(name: str, asked: Message, image: MetadataImage) -> tuple[NodeId, ...] | None:
    """Where the partition is to be; None: its move is cancelled. Checked as far as Kafka has codes of its
    own; the controller checks the rest.
    """
    number, replicas, stream = asked["partition_index"], asked["replicas"], image.stream(name)
    partition = stream.partition(number)
    if replicas is None:
        if not partition.is_moving:
            text = f"{name}-{number} is not being moved"
            raise RequestRefused(ErrorCode.no_reassignment_in_progress, text)
        return None
    if not replicas or len(set(replicas)) != len(replicas):
        text = f"{replicas}: name nodes, each of them once; null cancels a move"
        raise RequestRefused(ErrorCode.invalid_replica_assignment, text)
    if len(replicas) != stream.config.replicas:
        raise RequestRefused(
            ErrorCode.invalid_replication_factor,
            f"{len(replicas)} replicas named, and stream {name!r} has {stream.config.replicas};"
            " change that for the whole stream (streamlog stream edit --replicas)",
        )
    return tuple(replicas)


async def list_partition_reassignments(
    request: Message, _version: int, context: Context
) -> Message:
    """ListPartitionReassignments (46), version 0: the moves that are under way (KIP-455).

    Null asks for all; partitions that do not move, or are not there, are left out.
    """
    try:
        moves = await context.control.placement.moves()
    except StreamlogError as error:
        return {**told(error), "topics": []}
    asked = request["topics"]
    wanted = {(it["name"], number) for it in asked or () for number in it["partition_indexes"]}
    topics: dict[str, list[dict[str, Any]]] = {}
    async for it in cooperatively(moves):
        if asked is None or (it.stream, it.partition) in wanted:
            topics.setdefault(it.stream, []).append(
                {
                    "partition_index": it.partition,
                    "replicas": it.replicas,
                    "adding_replicas": it.adding,
                    "removing_replicas": it.removing,
                }
            )
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
    }


PREFERRED: Final = 0
UNCLEAN: Final = 1


async def elect_leaders(request: Message, _version: int, context: Context) -> Message:
    """ElectLeaders (43), versions 0 to 2: preferred replicas lead again, or any live one (KIP-460).

    No partitions named means all of them; those that need no election are left out of the answer then.

    v1  an unclean election, of partitions without a leader: what the new leader lacks is lost
    """
    kind, asked = request.get("election_type", PREFERRED), request["topic_partitions"]
    if kind not in (PREFERRED, UNCLEAN):
        return _elections_refused(request, f"election type {kind}: preferred (0) or unclean (1)")
    unclean = kind == UNCLEAN
    image = await newest_image(context)
    if asked is None:
        wanted = partitions_that_need_election(image, unclean=unclean)
    else:
        wanted = [TopicPartition(it["topic"], n) for it in asked for n in it["partitions"]]
    results: dict[str, list[dict[str, Any]]] = {}
    async for tp in cooperatively(wanted):
        outcome = await _elect_leader(tp, unclean, context)
        results.setdefault(tp.stream, []).append({"partition_id": tp.partition, **outcome})
    return {
        "error_code": ErrorCode.none,
        "replica_election_results": [
            {"topic": topic, "partition_result": found} for topic, found in results.items()
        ],
    }


async def _elect_leader(tp: TopicPartition, unclean: bool, context: Context) -> dict[str, Any]:
    try:
        known = context.metadata.image.stream(tp.stream).partition(tp.partition)
        if not needs_election(known, unclean=unclean):
            text = f"node {known.leader} leads {tp} already"
            raise RequestRefused(ErrorCode.election_not_needed, text)
        elected = await context.control.placement.elect(tp.stream, tp.partition, unclean=unclean)
        leader = elected.leader
        if not unclean and leader != known.target[0]:
            raise InvalidRequest(f"node {known.target[0]} is away; node {leader} leads {tp} now")
    except (StreamNotFound, PartitionNotFound, RequestRefused) as error:
        return told(error)
    except InvalidRequest as error:
        return told(RequestRefused(_leader_not_available(unclean), str(error)))
    except StreamlogError as error:
        return told(error)
    return {"error_code": ErrorCode.none, "error_message": None}


def _leader_not_available(unclean: bool) -> ErrorCode:
    if unclean:
        return ErrorCode.eligible_leaders_not_available
    return ErrorCode.preferred_leader_not_available


def _elections_refused(request: Message, text: str) -> Message:
    fault = told(RequestRefused(ErrorCode.invalid_request, text))
    return {
        "error_code": fault["error_code"],
        "replica_election_results": [
            {
                "topic": topic["topic"],
                "partition_result": [{"partition_id": n, **fault} for n in topic["partitions"]],
            }
            for topic in request["topic_partitions"] or ()
        ],
    }


async def describe_log_dirs(request: Message, _version: int, context: Context) -> Message:
    """DescribeLogDirs (35), versions 1 to 4: what the partitions on this node take (KIP-113).

    A node has one folder. Partitions that are asked for and not here are left out.

    v4  the size of the disk, and what is free of it (KIP-827)
    """
    try:
        storage, here = await context.control.cluster.storage()
    except StorageFailed as error:  # an error of the folder, not of the request
        path = context.node_settings.node.data_dir
        return {"results": [{**told(error), "log_dir": str(path.absolute())}]}
    except StreamlogError as error:
        return {**told(error), "results": []}
    asked = None if request["topics"] is None else _named_partitions(request["topics"])
    by_name: dict[str, list[dict[str, Any]]] = {}
    async for partition in cooperatively(here):
        if asked is None or partition.tp in asked:
            by_name.setdefault(partition.tp.stream, []).append(_shown_log(partition))
    folder = {
        "log_dir": storage.path,
        "error_code": ErrorCode.none,
        "topics": [{"name": name, "partitions": by_name[name]} for name in sorted(by_name)],
        "total_bytes": storage.total_bytes,
        "usable_bytes": storage.free_bytes,
    }
    return {"results": [folder]}


def _named_partitions(topics: list[Message]) -> set[TopicPartition]:
    return {
        TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"]
    }


def _shown_log(partition: Partition) -> dict[str, Any]:
    statistics = partition.statistics()
    return {
        "partition_index": partition.tp.partition,
        "partition_size": statistics.size_bytes,
        "offset_lag": max(0, statistics.high_watermark - statistics.log_end_offset),
        "is_future_key": False,
    }
