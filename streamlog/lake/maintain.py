"""Upkeep of a table: small files made into large ones, snapshots expired, files removed that no snapshot has.

All of it may run beside a job. PyIceberg takes expired snapshots out of the metadata alone; their files go with the
orphans.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from streamlog.errors import ConfigError
from streamlog.lake.data_files import DataFileWriter, WriteTarget, delete_files
from streamlog.lake.position import OFFSETS
from streamlog.lake.table import LakeTable, TakenOver, position_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.types import PrimitiveType

SMALL_BYTES: Final = 32 << 20
LARGE_BYTES: Final = 256 << 20
FILES_MIN: Final = 4
EXPIRE_MS: Final = 24 * 3_600_000
ORPHAN_MS: Final = 24 * 3_600_000
ATTEMPTS: Final = 20
"""Of a commit that others overtake: it is quick, and what it needs is written already."""


@dataclass(frozen=True)
class Upkeep:
    """What is to be done. None: not at all."""

    small_bytes: int = SMALL_BYTES
    """Files below it are put together, up to about ``large_bytes`` each."""
    large_bytes: int = LARGE_BYTES
    files_min: int = FILES_MIN
    """So many small ones of a partition are worth the work."""
    expire_ms: int | None = EXPIRE_MS
    """Snapshots that are older go; not the current one, and none that has the table's position."""
    orphan_ms: int | None = ORPHAN_MS
    """Files that no snapshot has go when they are older: younger ones may be of a commit to come."""
    log_starts: Mapping[int, int] | None = None
    """Files with only records before these offsets go."""


@dataclass(frozen=True)
class Done:
    """What an upkeep has done."""

    small_files: int = 0
    large_files: int = 0
    aged_files: int = 0
    snapshots: int = 0
    orphans: int = 0
    orphan_bytes: int = 0


def maintain(
    table: LakeTable,
    upkeep: Upkeep,
    *,
    now: float | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Done:
    """Raises TakenOver where other commits were faster again and again; what is done is done. ``is_stopped``: asked
    between two steps; the others are left out then.
    """
    now_ms = int((time.time() if now is None else now) * 1000)
    aged = 0 if upkeep.log_starts is None else _drop_aged(table, upkeep.log_starts)
    small, large = _compact(table, upkeep, is_stopped)
    snapshots = 0
    if upkeep.expire_ms is not None and not is_stopped():
        snapshots = _expire(table, now_ms - upkeep.expire_ms)
    orphans, size = 0, 0
    if upkeep.orphan_ms is not None and not is_stopped():
        orphans, size = _remove_orphans(table.load(), now_ms - upkeep.orphan_ms)
    return Done(small, large, aged, snapshots, orphans, size)


def _compact(table: LakeTable, upkeep: Upkeep, is_stopped: Callable[[], bool]) -> tuple[int, int]:
    small = large = 0
    loaded = table.load()
    for group in _groups(loaded, upkeep):
        if is_stopped():
            break
        new = _rewritten(loaded, [it for it, _ in group])
        _replace(table, [it.file for it, _ in group], new)
        small += len(group)
        large += len(new)
    return small, large


def _groups(table: "Table", upkeep: Upkeep) -> "Iterable[list[tuple[Any, int]]]":
    """Small files of one partition of the table and of the log, in the order of their offsets, with their sizes."""
    found: dict[tuple[Any, ...], list[tuple[int, Any]]] = defaultdict(list)
    for task in table.scan().plan_files():
        file = task.file
        if task.delete_files or file.spec_id != table.spec().spec_id:
            continue
        number, first, _ = _offsets(table, file)
        if file.file_size_in_bytes < upkeep.small_bytes and number is not None:
            found[(str(file.partition), number)].append((first, task))
    for tasks in found.values():
        tasks.sort(key=lambda pair: pair[0])
        group: list[tuple[Any, int]] = []
        for _, task in tasks:
            size = task.file.file_size_in_bytes
            if group and sum(it for _, it in group) + size > upkeep.large_bytes:
                if len(group) >= upkeep.files_min:
                    yield group
                group = []
            group.append((task, size))
        if len(group) >= upkeep.files_min:
            yield group


def _rewritten(table: "Table", tasks: Sequence[Any]) -> "tuple[DataFile, ...]":
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    writer = DataFileWriter(WriteTarget(table.metadata, table.io), "compacted")
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    try:
        for task in tasks:
            for batch in scan.to_record_batches([task]):
                writer.write(batch)
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    count = sum(task.file.record_count for task in tasks)
    if sum(it.record_count for it in files) != count:
        writer.abort()
        raise ConfigError("table", f"{count} rows were to be read of its files", "see the store")
    return files


def _replace(table: LakeTable, old: "Sequence[DataFile]", new: "Sequence[DataFile]") -> None:
    from pyiceberg.exceptions import ValidationException

    for _ in range(ATTEMPTS):
        loaded = table.load()
        try:
            if table.replace(loaded, old, new):
                return
        except ValidationException:  # others have replaced or removed some of them
            break
    delete_files(table.load().io, [it.file_path for it in new])
    raise TakenOver(f"files of {table.name.table} were replaced by others at the same time")


def _drop_aged(table: LakeTable, log_starts: Mapping[int, int]) -> int:
    loaded = table.load()
    aged = []
    for task in loaded.scan().plan_files():
        number, _, last = _offsets(loaded, task.file)
        if number is not None and last < log_starts.get(number, 0) and not task.delete_files:
            aged.append(task.file)
    if aged:
        _replace(table, aged, ())
    return len(aged)


def _offsets(table: "Table", file: "DataFile") -> tuple[int | None, int, int]:
    """The log's partition, if it is one, and the first and the last offset."""
    from pyiceberg.conversions import from_bytes

    schema = table.schema()
    beside = "_" if "_offset" in schema.column_names else ""
    bounds = []
    for name in ("partition", "offset"):
        column = schema.find_field(f"{beside}{name}")
        kind = cast("PrimitiveType", column.field_type)
        for limits in (file.lower_bounds, file.upper_bounds):
            raw = (limits or {}).get(column.field_id)
            if raw is None:
                return None, 0, 0
            bounds.append(int(from_bytes(kind, raw)))
    first_number, last_number, first, last = bounds
    return (first_number if first_number == last_number else None), first, last


def _expire(table: LakeTable, before_ms: int) -> int:
    for _ in range(ATTEMPTS):
        loaded = table.load()
        kept = _needed(loaded)
        old = [
            it.snapshot_id
            for it in loaded.snapshots()
            if it.timestamp_ms < before_ms and it.snapshot_id not in kept
        ]
        if not old:
            return 0
        if table.expire(loaded, old):
            return len(old)
    raise TakenOver(f"snapshots of {table.name.table} could not be expired: others commit")


def _needed(table: "Table") -> set[int]:
    """Heads of branches and tags, and the way from the current snapshot to the one that has the position."""
    needed = {it.snapshot_id for it in table.refs().values()}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        needed.add(snapshot.snapshot_id)
        if snapshot.summary is not None and OFFSETS in snapshot.summary.additional_properties:
            break
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return needed


def _remove_orphans(table: "Table", before_ms: int) -> tuple[int, int]:
    """Raises ConfigError where the table's files cannot be listed."""
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = table.io
    if not isinstance(io, PyArrowFileIO):
        problem = f"{type(io).__name__} cannot list files"
        raise ConfigError("py-io-impl", problem, "set pyiceberg.io.pyarrow.PyArrowFileIO")
    scheme, host, path = PyArrowFileIO.parse_location(table.location(), io.properties)
    known = {_path(io, it) for it in _referenced(table)}
    files = io.fs_by_scheme(scheme, host)
    count = size = 0
    found = chain.from_iterable(
        files.get_file_info(FileSelector(f"{path}/{own}", recursive=True, allow_not_found=True))
        for own in ("data", "metadata")  # whatever else lies at the table's location is not its own
    )
    for it in found:
        if it.type != FileType.File or it.path in known or it.mtime_ns // 1_000_000 >= before_ms:
            continue
        files.delete_file(it.path)
        count += 1
        size += it.size
    return count, size


def _referenced(table: "Table") -> Iterable[str]:
    """All files of all snapshots, and of the metadata."""
    metadata = table.metadata
    yield table.metadata_location
    yield f"{table.location()}/metadata/version-hint.text"
    yield from (it.metadata_file for it in metadata.metadata_log)
    yield from (it.statistics_path for it in metadata.statistics)
    yield from (it.statistics_path for it in metadata.partition_statistics)
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    yield entry.data_file.file_path


def _path(io: "FileIO", location: str) -> str:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO.parse_location(location, io.properties)[2]


def has_position(table: LakeTable) -> bool:
    return position_of(table.load().metadata) is not None
