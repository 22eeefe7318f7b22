"""The columns as Spark types: those of Spark's Kafka source, and ``subject``."""

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamlog.errors import ConfigError
from streamlog.record.columns import COLUMNS, REQUIRED, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "subject": StringType(),
    "headers": ArrayType(HEADER),
}


def source_schema(*, include_headers: bool) -> StructType:
    """What a read gives when it names no schema itself."""
    names = [name for name in COLUMNS if include_headers or name != "headers"]
    return StructType([StructField(name, TYPES[name]) for name in names])


def arrow_schema_of(schema: StructType) -> "pa.Schema":
    """A reader's own schema as Arrow: any of our columns in any order. Raises ConfigError."""
    for field in schema.fields:
        wanted = f"{field.name} {field.dataType.simpleString()}"
        if field.name not in TYPES:
            problem = f"there is no column {wanted}"
            raise ConfigError("schema", problem, f"choose from {', '.join(COLUMNS)}")
        if field.dataType != TYPES[field.name]:
            remedy = f"make it {TYPES[field.name].simpleString()} and cast afterwards"
            raise ConfigError("schema", f"{wanted} has the wrong type", remedy)
        if not field.nullable and field.name not in REQUIRED:
            raise ConfigError("schema", f"{wanted} may be null", "leave out NOT NULL")
    names = schema.fieldNames()
    if not names:
        raise ConfigError("schema", "it has no column", f"choose from {', '.join(COLUMNS)}")
    return arrow_schema(names, [field.name for field in schema.fields if not field.nullable])
