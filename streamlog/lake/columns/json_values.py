"""Values of JSON, by a JSON Schema: its types and what is required. Patterns, limits and the like are not looked at."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamlog.errors import ConfigError
from streamlog.lake.columns.value_format import Misfit

if TYPE_CHECKING:
    import pyarrow as pa

_FORMATS: Final = ("date-time", "date")


@dataclass(frozen=True)
class JsonField:
    """A property: what it is called, what it holds, and whether it has to be there."""

    name: str
    kind: str
    """``string``, ``date-time``, ``date``, ``integer``, ``number``, ``boolean``, ``array`` or ``object``."""
    is_required: bool = False
    inner: "tuple[JsonField, ...]" = ()
    """Of an object its fields; of an array one: its items."""


@dataclass(frozen=True)
class JsonValues:
    """Properties that the schema does not have are left out."""

    fields: tuple[JsonField, ...]

    @classmethod
    def parse(cls, data: bytes) -> "JsonValues":
        """Raises ConfigError."""
        try:
            schema = json.loads(data)
        except ValueError as error:
            raise ConfigError("--schema", f"it is not JSON ({error})", "correct it") from None
        if not isinstance(schema, dict) or not schema.get("properties"):
            raise ConfigError("--schema", "it has no properties", "describe an object")
        return cls(_fields(schema, ""))

    def schema(self) -> "pa.Schema":
        import pyarrow as pa

        return pa.schema([pa.field(it.name, _arrow(it)) for it in self.fields])

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        import orjson

        fields = self.fields

        def decode(data: bytes) -> dict[str, Any]:
            value = orjson.loads(data)
            if not isinstance(value, dict):
                raise Misfit("it is no object")
            return _object(fields, value, "")

        return decode

    def decode_all(self, values: "pa.Array") -> "pa.RecordBatch | None":
        """Arrow's reader takes lines. A value of one line that begins and ends like an object, and is read without an
        error, is one row at least; so as many rows as values are one of each.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json as pj

        if not len(values):
            return None
        whole = pc.and_(pc.starts_with(values, pattern=b"{"), pc.ends_with(values, pattern=b"}"))
        if not pc.all(whole).as_py():
            return None
        lines = pc.binary_join(
            pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n"
        )[0].as_buffer()
        data = lines.to_pybytes()
        if data.count(b"\n") != len(values) - 1 or b"NaN" in data or b"Infinity" in data:
            return None  # Arrow's reader takes these for numbers
        raw = pa.schema([pa.field(it.name, _arrow(it, raw=True)) for it in self.fields])
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=raw, unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows != len(values):
                return None
            table.validate(full=True)
            table = table.select(raw.names).cast(self.schema())
        except (pa.ArrowException, ValueError, KeyError):
            return None
        if any(_lacks(it, table.column(it.name).combine_chunks()) for it in self.fields):
            return None
        batches = table.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 else None


def _fields(schema: Mapping[str, Any], path: str) -> tuple[JsonField, ...]:
    required = schema.get("required", ())
    return tuple(
        _field(name, it, f"{path}.{name}" if path else name, name in required)
        for name, it in schema["properties"].items()
    )


def _field(name: str, schema: Any, path: str, is_required: bool) -> JsonField:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    chosen = [kinds] if isinstance(kinds, str) else list(kinds or ())
    may_be_null = "null" in chosen
    chosen = [it for it in chosen if it != "null"]
    if len(chosen) != 1 or chosen[0] not in (
        "string",
        "integer",
        "number",
        "boolean",
        "array",
        "object",
    ):
        problem = f"{path} has not one type"
        raise ConfigError("--schema", problem, 'give it one, or one and "null"')
    (kind,) = chosen
    is_required = is_required and not may_be_null
    if kind == "string" and schema.get("format") in _FORMATS:
        return JsonField(name, schema["format"], is_required)
    if kind == "array":
        if not isinstance(schema.get("items"), dict):
            raise ConfigError("--schema", f"{path} has no items", "say of what it is an array")
        return JsonField(
            name, kind, is_required, (_field("element", schema["items"], f"{path}[]", False),)
        )
    if kind == "object":
        if not schema.get("properties"):
            raise ConfigError("--schema", f"{path} has no properties", "describe it")
        return JsonField(name, kind, is_required, _fields(schema, path))
    return JsonField(name, kind, is_required)


def _arrow(it: JsonField, *, raw: bool = False) -> "pa.DataType":
    """``raw``: as Arrow's reader is to read it; times are texts then, and are parsed in the same way everywhere."""
    import pyarrow as pa

    match it.kind:
        case "string":
            return pa.string()
        case "date-time":
            return pa.string() if raw else pa.timestamp("us", "UTC")
        case "date":
            return pa.string() if raw else pa.date32()
        case "integer":
            return pa.int64()
        case "number":
            return pa.float64()
        case "boolean":
            return pa.bool_()
        case "array":
            return pa.list_(pa.field("element", _arrow(it.inner[0], raw=raw)))
    return pa.struct([pa.field(inner.name, _arrow(inner, raw=raw)) for inner in it.inner])


def _object(fields: tuple[JsonField, ...], value: Mapping[str, Any], path: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for it in fields:
        found = value.get(it.name)
        if found is None:
            if it.is_required:
                raise Misfit(f"{path}{it.name} is missing")
            row[it.name] = None
        else:
            row[it.name] = _value(it, found, f"{path}{it.name}")
    return row


def _value(it: JsonField, value: Any, path: str) -> Any:
    import pyarrow as pa

    if not _is_of(it.kind, value):
        raise Misfit(f"{path} is no {it.kind}: {json.dumps(value)[:60]}")
    if it.kind in _FORMATS:
        try:
            return pa.scalar(value, pa.string()).cast(_arrow(it)).as_py()
        except pa.ArrowException:
            raise Misfit(f"{path} is no {it.kind}: {value[:60]!r}") from None
    if it.kind == "integer" and not -(2**63) <= value < 2**63:
        raise Misfit(f"{path} takes more than 64 bits")
    if it.kind == "number":
        return float(value)
    if it.kind == "array":
        return [None if each is None else _value(it.inner[0], each, f"{path}[]") for each in value]
    if it.kind == "object":
        return _object(it.inner, value, f"{path}.")
    return value


def _is_of(kind: str, value: object) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "date-time": str,
        "date": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    return isinstance(value, kinds[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _lacks(it: JsonField, column: "pa.Array") -> bool:
    """Whether something is missing that has to be there. Of what is inside only where it may be is known, so that the
    slower way has to look.
    """
    if it.is_required and column.null_count:
        return True
    if it.kind == "object":
        here = column.filter(column.is_valid())
        return any(_lacks(inner, here.field(i)) for i, inner in enumerate(it.inner))
    if it.kind == "array":
        return _has_required(it.inner[0])
    return False


def _has_required(it: JsonField) -> bool:
    return it.is_required or any(_has_required(inner) for inner in it.inner)
