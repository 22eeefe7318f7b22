"""Values of Avro, by the schema they were written with; Confluent's five bytes before a value are skipped."""

import io
import json
from dataclasses import dataclass
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
    decodes_batches: Literal[False] = False

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
        import fastavro

        schema = fastavro.parse_schema(json.loads(self.text))
        columns = self.schema()

        def decode(data: bytes) -> dict[str, Any]:
            start = FRAME_BYTES if data[:1] == b"\0" and len(data) > FRAME_BYTES else 0
            try:
                return _whole(schema, data[start:], columns)
            except Exception:
                if not start:
                    raise
            return _whole(schema, data, columns)  # a value may begin with a zero of its own

        return each_by(decode)

    def decode_all(self, values: "pa.Array") -> "pa.RecordBatch | None":
        return None


def _whole(schema: Any, data: bytes, columns: "pa.Schema") -> dict[str, Any]:
    """Raises Misfit where bytes are left: they are of another schema."""
    import fastavro
    import pyarrow as pa

    source = io.BytesIO(data)
    row = fastavro.schemaless_reader(source, schema, None)
    if source.tell() != len(data):
        raise Misfit(f"{len(data) - source.tell()} bytes are left")
    assert isinstance(row, dict), "the schema is one of a record"
    for it in columns:
        pa.scalar(row.get(it.name), it.type)
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
