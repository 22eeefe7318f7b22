"""An answer as fields that can be compared: what is another each time is replaced by what it is."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from compatibility.management.wire import Reply

Fields = dict[str, Any]
"""By their paths: ``config.max_msgs``, ``streams.0.state.messages``."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_NO_TIME: Final = "0001-01-01T00:00:00Z"
_COUNTED: Final = ("bytes", "storage", "total", "errors", "inflight")
"""Numbers of which only that there are any is the same everywhere: at the end of these paths."""


def fields_of(replies: Sequence[Reply], verb: str) -> Fields:
    """Of all messages of an answer; their number first."""
    fields: Fields = {"messages": len(replies)}
    for i, reply in enumerate(replies):
        prefix = f"{i}." if len(replies) > 1 else ""
        fields |= {f"{prefix}{path}": value for path, value in _of_one(reply, verb)}
    return fields


def _of_one(reply: Reply, verb: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("status", reply.status)] if reply.status else []
    found += [(f"headers.{name}", _stable(texts)) for name, texts in reply.headers.items()]
    try:
        value = json.loads(reply.data)
    except ValueError:
        value = None
    if isinstance(value, Mapping) and not verb.startswith("DIRECT.GET"):
        _flatten("", value, found)
    elif reply.data or not found:
        found.append(("data", base64.b64encode(reply.data).decode()))
    return found


def _flatten(path: str, value: Any, found: list[tuple[str, Any]]) -> None:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            _flatten(f"{path}.{key}" if path else key, item, found)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for i, item in enumerate(value):
            _flatten(f"{path}.{i}", item, found)
    else:
        found.append((path, _counted(path, value)))


def _counted(path: str, value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    in_state_or_api = any(part in path for part in ("state.", "api.")) or path == "storage"
    if is_number and in_state_or_api and path.rpartition(".")[2] in _COUNTED:
        return "some" if value else 0
    return _stable(value)


def _stable(value: Any) -> Any:
    if isinstance(value, list):
        return [_stable(item) for item in value]
    if isinstance(value, str) and _TIME.fullmatch(value) and value != _NO_TIME:
        return "a time"
    return value
