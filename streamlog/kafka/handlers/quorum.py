"""Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), FetchSnapshot (59): between the nodes.

Whoever belongs to another cluster is told so, and nothing it says is taken in.
"""

from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.errors import NoController, OffsetOutOfRange, Overloaded, StreamlogError
from streamlog.kafka.auth.resource_checks import is_other_cluster
from streamlog.kafka.context import Context
from streamlog.metadata.quorum import raft_codec as form
from streamlog.raft.messages import EpochAnswer, VoteAnswer
from streamlog.wire.control import Message
from streamlog.wire.errors import code_of

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
