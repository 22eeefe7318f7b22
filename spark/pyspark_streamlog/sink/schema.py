"""What columns a frame may have that is written, as with Spark's Kafka sink."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from pyspark_streamlog.source.schema import HEADER, TYPES
from streamlog.errors import ConfigError

WRITTEN: Final[dict[str, tuple[DataType, ...]]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (ArrayType(HEADER),),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}
LEFT_OUT: Final = frozenset(TYPES) - frozenset(WRITTEN)
"""A frame that was read may have these: the log assigns them again, or they are in the headers."""


def check_schema(schema: StructType, topic: str | None) -> None:
    """``topic``: the option. Raises ConfigError for the first thing that is wrong."""
    for field in schema.fields:
        if field.name in LEFT_OUT:
            continue
        if field.name not in WRITTEN:
            problem = f"there is no column {field.name} to write to"
            raise ConfigError("schema", problem, f"select some of {', '.join(WRITTEN)}")
        if all(_plain(field.dataType) != _plain(it) for it in WRITTEN[field.name]):
            fitting = " or ".join(it.simpleString() for it in WRITTEN[field.name])
            problem = f"{field.name} is {field.dataType.simpleString()}"
            raise ConfigError("schema", problem, f"cast it to {fitting}")
    names = schema.fieldNames()
    if "value" not in names:
        raise ConfigError("schema", "there is no column value", "select what is to be written")
    if len(set(names)) < len(names):
        raise ConfigError("schema", "two columns have the same name", "rename one")
    if topic is None and "topic" not in names:
        raise ConfigError("topic", "is missing", "set it, or add a column topic")


def _plain(kind: DataType) -> str:
    """Whether something in it may be null is told by the rows."""
    return kind.simpleString()
