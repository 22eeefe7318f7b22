"""A file with a schema, as the command line names it."""

from pathlib import Path
from typing import Final, Literal

from streamlog.errors import ConfigError
from streamlog.record.schema.table_schema import TableSchema

SUFFIXES: Final[dict[str, Literal["json", "avro", "protobuf"]]] = {
    ".json": "json",
    ".avsc": "avro",
    ".desc": "protobuf",
}


def schema_in_file(text: str) -> TableSchema:
    """``x.json`` (JSON Schema), ``x.avsc`` (Avro) or ``x.desc:package.Message`` (Protobuf); what is in it is not looked
    at. Raises ConfigError.
    """
    name, colon, message = text.partition(".desc:")
    path = Path(f"{name}.desc" if colon else text)
    kind = SUFFIXES.get(path.suffix)
    if kind is None:
        problem = f"the ending of {path.name} is none of {', '.join(SUFFIXES)}"
        raise ConfigError("--schema", problem, "rename the file after what it is")
    try:
        return TableSchema(kind, path.read_bytes(), message)
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise ConfigError("--schema", problem, "name a file") from None
