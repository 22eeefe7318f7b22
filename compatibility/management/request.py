"""One request of the management API, or one message that is published between two of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """``verb`` is what comes after ``$JS.<domain>.API.``; both servers are asked the same."""

    verb: str | bytes
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    block: bytes = b""
    """In place of the headers: bytes that need not be any."""
    is_publish: bool = False
    """``verb`` is the subject of a message."""
    quiet: bool = False
    """Between two others, to set the scene: not compared."""

    @property
    def title(self) -> str:
        verb = self.verb if isinstance(self.verb, str) else repr(self.verb)
        headers = self.block[:40] or dict(self.headers)
        return f"{verb[:80]} {self.body[:120]!r}" + (f" {headers!r}" if headers else "")


@dataclass(frozen=True)
class Scene:
    """Requests in their order, with streams of their own."""

    name: str
    requests: tuple[Request, ...]


def ask(verb: str | bytes, fields: Any = None, **headers: str) -> Request:
    """``fields``: bytes as they are, None for no body, anything else as JSON."""
    body = (
        b""
        if fields is None
        else fields
        if isinstance(fields, bytes)
        else json.dumps(fields).encode()
    )
    return Request(verb, body, {name.replace("_", "-"): text for name, text in headers.items()})


def publish(subject: str, data: bytes = b"", **headers: str) -> Request:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Request(subject, data, named, is_publish=True)
