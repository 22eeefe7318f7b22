"""One schema class of ``kio`` as two functions over plain dicts, ``read`` and ``write``.

What a version does not have is left out when writing and is absent after reading; what the caller
does not give takes the schema's default, else zero, empty or null.
"""

import struct
from collections.abc import Callable, Generator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin

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


def _unwrap(annotation: Any) -> tuple[Any, bool]:
    """An annotation without its ``| None``, and whether it had one."""
    if get_origin(annotation) is not UnionType:
        return annotation, False
    inner = [arg for arg in get_args(annotation) if arg is not NoneType]
    if len(inner) != 1:
        raise BrokenInvariant(f"{annotation} is not one type or None")
    return inner[0], True


def _kind(annotation: Any, kafka_type: str | None, flexible: bool) -> _Kind:
    annotation, nullable = _unwrap(annotation)
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        if hasattr(inner, "__flexible__"):
            return _array(entity(inner), flexible, nullable)
        return _array(_kind(inner, kafka_type, flexible), flexible, nullable)
    if hasattr(annotation, "__flexible__"):
        return _struct(entity(annotation), nullable)
    if kafka_type == "string":
        return _string(flexible, nullable)
    if kafka_type in {"bytes", "records"}:
        return _bytes(flexible, nullable)
    assert kafka_type is not None
    return _KINDS[kafka_type]


@cache
def entity(schema: type[Any]) -> Entity:
    """The codec of a schema class; built once."""
    flexible = schema.__flexible__
    plain: list[_Field] = []
    tagged: dict[int, _Field] = {}
    for declared in fields(schema):
        kind = _kind(declared.type, declared.metadata.get("kafka_type"), flexible)
        default = kind.default if declared.default is MISSING else _plain(declared.default)
        tag = declared.metadata.get("tag")
        built = _Field(
            declared.name,
            tag,
            default,
            kind.read,
            kind.write,
            kind.read_steps,
            kind.write_steps,
        )
        if tag is None:
            plain.append(built)
        else:
            tagged[tag] = built
    names = frozenset(declared.name for declared in fields(schema))
    has_steps = any(field.read_steps is not None for field in plain)
    return Entity(
        _reader(plain, tagged, flexible),
        _writer(plain, tagged, flexible),
        names,
        _step_reader(plain, tagged, flexible) if has_steps else None,
        _step_writer(plain, tagged, flexible) if has_steps else None,
    )


def _plain(default: Any) -> Any:
    """kio keeps durations as timedeltas; here they are milliseconds, as on the wire."""
    return round(default.total_seconds() * 1000) if hasattr(default, "total_seconds") else default


def _fresh(default: Any) -> Any:
    """A default as it is read; an array must not be shared."""
    return list(default) if isinstance(default, tuple) else default


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
