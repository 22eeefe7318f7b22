"""When a request's body is read at all: nats-server has four ways, each verb one of them. Pure."""

import json
from typing import Any

from streamlog.jetstream.errors import BAD_REQUEST, NOT_EMPTY, ApiRefused
from streamlog.jetstream.requests.schema import Shape, read_body


def needed(body: bytes, shape: Shape) -> dict[str, Any]:
    """Some fields must be there. Raises Refused."""
    if _is_empty(body):
        raise ApiRefused(BAD_REQUEST)
    return read_body(body, shape)


def optional(body: bytes, shape: Shape) -> dict[str, Any]:
    """What is no JSON object or list is as good as nothing. Raises Refused."""
    return read_body(body, shape) if body.lstrip(b" \t\r\n")[:1] in (b"{", b"[") else {}


def empty(body: bytes, _: Shape) -> dict[str, Any]:
    """Raises Refused for anything but nothing and ``{}``."""
    if not _is_empty(body):
        raise ApiRefused(NOT_EMPTY)
    return {}


def ignored(_: bytes, __: Shape) -> dict[str, Any]:
    return {}


whole = read_body
"""Always read; with no fields where it is empty."""


def _is_empty(body: bytes) -> bool:
    if not body:
        return True
    try:
        return bool(json.loads(body.decode(errors="replace")) == {})
    except (ValueError, RecursionError):
        return False
