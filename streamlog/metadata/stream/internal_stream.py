"""A stream of the nodes' own: made when it is wanted, and kept on as many nodes as it can.

It is a stream as any other, replicated and synced as they are, but for its name and its subjects, of
which it has none.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from streamlog.condition import CHECK_NODES, Condition
from streamlog.config import SyncPolicy
from streamlog.errors import InvalidStreamConfig, StreamExists, StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId

logger = logging.getLogger(__name__)

INTERNAL_STREAM_MISSING: Final = Condition(
    "SL-0117",
    "internal stream not made, or not kept by more",
    CHECK_NODES,
    meaning="An internal stream (offsets, activity) could not be created, or has "
    "fewer replicas than it should.",
)

SEGMENT_BYTES: Final = 16 * 1024 * 1024
RETRY_S: Final = 5.0
"""After it, or more replicas of it, were asked for in vain."""


class StreamMetadata(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def controller_id(self) -> NodeId | None: ...
    async def create_stream(self, config: StreamConfig) -> tuple[StreamImage, bool]: ...
    async def alter_stream(self, name: str, changes: tuple[SettingChange, ...]) -> StreamImage: ...


def min_isr_of(replicas: int) -> int:
    """All but one: one node may be lost, no record with it, and writes go on."""
    return max(1, replicas - 1)


def state_config(
    name: str, nodes: int, *, partitions: int, replicas: int, sync: SyncPolicy = "commit"
) -> StreamConfig:
    """A stream in which coordinators keep their state, by so many nodes: one of them may be lost, nothing of the
    state with it, and coordinators go on. ``sync`` is whatever the nodes' own setting is.

    The log is read whole at each change of leaders: it is compacted, in small segments.
    """
    replicas = min(replicas, nodes)
    return StreamConfig.of(
        name=name,
        partitions=partitions,
        replicas=replicas,
        min_isr=min_isr_of(replicas),
        sync=sync,
        cleanup_policy="compact",
        segment_bytes=SEGMENT_BYTES,
    )


def host_count(image: MetadataImage) -> int:
    """Nodes that may get replicas: of those that share a machine, one."""
    able = (it for it in image.nodes.values() if not (it.fenced or it.draining))
    return len({it.machine_id for it in able})


class InternalStream:
    """Sees to it that the stream is there. ``keep`` as a task; ``look`` when there are others."""

    def __init__(
        self,
        metadata: StreamMetadata,
        node_id: NodeId,
        name: str,
        config_of: Callable[[int], StreamConfig],
        *,
        unasked: bool = False,
    ) -> None:
        """``config_of``: how so many nodes keep it. ``unasked``: the controller's node makes it as
        soon as it can; otherwise the caller of ``make`` does.
        """
        self._metadata = metadata
        self._node_id = node_id
        self.name = name
        self._config_of = config_of
        self._unasked = unasked
        self._making = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def stream(self) -> StreamImage | None:
        """None before anybody wanted it."""
        return self._metadata.image.streams.get(self.name)

    async def make(self) -> None:
        """Return when it is there. Raises StreamlogError, as NoController."""
        async with self._making:
            if self.stream is not None:
                return
            config = await self._made(max(1, host_count(self._metadata.image)))
            if config is not None:
                extra = {"partitions": config.partitions, "replicas": config.replicas}
                logger.info("internal stream made", extra={"stream": self.name, **extra})

    async def _made(self, nodes: int) -> StreamConfig | None:
        """None where another node was quicker. With fewer replicas where the controller, which
        knows more, has fewer nodes to put them on.
        """
        while True:
            config = self._config_of(nodes)
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
        """There are other nodes, or another controller."""
        self._changed.set()

    async def keep(self) -> None:
        """More replicas as more nodes come: a cluster that began with one must not stay with one. The
        controller's node alone asks for them.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._metadata.controller_id != self._node_id:
                continue
            try:
                await self._see_to_it()
            except StreamlogError as error:
                extra = {"stream": self.name, "error": str(error)}
                logger.warning(INTERNAL_STREAM_MISSING, extra=extra)
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def _see_to_it(self) -> None:
        stream, hosts = self.stream, host_count(self._metadata.image)
        if stream is None:
            if self._unasked and hosts:
                await self.make()
            return
        wanted = self._config_of(max(1, hosts)).replicas
        if wanted <= stream.config.replicas:
            return
        changes = (
            SettingChange(setting="replicas", text=str(wanted)),
            SettingChange(setting="min_isr", text=str(min_isr_of(wanted))),
        )
        await self._metadata.alter_stream(self.name, changes)
        extra = {"stream": self.name, "replicas": wanted}
        logger.info("more replicas of an internal stream", extra=extra)
