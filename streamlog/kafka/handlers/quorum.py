"""Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), FetchSnapshot (59), and the Fetch (1) of the
metadata log: between the members of the metadata quorum. A node of another cluster is refused, and
nothing it says is taken in.

DescribeQuorum (55), and Envelope (58) for commands to the controller.
"""

import asyncio
import json
from typing import Any, Final
from uuid import UUID

from streamlog.clock import wall_ms
from streamlog.control.leaders.node_requests import encode_error, is_node_request
from streamlog.errors import (
    InvalidRequest,
    MalformedFrame,
    NoController,
    NotLeader,
    OffsetOutOfRange,
    Overloaded,
    StreamlogError,
)
from streamlog.kafka.auth.authorization import check_command
from streamlog.kafka.auth.resource_checks import is_other_cluster, refuse_to_clients
from streamlog.kafka.context import Context
from streamlog.kafka.net.channel import RequestWait
from streamlog.kafka.net.response import Response
from streamlog.kafka.refusal import told
from streamlog.metadata.commands import decode_command, encode_granted, encode_refused
from streamlog.metadata.quorum import raft_codec as form
from streamlog.metadata.quorum.store import METADATA_LOG
from streamlog.model import NO_LEADER
from streamlog.raft.messages import (
    Answer,
    EpochAnswer,
    FetchAnswer,
    RaftFetchRequest,
    VoteAnswer,
)
from streamlog.wire import fetch as wire
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of
from streamlog.wire.operation_request import decode_operation, is_operation

PIECE_BYTES_MAX: Final = 1 << 20
_ANOTHER_CLUSTER: Final[Message] = {"error_code": ErrorCode.inconsistent_cluster_id, "topics": []}


async def vote(request: Message, _version: int, context: Context) -> Message:
    if is_other_cluster(request["cluster_id"], context):
        return _ANOTHER_CLUSTER
    try:
        answer = await context.metadata.raft_request(form.read_vote(request))
    except (NoController, Overloaded) as error:
        return _refused(error)
    assert isinstance(answer, VoteAnswer)
    return form.encode_vote_answer(answer)


async def begin_epoch(request: Message, _version: int, context: Context) -> Message:
    if is_other_cluster(request["cluster_id"], context):
        return _ANOTHER_CLUSTER
    try:
        answer = await context.metadata.raft_request(form.read_begin_epoch(request))
    except (NoController, Overloaded) as error:
        return _refused(error)
    assert isinstance(answer, EpochAnswer)
    return form.encode_epoch_answer(answer)


async def end_epoch(request: Message, _version: int, context: Context) -> Message:
    if is_other_cluster(request["cluster_id"], context):
        return _ANOTHER_CLUSTER
    try:
        answer = await context.metadata.raft_request(form.read_end_epoch(request))
    except (NoController, Overloaded) as error:
        return _refused(error)
    assert isinstance(answer, EpochAnswer)
    return form.encode_epoch_answer(answer)


async def fetch_snapshot(request: Message, _version: int, context: Context) -> Message:
    if is_other_cluster(request["cluster_id"], context):
        return _ANOTHER_CLUSTER
    snapshot, position, max_bytes = form.read_fetch_snapshot(request)
    try:
        data, size = await context.metadata.read_snapshot(
            snapshot, position, min(max_bytes, PIECE_BYTES_MAX)
        )
    except OffsetOutOfRange:
        code = ErrorCode.snapshot_not_found
        return form.encode_snapshot_answer(snapshot, position, b"", 0, code)
    except StreamlogError as error:
        return form.encode_snapshot_answer(snapshot, position, b"", 0, code_of(error))
    return form.encode_snapshot_answer(snapshot, position, data, size, ErrorCode.none)


def _refused(error: StreamlogError) -> Message:
    return {"error_code": code_of(error), "topics": []}


def is_metadata_fetch(request: wire.FetchRequest) -> bool:
    """Whether a replica fetches the metadata log."""
    return any(topic.name == METADATA_LOG.stream for topic in request.topics)


async def fetch(
    request: wire.FetchRequest, version: int, header: bytes, context: Context, wait: RequestWait
) -> Response:
    """Raises MalformedFrame for a request that no member makes."""
    if version < 12 or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise MalformedFrame("the metadata log is fetched alone, in version 12")
    if is_other_cluster(request.cluster_id, context):
        return _fetch_refused(header, version, ErrorCode.inconsistent_cluster_id)
    try:
        answer = await _answer_of(form.read_fetch(request), context, wait)
    except StreamlogError as error:
        return _fetch_refused(header, version, code_of(error))
    if answer is None:
        return _fetch_refused(header, version, ErrorCode.not_controller)
    topics = [(METADATA_LOG.stream, [form.encode_fetch_answer(answer)])]
    pieces = wire.encode_response(header, topics, version)
    return Response([bytes(answer.records).join(pieces)])


async def _answer_of(
    request: RaftFetchRequest, context: Context, wait: RequestWait
) -> FetchAnswer | None:
    """None: the peer is gone, or the node stops. Raises what the quorum does."""
    outcome: Answer | StreamlogError | None = None

    async def ask() -> None:
        nonlocal outcome
        try:
            outcome = await context.metadata.raft_request(request)
        except StreamlogError as error:  # a group would wrap it
            outcome = error
        wait.wake()

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(ask())
        while outcome is None and not wait.ended:
            await wait.wait()
        asking.cancel()
    if isinstance(outcome, StreamlogError):
        raise outcome
    assert outcome is None or isinstance(outcome, FetchAnswer)
    return outcome


def _fetch_refused(header: bytes, version: int, code: ErrorCode) -> Response:
    return Response(wire.encode_response(header, [], version, error_code=code))


UNKNOWN_OFFSET: Final = -1
LISTENER: Final = "PLAINTEXT"


async def describe_quorum(request: Message, _version: int, context: Context) -> Message:
    """DescribeQuorum (55), versions 0 to 2: who votes, and how far each copy of the metadata log is.

    The controller knows, whichever node is asked.

        v1  when each replica has fetched last
        v2  the folders of the replicas, errors with a text, where the nodes listen
    """
    try:
        described = await context.control.cluster.describe()
    except StreamlogError as error:
        return {**told(error), "topics": []}
    asked = [(topic["topic_name"], topic["partitions"]) for topic in request["topics"]]
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "topic_name": name,
                "partitions": [
                    _quorum_partition(name, it["partition_index"], described) for it in partitions
                ],
            }
            for name, partitions in asked
        ],
        "nodes": [
            {
                "node_id": node["node_id"],
                "listeners": [{"name": LISTENER, "host": node["host"], "port": node["port"]}],
            }
            for node in described["voters"]
        ],
    }


def _quorum_partition(name: str, index: int, known: Message) -> dict[str, Any]:
    if (name, index) != METADATA_LOG:
        return {
            "partition_index": index,
            "error_code": ErrorCode.unknown_topic_or_partition,
            "error_message": "only the metadata log has a quorum",
        }
    folders = {voter["node_id"]: voter["directory_id"] for voter in known["voters"]}
    replicas = {it["node_id"]: _quorum_replica(it, folders) for it in known["replicas"]}
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "leader_id": NO_LEADER if known["controller"] is None else known["controller"],
        "leader_epoch": known["epoch"],
        "high_watermark": known["high_watermark"],
        "current_voters": [
            replicas.get(node_id, {"replica_id": node_id, "log_end_offset": UNKNOWN_OFFSET})
            for node_id in folders
        ],
        "observers": [it for node_id, it in replicas.items() if node_id not in folders],
    }


def _quorum_replica(known: Message, folders: Message) -> dict[str, Any]:
    folder, age_ms = folders.get(known["node_id"]), known["last_fetch_ms"]
    fetched_ms = UNKNOWN_OFFSET if age_ms is None else wall_ms() - age_ms
    return {
        "replica_id": known["node_id"],
        "replica_directory_id": folder and UUID(folder),
        "log_end_offset": known["end_offset"],
        "last_fetch_timestamp": fetched_ms,
        "last_caught_up_timestamp": fetched_ms if known["lag"] == 0 else UNKNOWN_OFFSET,
    }


CLIENT_COMMAND_BYTES_MAX: Final = 64 * 1024
"""Of a command that is no node's. It is read before anybody knows which right it needs."""


async def envelope(request: Message, _version: int, context: Context) -> Message:
    """Envelope (58): a command for the controller, from another node or from the command line; what
    another node asks about the partitions that this node leads; or an operation of ``control``.

    The principal tells them apart: what a node has handed on already goes no further.

    What goes wrong with either is in the answer's data, whatever it is.
    """
    cluster_id = form.read_principal(request["request_principal"])
    if is_other_cluster(cluster_id, context):
        return {"response_data": None, "error_code": ErrorCode.inconsistent_cluster_id}
    if is_node_request(request["request_data"]):
        return {
            "response_data": await _answer_node(request, context, is_node=cluster_id is not None),
            "error_code": ErrorCode.none,
        }
    if is_operation(request["request_data"]):
        return {
            "response_data": await _operate(request, context),
            "error_code": ErrorCode.none,
        }
    try:
        _check_command_size(request, context)
        command = decode_command(request["request_data"])
        if context.access is not None:
            check_command(command, context.access)
        data = encode_granted(
            await context.metadata.take(command, forwarded=cluster_id is not None)
        )
    except StreamlogError as error:
        data = encode_refused(error)
    return {"response_data": data, "error_code": ErrorCode.none}


async def _operate(request: Message, context: Context) -> bytes:
    """The caller's right is judged by the operation itself."""
    try:
        _check_command_size(request, context)
        name, arguments = decode_operation(request["request_data"])
        result = await context.control.call(name, arguments)
    except StreamlogError as error:
        return encode_refused(error)
    return json.dumps({"offset": 0, "result": {"value": result}}).encode()


async def _answer_node(request: Message, context: Context, *, is_node: bool) -> bytes:
    try:
        if context.access is not None or not is_node:
            refuse_to_clients("Envelope of a node's request", context)
    except StreamlogError as error:
        return encode_error(error)
    if context.control_service is None:
        return encode_error(NotLeader("this node leads nothing yet"))
    return await context.control_service.nodes.answer(request["request_data"])


def _check_command_size(request: Message, context: Context) -> None:
    """Raises InvalidRequest."""
    size = len(request["request_data"])
    if context.access is not None and size > CLIENT_COMMAND_BYTES_MAX:
        text = f"a command of {size} bytes: a client's has {CLIENT_COMMAND_BYTES_MAX} at most"
        raise InvalidRequest(text)
