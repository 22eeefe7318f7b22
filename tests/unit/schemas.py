"""What the JSON schemas of pydantic's models say."""

from collections.abc import Mapping
from typing import Any


def whole_numbers(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties that may be one, with their bounds."""
    return {
        name: kind
        for name, said in schema["properties"].items()
        for kind in (said, *said.get("anyOf", ()))
        if kind.get("type") == "integer"
    }
