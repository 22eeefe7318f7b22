"""Makes ``streamlog/wire/schemas.json`` and ``error_codes.py`` out of ``kio``, which is made out of Kafka's sources.

    python -m tools.kafka_schemas

A node and a command then need neither kio nor what it imports. ``tests/unit/wire/test_schema_codec.py`` holds
that both files are what this makes of the kio that is installed.
"""

import json
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin
from uuid import UUID

from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from streamlog.errors import BrokenInvariant
from streamlog.wire.registry import APIS

WIRE: Final = Path(__file__).parents[1] / "streamlog" / "wire"
SCHEMAS: Final = WIRE / "schemas.json"
ERROR_CODES: Final = WIRE / "error_codes.py"


class StructList:
    """Structs as they are met; the same one is there once."""

    def __init__(self) -> None:
        self.structs: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}

    def place_of(self, schema: Any) -> int:
        """Of a dataclass of kio's."""
        described = {
            "flexible": schema.__flexible__,
            "fields": [self._described(field) for field in fields(schema)],
        }
        text = json.dumps(described)
        if text not in self._places:
            self._places[text] = len(self.structs)
            self.structs.append(described)
        return self._places[text]

    def _described(self, field: Any) -> dict[str, Any]:
        annotation, is_nullable = _without_none(field.type)
        is_array = get_origin(annotation) is tuple
        inner = annotation
        if is_array:
            inner, is_item_nullable = _without_none(get_args(annotation)[0])
            if is_item_nullable:
                raise BrokenInvariant(f"{field.name}: items that may be null")
        kafka_type = field.metadata.get("kafka_type")
        described: dict[str, Any] = {
            "name": field.name,
            "type": self.place_of(inner) if hasattr(inner, "__flexible__") else kafka_type,
        }
        if is_array:
            described["array"] = True
        if is_nullable:
            described["nullable"] = True
        if "tag" in field.metadata:
            described["tag"] = field.metadata["tag"]
        if field.default is not MISSING:
            described["default"] = _plain(field.default)
        return described


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """An annotation without its ``| None``, and whether it had one."""
    if get_origin(annotation) is not UnionType:
        return annotation, False
    inner = [arg for arg in get_args(annotation) if arg is not NoneType]
    if len(inner) != 1:
        raise BrokenInvariant(f"{annotation} is not one type or None")
    return inner[0], True


def _plain(default: Any) -> Any:
    """Durations are milliseconds, as on the wire."""
    if isinstance(default, timedelta):
        return round(default.total_seconds() * 1000)
    if isinstance(default, ErrorCode):
        return int(default)
    if isinstance(default, tuple):
        return [_plain(item) for item in default]
    if is_dataclass(default):
        return {field.name: _plain(getattr(default, field.name)) for field in fields(default)}
    if isinstance(default, bytes | UUID):
        raise BrokenInvariant(f"a default that JSON does not have: {default!r}")
    return default


def table() -> dict[str, Any]:
    """What ``schemas.json`` has: all versions up to the newest that this node speaks."""
    structs = StructList()
    found: dict[str, Any] = {"structs": structs.structs}
    for name, load in (("requests", load_request_schema), ("responses", load_response_schema)):
        by_api: dict[str, dict[str, int]] = {}
        for api in APIS.values():
            versions = by_api[str(api.key)] = {}
            for version in range(api.version_max + 1):
                try:
                    schema = load(api.key, version)
                except UnknownEntity:
                    continue
                versions[str(version)] = structs.place_of(schema)
        found[name] = by_api
    return found


def schemas_text() -> str:
    """A line for each struct."""
    content = table()
    lines = ",\n".join(f"  {json.dumps(it)}" for it in content["structs"])
    return (
        f'{{\n"structs": [\n{lines}\n],\n'
        f'"requests": {json.dumps(content["requests"])},\n'
        f'"responses": {json.dumps(content["responses"])}\n}}\n'
    )


def error_codes_text() -> str:
    lines = "\n".join(f"    {code.name} = {int(code)}" for code in ErrorCode)
    retriable = "\n".join(f"        ErrorCode.{code.name}," for code in ErrorCode if code.retriable)
    return f'''"""Kafka's error codes; made by ``tools/kafka_schemas.py``."""

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """What a response says of a request, or of a part of it. ``errors`` has our errors for them."""

{lines}

    @property
    def retriable(self) -> bool:
        """The same request may succeed later."""
        return self in _RETRIABLE


_RETRIABLE: Final = frozenset(
    {{
{retriable}
    }}
)
'''


def main() -> None:
    SCHEMAS.write_text(schemas_text())
    ERROR_CODES.write_text(error_codes_text())


if __name__ == "__main__":
    main()
