"""Record batches as columns: buffers of the compiled decoder, and Arrow where that is wanted.

::

    decoder = ColumnDecoder({"offset", "value"}, start_offset=100, end_offset=200)
    decoder.feed(batches)               # whole batches; a cut last one waits for the next feed
    while decoder.decode():             # enough rows for one
        yield arrow_batch(decoder.take(), schema, "orders", 0)
    ...                                 # feed from decoder.position on, until decoder.finished

Rows are those of ``[start_offset, end_offset)``, in order, also where a batch straddles an end.
Control batches are left out. A batch with a wrong checksum, length or content raises CorruptBatch;
``decoder.position`` then says where it begins. A null key or value is a null, the record header
``subject`` becomes a column, and the timestamp is the record's own or the time of append, whichever
the log keeps.

pyarrow is imported when a function that needs it is called: the server does without.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from streamlog.record.compiled.columns import ColumnDecoder

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "ColumnDecoder", "arrow_batch", "arrow_batches", "arrow_schema"]

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "subject",
    "headers",
)
"""Those of Spark's Kafka source, and ``subject``."""

REQUIRED: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
"""These are never null."""

Part = tuple[int, Any, Any, Any]
"""A column: null count, validity bitmap, int32 offsets (None where the type has none), data."""


def arrow_schema(columns: Collection[str] = COLUMNS, required: Collection[str] = ()) -> "pa.Schema":
    """The columns in the order given; those in ``required`` are declared as never null."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "subject": pa.string(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name], name not in required) for name in columns])


def arrow_batch(
    taken: tuple[int, dict[str, Part]], schema: "pa.Schema", topic: str, partition: int
) -> "pa.RecordBatch":
    """What ``ColumnDecoder.take`` returned, as Arrow, without copying it."""
    import pyarrow as pa

    rows, parts = taken
    constants = {"topic": topic, "partition": partition}
    arrays = [
        pa.repeat(pa.scalar(constants[field.name], field.type), rows)
        if field.name in constants
        else _headers(rows, parts, field.type)
        if field.name == "headers"
        else _array(rows, parts[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_batches(
    batches: bytes | memoryview,
    columns: Collection[str] = COLUMNS,
    *,
    topic: str = "",
    partition: int = 0,
    **options: Any,
) -> Iterator["pa.RecordBatch"]:
    """All of the whole batches in a buffer. ``options`` are those of ColumnDecoder."""
    schema = arrow_schema(columns)
    decoder = ColumnDecoder(columns, **options)
    decoder.feed(batches)
    while decoder.decode():
        yield arrow_batch(decoder.take(), schema, topic, partition)
    if decoder.row_count:
        yield arrow_batch(decoder.take(), schema, topic, partition)


def _array(rows: int, part: Part, arrow_type: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    null_count, validity, ends, data = part
    buffers = [pa.py_buffer(validity) if null_count else None]
    if ends is not None:
        buffers.append(pa.py_buffer(ends))
    buffers.append(pa.py_buffer(data))
    return pa.Array.from_buffers(arrow_type, rows, buffers, null_count)


def _headers(rows: int, parts: dict[str, Part], arrow_type: "pa.ListType") -> "pa.Array":
    import pyarrow as pa

    null_count, validity, ends, _ = parts["headers"]
    pair = arrow_type.value_type
    count = memoryview(parts["headers.key"][2]).nbytes // 4 - 1
    keys = _array(count, parts["headers.key"], pair.field("key").type)
    values = _array(count, parts["headers.value"], pair.field("value").type)
    pairs = pa.Array.from_buffers(pair, count, [None], 0, children=[keys, values])
    buffers = [pa.py_buffer(validity) if null_count else None, pa.py_buffer(ends)]
    return pa.Array.from_buffers(arrow_type, rows, buffers, null_count, children=[pairs])
