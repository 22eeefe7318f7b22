"""Replies as JSON."""

import json
from collections.abc import Mapping
from typing import Any

import orjson


def encoded(reply: Mapping[str, Any]) -> bytes:
    """In UTF-8; half of a pair of surrogates, which a request may have had, is escaped."""
    try:
        return orjson.dumps(reply)
    except TypeError:  # this, or a number of more than 64 bits
        return json.dumps(reply).encode()
