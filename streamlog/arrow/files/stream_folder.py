"""From the option ``path`` to the partitions that lie there, and what their node says of them.

``path`` is a node's data folder, its ``streams`` folder, or the folder of one stream.
"""

import contextlib
import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from streamlog.arrow.files import range_cuts
from streamlog.arrow.files.file_system import Files, files_at, read_small
from streamlog.arrow.files.partition_folder import PartitionFiles
from streamlog.arrow.location import Bounds, Listing, PartitionRange
from streamlog.arrow.options.encryption_keys import KeySources, Openers
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.errors import ConfigError
from streamlog.log.checkpoint import offset_of, parse_offset_checkpoint
from streamlog.log.layout import segment_base_offsets
from streamlog.model import TopicPartition

HIGH_WATERMARKS: Final = "high-watermark-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
TRIES_MAX: Final = 20
"""So often in a row a folder changes while it is looked at; more often, something is wrong."""
PATH_FORM: Final = "name a node's data folder, its streams folder, or one stream's folder"


F = TypeVar("F")
T = TypeVar("T")


@dataclass(frozen=True)
class Roots:
    """What a path stands for."""

    files: Files
    data_dir: str
    streams_dir: str
    sole_stream: str | None
    """Where the path is that of one stream."""
    openers: Openers

    @classmethod
    def of(cls, url: str, openers: Openers) -> "Roots":
        """``openers``: of what is encrypted there.

        Raises ConfigError where there is nothing to be read.
        """
        files, path = files_at(url)
        path = path.rstrip("/") or "/"
        try:
            names, folders = files.children(path)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError("path", f"there is no folder {path}", PATH_FORM) from None
        if HIGH_WATERMARKS in names and "streams" in folders:
            return cls(files, path, f"{path}/streams", None, openers)
        parent, name = posixpath.split(path)
        if _is_stream(files, path):
            return cls(files, posixpath.dirname(parent), parent, name, openers)
        if any(_is_stream(files, f"{path}/{folder}") for folder in folders):
            return cls(files, parent, path, None, openers)
        if "streams" in folders:
            return cls(files, path, f"{path}/streams", None, openers)
        raise ConfigError("path", f"{path} holds no stream", PATH_FORM)

    def folder(self, name: TopicPartition) -> str:
        return f"{self.streams_dir}/{name.stream}/{name.partition}"

    def partition(self, name: TopicPartition) -> PartitionFiles:
        """Its segments now; none where it is gone."""
        return PartitionFiles(self.files, self.folder(name), self.openers)


class FolderLocation:
    """A location of files. A brand new partition has no high watermark yet."""

    def __init__(self, url: str, keys: KeySources) -> None:
        self._url = url
        self._keys = keys
        self._roots: Roots | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def listing(self, wanted: StreamSubscription) -> Listing:
        """Raises ConfigError, CorruptFile."""
        roots = self._found()
        _, streams = roots.files.children(roots.streams_dir)
        if roots.sole_stream is not None:
            streams = [roots.sole_stream]
        ids: dict[TopicPartition, str] = {}
        for stream in streams:
            path = f"{roots.streams_dir}/{stream}"
            for number in _partitions(roots.files, path):
                name = TopicPartition(stream, number)
                ids[name] = roots.partition(name).stream_id() if _may_want(wanted, name) else ""
        where = self._url if roots.sole_stream is None else roots.streams_dir
        return Listing(where, ids, roots.sole_stream)

    def settings(self, stream: str) -> Mapping[str, Any]:
        """They lie in the metadata, which is not read."""
        return {}

    def bounds(self, names: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The checkpoints are read first: what is committed then is on the disk after it."""
        roots = self._found()
        path = f"{roots.data_dir}/{HIGH_WATERMARKS}"
        try:
            high_watermarks = parse_offset_checkpoint(read_small(roots.files, path), path)
        except FileNotFoundError:
            problem = f"there is no {path}: what is committed is unknown"
            raise ConfigError("path", problem, PATH_FORM) from None
        path = f"{roots.data_dir}/{LOG_STARTS}"
        try:
            log_starts = parse_offset_checkpoint(read_small(roots.files, path), path)
        except FileNotFoundError:
            log_starts = {}

        def bounds_of(name: TopicPartition) -> Bounds:
            def look(files: PartitionFiles) -> Bounds:
                metadata = files.metadata()
                start = offset_of(log_starts, name, metadata)
                return _bounds(files, start, offset_of(high_watermarks, name, metadata))

            return _of_now(lambda: roots.partition(name), look)

        return {name: bounds_of(name) for name in names}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {name: self._offset_at(name, time_ms) for name, time_ms in times.items()}

    def _offset_at(self, name: TopicPartition, time_ms: int) -> int | None:
        roots = self._found()

        def look(files: PartitionFiles) -> int | None:
            return files.offset_for_timestamp(time_ms)

        return _of_now(lambda: roots.partition(name), look)

    def bytes_between(self, ranges: Iterable[PartitionRange]) -> dict[TopicPartition, int]:
        return {range_.name: self._bytes_of(range_) for range_ in ranges}

    def _bytes_of(self, range_: PartitionRange) -> int:
        roots = self._found()
        return _of_now(
            lambda: roots.partition(range_.name),
            lambda it: range_cuts.bytes_between(it, range_),
        )

    def cut(
        self, ranges: list[PartitionRange], bytes_max: int | None, tasks_min: int
    ) -> list[PartitionRange]:
        roots = self._found()
        wanted = [it for it in ranges if it.start_offset < it.end_offset]
        return _of_now(
            lambda: [(it, roots.partition(it.name)) for it in wanted],
            lambda there: range_cuts.cut(there, bytes_max, tasks_min),
        )

    def placed(self, ranges: Iterable[PartitionRange]) -> list[PartitionRange]:
        return list(ranges)

    def _found(self) -> Roots:
        if self._roots is None:
            self._roots = Roots.of(self._url, Openers(self._keys))
        return self._roots


def _of_now(list_files: Callable[[], F], look: Callable[[F], T]) -> T:
    """Again where a file has gone since its folder was listed: retention or compaction took it."""
    for _ in range(TRIES_MAX):
        with contextlib.suppress(FileNotFoundError):
            return look(list_files())
    return look(list_files())


def _bounds(files: PartitionFiles, log_start: int, high_watermark: int) -> Bounds:
    log_start = max(files.start_offset, log_start)
    end = min(files.end_offset(), high_watermark)
    return Bounds(log_start, max(log_start, files.transactions().stable_offset(end, log_start)))


def _may_want(wanted: StreamSubscription, name: TopicPartition) -> bool:
    return wanted.names_nothing or wanted.wants(name)


def _partitions(files: Files, stream: str) -> Iterable[int]:
    """Folders with a number for a name and segments in them; what is deleted has another name."""
    for folder in _children(files, stream)[1]:
        if folder.isdecimal() and _holds_segments(files, f"{stream}/{folder}"):
            yield int(folder)


def _is_stream(files: Files, path: str) -> bool:
    return any(True for _ in _partitions(files, path))


def _holds_segments(files: Files, path: str) -> bool:
    return bool(segment_base_offsets(_children(files, path)[0]))


def _children(files: Files, path: str) -> tuple[dict[str, int], list[str]]:
    """None of a folder that has gone since it was listed."""
    try:
        return files.children(path)
    except FileNotFoundError:
        return {}, []
