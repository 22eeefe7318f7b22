"""A table with the records of one stream, and its table of dead letters: made, read and committed to.

A commit has one requirement above all: the main branch is at the snapshot that the position was read from. PyIceberg
would repeat a commit that another one has overtaken, on top of it. Here it is looked at first whether the position is
still the same: it is, if the other commit was a compaction; it is not, if another job has committed the same records.
A commit whose outcome is unknown is looked for by its id before it is repeated. Its repetition has the same requirement
as long as the table is the same, so at most one of the attempts takes effect. That the id is not found proves nothing
if the job stood still until upkeep had removed the snapshot; so the files of such a commit are not removed with it.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from streamlog.errors import CatalogUnavailable, ConfigError, StreamlogError
from streamlog.lake.catalog import TableName
from streamlog.lake.data_files import WriteTarget, WrittenRange, delete_files
from streamlog.lake.position import (
    COMMIT_ID,
    OffsetRange,
    TablePosition,
    merged,
    nearest_position,
)
from streamlog.lake.schema import iceberg_schema, time_partitions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

T = TypeVar("T")

PATIENCE_S: Final = 120.0
"""So long a catalog or a store may be away."""
RETRY_S: Final = 0.5
PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "write.parquet.compression-level": "1",
}
"""Of tables that are made here: a commit every few seconds would leave too many files of metadata; and zstd's first
level takes half the time of the third."""


class TakenOver(StreamlogError):
    """Another job has committed to the table since."""


class _Conflict(Exception):
    """The catalog says that the table is not any more what the commit began from."""


class _OneAttempt:
    """A catalog that says so when a commit is overtaken, where PyIceberg would begin again."""

    def __init__(self, catalog: "Catalog") -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        from pyiceberg.exceptions import CommitFailedException

        try:
            return self._catalog.commit_table(table, requirements, updates)
        except CommitFailedException as error:
            raise _Conflict(str(error)) from error


class LakeTable:
    """One table. Each look at it asks the catalog."""

    def __init__(
        self, catalog: "Catalog", name: TableName, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.name = name
        self._catalog = catalog
        self._patience_s = patience_s

    @classmethod
    def at(cls, name: TableName, *, patience_s: float = PATIENCE_S) -> Self:
        """The table need not be there. Raises ConfigError and CatalogUnavailable."""
        catalog = patiently(name.open_catalog, patience_s)
        return cls(catalog, name, patience_s=patience_s)

    def exists(self) -> bool:
        return patiently(
            lambda: bool(self._catalog.table_exists(self.name.identifier)), self._patience_s
        )

    def load(self) -> "Table":
        """Raises ConfigError where there is none."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return patiently(
                lambda: self._catalog.load_table(self.name.identifier), self._patience_s
            )
        except NoSuchTableError:
            problem = f"catalog {self.name.catalog!r} has no table {self.name.table}"
            raise ConfigError("--table", problem, "make it: `streamlog lake run`") from None

    def column_names(self) -> list[str]:
        """Of columns that are in no other; none where there is no table."""
        return [it.name for it in self.load().schema().fields] if self.exists() else []

    def ensure(
        self,
        schema: "pa.Schema",
        *,
        time_column: str = "timestamp",
        period: str = "none",
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> "Table":
        """Make the table if it is not there; else add the columns that it lacks, and widen those that may be. Raises
        ConfigError for columns that do not fit those that are there.
        """
        if not self.exists():
            wanted = iceberg_schema(schema)
            spec = time_partitions(wanted, time_column, period)
            self._create(wanted, spec, location, properties or {})
        return self._evolved(self.load(), schema)

    def position(self) -> TablePosition | None:
        """None: nothing has been committed yet. Raises PositionError."""
        return position_of(self.load().metadata)

    def target(self) -> WriteTarget:
        table = self.load()
        return WriteTarget(table.metadata, table.io)

    def commit(
        self,
        expected: TablePosition,
        ranges: Sequence[OffsetRange],
        files: "Sequence[DataFile]",
        *,
        loss_allowed: bool = False,
    ) -> TablePosition:
        """The files and the position after ``ranges``, both or neither. ``expected``: where the table is to be before.
        Raises TakenOver, after which the files are removed; and CatalogUnavailable, after which it is unknown whether
        the commit has taken effect or will: the position says so later.
        """
        parts = merged(ranges)
        after = expected.advanced(parts, loss_allowed=loss_allowed)
        commit_id = str(uuid.uuid4())
        summary = after.to_summary(parts, commit_id)
        until = time.monotonic() + self._patience_s
        is_unknown = False
        """An attempt may have taken effect. Then the files may be the table's, and are left to the upkeep."""
        while True:
            table = self.load()
            if has_commit(table.metadata, commit_id):
                return after
            now = position_of(table.metadata)
            if not _same(now, expected):
                if not is_unknown:
                    delete_files(table.io, [it.file_path for it in files])
                raise TakenOver(
                    f"{self.name.table} has been committed to by another job: it is at"
                    f" {_shown(now)}, and was at {_shown(expected)}"
                )
            try:
                self._append(table, files, summary)
            except _Conflict:
                continue  # by a compaction, say; or by ourselves, or by another job: the next look tells
            except Exception as error:
                if not is_passing(error) or time.monotonic() > until:
                    raise CatalogUnavailable(
                        f"it is unknown whether a commit to {self.name.table} has taken effect:"
                        f" {_line(error)}"
                    ) from error
                is_unknown = True
                time.sleep(RETRY_S)
            else:
                return after

    def replace(self, table: "Table", old: "Sequence[DataFile]", new: "Sequence[DataFile]") -> bool:
        """Files by others with the same rows. The position is carried on. False: another commit was faster, and
        nothing is changed.
        """
        position = position_of(table.metadata)
        if position is None:
            raise ConfigError(
                "--table", f"{self.name.table} has no stream's records", "name another"
            )
        table = self._once(table)
        transaction = table.transaction()
        summary = position.to_summary([], str(uuid.uuid4()))
        with transaction.update_snapshot(summary).overwrite() as overwrite:
            for it in old:
                overwrite.delete_data_file(it)
            for it in new:
                overwrite.append_data_file(it)
        try:
            transaction.commit_transaction()
        except _Conflict:
            return False
        return True

    def expire(self, table: "Table", snapshot_ids: Sequence[int]) -> bool:
        """Out of the metadata; the files stay. False: another commit was faster, and nothing is changed."""
        try:
            self._once(table).maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()
        except _Conflict:
            return False
        return True

    def _append(self, table: "Table", files: "Sequence[DataFile]", summary: dict[str, str]) -> None:
        transaction = self._once(table).transaction()
        update = transaction.update_snapshot(summary)
        merge = table.properties.get("commit.manifest-merge.enabled", "false") == "true"
        with update.merge_append() if merge else update.fast_append() as append:
            for it in files:
                append.append_data_file(it)
        transaction.commit_transaction()

    def _once(self, table: "Table") -> "Table":
        from pyiceberg.table import Table

        catalog: Any = _OneAttempt(self._catalog)
        return Table(
            self.name.identifier, table.metadata, table.metadata_location, table.io, catalog
        )

    def _create(
        self,
        schema: "Schema",
        spec: "PartitionSpec",
        location: str | None,
        properties: Mapping[str, str],
    ) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError

        arguments: dict[str, Any] = {
            "schema": schema,
            "partition_spec": spec,
            "properties": {**PROPERTIES, **properties},
        }
        if location is not None:
            arguments["location"] = location
        try:
            patiently(
                lambda: self._catalog.create_namespace_if_not_exists(self.name.identifier[:-1]),
                self._patience_s,
            )
            patiently(
                lambda: self._catalog.create_table(self.name.identifier, **arguments),
                self._patience_s,
            )
        except TableAlreadyExistsError:
            return  # another job was faster, or an attempt of ours that seemed to fail

    def _evolved(self, table: "Table", schema: "pa.Schema") -> "Table":
        from pyiceberg.exceptions import CommitFailedException, ValidationError
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        wanted = iceberg_schema(schema)
        there = schema_to_pyarrow(table.schema(), include_field_ids=False)
        asked = schema_to_pyarrow(wanted, include_field_ids=False)
        if _fits(there, asked):
            return table
        try:
            with table.update_schema() as update:
                update.union_by_name(wanted)
        except CommitFailedException:
            return self._evolved(self.load(), schema)
        except (ValidationError, ValueError, TypeError) as error:
            problem = f"its columns do not fit those of {self.name.table} ({_line(error)})"
            raise ConfigError("--schema", problem, "write into another table") from None
        return self.load()


def position_of(metadata: "TableMetadata") -> TablePosition | None:
    """Raises PositionError."""
    return nearest_position(_summaries(metadata))


def has_commit(metadata: "TableMetadata", commit_id: str) -> bool:
    return any(it is not None and it.get(COMMIT_ID) == commit_id for it in _summaries(metadata))


def _summaries(metadata: "TableMetadata") -> Iterable[Mapping[str, str] | None]:
    """Of the current snapshot and its ancestors."""
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        yield {} if summary is None else summary.additional_properties
        if snapshot.parent_snapshot_id is None:
            return
        snapshot = metadata.snapshot_by_id(snapshot.parent_snapshot_id)
        if snapshot is None:
            yield None


def commit_written(
    table: LakeTable,
    dead_letters: LakeTable,
    expected: tuple[TablePosition, TablePosition],
    written: Sequence[WrittenRange],
    *,
    loss_allowed: bool = False,
) -> tuple[TablePosition, TablePosition]:
    """Dead letters first. Their table says up to where it has them, so if the second commit does not take place, they
    are passed over when the range is written again. ``expected``, and what is returned: the positions of both tables.
    """
    position, dead = expected
    ranges = [it.range_ for it in written]
    if any(it.dead_files for it in written):
        parts = merged(ranges)
        ahead = [it for it in parts if it.end_offset > dead.ends.get(it.partition, 0)]
        starts = [
            OffsetRange(
                it.partition, max(it.start_offset, dead.ends.get(it.partition, 0)), it.end_offset
            )
            for it in ahead
        ]
        files = [file for it in written for file in it.dead_files]
        dead = dead_letters.commit(dead, starts, files, loss_allowed=True)
    files = [file for it in written for file in it.files]
    position = table.commit(position, ranges, files, loss_allowed=loss_allowed)
    return position, dead


def patiently(call: Callable[[], T], patience_s: float) -> T:
    """Call again while a catalog or a store does not answer. Raises CatalogUnavailable."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return call()
        except Exception as error:
            if not is_passing(error):
                raise
            if time.monotonic() > until:
                raise CatalogUnavailable(f"for {patience_s:.0f} s: {_line(error)}") from error
        time.sleep(RETRY_S)


def is_passing(error: BaseException) -> bool:
    """Whether the same may succeed later. Catalogs and stores have errors of their own, so names are looked at."""
    if isinstance(error, CatalogUnavailable | TimeoutError | ConnectionError):
        return True
    if isinstance(error, StreamlogError | FileNotFoundError | PermissionError):
        return False
    names = {it.__name__ for it in type(error).__mro__}
    return bool(
        names
        & {
            "OSError",
            "ConnectionError",
            "Timeout",
            "OperationalError",
            "ServerError",
            "ServiceUnavailableError",
            "CommitStateUnknownException",
        }
    )


def _same(now: TablePosition | None, expected: TablePosition) -> bool:
    if now is None:
        return not expected.ends
    return dict(now.ends) == dict(expected.ends) and now.stream == expected.stream


def _shown(position: TablePosition | None) -> str:
    if position is None or not position.ends:
        return "its beginning"
    return ", ".join(f"{number}:{end}" for number, end in sorted(position.ends.items())[:8])


def _fits(there: "pa.Schema", wanted: "pa.Schema") -> bool:
    """Whether the table has all these columns, of these types."""
    return all(
        there.get_field_index(it.name) >= 0 and there.field(it.name).type == it.type
        for it in wanted
    )


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300] or type(error).__name__
