"""JSON Schema, as far as values are checked by it: a tree of fields with rules. Pure.

A keyword that would not be checked is refused when the schema is read: no value passes that the schema forbids.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

FORMATS: Final = ("date-time", "date")
DEPTH_MAX: Final = 32
FIELDS_MAX: Final = 2_000
"""Of all objects in it; references could multiply them."""
_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object")
_NOTES: Final = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description"}
    | {"default", "example", "examples", "deprecated", "readOnly", "writeOnly"}
)
"""Keywords by which no value is refused."""
_ANY: Final = frozenset({"type", "enum", "const"})
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": _ANY | {"minLength", "maxLength", "pattern", "format"},
    "integer": _ANY | _BOUNDS,
    "number": _ANY | _BOUNDS,
    "boolean": _ANY,
    "array": frozenset({"type", "items", "minItems", "maxItems"}),
    "object": frozenset({"type", "properties", "required", "additionalProperties"}),
}
_UNLIKE_RE2: Final = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!]|<[=!]|>|\()|\\[1-9])")
"""Looking around, atomic groups, conditions and references back."""


@dataclass(frozen=True)
class Rules:
    """Of a value beside its type. None: there is no such rule."""

    choices: tuple[Any, ...] | None = None
    low: float | None = None
    """The lowest value that is allowed; of an array its items are counted, of a string its characters."""
    high: float | None = None
    """The highest, of the same."""
    above: float | None = None
    """Lower than all that are allowed."""
    below: float | None = None
    pattern: str | None = None
    """For RE2; found anywhere in the text."""

    def problem(self, value: Any, size: float) -> str | None:
        """What is wrong, but for the pattern. ``size``: what ``low`` and ``high`` are of."""
        if self.choices is not None and value not in self.choices:
            return f"is none of {json.dumps(self.choices)[:60]}"
        low, high, above, below = self.low, self.high, self.above, self.below
        if low is not None and size < low:
            told, limit = "less than", low
        elif high is not None and size > high:
            told, limit = "more than", high
        elif above is not None and size <= above:
            told, limit = "not more than", above
        elif below is not None and size >= below:
            told, limit = "not less than", below
        else:
            return None
        what = f"{size:g} characters or items, " if size is not value else ""
        return f"is {what}{told} {limit:g}"


NO_RULES: Final = Rules()


@dataclass(frozen=True)
class JsonField:
    """A property: what it is called, what it holds, and whether it has to be there."""

    name: str
    kind: str
    """``string``, ``date-time``, ``date``, ``integer``, ``number``, ``boolean``, ``array`` or ``object``."""
    is_required: bool = False
    inner: "tuple[JsonField, ...]" = ()
    """Of an object its fields; of an array one: its items."""
    rules: Rules = NO_RULES
    is_closed: bool = False
    """Of an object: it has no other properties."""


def json_schema(text: str | bytes) -> JsonField:
    """The object that values are. Raises ValueError, whose text says what is wrong, and where."""
    schema = parsed_object(text)
    reader = _SchemaReader(schema)
    merged = reader.resolved(schema, "", 0)[0]
    if not isinstance(merged.get("properties"), dict) or not merged["properties"]:
        raise ValueError("it has no properties")
    return reader.field("", {"type": "object", **merged}, "", False, 0)


def parsed_object(text: str | bytes) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError("it is not an object of JSON")
    return found


class _SchemaReader:
    """``whole``: the schema that references point into."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._count = 0

    def field(self, name: str, schema: Any, path: str, is_required: bool, depth: int) -> JsonField:
        self._count += 1
        if self._count > FIELDS_MAX:
            raise ValueError(f"it has more than {FIELDS_MAX} properties")
        schema, may_be_null = self.resolved(schema, path, depth)
        kinds = schema.get("type")
        chosen = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
        may_be_null = may_be_null or "null" in chosen
        chosen = [it for it in chosen if it != "null"]
        if len(chosen) != 1 or chosen[0] not in _TYPES:
            raise ValueError(f'{_at(path)} has not one type, or one and "null"')
        kind = cast("str", chosen[0])
        for keyword in schema:
            if keyword not in _KEYWORDS[kind] | _NOTES and not keyword.startswith("x-"):
                raise ValueError(
                    f"{_at(path)} has {keyword[:60]!r}, by which values of type {kind} are not checked:"
                    " leave it out"
                )
        is_required = is_required and not may_be_null
        rules = _rules(kind, schema, path)
        if kind == "string" and "format" in schema:
            if schema["format"] not in FORMATS:
                raise ValueError(
                    f"{_at(path)} has the format {str(schema['format'])[:60]!r}, which is not checked:"
                    f" leave it out, or set {' or '.join(FORMATS)}"
                )
            return JsonField(name, schema["format"], is_required, rules=rules)
        if kind == "array":
            if not isinstance(schema.get("items"), dict):
                raise ValueError(f"{_at(path)} has no items: say of what it is an array")
            item = self.field("element", schema["items"], f"{path}[]", False, depth + 1)
            return JsonField(name, kind, is_required, (item,), rules)
        if kind == "object":
            inner, is_closed = self._properties(schema, path, depth)
            return JsonField(name, kind, is_required, inner, rules, is_closed)
        return JsonField(name, kind, is_required, rules=rules)

    def resolved(self, schema: Any, path: str, depth: int) -> tuple[dict[str, Any], bool]:
        """Without references, and without ``anyOf`` or ``oneOf`` of one schema and null; and whether null was there."""
        if not isinstance(schema, dict):
            raise ValueError(f"{_at(path)} is not described by an object")
        if depth > DEPTH_MAX:
            raise ValueError(f"{_at(path)} is deeper than {DEPTH_MAX}, or contains itself")
        if "$ref" in schema:
            others = {key: it for key, it in schema.items() if key != "$ref"}
            found, may_be_null = self.resolved(
                self._referenced(schema["$ref"], path), path, depth + 1
            )
            clash = [key for key in others if key in found and key not in _NOTES]
            if clash:
                raise ValueError(f"{_at(path)} has {clash[0]!r}, and so has what $ref points to")
            return {**found, **others}, may_be_null
        for keyword in ("anyOf", "oneOf"):
            among = schema.get(keyword)
            if isinstance(among, list) and {"type": "null"} in among and len(among) == 2:
                (other,) = (it for it in among if it != {"type": "null"})
                others = {key: it for key, it in schema.items() if key != keyword}
                clash = [key for key in others if key not in _NOTES]
                if clash:
                    raise ValueError(f"{_at(path)} has {clash[0]!r} beside {keyword}")
                return {**self.resolved(other, path, depth + 1)[0], **others}, True
        return schema, False

    def _referenced(self, pointer: Any, path: str) -> Any:
        found: Any = self._whole
        steps = pointer.split("/") if isinstance(pointer, str) else [""]
        if steps[0] != "#":
            raise ValueError(f"{_at(path)} has a $ref out of the schema: {str(pointer)[:60]!r}")
        for step in steps[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise ValueError(f"{_at(path)} has a $ref to nothing: {pointer[:60]!r}")
            found = found[key]
        return found

    def _properties(
        self, schema: Mapping[str, Any], path: str, depth: int
    ) -> tuple[tuple[JsonField, ...], bool]:
        properties, required = schema.get("properties"), schema.get("required", [])
        more = schema.get("additionalProperties", True)
        if not isinstance(properties, dict) or not properties:
            raise ValueError(f"{_at(path)} has no properties: describe it")
        if not isinstance(required, list):
            raise ValueError(f"{_at(path)} has a 'required' that is no list")
        for name in required:
            if name not in properties:
                raise ValueError(f"{_at(path)} requires {name!r}, which is none of its properties")
        if not isinstance(more, bool):
            raise ValueError(
                f"{_at(path)} has additionalProperties that are neither true nor false"
            )
        fields = tuple(
            self.field(name, it, f"{path}.{name}" if path else name, name in required, depth + 1)
            for name, it in properties.items()
        )
        return fields, not more


def _rules(kind: str, schema: Mapping[str, Any], path: str) -> Rules:
    """Raises ValueError."""
    choices = None
    if "enum" in schema:
        if not isinstance(schema["enum"], list):
            raise ValueError(f"{_at(path)} has an 'enum' that is no list")
        choices = tuple(it for it in schema["enum"] if it is not None)
    if "const" in schema:
        choices = tuple(it for it in (schema["const"],) if choices is None or it in choices)
    if choices is not None and not all(_is_of(kind, it) for it in choices):
        raise ValueError(f"{_at(path)} has an 'enum' or a 'const' of another type than {kind}")
    names = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}
    low, high = names.get(kind, ("minimum", "maximum"))
    for name in (low, high, "exclusiveMinimum", "exclusiveMaximum"):
        limit = schema.get(name)
        if limit is not None and not _is_finite(limit):
            raise ValueError(f"{_at(path)} has a {name!r} that is no number")
    pattern = schema.get("pattern")
    if pattern is not None:
        _check_pattern(pattern, path)
    found = Rules(
        choices,
        schema.get(low),
        schema.get(high),
        schema.get("exclusiveMinimum"),
        schema.get("exclusiveMaximum"),
        pattern,
    )
    return NO_RULES if found == NO_RULES else found


def _check_pattern(pattern: Any, path: str) -> None:
    if not isinstance(pattern, str):
        raise ValueError(f"{_at(path)} has a 'pattern' that is no text")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{_at(path)} has a 'pattern' that is none ({error})") from None
    if _UNLIKE_RE2.search(pattern):
        raise ValueError(
            f"{_at(path)} has a 'pattern' that looks around or refers back, which is not checked"
        )


def _is_of(kind: str, value: object) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    if kind not in kinds:
        return False
    if kind == "integer" and isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False
    return isinstance(value, kinds[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, int | float) and _is_of("number", value) and math.isfinite(value)
    except OverflowError:
        return False


def _at(path: str) -> str:
    return path or "the schema"
