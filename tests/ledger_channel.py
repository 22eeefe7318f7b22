"""A channel that is served in this process, over the socket API of any node."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamlog.ledger.assembly import DeliveredBlock
from streamlog.ledger.channel.broadcast import BroadcastAck, Broadcaster
from streamlog.ledger.channel.channel import Channel, Follow
from streamlog.ledger.core.channel_config import BatchLimits, ChannelConfig
from streamlog.ledger.core.encoding import decode_block
from streamlog.ledger.core.entry import Message, configuration, signed
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.deliver import DeliverRequest, deliver
from streamlog.ledger.storage.folder import ChannelFile, LedgerFolder
from streamlog.log.storage.disk import Disk, OsDisk

WAIT_S = 20.0


def limits(**given: int) -> BatchLimits:
    return BatchLimits(**{"batch_size": 3, "batch_timeout_ms": 50, **given})


def config_of(channel: str, **fields: Any) -> ChannelConfig:
    return ChannelConfig(channel=channel, **{"limits": limits(), **fields})


class ServedChannel:
    """``async with ServedChannel(folder, servers, "c") as served``; may be entered again."""

    def __init__(
        self,
        path: Path,
        servers: str,
        name: str = "c",
        *,
        stream: str = "",
        node: str = "node-1",
        genesis: ChannelConfig | None = None,
        follow: Follow | None = None,
        broadcaster: Broadcaster | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._disk = disk or OsDisk()
        self._path, self._servers, self._node, self._follow = path, servers, node, follow
        genesis = genesis or config_of(name)
        self._wanted = ChannelFile(channel=name, stream=stream or name, genesis=genesis)
        self._broadcaster = broadcaster or Broadcaster()
        self.channel: Channel
        self._task: asyncio.Task[None]

    @property
    def blocks_folder(self) -> Path:
        return self._path / self._wanted.channel / "blocks"

    async def __aenter__(self) -> Self:
        self._folder = LedgerFolder.open(self._path, self._disk)
        if self._wanted.channel in self._folder.channels():
            self._wanted = await self._folder.read(self._wanted.channel)
        else:
            self._folder.write(self._wanted)
        self.channel = Channel(
            self._folder,
            self._wanted,
            servers=self._servers,
            node=self._node,
            follow=self._follow,
        )
        self._task = asyncio.get_running_loop().create_task(self.channel.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        finally:
            self._folder.close()

    async def until(self, condition: Any) -> None:
        """Wait for what the channel brings about; whatever it raises is raised here."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.005)

    async def ready(self) -> None:
        await self.until(lambda: self.channel.tip is not None and self.channel.publisher)

    async def height(self, height: int) -> None:
        await self.until(self.channel.opened.is_set)
        await self.until(lambda: self.channel.ledger.height >= height)

    async def halted(self) -> str:
        await self.until(lambda: self.channel.is_halted)
        return self.channel.problem

    async def broadcast(self, value: bytes, signer: Signer | None = None) -> BroadcastAck:
        message = Message(None, value)
        if signer is not None:
            message = signed(message, self.channel.name, signer)
        return await self._broadcaster.broadcast(self.channel, message)

    async def configure(self, config: ChannelConfig, signer: Signer | None = None) -> BroadcastAck:
        return await self._broadcaster.broadcast(self.channel, configuration(config, signer))

    async def blocks(self, **request: Any) -> list[DeliveredBlock]:
        """By default all there are."""
        wanted = DeliverRequest.model_validate({"stop": "newest", **request})
        return [
            DeliveredBlock(decode_block(block.data), block.data)
            async for run in deliver(self.channel.ledger, wanted)
            for block in run
        ]

    async def values(self) -> list[list[bytes | None]]:
        """Of each block but the configurations."""
        return [
            [record.value for record in block.records()]
            for block in await self.blocks()
            if not block.block.is_configuration
        ]


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.log"))}
