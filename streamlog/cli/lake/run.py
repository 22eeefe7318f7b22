"""``streamlog lake run``: a job that writes a stream into a table."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamlog.arrow.location import Bounds
from streamlog.cli.lake.options import (
    Catalog,
    CatalogProperty,
    Table,
    age_ms,
    pairs,
    say_done,
    table_name,
)
from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.options.names import StreamName
from streamlog.cli.options.options import SERVERS, Servers
from streamlog.cli.output import progress_bar, say
from streamlog.config.units import size_bytes
from streamlog.errors import ConfigError
from streamlog.lake.job import TASK_BYTES, JobOptions, LakeJob, TableCommit, run_without_spark
from streamlog.lake.lag import Lag, LagCollector, serve_metrics
from streamlog.lake.maintain import Upkeep
from streamlog.lake.upkeep_thread import UpkeepPlan, UpkeepThread, keep_up

if TYPE_CHECKING:
    from streamlog.lake.columns.table_columns import TableColumns

ENGINES: Final = ("spark", "local")


def run(
    stream: StreamName,
    table: Table,
    catalog: Catalog = "default",
    catalog_property: CatalogProperty = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="End when all is in the table that was there at the start."),
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            help="spark: tasks on executors; local: this process does all, without Spark."
        ),
    ] = "spark",
    master: Annotated[
        str | None,
        typer.Option(
            help="Spark's master, such as local[4]; under spark-submit it says so itself."
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Between two commits.")
    ] = 5.0,
    commit_size: Annotated[
        str, typer.Option(help="About as much of the log goes into one commit, at most.")
    ] = "512MiB",
    partition_by: Annotated[
        str,
        typer.Option(
            help="none, hour or day: of the timestamp, if the table is made by this command."
        ),
    ] = "none",
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Columns by the schema of values: NAME.json (JSON Schema), NAME.avsc (Avro) or"
            " NAME.desc:package.Message (Protobuf). Default: the stream's setting table_schema, if it has one;"
            " none: values are bytes in any case.",
        ),
    ] = None,
    location: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the table's files go, if it is made.")
    ] = None,
    table_property: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the table, if it is made. May be repeated."),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            help="Read this data folder of a node, or URL, instead of asking nodes. The setting table_schema is read"
            " there once, when the job starts; a folder without the node's metadata needs --schema."
        ),
    ] = None,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option of Spark's source streamlog (docs/spark.md): security.caFile=..., encryption.keys=...,"
            " minPartitions=... May be repeated.",
        ),
    ] = None,
    allow_loss: Annotated[
        bool,
        typer.Option("--allow-loss", help="Go on where the log has lost records the table lacks."),
    ] = False,
    maintain: Annotated[
        bool,
        typer.Option(
            "--maintain", help="With --once: one upkeep at the end, when all is in the table."
        ),
    ] = False,
    maintain_interval: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Between two upkeeps beside the commits, as `streamlog lake maintain` does them; never: none. With"
            " --once there are none: see --maintain.",
        ),
    ] = "10m",
    expire: Annotated[
        str,
        typer.Option(
            "--expire", metavar="DURATION", help="Upkeep removes older snapshots; never: none."
        ),
    ] = "1h",
    orphans: Annotated[
        str,
        typer.Option(
            "--orphans",
            metavar="DURATION",
            help="Upkeep removes older files that no snapshot has; never: none.",
        ),
    ] = "1d",
    follow_retention: Annotated[
        bool,
        typer.Option(
            "--follow-retention",
            help="Upkeep removes files whose records are all before the log's start.",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve metrics to Prometheus there.")
    ] = None,
    metrics_address: Annotated[
        str, typer.Option(help="With --metrics-port: the address to listen at.")
    ] = "127.0.0.1",
    servers: Servers = SERVERS,
) -> None:
    """Write a stream into an Iceberg table, exactly once, until told to stop (Ctrl-C, SIGTERM).

    The table is made if it is not there, and filled from where the log starts. Run again, the job goes on where the
    table ends, however it was stopped. docs/lake.md has catalogs, schemas and what is guaranteed.

    \b
      export PYICEBERG_CATALOG__DEFAULT__TYPE=rest PYICEBERG_CATALOG__DEFAULT__URI=http://catalog:8181
      streamlog lake run flights --table lake.flights --partition-by day
      streamlog lake run flights --table lake.flights --once --engine local
    """
    if engine not in ENGINES:
        raise ConfigError("--engine", f"there is no {engine!r}", f"set {' or '.join(ENGINES)}")
    try:
        commit_bytes = size_bytes(commit_size)
    except ValueError as error:
        raise ConfigError(
            "--commit-size", str(error), "write 512MiB, or a number of bytes"
        ) from None
    upkeep = _upkeep(maintain_interval, expire, orphans, follow_retention=follow_retention)
    if maintain and not once:
        remedy = "set --once with it, or --maintain-interval"
        raise ConfigError("--maintain", "it is for the end of a job, which has none", remedy)
    options = _options(
        stream,
        path=path,
        servers=servers,
        source_options=pairs(source_option, "--source-option"),
        commit_bytes=commit_bytes,
        allow_loss=allow_loss,
        engine=engine,
        table=table_name(table, catalog, catalog_property),
        columns=_columns(schema),
        period=partition_by,
        location=location,
        table_properties=pairs(table_property, "--table-property"),
        interval_s=interval,
    )
    if path is not None and options.columns is None:
        options = replace(options, columns=_folder_columns(options))
    with ExitStack() as stack:
        lag = _ShownLag(stream, stack if once else None)
        if metrics_port is not None:
            collector = LagCollector(lag, stream, table)
            try:
                stop_serving = serve_metrics(collector, metrics_port, metrics_address)
            except OSError as error:
                problem = (
                    f"{metrics_address}:{metrics_port} cannot be listened at ({error.strerror})"
                )
                raise ConfigError("--metrics-port", problem, "set another") from None
            stack.callback(stop_serving)
        stop = stack.enter_context(_stopping())
        if upkeep.interval_s is not None and not once:
            stack.enter_context(
                UpkeepThread(
                    options.table, upkeep, log_starts=lambda: lag.log_starts, told=lag.maintained
                )
            )
        _run(LakeJob(options, lag), engine, master, once=once, stop=stop)
    if once:
        say(f"{lag.row_count} records of {stream} were added to {table}")
    if once and lag.dead_count:
        say(f"{lag.dead_count} do not fit the schema: they are in {table}__dead_letters")
    if maintain and not stop.is_set():
        for name, done in keep_up(options.table, upkeep, lambda: lag.log_starts):
            say_done(name.table, done)


def _folder_columns(options: JobOptions) -> "TableColumns":
    """By the setting that is in the folder. Raises ConfigError."""
    from streamlog.cli.lake.folder_schema import folder_schema
    from streamlog.lake.columns.schema_columns import columns_by

    return columns_by(folder_schema(options.read, options.stream))


def _columns(schema: str | None) -> "TableColumns | None":
    """None: as the stream says. Raises ConfigError."""
    from streamlog.lake.columns.schema_columns import schema_columns
    from streamlog.lake.columns.table_columns import OpaqueColumns

    if schema is None:
        return None
    return OpaqueColumns() if schema == "none" else schema_columns(schema)


def _upkeep(interval: str, expire: str, orphans: str, *, follow_retention: bool) -> UpkeepPlan:
    """Raises ConfigError."""
    interval_ms = age_ms(interval, "--maintain-interval")
    if interval_ms == 0:
        raise ConfigError("--maintain-interval", "0 is no time", "write 10m, or never")
    upkeep = Upkeep(expire_ms=age_ms(expire, "--expire"), orphan_ms=age_ms(orphans, "--orphans"))
    interval_s = None if interval_ms is None else interval_ms / 1000
    return UpkeepPlan(upkeep, interval_s, follow_retention)


class _ShownLag(Lag):
    """A bar while a table catches up, else a line for each commit."""

    def __init__(self, stream: str, bar: ExitStack | None) -> None:
        super().__init__()
        self._stream = stream
        self._bar = bar
        self._advance: Callable[[int], None] | None = None

    def looked(self, bounds: Mapping[int, Bounds]) -> None:
        super().looked(bounds)
        if self._bar is not None and self._advance is None:
            bar = progress_bar(self._stream, self.records_behind)
            self._advance = self._bar.enter_context(bar)

    def committed(self, it: TableCommit) -> None:
        super().committed(it)
        if self._bar is not None:
            if self._advance is not None:
                self._advance(it.row_count + it.dead_count)
            return
        dead = f" and {it.dead_count} dead letters" if it.dead_count else ""
        say(
            f"{it.row_count} records{dead} committed; {self.records_behind} records,"
            f" {self.seconds_behind:.1f} s behind",
            flush=True,
        )


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM; a commit that has begun is finished."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _options(
    stream: str,
    *,
    path: str | None,
    servers: str,
    source_options: Mapping[str, str],
    commit_bytes: int,
    allow_loss: bool,
    engine: str,
    **others: Any,
) -> JobOptions:
    """Raises ConfigError."""
    from streamlog.client.security import NO_SECURITY
    from streamlog.lake.catalog import check_pyiceberg

    check_pyiceberg()
    if engine == "spark":
        _check_spark()
    from pyspark_streamlog.options.read_options import SourceOptions

    given = {
        **source_options,
        "subscribe": stream,
        "startingOffsets": "earliest",
        "maxBytesPerTrigger": str(commit_bytes),
        "failOnDataLoss": "false" if allow_loss else "true",
        **({"servers": servers} if path is None else {"path": path}),
    }
    read = SourceOptions.parse(given, streaming=True)
    security = chosen_security()
    if path is None and security is not NO_SECURITY and security != NO_SECURITY:
        if engine == "spark":
            problem = "executors read certificates and passwords from files that lie there"
            remedy = "name them: --source-option security.passwordFile=... (docs/spark.md)"
            raise ConfigError("--engine", problem, remedy)
        read = replace(read, security=security)
    task_bytes = read.task_bytes_max or TASK_BYTES
    return JobOptions(stream, read, commit_bytes=commit_bytes, task_bytes=task_bytes, **others)


def _check_spark() -> None:
    """Raises ConfigError."""
    try:
        import pyspark
    except ImportError:
        remedy = "pip install 'streamlog[lake,spark]'"
        raise ConfigError("pyspark", "is not installed", remedy) from None
    del pyspark


def _run(
    job: LakeJob, engine: str, master: str | None, *, once: bool, stop: threading.Event
) -> None:
    if engine == "local":
        run_without_spark(job, once=once, wait=stop.wait)
        return
    from pyspark_streamlog.lake.streaming_job import run_with_spark
    from pyspark_streamlog.options.read_options import SourceOptions
    from pyspark_streamlog.session import close_session, open_session

    read = job.options.read
    if not isinstance(read, SourceOptions):
        raise ConfigError("--engine", "spark needs options of its source", "set local")
    spark = open_session("streamlog lake", master)
    try:
        run_with_spark(spark, job, read, once=once, wait=stop.wait)
    finally:
        close_session(spark)
