"""Values of Protobuf, by a set of descriptors; Confluent's bytes before a value are skipped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from streamlog.errors import ConfigError
from streamlog.lake.columns.value_format import Decoder, Misfit, each_by

if TYPE_CHECKING:
    import pyarrow as pa

FRAME: Final = 6
"""A zero, four bytes of the schema's number, and a zero for the first message of its file."""
DEPTH_MAX: Final = 32


@dataclass(frozen=True)
class ProtobufValues:
    """``descriptors``: as ``protoc --include_imports --descriptor_set_out`` writes them."""

    descriptors: bytes
    message: str
    decodes_batches: Literal[True] = True

    @classmethod
    def parse(cls, data: bytes, message: str) -> "ProtobufValues":
        """Raises ConfigError."""
        if not message:
            raise ConfigError("--schema", "no message is named", "write FILE.desc:package.Message")
        found = cls(data, message)
        found.schema()
        return found

    def schema(self) -> "pa.Schema":
        import pyarrow as pa

        kind = _struct(self._descriptor(), 0)
        return pa.schema([kind.field(i) for i in range(kind.num_fields)])

    def decoder(self) -> Decoder:
        parse = _parser(self._descriptor())
        return each_by(lambda data: _row(parse(data)))

    def decode_all(self, values: "pa.Array") -> "pa.RecordBatch | None":
        import pyarrow as pa

        descriptor, columns = self._descriptor(), self.schema()
        try:
            messages = list(map(_parser(descriptor), values.to_pylist()))
            arrays = [
                pa.array(_values_of(it, messages), kind.type)
                for it, kind in zip(descriptor.fields, columns, strict=True)
            ]
        except Exception:  # the slower way tells which value, and why
            return None
        return pa.RecordBatch.from_arrays(arrays, names=columns.names)

    def _descriptor(self) -> Any:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
        except ImportError:
            remedy = "pip install 'streamlog[lake,console]'"
            raise ConfigError("protobuf", "is not installed", remedy) from None
        from google.protobuf.message import DecodeError

        pool = descriptor_pool.DescriptorPool()
        try:
            for it in descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file:
                pool.Add(it)
            return pool.FindMessageTypeByName(self.message)
        except (DecodeError, TypeError) as error:
            problem = f"it is no set of descriptors ({error})"
            remedy = "write it by protoc --include_imports --descriptor_set_out"
            raise ConfigError("--schema", problem, remedy) from None
        except KeyError:
            raise ConfigError(
                "--schema", f"it has no message {self.message}", "name another"
            ) from None


def _struct(descriptor: Any, depth: int) -> Any:
    import pyarrow as pa

    if depth > DEPTH_MAX:
        problem = f"{descriptor.full_name} contains itself, for which there is no column"
        raise ConfigError("--schema", problem, "change the schema")
    return pa.struct([pa.field(it.name, _column(it, depth)) for it in descriptor.fields])


def _column(field: Any, depth: int) -> Any:
    import pyarrow as pa

    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_single(key, depth), _single(value, depth))
    kind = _single(field, depth)
    return pa.list_(pa.field("element", kind)) if field.is_repeated else kind


def _single(field: Any, depth: int) -> Any:
    import pyarrow as pa

    names = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
        field.CPPTYPE_STRING: pa.string(),
    }
    if field.type == field.TYPE_BYTES:
        return pa.binary()
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return pa.timestamp("us", "UTC")
        return _struct(field.message_type, depth + 1)
    return names[field.cpp_type]


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _parser(descriptor: Any) -> Callable[[bytes], Any]:
    from google.protobuf import message_factory

    message_type = message_factory.GetMessageClass(descriptor)

    def parse(data: bytes) -> Any:
        start = FRAME if data[:1] == b"\0" else 0  # no message begins with a zero
        message = message_type()
        if message.ParseFromString(data[start:]) != len(data) - start:
            raise Misfit("bytes are left")
        return message

    return parse


def _values_of(field: Any, messages: Sequence[Any]) -> list[Any]:
    is_plain = field.cpp_type not in (field.CPPTYPE_MESSAGE, field.CPPTYPE_ENUM)
    if is_plain and not field.is_repeated and not field.has_presence:
        return list(map(attrgetter(field.name), messages))
    return [_value(field, it) for it in messages]


def _row(message: Any) -> dict[str, Any]:
    return {it.name: _value(it, message) for it in message.DESCRIPTOR.fields}


def _value(field: Any, message: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return [(key, _plain(inner, value[key])) for key in value]
    if field.is_repeated:
        return [_plain(field, each) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, value)


def _plain(field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            from datetime import UTC

            return value.ToDatetime(UTC)
        return _row(value)
    if field.cpp_type == field.CPPTYPE_ENUM:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    return value
