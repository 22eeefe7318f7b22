"""``write``: Arrow record batches into a stream, each row once.

The rows are cut into tasks, one after the other. Each task writes under a producer id of its own, which is derived from
the id of the write and the number of the task. So a write that was interrupted can be done again: with the same id and
the same batches in the same order, each task leaves out what is in the log already.

What a write alone needs is imported when it begins: programs that read, Spark's executors too, stay light.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.arrow.options.security_files import SecurityFiles, cluster_by
from streamlog.arrow.sink.write_options import (
    BATCH_BYTES,
    BATCH_BYTES_MAX,
    DELIVERY_TIMEOUT_MS,
    WriteOptions,
)
from streamlog.arrow.stream_read import check_pyarrow
from streamlog.errors import ConfigError, InvalidRecord, StreamNotFound
from streamlog.record.columns import COLUMNS, arrow_schema
from streamlog.record.compression import Compression

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.arrow.sink.partition_leaders import Leaders
    from streamlog.client.security import Security

TASK_BYTES: Final = 64 << 20
"""Of Arrow: a task ends with the batch that reaches it. A write that is repeated compares, in memory, what the log
has of a task with its rows."""
TASK_ROWS: Final = 500_000
"""A task ends with the batch that reaches it, too."""
WRITTEN: Final = ("key", "value", "headers", "timestamp", "partition")
"""What a record is made of; other columns of a read are left out."""
CODECS: Final = tuple(codec.name.lower() for codec in Compression)


class WriteResult(NamedTuple):
    """What has become of the rows."""

    written: int
    found: int
    """Rows that an earlier write of the same id had written."""


def write(
    batches: "pa.RecordBatchReader | pa.Table | Iterable[pa.RecordBatch]",
    stream: str,
    *,
    servers: str,
    write_id: str | None = None,
    keep_partitions: bool = True,
    compression: str = "none",
    batch_bytes: int = BATCH_BYTES,
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
    security: "SecurityFiles | Security | None" = None,
    progress: Callable[[int], None] | None = None,
) -> WriteResult:
    """Rows with the columns of a read, of which ``value`` is needed, into a stream that is there.

    Returns when all rows are on every in-sync replica (``acks=all``). ``keep_partitions``: each row goes to the
    partition that its column says; else, and where there is no such column, the key decides. Times are kept by a
    stream that takes its producers' times. A column ``subject`` becomes the header of that name, where there is no
    column of headers. ``write_id``: a write that was interrupted is finished by another one of the same id and the same
    rows, which leaves out what is there. ``progress`` is told of rows that have been taken.

    Raises ConfigError, StreamNotFound and NodeUnreachable at once; PartitionNotFound, InvalidRecord, RequestTimedOut,
    and what a leader answers.
    """
    from streamlog.arrow.sink.partition_leaders import ClusterLeaders
    from streamlog.client.addresses import parse_addresses

    check_pyarrow()
    parse_addresses(servers)
    if compression not in CODECS:
        raise ConfigError("compression", f"there is no {compression!r}", f"set {', '.join(CODECS)}")
    if not 0 < batch_bytes <= BATCH_BYTES_MAX:
        remedy = f"set a whole number from 1 to {BATCH_BYTES_MAX}"
        raise ConfigError("batch_bytes", f"{batch_bytes!r} is wrong", remedy)
    options = WriteOptions(
        servers=servers,
        topic=stream,
        compression=Compression.named(compression),
        write_id=write_id or uuid.uuid4().hex,
        batch_bytes=batch_bytes,
        delivery_timeout_ms=delivery_timeout_ms,
        security=SecurityFiles() if security is None else security,
    )
    with cluster_by(options.security, servers) as cluster:
        try:
            cluster.topic(stream)
        except StreamNotFound:
            raise StreamNotFound(f"there is no stream {stream!r}; create it first") from None
        leaders = ClusterLeaders(cluster, delivery_timeout_ms)
        return write_by(leaders, _batches(batches), options, keep_partitions, progress)


def write_by(
    leaders: "Leaders",
    batches: Iterable["pa.RecordBatch"],
    options: WriteOptions,
    keep_partitions: bool,
    progress: Callable[[int], None] | None = None,
) -> WriteResult:
    """Task by task. A task is of the same batches each time."""
    from streamlog.arrow.sink.rows import Rows
    from streamlog.arrow.sink.task_attempt import TaskAttempt
    from streamlog.arrow.sink.task_writer import TaskWriter

    written = found = 0
    prepared = (_prepared(it, keep_partitions=keep_partitions) for it in batches)
    for number, task in enumerate(_tasks(prepared)):
        first = next(task, None)
        if first is None:
            break
        rows = Rows(first.schema.names, options.topic)
        attempt = TaskAttempt.of_batch(options.write_id or "", number)
        writer = TaskWriter(leaders, attempt, rows, options)
        writer.write(_told(chain((first,), task), progress))
        written += writer.written
        found += writer.found
    return WriteResult(written, found)


def _batches(
    batches: "pa.RecordBatchReader | pa.Table | Iterable[pa.RecordBatch]",
) -> Iterable["pa.RecordBatch"]:
    import pyarrow as pa

    return batches.to_batches() if isinstance(batches, pa.Table) else batches


def _prepared(batch: "pa.RecordBatch", *, keep_partitions: bool) -> "pa.RecordBatch":
    """The columns that are written. Raises InvalidRecord."""
    names = batch.schema.names
    for name in names:
        if name not in COLUMNS:
            remedy = f"there are {', '.join(COLUMNS)}"
            raise InvalidRecord(f"no record has a column {name!r}; {remedy}")
    if "value" not in names:
        raise InvalidRecord("there is no column value; a null in it is a tombstone")
    if "headers" not in names and "subject" in names:
        batch = batch.append_column("headers", _subject_headers(batch.column("subject")))
        names = batch.schema.names
    kept = [it for it in WRITTEN if it in names and (keep_partitions or it != "partition")]
    return batch.select(kept)


def _subject_headers(subjects: "pa.Array") -> "pa.Array":
    import pyarrow as pa

    values = [
        None if it is None else [{"key": "subject", "value": it.encode()}]
        for it in subjects.to_pylist()
    ]
    return pa.array(values, arrow_schema(["headers"]).field(0).type)


def _tasks(batches: Iterator["pa.RecordBatch"]) -> Iterator[Iterator["pa.RecordBatch"]]:
    """Each is to be used up before the next one; one without batches is the end. All batches of a task have the same
    columns.
    """

    def task() -> Iterator["pa.RecordBatch"]:
        rows = size = 0
        names: list[str] | None = None
        while rows < TASK_ROWS and size < TASK_BYTES:
            batch = next(batches, None)
            if batch is None:
                return
            if names is None:
                names = batch.schema.names
            if batch.schema.names != names:
                found, others = ", ".join(batch.schema.names), ", ".join(names)
                raise InvalidRecord(f"some rows have the columns {found}, others {others}")
            rows += batch.num_rows
            size += batch.nbytes
            yield batch

    while True:
        yield task()


def _told(
    batches: Iterable["pa.RecordBatch"], progress: Callable[[int], None] | None
) -> Iterator["pa.RecordBatch"]:
    for batch in batches:
        yield batch
        if progress is not None:
            progress(batch.num_rows)
