"""Requests that the audit log records from any client: what about, and what came of it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from streamlog.control.leaders.node_requests import is_node_request
from streamlog.errors import StreamlogError
from streamlog.kafka.context import Context
from streamlog.metadata.commands import decode_result
from streamlog.wire import registry
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of
from streamlog.wire.operation_request import is_operation
from streamlog.wire.registry import Api

About = Callable[[Message], Iterator[str]]


def _command(request: Message) -> Iterator[str]:
    """The command's kind, and which node or stream it is about."""
    if is_node_request(request["request_data"]):
        yield "a node's request"
        return
    try:
        body = json.loads(bytes(request["request_data"]))
        about = body.get("stream") or body.get("node_id") or body.get("name") or ""
        yield f"{body['command']} {about}".strip()
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        yield "not a command"


ADMINISTRATIVE: Final[dict[int, About]] = {
    registry.ENVELOPE: _command,
}
"""Those that ``control`` has no operation for, which would be in the audit log by itself."""

UNSURE: Final = frozenset(
    {
        ErrorCode.unknown_server_error,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.leader_not_available,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
    }
)
"""Errors after which it may have been done, or may yet be."""

_QUIET: Final = ("DescribeCluster", "AwaitApplied")
"""Commands that change nothing."""


def tell(api: Api, request: Message, answer: Message, context: Context) -> None:
    """One line of it; what nodes ask of each other is no act of anybody's."""
    if api.key == registry.ENVELOPE and (
        _is_between_nodes(request, context) or is_operation(request["request_data"])
    ):
        return  # an operation is told of by ``control``
    about = list(ADMINISTRATIVE[api.key](request))
    if api.key == registry.ENVELOPE and about[0].startswith(_QUIET):
        return
    counts = Counter(_codes(answer))
    if api.key == registry.ENVELOPE and (refusal := _refusal(answer)) is not None:
        counts = Counter([refusal])
    failed = {_name(code): count for code, count in counts.items() if code}
    only_checked = bool(request.get("validate_only"))
    may_be_done = not counts or not UNSURE.isdisjoint(counts) or bool(counts[ErrorCode.none])
    more: dict[str, Any] = {"validate_only": True} if only_checked else {}
    context.audit.acted(
        context.session,
        api.name,
        about,
        failed,
        is_done=bool(about) and may_be_done and not only_checked,
        **more,
    )


def _refusal(answer: Message) -> int | None:
    """Why a command of an Envelope was not carried out. It stands in the answer's data, beside an
    error code that says ``none``.
    """
    if answer["response_data"] is None:
        return None
    try:
        decode_result(bytes(answer["response_data"]).partition(b"\n")[0])
    except StreamlogError as error:
        return code_of(error)
    return None


def _is_between_nodes(request: Message, context: Context) -> bool:
    """Where authentication is off, nodes are told by what they say of themselves."""
    if context.authentication_on:
        return context.session.is_node
    return bool(request["request_principal"])


def _codes(answer: Any) -> Iterator[int]:
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key == "error_code":
                yield int(value)
            else:
                yield from _codes(value)
    elif isinstance(answer, list | tuple):
        for item in answer:
            yield from _codes(item)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
