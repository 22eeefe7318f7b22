"""Arrow batches of Spark's into rows that are to be written, each checked."""

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamlog.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow as pa

NO_PARTITION: Final = -1
"""The row leaves the choice to its key."""

Headers = tuple[tuple[bytes, bytes | None], ...]
Content = tuple[bytes | None, bytes | None, Headers, int | None]
"""Key, value, headers, timestamp in ms; None: the time of the write."""


class Row(NamedTuple):
    """One record on its way."""

    topic: str
    partition: int
    content: Content


class Rows:
    """The rows of a task. ``topic`` goes before the column of that name."""

    def __init__(self, names: Iterable[str], topic: str | None) -> None:
        self._names = frozenset(names)
        self._topic = topic

    @property
    def have_times(self) -> bool:
        return "timestamp" in self._names

    def of(self, batch: "pa.RecordBatch") -> Iterator[Row]:
        """Raises InvalidRecord for a row that cannot be written."""
        contents = zip(
            self._binary(batch, "key"),
            self._binary(batch, "value"),
            self._headers(batch),
            self._times(batch),
            strict=False,  # a column that is not there goes on for ever
        )
        for topic, partition, content in zip(
            self._topics(batch), self._partitions(batch), contents, strict=False
        ):
            yield Row(topic, partition, content)

    def _binary(self, batch: "pa.RecordBatch", name: str) -> Iterable[bytes | None]:
        import pyarrow as pa

        if name not in self._names:
            return repeat(None)
        values: list[bytes | None] = batch.column(name).cast(pa.binary()).to_pylist()
        return values

    def _topics(self, batch: "pa.RecordBatch") -> Iterable[str]:
        if self._topic is not None:
            return repeat(self._topic)
        return self._all_there(batch, "topic", "set the option topic, or fill the column")

    def _partitions(self, batch: "pa.RecordBatch") -> Iterable[int]:
        if "partition" not in self._names:
            return repeat(NO_PARTITION)
        numbers = batch.column("partition").to_pylist()
        if any(number is not None and number < 0 for number in numbers):
            raise InvalidRecord("a row's partition is negative; null leaves it to the key")
        return [NO_PARTITION if number is None else number for number in numbers]

    def _headers(self, batch: "pa.RecordBatch") -> Iterable[Headers]:
        if "headers" not in self._names:
            return repeat(())
        return map(_headers_of, batch.column("headers").to_pylist())

    def _times(self, batch: "pa.RecordBatch") -> Iterable[int | None]:
        import pyarrow as pa

        if not self.have_times:
            return repeat(None)
        column = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        micros = self._all_there_in(column, "timestamp", "fill it, or leave the column out")
        return [it // 1_000 for it in micros]

    def _all_there(self, batch: "pa.RecordBatch", name: str, remedy: str) -> list[Any]:
        return self._all_there_in(batch.column(name), name, remedy)

    def _all_there_in(self, column: "pa.Array", name: str, remedy: str) -> list[Any]:
        if column.null_count:
            raise InvalidRecord(f"a row's {name} is null; {remedy}")
        values: list[Any] = column.to_pylist()
        return values


def _headers_of(entries: list[dict[str, Any]] | None) -> Headers:
    found = []
    for entry in entries or ():
        if entry is None or entry["key"] is None:
            raise InvalidRecord("a header has no key")
        found.append((entry["key"].encode(), entry["value"]))
    return tuple(found)
