"""Kafka's message schemas, each as two functions over plain dicts, ``read`` and ``write``.

The schemas are in ``schemas.json``, made by ``tools/kafka_schemas.py``: a list of structs, each used by its
place in the list, and which of them the request and the response of an API are in each version.

What a version does not have is left out when writing and is absent after reading; what the caller
does not give takes the schema's default, else zero, empty or null.
"""

import json
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from streamlog.errors import BrokenInvariant, MalformedFrame
from streamlog.wire.cursor import (
    NO_UUID,
    STEP_ITEMS,
    Buffer,
    Cursor,
    encode_array_length,
    encode_bytes,
    encode_string,
    encode_uvarint,
)

Read = Callable[[Cursor], Any]
Write = Callable[[bytearray, Any], None]
ReadSteps = Callable[[Cursor], Generator[None, None, Any]]
WriteSteps = Callable[[bytearray, Any], Generator[None, None, None]]


class Entity(NamedTuple):
    """The codec of a struct. Of one without arrays there are no steps."""

    read: Callable[[Cursor], dict[str, Any]]
    write: Callable[[bytearray, Mapping[str, Any]], None]
    names: frozenset[str]
    read_steps: ReadSteps | None
    write_steps: WriteSteps | None


class _Field(NamedTuple):
    name: str
    tag: int | None  # tagged fields are left out where they have their default
    default: Any
    read: Read
    write: Write
    read_steps: ReadSteps | None
    write_steps: WriteSteps | None


class _Kind(NamedTuple):
    read: Read
    write: Write
    default: Any
    read_steps: ReadSteps | None = None
    """Reads the same, and yields now and then, so that others have their turn in between."""
    write_steps: WriteSteps | None = None


def _number(code: str) -> _Kind:
    layout = struct.Struct(">" + code)

    def read(cursor: Cursor) -> int:
        return cursor.unpack(layout)[0]

    def write(out: bytearray, value: int) -> None:
        out += layout.pack(value)

    return _Kind(read, write, 0)


def _instant_read(cursor: Cursor) -> int | None:
    value = cursor.i64()
    return None if value == -1 else value


def _instant_write(out: bytearray, value: int | None) -> None:
    out += (-1 if value is None else value).to_bytes(8, "big", signed=True)


def _boolean_write(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


def _uuid_write(out: bytearray, value: Any) -> None:
    out += (value or NO_UUID).bytes


_KINDS: Final[Mapping[str, _Kind]] = {
    "int8": _number("b"),
    "int16": _number("h"),
    "uint16": _number("H"),
    "int32": _number("i"),
    "int64": _number("q"),
    "error_code": _number("h"),
    "timedelta_i32": _number("i"),
    "timedelta_i64": _number("q"),
    "datetime_i64": _Kind(_instant_read, _instant_write, None),
    "float64": _number("d"),
    "bool": _Kind(Cursor.boolean, _boolean_write, False),
    "uuid": _Kind(Cursor.uuid, _uuid_write, None),
}


def _string(flexible: bool, nullable: bool) -> _Kind:
    def read(cursor: Cursor) -> str | None:
        return cursor.nullable_string(flexible) if nullable else cursor.string(flexible)

    def write(out: bytearray, value: str | None) -> None:
        if not nullable and value is None:
            raise BrokenInvariant("null where text must be")
        out += encode_string(value, flexible)

    return _Kind(read, write, None if nullable else "")


def _bytes(flexible: bool, nullable: bool) -> _Kind:
    """Not copied: a view into the frame."""

    def read(cursor: Cursor) -> memoryview | None:
        value = cursor.nullable_bytes(flexible)
        if value is None and not nullable:
            raise MalformedFrame(f"null before byte {cursor.position} where bytes must be")
        return value

    def write(out: bytearray, value: Buffer | None) -> None:
        if not nullable and value is None:
            raise BrokenInvariant("null where bytes must be")
        out += encode_bytes(value, flexible)

    return _Kind(read, write, None if nullable else b"")


def _array(item: _Kind | Entity, flexible: bool, nullable: bool) -> _Kind:
    def read(cursor: Cursor) -> list[Any] | None:
        length = (
            cursor.nullable_array_length(flexible) if nullable else cursor.array_length(flexible)
        )
        return None if length is None else [item.read(cursor) for _ in range(length)]

    def write(out: bytearray, values: Any) -> None:
        if not nullable and values is None:
            raise BrokenInvariant("null where an array must be")
        out += encode_array_length(None if values is None else len(values), flexible)
        for value in values or ():
            item.write(out, value)

    def read_steps(cursor: Cursor) -> Generator[None, None, list[Any] | None]:
        length = (
            cursor.nullable_array_length(flexible) if nullable else cursor.array_length(flexible)
        )
        if length is None:
            return None
        values = []
        for number in range(length):
            steps = item.read_steps
            values.append(item.read(cursor) if steps is None else (yield from steps(cursor)))
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield
        return values

    def write_steps(out: bytearray, values: Any) -> Generator[None, None, None]:
        if not nullable and values is None:
            raise BrokenInvariant("null where an array must be")
        out += encode_array_length(None if values is None else len(values), flexible)
        for number, value in enumerate(values or ()):
            if item.write_steps is None:
                item.write(out, value)
            else:
                yield from item.write_steps(out, value)
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield

    return _Kind(read, write, None if nullable else (), read_steps, write_steps)


def _struct(inner: Entity, nullable: bool) -> _Kind:
    """Before one that may be null a byte says whether it is: -1, else 1 (KIP-893)."""
    if not nullable:
        return _Kind(inner.read, inner.write, {}, inner.read_steps, inner.write_steps)

    def read(cursor: Cursor) -> dict[str, Any] | None:
        mark = cursor.i8()
        if mark not in (-1, 1):
            raise MalformedFrame(f"{mark} before byte {cursor.position} where 1 or -1 must be")
        return inner.read(cursor) if mark == 1 else None

    def write(out: bytearray, value: Mapping[str, Any] | None) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            inner.write(out, value)

    return _Kind(read, write, None)


class SchemaTable:
    """The codecs of a table of schemas, each built when it is first asked for."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        """``content``: as ``schemas.json`` has it."""
        self._structs: Sequence[Mapping[str, Any]] = content["structs"]
        self._requests: Mapping[str, Mapping[str, int]] = content["requests"]
        self._responses: Mapping[str, Mapping[str, int]] = content["responses"]
        self._entities: dict[int, Entity] = {}

    def request(self, api_key: int, version: int) -> Entity | None:
        """None: there is no such version."""
        return self._find(self._requests, api_key, version)

    def response(self, api_key: int, version: int) -> Entity | None:
        """None: there is no such version."""
        return self._find(self._responses, api_key, version)

    def entity(self, place: int) -> Entity:
        """The codec of the struct at that place of the list."""
        found = self._entities.get(place)
        if found is None:
            found = self._entities[place] = self._built(self._structs[place])
        return found

    def _find(
        self, versions: Mapping[str, Mapping[str, int]], api_key: int, version: int
    ) -> Entity | None:
        place = versions.get(str(api_key), {}).get(str(version))
        return None if place is None else self.entity(place)

    def _built(self, schema: Mapping[str, Any]) -> Entity:
        flexible = schema["flexible"]
        plain: list[_Field] = []
        tagged: dict[int, _Field] = {}
        for declared in schema["fields"]:
            kind, tag = self._kind(declared, flexible), declared.get("tag")
            built = _Field(
                declared["name"],
                tag,
                declared.get("default", kind.default),
                kind.read,
                kind.write,
                kind.read_steps,
                kind.write_steps,
            )
            if tag is None:
                plain.append(built)
            else:
                tagged[tag] = built
        has_steps = any(field.read_steps is not None for field in plain)
        return Entity(
            _reader(plain, tagged, flexible),
            _writer(plain, tagged, flexible),
            frozenset(declared["name"] for declared in schema["fields"]),
            _step_reader(plain, tagged, flexible) if has_steps else None,
            _step_writer(plain, tagged, flexible) if has_steps else None,
        )

    def _kind(self, declared: Mapping[str, Any], flexible: bool) -> _Kind:
        """A field's type is Kafka's name of it, or the place of a struct."""
        kafka_type, nullable = declared["type"], declared.get("nullable", False)
        is_array = declared.get("array", False)
        if isinstance(kafka_type, int):
            inner = self.entity(kafka_type)
            return _array(inner, flexible, nullable) if is_array else _struct(inner, nullable)
        if is_array:
            return _array(_scalar(kafka_type, flexible, False), flexible, nullable)
        return _scalar(kafka_type, flexible, nullable)


def _scalar(kafka_type: str, flexible: bool, nullable: bool) -> _Kind:
    if kafka_type == "string":
        return _string(flexible, nullable)
    if kafka_type in {"bytes", "records"}:
        return _bytes(flexible, nullable)
    return _KINDS[kafka_type]


@cache
def schemas() -> SchemaTable:
    """Of the APIs that this node speaks."""
    return SchemaTable(json.loads(files(__package__).joinpath("schemas.json").read_bytes()))


def _fresh(default: Any) -> Any:
    """A default as it is read; an array or a struct must not be shared."""
    if isinstance(default, list | tuple):
        return list(default)
    return dict(default) if isinstance(default, dict) else default


def _reader(plain: list[_Field], tagged: dict[int, _Field], flexible: bool) -> Read:
    def read(cursor: Cursor) -> dict[str, Any]:
        values = {field.name: field.read(cursor) for field in plain}
        if flexible:
            _read_tags(cursor, tagged, values)
        return values

    return read


def _step_reader(plain: list[_Field], tagged: dict[int, _Field], flexible: bool) -> ReadSteps:
    def read(cursor: Cursor) -> Generator[None, None, dict[str, Any]]:
        values = {}
        for field in plain:
            steps = field.read_steps
            values[field.name] = field.read(cursor) if steps is None else (yield from steps(cursor))
        if flexible:
            _read_tags(cursor, tagged, values)
        return values

    return read


def _read_tags(cursor: Cursor, tagged: dict[int, _Field], values: dict[str, Any]) -> None:
    values.update((field.name, _fresh(field.default)) for field in tagged.values())
    for _ in range(cursor.tag_count()):
        field = tagged.get(cursor.uvarint())
        content = cursor.within(cursor.uvarint())
        if field is not None:
            values[field.name] = field.read(content)
            cursor.passed(content)


def _writer(plain: list[_Field], tagged: dict[int, _Field], flexible: bool) -> Write:
    in_order = [tagged[tag] for tag in sorted(tagged)]

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        for field in plain:
            field.write(out, values.get(field.name, field.default))
        if flexible:
            _write_tags(out, in_order, values)

    return write


def _step_writer(plain: list[_Field], tagged: dict[int, _Field], flexible: bool) -> WriteSteps:
    in_order = [tagged[tag] for tag in sorted(tagged)]

    def write(out: bytearray, values: Mapping[str, Any]) -> Generator[None, None, None]:
        for field in plain:
            value = values.get(field.name, field.default)
            if field.write_steps is None:
                field.write(out, value)
            else:
                yield from field.write_steps(out, value)
        if flexible:
            _write_tags(out, in_order, values)

    return write


def _write_tags(out: bytearray, tagged: list[_Field], values: Mapping[str, Any]) -> None:
    given = [
        field
        for field in tagged
        if field.name in values and values[field.name] != _fresh(field.default)
    ]
    out += encode_uvarint(len(given))
    for field in given:
        content = bytearray()
        field.write(content, values[field.name])
        assert field.tag is not None
        out += encode_uvarint(field.tag) + encode_uvarint(len(content)) + content
