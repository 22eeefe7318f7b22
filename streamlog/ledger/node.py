"""An ordering node: its folder, its channels, its endpoints, as one process.

``Registrar`` starts all channels of the folder. A channel that halts does not affect the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamlog.client.cluster import Cluster
from streamlog.condition import CRITICAL, Condition
from streamlog.config import NatsSection
from streamlog.errors import ChannelNotFound, ConfigError, StreamlogError, Unavailable
from streamlog.ledger.channel.broadcast import Broadcaster, Filter
from streamlog.ledger.channel.channel import Channel, Follow
from streamlog.ledger.channel.observer import Observer
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.endpoints import NatsEndpoints
from streamlog.ledger.storage.folder import ChannelFile, LedgerFolder
from streamlog.log.storage.disk import OsDisk

logger = logging.getLogger(__name__)

CHANNEL_LEFT_OUT: Final = Condition(
    "SL-0704",
    "channel left out",
    "correct the channel's file, or remove its folder, and restart",
    meaning="A channel's file cannot be read, so the ordering node serves the others without it.",
    severity=CRITICAL,
)


CHANNELS_MAX: Final = 1_000
"""Of one node; each has connections of its own."""

NewChannel = Callable[[ChannelFile], Channel]


class Registrar:
    """``channels`` are those that are kept in the folder, and those that were added."""

    def __init__(self, folder: LedgerFolder, new_channel: NewChannel) -> None:
        self.channels: dict[str, Channel] = {}
        self._folder = folder
        self._new_channel = new_channel

    async def load(self) -> None:
        """All of the folder. One whose file cannot be read is told of and left out."""
        for name in self._folder.channels():
            try:
                self._add(await self._folder.read(name))
            except ConfigError:
                raise
            except StreamlogError as error:
                logger.error(CHANNEL_LEFT_OUT, extra={"channel": name, "problem": str(error)})

    def add(self, wanted: ChannelFile) -> Channel:
        """A channel that is new, or is there as it is wanted. Raises ConfigError."""
        known = self.channels.get(wanted.channel)
        if known is not None:
            if known.stream != wanted.stream:
                problem = f"channel {known.name!r} here orders stream {known.stream!r}"
                raise ConfigError("--stream", problem, "name that, or another --channel or --dir")
            return known
        try:
            self._folder.write(wanted)
        except Unavailable as error:
            problem = f"it cannot be written ({error})"
            raise ConfigError("--dir", problem, "make room, or name another folder") from None
        return self._add(wanted)

    def _add(self, file: ChannelFile) -> Channel:
        if len(self.channels) >= CHANNELS_MAX:
            problem = f"there are {CHANNELS_MAX} channels already"
            raise ConfigError("--channel", problem, "serve it by another node, in another --dir")
        channel = self.channels[file.channel] = self._new_channel(file)
        return channel

    def channel(self, name: str) -> Channel:
        """Raises ChannelNotFound."""
        try:
            return self.channels[name]
        except KeyError:
            names = ", ".join(self.channels) or "none"
            raise ChannelNotFound(f"there is no channel {name!r} here, but {names}") from None

    async def run(self, on_open: Callable[[Channel], Awaitable[None]]) -> None:
        """Until it is cancelled. ``on_open``: called for each channel when it can be read."""
        async with asyncio.TaskGroup() as tasks:
            for channel in self.channels.values():
                tasks.create_task(channel.run())
                tasks.create_task(_when_open(channel, on_open))


async def _when_open(channel: Channel, on_open: Callable[[Channel], Awaitable[None]]) -> None:
    await channel.opened.wait()
    await on_open(channel)


@dataclass(frozen=True)
class NodeSettings:
    """How a node is run."""

    directory: Path
    servers: str
    """The socket API of any nodes of the cluster: ``host:port``, several by commas."""
    nats: NatsSection
    node: str
    """Its name, by which the configurations of channels may name it as a consenter."""
    signer: Signer | None = None
    """Of the blocks that it delivers."""
    connect: Callable[[str], Cluster] = Cluster.at
    """To ``servers``."""


class LedgerNode:
    """``start`` with the channels of the folder, and ``run``."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        follow: Follow | None = None,
        join_heights: Mapping[str, int] | None = None,
        observer: Observer | None = None,
        filters: Sequence[Filter] = (),
    ) -> None:
        """``join_heights``: by channel, of the chains that are to be followed up to there."""
        self.settings = settings
        self.ready = asyncio.Event()
        """All channels can be read, those that have halted as well."""
        self.endpoints = NatsEndpoints(
            settings.nats,
            node=settings.node,
            signer=settings.signer,
            broadcaster=Broadcaster(filters),
        )
        self.folder: LedgerFolder | None = None
        self._follow = follow
        self._join_heights = join_heights or {}
        self._observer = observer
        self._opened = 0
        self._registrar: Registrar | None = None

    @property
    def registrar(self) -> Registrar:
        """There is one after ``open``."""
        assert self._registrar is not None, "not open"
        return self._registrar

    async def open(self, *wanted: ChannelFile) -> None:
        """Lock the folder, load its channels, and add these. Raises ConfigError."""
        self.folder = LedgerFolder.open(self.settings.directory, OsDisk())
        self._registrar = Registrar(self.folder, self._new_channel)
        await self._registrar.load()
        for file in wanted:
            self._registrar.add(file)

    def _new_channel(self, file: ChannelFile) -> Channel:
        assert self.folder is not None
        return Channel(
            self.folder,
            file,
            servers=self.settings.servers,
            node=self.settings.node,
            connect=self.settings.connect,
            follow=self._follow,
            join_height=self._join_heights.get(file.channel, 0),
            observer=self._observer,
        )

    async def run(self) -> None:
        """Until it is cancelled; then all that was told of is on the disk."""
        assert self.folder is not None, "not open"
        try:
            async with asyncio.TaskGroup() as tasks:
                self.endpoints.begin(tasks)
                tasks.create_task(self.endpoints.connect())  # blocks are cut without NATS, too
                tasks.create_task(self.registrar.run(self._on_open))
        finally:
            await self.endpoints.close()
            self.folder.close()

    async def _on_open(self, channel: Channel) -> None:
        await self.endpoints.open(channel)
        self._opened += 1
        extra = {"channel": channel.name, "stream": channel.stream, "height": channel.ledger.height}
        logger.info("channel open", extra=extra)
        if self._opened == len(self.registrar.channels):
            self.ready.set()
