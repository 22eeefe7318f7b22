"""The folder of an ordering node: one folder for each channel, and nobody else uses it.

::

    <directory>/lock              held while the node runs
    <directory>/<channel>/        channel.json: its stream, and which one of that name
    <directory>/<channel>/blocks/ the chain, as ``store`` keeps it; the same on all nodes
"""

import logging
from pathlib import Path
from typing import Final, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from streamlog.errors import ChannelNotFound, ConfigError, CorruptFile, OtherChannel
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.log.storage.disk import Disk, storage_errors
from streamlog.log.storage.folder_lock import FolderInUse, FolderLock
from streamlog.log.storage.permissions import tighten

logger = logging.getLogger(__name__)

CHANNEL_FILE: Final = "channel.json"
BLOCKS_FOLDER: Final = "blocks"
FORMAT: Final = 1
"""Grows when an older streamlog would misread the folder."""


class ChannelFile(BaseModel):
    """What ``channel.json`` says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    channel: str
    stream: str
    topic_id: UUID | None = None
    """None: the stream was not found or made yet."""
    genesis: ChannelConfig | None = None
    """What the channel begins with if its stream does not say so yet."""


class LedgerFolder:
    """The folder, locked until ``close``."""

    def __init__(self, path: Path, lock: FolderLock, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self._lock = lock

    @classmethod
    def open(cls, path: Path, disk: Disk) -> Self:
        """Make it where it is missing. Raises ConfigError where it cannot be had."""
        path = path.absolute()
        try:
            disk.make_directory(str(path))
            lock = FolderLock.take(path)
        except FolderInUse:
            problem = f"{path} is in use by another process"
            raise ConfigError("--dir", problem, "stop that, or name another folder") from None
        except OSError as error:
            problem = f"{path} cannot be used ({error.strerror})"
            raise ConfigError("--dir", problem, "name a folder that can be written") from None
        try:
            tighten(path)
        except OSError as error:
            extra = {"folder": str(path), "error": error.strerror}
            logger.warning("others can read the folder of the ledger", extra=extra)
        return cls(path, lock, disk)

    def close(self) -> None:
        """Others may have it; may be called again."""
        self._lock.close()

    def channels(self) -> list[str]:
        """Those that are kept here, by name."""
        return channels_in(self.path)

    def read(self, channel: str) -> ChannelFile:
        """Raises ChannelNotFound, CorruptFile."""
        return read_channel_file(self.path / channel)

    def write(self, file: ChannelFile) -> None:
        """Durable when it returns. Raises Unavailable."""
        folder = self.path / file.channel
        data = file.model_dump_json().encode() + b"\n"
        with storage_errors(str(folder)):
            self.disk.make_directory(str(folder))
            self.disk.write_small(str(folder / CHANNEL_FILE), data)

    def blocks(self, channel: str) -> Path:
        """Where its chain is."""
        return self.path / channel / BLOCKS_FOLDER


def channels_in(path: Path) -> list[str]:
    """The channels of an ordering node's folder, by name."""
    return sorted(file.parent.name for file in path.glob(f"*/{CHANNEL_FILE}"))


def read_channel_file(folder: Path) -> ChannelFile:
    """Raises ChannelNotFound, CorruptFile, and OtherChannel for a folder that was renamed."""
    path = folder / CHANNEL_FILE
    try:
        file = ChannelFile.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ChannelNotFound(f"{folder} is no channel's folder") from None
    except ValidationError:
        raise CorruptFile(
            f"{path} cannot be read; remove it, and serve the channel with --channel and --stream"
        ) from None
    if file.format > FORMAT:
        raise CorruptFile(f"{path} is of format {file.format}: a later streamlog is needed")
    if file.channel != folder.name:
        raise OtherChannel(
            f"{folder} is the folder of channel {file.channel!r}; give it that name again"
        )
    return file
