"""Commands and what becomes of them, as bytes on their way between nodes. Pure."""

import json
from typing import Any, NamedTuple

from streamlog.errors import MalformedFrame, StreamlogError
from streamlog.wire.errors import error_named


class Granted(NamedTuple):
    """A command is carried out: all that came of it stands below ``offset`` of the metadata log."""

    offset: int
    result: dict[str, Any]


def encode_granted(granted: Granted) -> bytes:
    return json.dumps({"offset": granted.offset, "result": granted.result}).encode()


def encode_refused(error: StreamlogError) -> bytes:
    return json.dumps({"error": type(error).__name__, "message": str(error)}).encode()


def decode_result(data: bytes | memoryview) -> Granted:
    """Raises the error that the answer tells of."""
    try:
        content = json.loads(bytes(data))
        if "error" in content:
            raise error_named(str(content["error"]), str(content["message"]))
        return Granted(int(content["offset"]), dict(content["result"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MalformedFrame("the answer to a command does not decode") from None
