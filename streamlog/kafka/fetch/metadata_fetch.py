"""A member of the metadata quorum fetches the metadata log; the quorum's core answers, in time."""

import asyncio

from kio.schema.errors import ErrorCode

from streamlog.errors import MalformedFrame, StreamlogError
from streamlog.kafka.auth.resource_checks import is_other_cluster
from streamlog.kafka.context import Context
from streamlog.kafka.net.request_wait import RequestWait
from streamlog.kafka.net.response import Response
from streamlog.metadata.quorum import raft_codec as form
from streamlog.metadata.quorum.store import METADATA_LOG
from streamlog.raft.messages import Answer, FetchAnswer, RaftFetchRequest
from streamlog.wire import fetch as wire
from streamlog.wire.errors import code_of


def is_for(request: wire.FetchRequest) -> bool:
    """Whether the replica that asks does so for the metadata log."""
    return any(topic.name == METADATA_LOG.stream for topic in request.topics)


async def handle(
    request: wire.FetchRequest, version: int, header: bytes, context: Context, poll: RequestWait
) -> Response:
    """Raises MalformedFrame for what no member asks."""
    if version < 12 or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise MalformedFrame("the metadata log is fetched alone, in version 12")
    if is_other_cluster(request.cluster_id, context):
        return _refused(header, version, ErrorCode.inconsistent_cluster_id)
    try:
        answer = await _asked(form.read_fetch(request), context, poll)
    except StreamlogError as error:
        return _refused(header, version, code_of(error))
    if answer is None:
        return _refused(header, version, ErrorCode.not_controller)
    topics = [(METADATA_LOG.stream, [form.encode_fetch_answer(answer)])]
    pieces = wire.encode_response(header, topics, version)
    return Response([bytes(answer.records).join(pieces)])


async def _asked(
    request: RaftFetchRequest, context: Context, poll: RequestWait
) -> FetchAnswer | None:
    """None: the peer is gone, or the node stops. Raises what the quorum does."""
    outcome: Answer | StreamlogError | None = None

    async def ask() -> None:
        nonlocal outcome
        try:
            outcome = await context.metadata.raft_request(request)
        except StreamlogError as error:  # a group would wrap it
            outcome = error
        poll.wake()

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(ask())
        while outcome is None and not poll.ended:
            await poll.wait()
        asking.cancel()
    if isinstance(outcome, StreamlogError):
        raise outcome
    assert outcome is None or isinstance(outcome, FetchAnswer)
    return outcome


def _refused(header: bytes, version: int, code: ErrorCode) -> Response:
    return Response(wire.encode_response(header, [], version, error_code=code))
