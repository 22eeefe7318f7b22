"""An operation of ``control`` that is asked for over the socket: JSON in an Envelope.

It begins otherwise than a command to the controller and than a node's request, which are in Envelopes, too.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from streamlog.errors import MalformedFrame
from streamlog.wire.errors import error_named

_BEGIN: Final = b'{"operation":'


def is_operation(data: bytes | memoryview) -> bool:
    """Whether an Envelope asks for one; else it holds a command or a node's request."""
    return bytes(data[: len(_BEGIN)]) == _BEGIN


def encode_operation(name: str, arguments: Mapping[str, Any]) -> bytes:
    return json.dumps({"operation": name, "arguments": arguments}).encode()


def decode_operation(data: bytes | memoryview) -> tuple[str, dict[str, Any]]:
    """Raises MalformedFrame."""
    try:
        content = json.loads(bytes(data))
        return str(content["operation"]), dict(content.get("arguments") or {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MalformedFrame("an operation does not decode") from None


def command_result(data: bytes | memoryview | None) -> dict[str, Any]:
    """What an answer says, to a command too. Raises MalformedFrame, and the error that it tells of."""
    try:
        result: dict[str, Any] = json.loads(bytes(data or b""))
        error = result.get("error")
    except (ValueError, AttributeError):
        raise MalformedFrame("the answer to a command does not decode") from None
    if error is not None:
        raise error_named(str(error), str(result.get("message", "")))
    return result


def operation_value(result: dict[str, Any]) -> Any:
    """Of an operation's ``command_result``. Raises MalformedFrame."""
    try:
        return result["result"]["value"]
    except (KeyError, TypeError):
        raise MalformedFrame("the answer to an operation does not decode") from None
