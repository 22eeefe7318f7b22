"""``read``: a stream, or a part of it, as one reader of Arrow record batches.

All ranges are fixed when ``read`` is called, up to the high watermarks of that moment. They are read one after the
other, in the order of the partitions' numbers; within a partition rows come by rising offset. Of each range the reader
holds one Arrow batch and one fetch, or one chunk of a file: how long the stream is does not matter. While a batch is
decoded the next fetch is on its way.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from streamlog.arrow.filters import RowFilter, check_subject_filter
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.options.encryption_keys import KeySources
from streamlog.arrow.options.read_options import (
    BATCH_BYTES,
    BATCH_BYTES_MAX,
    BATCH_ROWS,
    FETCH_BYTES,
    FETCH_BYTES_MAX,
    FETCH_RETRIES,
    FETCH_RETRIES_MAX,
    FETCH_TIMEOUT_MS,
    FetchOptions,
    Position,
    ReadOptions,
)
from streamlog.arrow.options.security_files import SecurityFiles
from streamlog.arrow.options.store_options import StoreOptions
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.arrow.range_reader import open_location, rows_of
from streamlog.errors import ConfigError
from streamlog.model import TopicPartition
from streamlog.record.columns import COLUMNS, REQUIRED, arrow_schema
from streamlog.wire.special_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.client.security import Security

DEFAULT_COLUMNS: Final = tuple(name for name in COLUMNS if name != "headers")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_INT64_MAX: Final = 2**63 - 1

Word = Literal["earliest", "latest"]
Bound = Word | int | datetime | Mapping[int, int | Word]
"""Where a read starts, or ends: an offset of each partition, a time, or for each partition an offset."""


def read(
    stream: str,
    *,
    servers: str | None = None,
    path: str | os.PathLike[str] | None = None,
    store: str | None = None,
    store_endpoint: str | None = None,
    columns: Sequence[str] | None = None,
    partitions: Iterable[int] | None = None,
    start: Bound = "earliest",
    end: Bound = "latest",
    subjects: str | Iterable[str] = (),
    fail_on_data_loss: bool = True,
    check_crc: bool = True,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    fetch_max_bytes: int = FETCH_BYTES,
    fetch_timeout_ms: int = FETCH_TIMEOUT_MS,
    fetch_retries: int = FETCH_RETRIES,
    security: "SecurityFiles | Security | None" = None,
    encryption_keys: Mapping[str, str] | None = None,
) -> "pa.RecordBatchReader":
    """The committed records of a stream as a ``pyarrow.RecordBatchReader``.

    One of ``servers`` (``host:port,host:port``) and ``path`` (a node's data folder, its ``streams`` folder, one
    stream's folder, or a URL of one) is needed. ``store``, beside ``servers``, is the object store of tiered storage
    (``tier.url`` of the nodes): what it has is read there. ``store_endpoint``: as ``tier.endpoint``. ``columns``: any
    of those of ``streamlog.record.columns.COLUMNS``, in any order; by default all but ``headers``.

    ``start`` is inclusive, ``end`` exclusive. An offset holds for each partition that is read. A time, which has a time
    zone, stands for the first record of that time or later; a record outside of ``[start, end)`` never comes out.
    ``subjects``: NATS subjects with wildcards, of which a record has one.

    ``fail_on_data_loss``: raise DataLoss if records are gone that were there when ``read`` was called; else go on
    without them, with a warning in the log. ``security``: how to log in to ``servers``. ``encryption_keys``: for
    ``path`` and ``store``, by their names, where the keys to encrypted streams are.

    Raises ConfigError for what cannot be meant, StreamNotFound, PartitionNotFound, NodeUnreachable and
    AuthenticationFailed at once. Reading raises CorruptBatch, DataLoss, and RequestTimedOut where no node has served a
    partition for ``fetch_timeout_ms``.

    The reader may be used by several threads: each batch goes to one of them. Its connection is closed at the end, or
    when the reader is dropped.
    """
    return plan(
        stream,
        servers=servers,
        path=path,
        store=store,
        store_endpoint=store_endpoint,
        columns=columns,
        partitions=partitions,
        start=start,
        end=end,
        subjects=subjects,
        fail_on_data_loss=fail_on_data_loss,
        check_crc=check_crc,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        fetch_max_bytes=fetch_max_bytes,
        fetch_timeout_ms=fetch_timeout_ms,
        fetch_retries=fetch_retries,
        security=security,
        encryption_keys=encryption_keys,
    ).reader()


@dataclass(frozen=True)
class ReadPlan:
    """A read whose ranges are fixed. Can be pickled; ``reader`` and ``rows`` may be called again and again."""

    ranges: tuple[PartitionRange, ...]
    """One for each partition, by its number, also where it is empty."""
    columns: tuple[str, ...]
    options: ReadOptions
    row_filter: RowFilter

    @property
    def offset_count(self) -> int:
        """At most so many rows come out."""
        return sum(it.end_offset - it.start_offset for it in self.ranges)

    @property
    def schema(self) -> "pa.Schema":
        required = [name for name in self.columns if name in REQUIRED]
        return arrow_schema(self.columns, required)

    def reader(self) -> "pa.RecordBatchReader":
        import pyarrow as pa

        batches = _SharedIterator(batch for it in self.ranges for batch in self.rows(it))
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def rows(
        self, range_: PartitionRange, passed: Callable[[int], None] | None = None
    ) -> Iterator["pa.RecordBatch"]:
        """Of one of the ranges, or of a part of one. ``passed`` is told up to which offset rows have been looked at."""
        extra = [*self.row_filter.columns, *(["offset"] if passed is not None else [])]
        names = list(dict.fromkeys([*self.columns, *extra]))
        decoded = arrow_schema(names, [name for name in names if name in REQUIRED])
        for batch in rows_of(range_, self.options, decoded):
            found = self.row_filter.rows_of(batch)
            if found.num_rows:
                yield found if len(names) == len(self.columns) else found.select(self.columns)
            if passed is not None:
                passed(batch.column("offset")[-1].as_py() + 1)


class _SharedIterator:
    """DuckDB, for one, takes batches by whichever of its threads is free."""

    def __init__(self, batches: Iterator["pa.RecordBatch"]) -> None:
        self._batches = batches
        self._lock = Lock()

    def __iter__(self) -> Iterator["pa.RecordBatch"]:
        return self

    def __next__(self) -> "pa.RecordBatch":
        with self._lock:
            return next(self._batches)


def plan(
    stream: str,
    *,
    servers: str | None = None,
    path: str | os.PathLike[str] | None = None,
    store: str | None = None,
    store_endpoint: str | None = None,
    columns: Sequence[str] | None = None,
    partitions: Iterable[int] | None = None,
    start: Bound = "earliest",
    end: Bound = "latest",
    subjects: str | Iterable[str] = (),
    fail_on_data_loss: bool = True,
    check_crc: bool = True,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    fetch_max_bytes: int = FETCH_BYTES,
    fetch_timeout_ms: int = FETCH_TIMEOUT_MS,
    fetch_retries: int = FETCH_RETRIES,
    security: "SecurityFiles | Security | None" = None,
    encryption_keys: Mapping[str, str] | None = None,
) -> ReadPlan:
    """What ``read`` with the same arguments is going to read."""
    check_pyarrow()
    if not isinstance(stream, str) or not stream:
        raise ConfigError("stream", "no stream is named", "name one")
    names = _columns(columns)
    chosen = _partitions(stream, partitions)
    starts, start_ms = _bound("start", start, stream, LATEST)
    ends, end_ms = _bound("end", end, stream, EARLIEST)
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        raise ConfigError("start", "it is later than the end", "exchange them")
    options = ReadOptions(
        path=_place(servers, path),
        servers=servers,
        store=_store(servers, store, store_endpoint),
        subscription=StreamSubscription(() if chosen else (stream,), None, chosen),
        starting=starts,
        ending=ends,
        starting_times=start_ms,
        ending_times=end_ms,
        late_start="latest",
        fail_on_data_loss=bool(fail_on_data_loss),
        check_crc=bool(check_crc),
        batch_rows=_integer("batch_rows", batch_rows, _INT64_MAX),
        batch_bytes=_integer("batch_bytes", batch_bytes, BATCH_BYTES_MAX),
        fetch=FetchOptions(
            _integer("fetch_max_bytes", fetch_max_bytes, FETCH_BYTES_MAX),
            _integer("fetch_timeout_ms", fetch_timeout_ms, _INT64_MAX),
            _integer("fetch_retries", fetch_retries, FETCH_RETRIES_MAX, least=0),
        ),
        security=_security(servers, security),
        keys=_keys(path, store, encryption_keys),
    )
    row_filter = RowFilter(_subjects(subjects), start_ms, end_ms)
    with open_location(options) as location:
        ranges = location.placed(plan_offset_ranges(location, options))
    return ReadPlan(tuple(ranges), names, options, row_filter)


def check_pyarrow() -> None:
    """Raises ConfigError."""
    try:
        import pyarrow as pa
    except ImportError:
        remedy = "pip install 'streamlog[arrow]'"
        raise ConfigError("pyarrow", "is not installed", remedy) from None
    del pa


def _columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return DEFAULT_COLUMNS
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    remedy = f"choose from {', '.join(COLUMNS)}"
    if not names:
        raise ConfigError("columns", "there is none", remedy)
    for name in names:
        if name not in COLUMNS:
            raise ConfigError("columns", f"there is no {name!r}", remedy)
        if names.count(name) > 1:
            raise ConfigError("columns", f"{name!r} is named twice", "name it once")
    return names


def _partitions(stream: str, partitions: Iterable[int] | None) -> tuple[TopicPartition, ...]:
    """None: all of them."""
    if partitions is None:
        return ()
    numbers = (partitions,) if isinstance(partitions, int) else tuple(partitions)
    if not numbers:
        raise ConfigError("partitions", "there is none", "name some, or leave it out")
    for number in numbers:
        if not _is_integer(number) or number < 0:
            raise ConfigError("partitions", f"{number!r} is none", "name numbers from 0 on")
    return tuple(TopicPartition(stream, int(number)) for number in sorted(set(numbers)))


def _bound(name: str, bound: Bound, stream: str, senseless: int) -> tuple[Position, int | None]:
    """By offsets, or by a time in milliseconds. ``senseless``: with it a read would be empty."""
    if isinstance(bound, datetime):
        return EARLIEST if senseless == LATEST else LATEST, _milliseconds(name, bound)
    if isinstance(bound, Mapping):
        offsets = {}
        for number, offset in bound.items():
            if not _is_integer(number) or number < 0:
                raise ConfigError(name, f"{number!r} is no partition", "name numbers from 0 on")
            offsets[TopicPartition(stream, int(number))] = _offset(name, offset, senseless)
        return offsets, None
    return _offset(name, bound, senseless), None


def _offset(name: str, offset: int | str, senseless: int) -> int:
    found = _WORDS.get(offset) if isinstance(offset, str) else offset
    words = " or ".join(word for word, value in _WORDS.items() if value != senseless)
    remedy = f"give {words}, an offset, a datetime, or offsets by partition"
    if isinstance(offset, str) and found == senseless:
        raise ConfigError(name, f"from {offset} on, or up to it, there is nothing to read", remedy)
    if found is None or not _is_integer(found) or (found < 0 and not isinstance(offset, str)):
        raise ConfigError(name, f"{offset!r} is no position", remedy)
    return int(found)


def _milliseconds(name: str, time: datetime) -> int:
    """Rounded up: all times of records are whole milliseconds."""
    if time.tzinfo is None:
        problem = f"{time} has no time zone"
        raise ConfigError(name, problem, "add one: datetime(..., tzinfo=timezone.utc)")
    return max(0, -((_EPOCH - time) // timedelta(milliseconds=1)))


def _place(servers: Any, path: Any) -> str | None:
    if servers is None and path is None:
        remedy = "name the nodes (host:port,...), or with path a node's data folder"
        raise ConfigError("servers", "is missing, and so is path", remedy)
    if servers is not None and path is not None:
        raise ConfigError("servers", "path is given, too", "keep one of them")
    if servers is not None:
        from streamlog.client.addresses import parse_addresses

        if not isinstance(servers, str):
            raise ConfigError("servers", f"{servers!r} is no text", "write host:port,host:port")
        parse_addresses(servers)
    if path is not None and not isinstance(path, str | os.PathLike):
        raise ConfigError("path", f"{path!r} is no path", "name a folder, or a URL")
    return None if path is None else os.fspath(path)


def _security(
    servers: str | None,
    security: Any,
) -> "SecurityFiles | Security":
    if security is None:
        return SecurityFiles()
    if servers is None:
        raise ConfigError("security", "it is for reading from servers", "leave it out")
    from streamlog.client.security import Security

    if isinstance(security, SecurityFiles | Security):
        return security
    problem = f"it is of type {type(security).__name__}"
    raise ConfigError("security", problem, "give SecurityFiles(ca_file=..., user=...)")


def _store(servers: Any, store: Any, endpoint: Any) -> StoreOptions | None:
    for name, value in (("store", store), ("store_endpoint", endpoint)):
        if value is not None and not isinstance(value, str):
            raise ConfigError(name, f"{value!r} is no text", "write a URL")
    if store is None:
        if endpoint is not None:
            raise ConfigError("store_endpoint", "store is missing", "name its URL, too")
        return None
    if servers is None:
        problem = "the nodes tell what in it counts, so it goes with servers"
        raise ConfigError("store", problem, "name the nodes, too")
    return StoreOptions(store, endpoint)


def _keys(
    path: str | os.PathLike[str] | None,
    store: str | None,
    encryption_keys: Mapping[str, str] | None,
) -> KeySources:
    if encryption_keys is None:
        return KeySources()
    if path is None and store is None:
        problem = "nodes decrypt what they send; it is for reading by path, and from a store"
        raise ConfigError("encryption_keys", problem, "leave it out")
    return KeySources.of(f"{name}={source}" for name, source in encryption_keys.items())


def _subjects(subjects: str | Iterable[str]) -> tuple[str, ...]:
    found = (subjects,) if isinstance(subjects, str) else tuple(subjects)
    for subject in found:
        check_subject_filter(subject, "subjects")
    return found


def _integer(name: str, value: int, most: int, *, least: int = 1) -> int:
    if not _is_integer(value) or not least <= value <= most:
        remedy = f"set a whole number from {least} to {most}"
        raise ConfigError(name, f"{value!r} is wrong", remedy)
    return int(value)


def _is_integer(value: object) -> bool:
    """Also those of numpy."""
    return hasattr(value, "__index__") and not isinstance(value, bool)
