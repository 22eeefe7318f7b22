"""Values of Avro, by the schema they were written with; Confluent's five bytes before a value are skipped."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from streamlog.errors import ConfigError
from streamlog.lake.columns.value_format import Decoder, Misfit, each_by

if TYPE_CHECKING:
    import pyarrow as pa

FRAME_BYTES: Final = 5


@dataclass(frozen=True)
class AvroValues:
    """``text``: the schema, of a record."""

    text: str
    decodes_batches: Literal[True] = True

    @classmethod
    def parse(cls, data: bytes) -> "AvroValues":
        """Raises ConfigError."""
        _fastavro()
        import fastavro

        try:
            schema = json.loads(data)
            fastavro.parse_schema(schema)
            found = cls(json.dumps(schema))
        except (ValueError, fastavro.schema.SchemaParseException) as error:
            raise ConfigError("--schema", f"it is no Avro schema ({error})", "correct it") from None
        found.schema()
        return found

    def schema(self) -> "pa.Schema":
        import pyarrow as pa

        schema = json.loads(self.text)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise ConfigError("--schema", "it is not one of a record", "describe a record")
        names: dict[str, Any] = {}
        kind = _arrow(schema, names, "")
        return pa.schema([kind.field(i) for i in range(kind.num_fields)])

    def decoder(self) -> Decoder:
        import pyarrow as pa

        read, schema = _reader(), _parsed(self.text)
        columns = self.schema()

        def checked(data: bytes) -> dict[str, Any]:
            row = _whole(read, schema, data)
            for it in columns:
                pa.scalar(row.get(it.name), it.type)
            return row

        return each_by(lambda data: _framed(checked, data))

    def decode_all(self, values: "pa.Array") -> "pa.RecordBatch | None":
        import pyarrow as pa

        read, schema = _reader(), _parsed(self.text)
        columns = self.schema()
        try:
            rows = [
                _framed(partial(_whole, read, schema), it)
                if it[:1] == b"\0"
                else _whole(read, schema, it)
                for it in values.to_pylist()
            ]
            arrays = [pa.array([row.get(it.name) for row in rows], it.type) for it in columns]
        except Exception:  # the slower way tells which value, and why
            return None
        return pa.RecordBatch.from_arrays(arrays, names=columns.names)


def _parsed(text: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(text))


def _framed(read: Callable[[bytes], dict[str, Any]], data: bytes) -> dict[str, Any]:
    """With Confluent's bytes or without them."""
    if data[:1] == b"\0" and len(data) > FRAME_BYTES:
        try:
            return read(data[FRAME_BYTES:])
        except Exception:  # a value may begin with a zero of its own
            return read(data)
    return read(data)


def _reader() -> Callable[..., Any]:
    import fastavro

    return fastavro.schemaless_reader


def _whole(read: Callable[..., Any], schema: Any, data: bytes) -> dict[str, Any]:
    """Raises Misfit where bytes are left: they are of another schema."""
    source = io.BytesIO(data)
    row = read(source, schema, None)
    if source.tell() != len(data):
        raise Misfit(f"{len(data) - source.tell()} bytes are left")
    assert isinstance(row, dict), "the schema is one of a record"
    return row


def _arrow(schema: Any, names: dict[str, Any], path: str) -> Any:
    """``names``: of types that were defined before."""
    import pyarrow as pa

    if isinstance(schema, list):
        kinds = [it for it in schema if it != "null"]
        if len(kinds) != 1:
            raise _unknown(path, "a union of several types")
        return _arrow(kinds[0], names, path)
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _arrow(kind, names, path)
    logical = {
        "timestamp-millis": pa.timestamp("us", "UTC"),
        "timestamp-micros": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
        "uuid": None,
    }.get(schema.get("logicalType", ""))
    if schema.get("logicalType") == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical is not None:
        return logical
    simple = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
        "enum": pa.string(),
        "fixed": pa.binary(),
    }
    if kind in simple:
        found = simple[kind]
        if "name" in schema:
            names[schema["name"]] = found
        return found
    if kind == "array":
        return pa.list_(pa.field("element", _arrow(schema["items"], names, f"{path}[]")))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(schema["values"], names, f"{path}{{}}"))
    if kind == "record":
        inner = [
            pa.field(it["name"], _arrow(it["type"], names, f"{path}.{it['name']}"))
            for it in schema["fields"]
        ]
        found = names[schema["name"]] = pa.struct(inner)
        return found
    if kind in names:
        return names[kind]
    raise _unknown(path, f"of type {kind}")


def _unknown(path: str, what: str) -> ConfigError:
    problem = f"{path.removeprefix('.')} is {what}, for which there is no column"
    return ConfigError("--schema", problem, "change the schema")


def _fastavro() -> None:
    try:
        import fastavro
    except ImportError:
        remedy = "pip install 'streamlog[lake,console]'"
        raise ConfigError("fastavro", "is not installed", remedy) from None
    del fastavro
