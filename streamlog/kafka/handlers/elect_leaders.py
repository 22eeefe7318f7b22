"""ElectLeaders (43), versions 0 to 2: preferred replicas lead again, or any live one (KIP-460).

No partitions named means all of them; those that need no election are left out of the answer then.

v1  an unclean election, of partitions that nobody leads: what the new leader lacks is lost
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.errors import InvalidRequest, PartitionNotFound, StreamlogError, StreamNotFound
from streamlog.fairness import cooperatively
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import RequestRefused, told
from streamlog.metadata.commands import ElectLeader
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.model import NO_LEADER, TopicPartition
from streamlog.wire.control import Message

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle(request: Message, _version: int, context: Context) -> Message:
    kind, asked = request.get("election_type", PREFERRED), request["topic_partitions"]
    if kind not in (PREFERRED, UNCLEAN):
        return _refused(request, f"election type {kind}: preferred (0) or unclean (1)")
    unclean = kind == UNCLEAN
    image = await newest_image(context)
    if asked is None:
        wanted = _all_that_need_it(image, unclean=unclean)
    else:
        wanted = [TopicPartition(it["topic"], n) for it in asked for n in it["partitions"]]
    results: dict[str, list[dict[str, Any]]] = {}
    async for tp in cooperatively(wanted):
        outcome = await _elect(tp, unclean, context)
        results.setdefault(tp.stream, []).append({"partition_id": tp.partition, **outcome})
    return {
        "error_code": ErrorCode.none,
        "replica_election_results": [
            {"topic": topic, "partition_result": found} for topic, found in results.items()
        ],
    }


def _all_that_need_it(image: MetadataImage, *, unclean: bool) -> list[TopicPartition]:
    return [
        TopicPartition(name, number)
        for name, stream in sorted(image.streams.items())
        for number, partition in enumerate(stream.partitions)
        if _needs_it(partition, unclean=unclean)
    ]


def _needs_it(partition: PartitionImage, *, unclean: bool) -> bool:
    return partition.leader == NO_LEADER if unclean else partition.leader != partition.target[0]


async def _elect(tp: TopicPartition, unclean: bool, context: Context) -> dict[str, Any]:
    try:
        known = context.metadata.image.stream(tp.stream).partition(tp.partition)
        if not _needs_it(known, unclean=unclean):
            text = f"node {known.leader} leads {tp} already"
            raise RequestRefused(ErrorCode.election_not_needed, text)
        command = ElectLeader(stream=tp.stream, partition=tp.partition, unclean=unclean)
        leader = (await context.metadata.request(command)).result["leader"]
        if not unclean and leader != known.target[0]:
            raise InvalidRequest(f"node {known.target[0]} is away; node {leader} leads {tp} now")
    except (StreamNotFound, PartitionNotFound, RequestRefused) as error:
        return told(error)
    except InvalidRequest as error:
        return told(RequestRefused(_not_available(unclean), str(error)))
    except StreamlogError as error:
        return told(error)
    return {"error_code": ErrorCode.none, "error_message": None}


def _not_available(unclean: bool) -> ErrorCode:
    if unclean:
        return ErrorCode.eligible_leaders_not_available
    return ErrorCode.preferred_leader_not_available


def _refused(request: Message, text: str) -> Message:
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
