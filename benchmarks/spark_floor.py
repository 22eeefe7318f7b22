"""A Python source of Spark's that reads nothing: each task gives one ready Arrow batch again and again.

No source in Python can be faster than what Spark makes of this one.
"""

import os
from array import array
from collections.abc import Iterator
from itertools import repeat
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_streamlog.source.schema import arrow_schema_of

BATCH_BYTES: Final = 4 << 20
"""As our source's batches are by default."""
TIMESTAMP_US: Final = 1_700_000_000_000_000


class FloorReader(DataSourceReader):
    def __init__(self, schema: StructType, count: int, size: int, tasks: int) -> None:
        self._schema = arrow_schema_of(schema)
        self._count = count
        self._size = size
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        count, more = divmod(self._count, self._tasks)
        return [InputPartition(count + (i < more)) for i in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = min(max(1, BATCH_BYTES // self._size), partition.value)
        batch = _batch(self._schema, rows, self._size)
        batches, rest = divmod(partition.value, rows)
        yield from repeat(batch, batches)
        yield batch.slice(0, rest)


class FloorSource(DataSource):
    """Options: ``count`` of rows, ``size`` of a value, ``tasks``."""

    @classmethod
    def name(cls) -> str:
        return "streamlog-floor"

    def reader(self, schema: StructType) -> FloorReader:
        options = (int(self.options[name]) for name in ("count", "size", "tasks"))
        return FloorReader(schema, *options)


def _batch(schema: pa.Schema, rows: int, size: int) -> pa.RecordBatch:
    """Values of a column that is not named here are null or the same in each row."""
    ends = array("i", range(0, size * rows + 1, size))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(os.urandom(size * rows))]
    columns = {
        "value": pa.Array.from_buffers(pa.binary(), rows, buffers),
        "offset": pa.array(range(rows), pa.int64()),
    }
    constants = {"topic": "bench", "partition": 0, "timestamp": TIMESTAMP_US, "timestampType": 0}
    arrays = [
        columns[field.name]
        if field.name in columns
        else pa.repeat(pa.scalar(constants.get(field.name), field.type), rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
