"""The folder of an ordering node: one folder for each channel, and no other process uses it.

::

    <directory>/lock              held while the node runs
    <directory>/<channel>/        channel.json: its stream, and which one of that name
    <directory>/<channel>/blocks/ the chain, as ``store`` keeps it; the same on all nodes

``verify_folder`` reads a chain as its files lie there: nothing is opened, locked or repaired.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self
from uuid import UUID

import aiofiles
from pydantic import BaseModel, ConfigDict, ValidationError

from streamlog.errors import (
    BrokenChain,
    ChannelNotFound,
    ConfigError,
    CorruptBlock,
    CorruptFile,
    InvalidRequest,
    OtherChannel,
)
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.verifier import ChainReport, ChainVerifier
from streamlog.log.storage.disk import Disk, storage_errors
from streamlog.log.storage.folder_lock import FolderInUse, FolderLock
from streamlog.log.storage.permissions import tighten
from streamlog.log.tools.dump import DumpedDamage, dump
from streamlog.metadata.nodes.data_dir import FOLDER_IS_OPEN
from streamlog.record.codec import iter_records

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
            logger.warning(
                FOLDER_IS_OPEN.logged_as("others can read the folder of the ledger"), extra=extra
            )
        return cls(path, lock, disk)

    def close(self) -> None:
        """Others may have it; may be called again."""
        self._lock.close()

    def channels(self) -> list[str]:
        """Those that are kept here, by name."""
        return channels_in(self.path)

    async def read(self, channel: str) -> ChannelFile:
        """Raises ChannelNotFound, CorruptFile, and OtherChannel for a folder that was renamed."""
        folder = self.path / channel
        try:
            async with aiofiles.open(folder / CHANNEL_FILE, "rb") as file:
                data = await file.read()
        except FileNotFoundError:
            raise ChannelNotFound(f"{folder} is no channel's folder") from None
        return _channel_file(folder, data)

    def write(self, file: ChannelFile) -> None:
        """Durable when it returns: the file is replaced as a whole, with the syncs and in the order
        that the disk has for that, so that it is blocking. Raises Unavailable.
        """
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


def _channel_file(folder: Path, data: bytes) -> ChannelFile:
    path = folder / CHANNEL_FILE
    try:
        file = ChannelFile.model_validate_json(data)
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


def chain_folder(path: Path, channel: str | None) -> tuple[Path, str | None]:
    """The folder of blocks that is meant, and the channel that it should be of, if that is known.

    ``path``: an ordering node's folder, a channel's, or the blocks' alone. Raises ChannelNotFound;
    InvalidRequest where there are several channels and none is named.
    """
    if (path / CHANNEL_FILE).exists():
        path, found = path.parent, [path.name]
    else:
        found = channels_in(path)
    if channel is not None and found and channel not in found:
        raise ChannelNotFound(f"{path} has no channel {channel!r}; it has {', '.join(found)}")
    if not found:
        if any(path.glob("*.log")):
            return path, channel
        raise ChannelNotFound(f"{path} is no folder of a ledger: there is no channel in it")
    if channel is None and len(found) > 1:
        raise InvalidRequest(f"{path} has several channels: name one by --channel: {found}")
    name = channel or found[0]
    return path / name / BLOCKS_FOLDER, name


def blocks_of(folder: Path) -> Iterator[bytes]:
    """Encoded, in order. Raises CorruptBlock where the files are damaged, with file and position.

    A last block that is torn is damage as well, which the node's next start would cut off.
    """
    if not any(folder.glob("*.log")):
        return
    following = 0
    for item in dump(folder):
        if isinstance(item, DumpedDamage):
            raise CorruptBlock(
                f"{item.file} position {item.damage.position}: block {following}:"
                f" {item.damage.problem}; the node repairs it when it is started"
            )
        if item.header.base_offset != following:
            raise BrokenChain(
                f"{item.file}: block {item.header.base_offset} where {following} should be"
            )
        for record in iter_records(item.data):
            yield record.value or b""
        following = item.header.next_offset


def verify_folder(path: Path, channel: str | None = None) -> ChainReport:
    """A whole chain, from its genesis to its last block; needs only the files.

    Raises CorruptBlock or BrokenChain at the first block that is wrong, and as ``chain_folder``.
    """
    folder, name = chain_folder(path, channel)
    verifier = ChainVerifier(channel=name)
    for encoded in blocks_of(folder):
        verifier.take(encoded)
    return verifier.report()
