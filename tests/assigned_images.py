"""Images that a test makes by hand: who keeps which partition, and who leads it."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId

ONE, TWO = NodeId(1), NodeId(2)


class Assigned:
    """``image`` is the newest; each change makes the next one."""

    def __init__(self) -> None:
        self.image = MetadataImage("c")
        self._ids = 0
        self._epochs = 0

    def create(self, name: str, *, leader: NodeId = ONE, partitions: int = 1) -> UUID:
        """Leader epochs begin above all that there were."""
        self._ids += 1
        self._epochs += 1
        stream_id = UUID(int=self._ids)
        config = StreamConfig.of(name=name, partitions=partitions, replicas=1)
        now = self.image.offset
        led = PartitionImage(
            (ONE, TWO), leader, self._epochs, (ONE, TWO), self._epochs, incarnations=(now, now)
        )
        stream = StreamImage(config, stream_id, 0, (led,) * partitions)
        self._become(name, stream)
        return stream_id

    def delete(self, name: str) -> None:
        self._become(name, None)

    def lead(self, name: str, leader: NodeId) -> None:
        """In a new epoch."""
        self._change(name, leader=leader)

    def configure(self, name: str, **settings: Any) -> None:
        stream = self.image.streams[name]
        config = stream.config.model_copy(update=settings)
        self._become(name, replace(stream, config=config))

    def move(self, name: str, *replicas: NodeId, leader: NodeId = TWO) -> None:
        """Those that have stayed are the replicas that they were."""
        known, now = self.image.streams[name].partitions[0], self.image.offset
        incarnations = tuple(
            known.incarnation(it) if it in known.replicas else now for it in replicas
        )
        self._change(
            name, replicas=replicas, isr=replicas, leader=leader, incarnations=incarnations
        )

    def _change(self, name: str, **changed: Any) -> None:
        self._epochs += 1
        stream = self.image.streams[name]
        partitions = tuple(
            replace(it, leader_epoch=self._epochs, partition_epoch=self._epochs, **changed)
            for it in stream.partitions
        )
        self._become(name, replace(stream, partitions=partitions))

    def _become(self, name: str, stream: StreamImage | None) -> None:
        streams = self.image.streams
        streams = streams.delete(name) if stream is None else streams.set(name, stream)
        self.image = replace(self.image, streams=streams, offset=self.image.offset + 1)


__all__ = ["NO_LEADER", "ONE", "TWO", "Assigned"]
