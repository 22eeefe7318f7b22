"""``__consumer_offsets``: made when the first group wants it, and kept on as many nodes as it can.

It is a stream as any other, replicated and synced likewise, but for its name and its subjects, of
which it has none. Everything about how it is kept is in ``config_of``.
"""

import asyncio
import logging
from typing import Final, Protocol

from streamlog.config import GroupsSection
from streamlog.errors import InvalidStreamConfig, StreamExists, StreamlogError
from streamlog.metadata.alteration import SettingChange
from streamlog.metadata.image import Image, StreamImage
from streamlog.metadata.stream import OFFSETS_STREAM, StreamConfig
from streamlog.model import NodeId

logger = logging.getLogger(__name__)

SEGMENT_BYTES: Final = 16 * 1024 * 1024
RETRY_S: Final = 5.0
"""After more replicas were asked for in vain."""


class Metadata(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def image(self) -> Image: ...
    @property
    def controller_id(self) -> NodeId | None: ...
    async def create_stream(self, config: StreamConfig) -> tuple[StreamImage, bool]: ...
    async def alter_stream(self, name: str, changes: tuple[SettingChange, ...]) -> StreamImage: ...


def config_of(settings: GroupsSection, nodes: int) -> StreamConfig:
    """How it is kept by so many nodes: one of them may be lost, no commit with it, and commits go
    on. The log is read whole at each change of leaders: it is compacted, in small segments.
    """
    replicas = min(settings.offsets_replicas, nodes)
    return StreamConfig.of(
        name=OFFSETS_STREAM,
        partitions=settings.offsets_partitions,
        replicas=replicas,
        min_isr=min_isr_of(replicas),
        sync="commit",
        cleanup_policy="compact",
        segment_bytes=SEGMENT_BYTES,
    )


def min_isr_of(replicas: int) -> int:
    """All but one."""
    return max(1, replicas - 1)


def host_count(image: Image) -> int:
    """Nodes that may get replicas."""
    return sum(not (node.fenced or node.draining) for node in image.nodes.values())


class OffsetsStream:
    """Sees to it that the stream is there. Run ``grow`` as a task."""

    def __init__(self, metadata: Metadata, settings: GroupsSection, node_id: NodeId) -> None:
        self._metadata = metadata
        self._settings = settings
        self._node_id = node_id
        self._making = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def stream(self) -> StreamImage | None:
        """None before anybody wanted it."""
        return self._metadata.image.streams.get(OFFSETS_STREAM)

    async def make(self) -> None:
        """Return when it is there. Raises StreamlogError, as NoController."""
        async with self._making:
            if self.stream is not None:
                return
            config = await self._made(max(1, host_count(self._metadata.image)))
            if config is None:
                return
            logger.info(
                "made for consumer groups",
                extra={
                    "stream": config.name,
                    "partitions": config.partitions,
                    "replicas": config.replicas,
                },
            )

    async def _made(self, nodes: int) -> StreamConfig | None:
        """None where another node was quicker. With fewer replicas where the controller, which
        knows more, has fewer nodes to put them on.
        """
        while True:
            config = config_of(self._settings, nodes)
            try:
                await self._metadata.create_stream(config)
            except StreamExists:
                return None
            except InvalidStreamConfig:
                if config.replicas == 1:
                    raise
                nodes = config.replicas - 1
            else:
                return config

    def look(self) -> None:
        """There are other nodes."""
        self._changed.set()

    async def grow(self) -> None:
        """More replicas as more nodes come: whoever began with one must not stay with one."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted_replicas()
            if wanted is None:
                continue
            changes = (
                SettingChange(setting="replicas", text=str(wanted)),
                SettingChange(setting="min_isr", text=str(min_isr_of(wanted))),
            )
            try:
                await self._metadata.alter_stream(OFFSETS_STREAM, changes)
                extra = {"stream": OFFSETS_STREAM, "replicas": wanted}
                logger.info("more replicas for consumer groups", extra=extra)
            except StreamlogError as error:
                extra = {"stream": OFFSETS_STREAM, "replicas": wanted, "error": str(error)}
                logger.warning("no more replicas for consumer groups", extra=extra)
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    def _wanted_replicas(self) -> int | None:
        """More than there are, if there can be; the controller's node alone asks for it."""
        stream = self.stream
        if stream is None or self._metadata.controller_id != self._node_id:
            return None
        wanted = min(self._settings.offsets_replicas, host_count(self._metadata.image))
        return wanted if wanted > stream.config.replicas else None
