"""Columns of a table: Arrow's types as Iceberg's."""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from streamlog.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

PERIODS: Final = ("none", "hour", "day")


def iceberg_schema(schema: "pa.Schema") -> "Schema":
    """With ids of its own; those of the table that is made of it may be others. Raises ConfigError."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    ids = count(1)
    top = [next(ids) for _ in schema]  # as Iceberg does: first the columns, then what is inside
    return Schema(
        *(
            NestedField(number, it.name, _type(it.type, ids), required=not it.nullable)
            for number, it in zip(top, schema, strict=True)
        )
    )


def time_partitions(schema: "Schema", column: str, period: str) -> "PartitionSpec":
    """By the period of a column; unpartitioned with ``none``."""
    from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform, HourTransform, Transform

    if period not in PERIODS:
        raise ConfigError("--partition-by", f"{period!r} is none", f"set {', '.join(PERIODS)}")
    if period == "none":
        return PartitionSpec()
    source = schema.find_field(column).field_id
    transform: Transform[Any, Any] = DayTransform() if period == "day" else HourTransform()
    name = f"{column}_{period}"
    return PartitionSpec(
        PartitionField(
            source_id=source, field_id=PARTITION_FIELD_ID_START, transform=transform, name=name
        )
    )


def _type(kind: "pa.DataType", ids: Iterator[int]) -> Any:
    import pyarrow as pa
    from pyiceberg import types

    simple = {
        pa.bool_(): types.BooleanType,
        pa.int32(): types.IntegerType,
        pa.int64(): types.LongType,
        pa.float32(): types.FloatType,
        pa.float64(): types.DoubleType,
        pa.string(): types.StringType,
        pa.binary(): types.BinaryType,
        pa.date32(): types.DateType,
        pa.time64("us"): types.TimeType,
        pa.timestamp("us"): types.TimestampType,
        pa.timestamp("us", "UTC"): types.TimestamptzType,
    }
    if kind in simple:
        return simple[kind]()
    if pa.types.is_decimal128(kind):
        return types.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return types.FixedType(kind.byte_width)
    if pa.types.is_list(kind):
        number = next(ids)
        element = _type(kind.value_type, ids)
        return types.ListType(element_id=number, element=element, element_required=False)
    if pa.types.is_map(kind):
        key, value = next(ids), next(ids)
        return types.MapType(
            key_id=key,
            key_type=_type(kind.key_type, ids),
            value_id=value,
            value_type=_type(kind.item_type, ids),
            value_required=False,
        )
    if pa.types.is_struct(kind):
        inner = [kind.field(i) for i in range(kind.num_fields)]
        numbers = [next(ids) for _ in inner]
        return types.StructType(
            *(
                types.NestedField(number, it.name, _type(it.type, ids), required=False)
                for number, it in zip(numbers, inner, strict=True)
            )
        )
    raise ConfigError("--schema", f"Iceberg has no type for {kind}", "choose another type")
