"""Replies as JSON."""

import json
from collections.abc import Mapping
from typing import Any

import orjson


class JsonText:
    """A value of a reply that is JSON already."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


def _fragment(value: Any) -> Any:
    if isinstance(value, JsonText):
        return orjson.Fragment(value.text)
    raise TypeError


def _parsed(value: Any) -> Any:
    if isinstance(value, JsonText):
        return json.loads(value.text)
    raise TypeError


def encoded(reply: Mapping[str, Any]) -> bytes:
    """In UTF-8; half of a pair of surrogates, which a request may have had, is escaped."""
    try:
        return orjson.dumps(reply, _fragment)
    except TypeError:  # this, or a number of more than 64 bits
        return json.dumps(reply, default=_parsed).encode()
