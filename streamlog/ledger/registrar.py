"""All channels of an ordering node's folder, started together; one that halts disturbs no other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from streamlog.errors import ChannelNotFound, ConfigError, StreamlogError, Unavailable
from streamlog.ledger.channel import Channel
from streamlog.ledger.folder import ChannelFile, LedgerFolder

logger = logging.getLogger(__name__)

CHANNELS_MAX: Final = 1_000
"""Of one node; each has connections of its own."""

NewChannel = Callable[[ChannelFile], Channel]


class Registrar:
    """``channels`` are those that are kept in the folder, and those that were added."""

    def __init__(self, folder: LedgerFolder, new_channel: NewChannel) -> None:
        self.channels: dict[str, Channel] = {}
        self._folder = folder
        self._new_channel = new_channel

    def load(self) -> None:
        """All of the folder. One whose file cannot be read is told of and left out."""
        for name in self._folder.channels():
            try:
                self._add(self._folder.read(name))
            except ConfigError:
                raise
            except StreamlogError as error:
                logger.error("channel left out", extra={"channel": name, "problem": str(error)})

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
