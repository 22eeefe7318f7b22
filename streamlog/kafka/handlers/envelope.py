"""Envelope (58): a command for the controller, from another node or from the command line.

The principal tells them apart: what a node has handed on already goes no further.
"""

from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.errors import InvalidRequest, StreamlogError
from streamlog.kafka.auth.command_guard import check_command
from streamlog.kafka.auth.resource_checks import is_other_cluster
from streamlog.kafka.context import Context
from streamlog.metadata.commands import decode_command
from streamlog.metadata.forwarding import encode_granted, encode_refused
from streamlog.metadata.quorum import raft_codec as form
from streamlog.wire.control import Message

CLIENT_COMMAND_BYTES_MAX: Final = 64 * 1024
"""Of a command that is no node's. It is read before anybody knows which right it needs."""


async def handle(request: Message, _version: int, context: Context) -> Message:
    """What goes wrong with the command is in the answer's data, whatever it is."""
    cluster_id = form.read_principal(request["request_principal"])
    if is_other_cluster(cluster_id, context):
        return {"response_data": None, "error_code": ErrorCode.inconsistent_cluster_id}
    try:
        _check_size(request, context)
        command = decode_command(request["request_data"])
        if context.access is not None:
            check_command(command, context.access, forwarded=cluster_id is not None)
        data = encode_granted(
            await context.metadata.take(command, forwarded=cluster_id is not None)
        )
    except StreamlogError as error:
        data = encode_refused(error)
    return {"response_data": data, "error_code": ErrorCode.none}


def _check_size(request: Message, context: Context) -> None:
    """Raises InvalidRequest."""
    size = len(request["request_data"])
    if context.access is not None and size > CLIENT_COMMAND_BYTES_MAX:
        text = f"a command of {size} bytes: a client's has {CLIENT_COMMAND_BYTES_MAX} at most"
        raise InvalidRequest(text)
