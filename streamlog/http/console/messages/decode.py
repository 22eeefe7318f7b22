"""Text of keys and values, for eyes: JSON, text, MessagePack, Avro, Protobuf, hexadecimal.

Whatever a payload is, it can be shown: one that is not what was asked for is shown as hexadecimal,
with the reason. MessagePack, Avro and Protobuf take the libraries of ``streamlog[console]``, which
are imported when one of them is asked for.

A payload is untrusted. What is decoded is at most ``DECODED_BYTES_MAX``; what is shown of it is cut
before it is put into JSON. An Avro schema with array items that take no bytes is refused, for with it
a few bytes say that there are 2^60 of them.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.errors import InvalidRequest
from streamlog.record.codec import Record

AUTO: Final = "auto"
FORMS: Final = (AUTO, "text", "json", "msgpack", "avro", "protobuf", "hex")

KEY_BYTES_MAX: Final = 256
VALUE_BYTES_MAX: Final = 2_048
HEADERS_MAX: Final = 20
HEADER_BYTES_MAX: Final = 256
DECODED_BYTES_MAX: Final = 1 << 20
FRAME_BYTES: Final = 5
"""Confluent's wire format: a zero and the schema's number before an Avro or Protobuf value."""
SCHEMA_BYTES_MAX: Final = 1 << 20

_LIBRARIES: Final = {"msgpack": "msgpack", "avro": "fastavro", "protobuf": "google.protobuf"}


class DecodedValue(NamedTuple):
    """``form``: what it was taken for; ``text``: all of it; ``value``: what JSON paths go through."""

    form: str
    text: str
    value: Any = None
    is_structured: bool = False
    problem: str = ""


Decoder = Callable[[bytes], Any]
"""Raises whatever the library raises."""


class Decoding:
    """One way to decode values. Thread-safe once it is made."""

    def __init__(self, form: str = AUTO, decoder: Decoder | None = None) -> None:
        """``decoder``: of Avro and Protobuf, by their schema."""
        self.form = form
        self._decoder = decoder
        if form == "msgpack":
            self._decoder = _message_pack()

    def decode(self, data: bytes) -> DecodedValue:
        """Never fails."""
        if len(data) > DECODED_BYTES_MAX:
            text = f"{data[:VALUE_BYTES_MAX].hex(' ')}"
            return DecodedValue("hex", text, problem="too large to be decoded")
        match self.form:
            case "hex":
                return DecodedValue("hex", data.hex(" "))
            case "text":
                return _as_text(data)
            case "auto":
                return _as_json(data) or _as_text(data)
            case "json":
                return _as_json(data) or _as_text(data, problem="not JSON")
        assert self._decoder is not None, "it comes with the form"
        try:
            value = self._decoder(data)
            text = json.dumps(value, ensure_ascii=False, default=_plain)
            return DecodedValue(self.form, text, json.loads(text), is_structured=True)
        except Exception as error:  # libraries raise what they like at bytes that are not theirs
            reason = str(error).partition("\n")[0][:200] or type(error).__name__
            return DecodedValue("hex", data.hex(" "), problem=f"not {self.form}: {reason}")


def _as_json(data: bytes) -> DecodedValue | None:
    """What is an object, an array or a literal of JSON; a bare number is as well a text."""
    try:
        text = data.decode()
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return DecodedValue("json", text, value, is_structured=True)


def _as_text(data: bytes, *, problem: str = "") -> DecodedValue:
    try:
        return DecodedValue("text", data.decode(), problem=problem)
    except UnicodeError:
        return DecodedValue("hex", data.hex(" "), problem=problem)


def _message_pack() -> Decoder:
    unpackb: Callable[..., Any] = library("msgpack").unpackb
    return lambda data: unpackb(data, raw=False, strict_map_key=False, timestamp=3)


def library(form: str) -> Any:
    """Raises InvalidRequest with how to get it."""
    try:
        return import_module(_LIBRARIES[form])
    except ImportError:
        raise InvalidRequest(
            f"decode={form} needs the library {_LIBRARIES[form]} on this node: "
            "pip install 'streamlog[console]'"
        ) from None


def _plain(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeError:
            return base64.b64encode(data).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    return repr(value)


class Schemas:
    """The folder ``http.schemas_dir``: ``NAME.avsc`` is an Avro schema, ``NAME.desc`` a set of
    Protobuf files as ``protoc --include_imports --descriptor_set_out`` writes it.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, Any]] = {}
        """Parsed, by file name, with the time when it was written."""

    def names(self) -> dict[str, list[str]]:
        """Of Avro schemas, and of Protobuf messages as ``NAME:package.Message``. Reads files."""
        found: dict[str, list[str]] = {"avro": [], "protobuf": []}
        if self._folder is None:
            return found
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if path.suffix == ".avsc":
                found["avro"].append(path.stem)
            elif path.suffix == ".desc":
                try:
                    messages = self._message_names(path.stem)
                except InvalidRequest:
                    continue  # it is said where it is asked for by name
                found["protobuf"] += [f"{path.stem}:{it}" for it in messages]
        return found

    async def asked(self, given: Mapping[str, str]) -> Decoding:
        """By a URL. Raises InvalidRequest."""
        form, schema = given.get("decode", "") or AUTO, given.get("schema", "")
        return await asyncio.to_thread(self.decoding, form, schema)

    def decoding(self, form: str, schema: str = "") -> Decoding:
        """Reads files. Raises InvalidRequest for a schema that is not there or cannot be used."""
        if form not in FORMS:
            raise InvalidRequest(f"decode: one of {', '.join(FORMS)}")
        if form == "avro":
            return Decoding(form, self._avro(schema))
        if form == "protobuf":
            return Decoding(form, self._protobuf(schema))
        return Decoding(form)

    def _avro(self, name: str) -> Decoder:
        avro = library("avro")

        def parsed(data: bytes) -> Any:
            schema = json.loads(data)
            _refuse_empty_items(schema, {})
            return avro.parse_schema(schema)

        schema = self._parsed(f"{name}.avsc", parsed)
        read: Callable[..., Any] = import_module("fastavro").schemaless_reader
        from io import BytesIO

        def decode(data: bytes) -> Any:
            stream = BytesIO(_unframed(data))
            value = read(stream, schema)
            if stream.read(1):
                raise ValueError("there are bytes left")
            return value

        return decode

    def _protobuf(self, schema: str) -> Decoder:
        name, _, message = schema.partition(":")
        pool = self._pool(name)
        try:
            descriptor = pool.FindMessageTypeByName(message)
        except KeyError:
            raise InvalidRequest(f"schema: no message {message[:100]!r} in {name}.desc") from None
        factory = import_module("google.protobuf.message_factory")
        to_dict = import_module("google.protobuf.json_format").MessageToDict
        kind = factory.GetMessageClass(descriptor)

        def decode(data: bytes) -> Any:
            found = kind()
            found.ParseFromString(_unframed(data, indexes=True))
            return to_dict(found, preserving_proto_field_name=True, descriptor_pool=pool)

        return decode

    def _pool(self, name: str) -> Any:
        library("protobuf")

        def parsed(data: bytes) -> Any:
            files = import_module("google.protobuf.descriptor_pb2").FileDescriptorSet()
            files.ParseFromString(data)
            pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
            for file in files.file:
                pool.Add(file)
            return pool, files

        return self._parsed(f"{name}.desc", parsed)[0]

    def _message_names(self, name: str) -> list[str]:
        self._pool(name)
        _, (_, files) = self._known[f"{name}.desc"]
        return [
            f"{file.package}.{message.name}".lstrip(".")
            for file in files.file
            for message in file.message_type
        ]

    def _parsed(self, file_name: str, parse: Callable[[bytes], Any]) -> Any:
        if self._folder is None:
            raise InvalidRequest("schema: http.schemas_dir names no folder with schemas")
        if "/" in file_name or file_name.startswith(".") or "\0" in file_name:
            raise InvalidRequest("schema: the name of a file without its ending")
        path = self._folder / file_name
        try:
            written = path.stat().st_mtime_ns
            known = self._known.get(file_name)
            if known is not None and known[0] == written:
                return known[1]
            if path.stat().st_size > SCHEMA_BYTES_MAX:
                raise InvalidRequest(f"schema: {file_name} is larger than {SCHEMA_BYTES_MAX} bytes")
            data = path.read_bytes()
        except OSError:
            raise InvalidRequest(f"schema: there is no {file_name[:100]!r}") from None
        try:
            found = parse(data)
        except InvalidRequest:
            raise
        except Exception as error:  # libraries raise what they like at a file that is not theirs
            reason = str(error).partition("\n")[0][:200]
            raise InvalidRequest(f"schema: {file_name} cannot be used: {reason}") from None
        self._known[file_name] = written, found
        return found


def _unframed(data: bytes, *, indexes: bool = False) -> bytes:
    """Without Confluent's frame, if there is one; ``indexes``: and the place of the message, which
    is a zero for the first one.
    """
    if len(data) <= FRAME_BYTES or data[0]:
        return data
    data = data[FRAME_BYTES:]
    return data[1:] if indexes and data[:1] == b"\0" else data


def _refuse_empty_items(schema: Any, named: dict[str, Any]) -> None:
    """Raises InvalidRequest."""
    if isinstance(schema, list):
        for it in schema:
            _refuse_empty_items(it, named)
    if not isinstance(schema, dict):
        return
    if "name" in schema:
        named[str(schema["name"])] = schema
    kind = schema.get("type")
    if kind == "array" and _takes_no_bytes(schema.get("items"), named, 0):
        raise InvalidRequest("schema: items of an array that take no bytes are not decoded")
    for part in ("items", "values", "type"):
        if isinstance(schema.get(part), dict | list):
            _refuse_empty_items(schema[part], named)
    for field in schema.get("fields", ()):
        _refuse_empty_items(field, named)


def _takes_no_bytes(schema: Any, named: Mapping[str, Any], depth: int) -> bool:
    if depth > 100:
        return False
    if isinstance(schema, str):
        known = named.get(schema)
        return schema == "null" or (known is not None and _takes_no_bytes(known, named, depth + 1))
    if not isinstance(schema, dict):
        return False  # a union says which of its branches it is
    kind = schema.get("type")
    if kind == "fixed":
        return schema.get("size") == 0
    if kind in ("record", "error"):
        fields = schema.get("fields", ())
        return all(_takes_no_bytes(it.get("type"), named, depth + 1) for it in fields)
    return kind == "null" or (isinstance(kind, dict) and _takes_no_bytes(kind, named, depth + 1))


def shown(
    record: Record,
    decoding: Decoding | None = None,
    *,
    decoded: DecodedValue | None = None,
    most: int = VALUE_BYTES_MAX,
) -> dict[str, Any]:
    """A record for the page. ``decoded``: its value, where that is done already; without
    ``decoding`` the value is text or hexadecimal.
    """
    value: dict[str, Any] | None = None
    if record.value is not None:
        if decoding is None:
            value = _record_data(record.value, most)
        else:
            value = _decoded_data(record.value, decoded or decoding.decode(record.value), most)
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _record_data(record.key, KEY_BYTES_MAX),
        "value": value,
        "headers": [
            [name[:HEADER_BYTES_MAX], _record_data(value, HEADER_BYTES_MAX)]
            for name, value in record.headers[:HEADERS_MAX]
        ],
        "headers_more": max(0, len(record.headers) - HEADERS_MAX),
    }


def _decoded_data(data: bytes, it: DecodedValue, most: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "form": it.form,
        "hex" if it.form == "hex" else "text": it.text[:most],
        "size_bytes": len(data),
        "cut": len(it.text) > most or len(data) > DECODED_BYTES_MAX,
    }
    return {**told, "problem": it.problem} if it.problem else told


def _record_data(data: bytes | None, most: int) -> dict[str, Any] | None:
    """Text where it is UTF-8, else hexadecimal; with its true length where it was cut."""
    if data is None:
        return None
    cut = bytes(data[:most])
    try:
        # A cut may go through the middle of a character.
        text, form = cut.decode(errors="strict" if len(data) <= most else "ignore"), "text"
        if len(data) > most and len(cut) - len(text.encode()) > 3:
            raise UnicodeError
    except UnicodeError:
        text, form = cut[: most // 2].hex(" "), "hex"
    whole = len(data) <= (most if form == "text" else most // 2)
    return {form: text, "size_bytes": len(data), "cut": not whole}
