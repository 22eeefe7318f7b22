"""From the option ``path`` to the partitions that lie there, and what their node says of them.

``path`` is a node's data folder, its ``streams`` folder, or the folder of one stream.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamlog.errors import ConfigError
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.disk import OsDisk
from streamlog.log.layout import segment_base_offsets
from streamlog.model import TopicPartition

HIGH_WATERMARKS: Final = "high-watermark-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
PATH_FORM: Final = "name a node's data folder, its streams folder, or one stream's folder"


@dataclass(frozen=True)
class DataFolder:
    """The partitions under a path. A brand new one has no high watermark yet."""

    path: Path
    partitions: dict[TopicPartition, Path]
    high_watermarks: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]

    @property
    def streams(self) -> list[str]:
        return sorted({name.stream for name in self.partitions})


def open_folder(text: str) -> DataFolder:
    """Reads the checkpoints first, then lists: what is committed then is on the disk now."""
    path = _local_path(text)
    data_dir, streams = _roots(path)
    if not (data_dir / HIGH_WATERMARKS).is_file():
        problem = f"there is no {HIGH_WATERMARKS} in {data_dir}, so what is committed is unknown"
        raise ConfigError("path", problem, PATH_FORM)
    high_watermarks = OffsetCheckpoint(data_dir / HIGH_WATERMARKS, OsDisk()).read()
    log_starts = OffsetCheckpoint(data_dir / LOG_STARTS, OsDisk()).read()
    partitions = {
        TopicPartition(stream.name, int(partition.name)): partition
        for stream in streams
        for partition in _partitions(stream)
    }
    return DataFolder(path, partitions, high_watermarks, log_starts)


def _local_path(text: str) -> Path:
    if "://" in text and not text.startswith("file://"):
        raise ConfigError("path", f"{text!r} is not a local path", "mount it, or copy it here")
    path = Path(text.removeprefix("file://").removeprefix("file:")).absolute()
    if not path.is_dir():
        raise ConfigError("path", f"there is no folder {path}", PATH_FORM)
    return path


def _roots(path: Path) -> tuple[Path, list[Path]]:
    """The data folder, and the folders of the streams that the path speaks of."""
    if any(_partitions(path)):
        return path.parent.parent, [path]
    streams = [folder for folder in _folders(path) if any(_partitions(folder))]
    if streams:
        return path.parent, streams
    if (path / "streams").is_dir():
        return path, _folders(path / "streams")
    raise ConfigError("path", f"{path} holds no stream", PATH_FORM)


def _partitions(stream: Path) -> Iterator[Path]:
    """Folders with a number for a name and segments in them; what is deleted has another name."""
    for folder in _folders(stream):
        if folder.name.isdecimal() and _holds_segments(folder):
            yield folder


def _holds_segments(folder: Path) -> bool:
    return bool(segment_base_offsets(entry.name for entry in folder.iterdir()))


def _folders(path: Path) -> list[Path]:
    return sorted(folder for folder in path.iterdir() if folder.is_dir())
