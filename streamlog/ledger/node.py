"""An ordering node: its folder, its channels, its doors, as one process."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamlog.client.cluster import Cluster
from streamlog.config import NatsSection
from streamlog.ledger.broadcast import Broadcaster, Filter
from streamlog.ledger.channel import Channel, Follow
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.endpoints import NatsEndpoints
from streamlog.ledger.folder import ChannelFile, LedgerFolder
from streamlog.ledger.observer import Observer
from streamlog.ledger.registrar import Registrar
from streamlog.log.storage.disk import OsDisk

logger = logging.getLogger(__name__)


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

    def open(self, *wanted: ChannelFile) -> None:
        """Lock the folder, load its channels, and add these. Raises ConfigError."""
        self.folder = LedgerFolder.open(self.settings.directory, OsDisk())
        self._registrar = Registrar(self.folder, self._new_channel)
        self._registrar.load()
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
