"""The fields of a request. Pure."""

from collections.abc import Mapping
from typing import Any

from streamlog.jetstream.errors import ApiRefused, bad_request

Fields = Mapping[str, Any]


def number(fields: Fields, key: str) -> int:
    """A count in a request; 0 where it is not there."""
    value = fields.get(key) or 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ApiRefused(bad_request(f"{key}: not a number"))
    return value


def text(fields: Fields, key: str) -> str:
    value = fields.get(key) or ""
    if not isinstance(value, str):
        raise ApiRefused(bad_request(f"{key}: not a text"))
    return value
