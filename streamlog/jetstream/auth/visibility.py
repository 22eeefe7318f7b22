"""The metadata as whoever asks over NATS sees them."""

from streamlog.authz.permissions import Permissions
from streamlog.authz.visibility import Visibility
from streamlog.jetstream.verbs.streams import ManagedMetadata
from streamlog.metadata.commands import Command
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.config import StreamConfig
from streamlog.model import NodeId


class VisibleMetadata:
    """``jetstream.verbs.streams.Metadata``. What is to be changed has been checked by the verb."""

    def __init__(self, everything: ManagedMetadata, access: Permissions) -> None:
        self._all = everything
        self._sight = Visibility(access)

    @property
    def image(self) -> MetadataImage:
        return self._sight.of(self._all.image)

    @property
    def controller_id(self) -> NodeId | None:
        return self._all.controller_id

    async def create_stream(self, config: StreamConfig) -> tuple[StreamImage, bool]:
        return await self._all.create_stream(config)

    async def update_stream(
        self, config: StreamConfig, seen: StreamConfig | None = None
    ) -> StreamImage:
        return await self._all.update_stream(config, seen)

    async def delete_stream(self, name: str) -> None:
        await self._all.delete_stream(name)

    async def request(self, command: Command) -> Granted:
        return await self._all.request(command)

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        return await self._all.take(command, forwarded=forwarded)
