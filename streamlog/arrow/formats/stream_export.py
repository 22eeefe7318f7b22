"""What is read of a stream into a file, or a file for each partition of it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Final

from streamlog.arrow.formats.export_file import check_absent, exported_file
from streamlog.arrow.formats.file_format import FileFormat
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.stream_read import ReadPlan

OPTION: Final = "--output"

Advance = Callable[[int], None]
"""Told of offsets that have been passed."""


def export_to_file(
    plan: ReadPlan, file: BinaryIO, file_format: FileFormat, advance: Advance
) -> int:
    """All partitions, one after the other. Returns the number of records."""
    return _export(plan, plan.ranges, file, file_format, advance)


def export_to_path(
    plan: ReadPlan, path: Path, file_format: FileFormat, advance: Advance, *, replace: bool
) -> int:
    """The same; the file is complete, or it is not there. Raises ConfigError."""
    with exported_file(path, replace=replace, option=OPTION) as file:
        return export_to_file(plan, file, file_format, advance)


def export_to_folder(
    plan: ReadPlan, folder: Path, file_format: FileFormat, advance: Advance, *, replace: bool
) -> int:
    """A file for each partition, each complete or not there. Raises ConfigError before anything is written."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [(folder / file_name(it, file_format), it) for it in plan.ranges]
    for path, _ in files:
        check_absent(path, replace=replace, option=OPTION)
    count = 0
    for path, range_ in files:
        with exported_file(path, replace=replace, option=OPTION) as file:
            count += _export(plan, [range_], file, file_format, advance)
    return count


def file_name(range_: PartitionRange, file_format: FileFormat) -> str:
    return f"{range_.name.stream}-{range_.name.partition}{file_format.suffixes[0]}"


def _export(
    plan: ReadPlan,
    ranges: Iterable[PartitionRange],
    file: BinaryIO,
    file_format: FileFormat,
    advance: Advance,
) -> int:
    writer = file_format.writer(file, plan.schema)
    count = 0
    for range_ in ranges:
        progress = _Progress(range_.start_offset, advance)
        for batch in plan.rows(range_, progress.passed):
            writer.write(batch)
            count += batch.num_rows
        progress.passed(range_.end_offset)
    writer.close()
    return count


class _Progress:
    """How far a range has been read."""

    def __init__(self, offset: int, advance: Advance) -> None:
        self._offset = offset
        self._advance = advance

    def passed(self, offset: int) -> None:
        self._advance(offset - self._offset)
        self._offset = offset
