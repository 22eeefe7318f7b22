"""The schema of a stream's values, as the stream's setting ``table_schema`` has it: one text. Pure.

``json SCHEMA``, ``avro SCHEMA`` or ``protobuf MESSAGE DESCRIPTORS``, the last as Base64 of what
``protoc --include_imports --descriptor_set_out`` writes.
"""

import base64
import binascii
from typing import Final, Literal, NamedTuple, Self

from streamlog.record.schema.json_schema import json_schema, parsed_object

TABLE_SCHEMA_BYTES_MAX: Final = 32_767
"""Of the text: older versions of Kafka's requests have no longer values of topic configs."""
KINDS: Final = ("json", "avro", "protobuf")
FORMS: Final = "json SCHEMA, avro SCHEMA or protobuf MESSAGE BASE64"


class TableSchema(NamedTuple):
    """A schema and its kind."""

    kind: Literal["json", "avro", "protobuf"]
    data: bytes
    """The schema's text; of Protobuf, a set of descriptors."""
    message: str = ""
    """Of Protobuf: the one that values are."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError where it cannot be a schema. Whether Avro and Protobuf can be columns is seen by the
        libraries for them, which nodes need not have.
        """
        if len(text.encode()) > TABLE_SCHEMA_BYTES_MAX:
            raise ValueError(f"more than {TABLE_SCHEMA_BYTES_MAX} bytes")
        kind, _, rest = text.strip().partition(" ")
        rest = rest.strip()
        match kind:
            case "json":
                json_schema(rest)
                return cls("json", rest.encode())
            case "avro":
                _check_avro(rest)
                return cls("avro", rest.encode())
            case "protobuf":
                message, _, encoded = rest.partition(" ")
                return cls("protobuf", _descriptors(message, encoded), message)
        raise ValueError(f"write {FORMS}")

    def __str__(self) -> str:
        """What ``parse`` reads."""
        if self.kind == "protobuf":
            return f"protobuf {self.message} {base64.b64encode(self.data).decode()}"
        return f"{self.kind} {self.data.decode()}"


def _check_avro(text: str) -> None:
    schema = parsed_object(text)
    if schema.get("type") != "record":
        raise ValueError("it is not the schema of an Avro record")
    if not isinstance(schema.get("fields"), list) or not schema["fields"]:
        raise ValueError("it has no fields")


def _descriptors(message: str, encoded: str) -> bytes:
    try:
        data = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the descriptors are not Base64") from None
    if not message or not data:
        raise ValueError(f"write {FORMS}")
    name = message.rpartition(".")[2].encode()
    if name not in data:
        raise ValueError(f"the descriptors have no message {message[:60]}")
    return data
