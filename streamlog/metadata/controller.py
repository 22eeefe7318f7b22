"""Who decides: each function looks at the image and returns records, or refuses. Pure.

The records are logged, then applied; a decision changes nothing by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from streamlog.errors import InvalidStreamConfig, StreamExists
from streamlog.metadata.image import Image, PartitionImage, partition_changed
from streamlog.metadata.records import (
    MetadataRecord,
    NodeRegistered,
    PartitionChanged,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
)
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId


@dataclass(frozen=True, slots=True)
class Decision:
    """Records to be logged as one batch; none where the image already says what was asked for."""

    records: tuple[MetadataRecord, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.records)


def create_stream(image: Image, config: StreamConfig, *, new_id: UUID, now_ms: int) -> Decision:
    """A stream and its partitions; the same again is a success without records."""
    known = image.streams.get(config.name)
    if known is not None:
        if known.config == config:
            return Decision()
        raise StreamExists(f"stream {config.name!r} exists with another configuration")
    _check_replicas(image, config)
    created = StreamCreated(stream_id=new_id, config=config, created_ms=now_ms)
    return Decision((created, *_new_partitions(image, config)))


def update_stream(image: Image, config: StreamConfig) -> Decision:
    """Another configuration for a stream; what cannot be changed is refused."""
    known = image.stream(config.name).config
    if known == config:
        return Decision()
    for key in ("partitions", "replicas"):
        before, after = getattr(known, key), getattr(config, key)
        if before != after:
            raise InvalidStreamConfig(f"{key}: cannot be changed (from {before} to {after})")
    return Decision((StreamUpdated(config=config),))


def delete_stream(image: Image, name: str) -> Decision:
    """The end of a stream."""
    return Decision((StreamDeleted(name=name, stream_id=image.stream(name).stream_id),))


def register_node(
    image: Image, *, node_id: NodeId, incarnation: UUID, host: str, port: int, rack: str | None
) -> Decision:
    """A node has started: note where it is, and have each partition it leads led in a new epoch.

    A node that was away, however shortly, never goes on in its old epoch.
    """
    known = image.nodes.get(node_id)
    if known is not None and known.incarnation == incarnation:
        return Decision()
    node = NodeRegistered(node_id=node_id, incarnation=incarnation, host=host, port=port, rack=rack)
    return Decision((node, *_led_anew(image, node_id)))


def _check_replicas(image: Image, config: StreamConfig) -> None:
    if config.replicas > len(image.nodes):
        raise InvalidStreamConfig(
            f"replicas: {config.replicas} asked for, and there are {len(image.nodes)} nodes"
        )


def _new_partitions(image: Image, config: StreamConfig) -> Iterator[PartitionChanged]:
    """Replicas go round the nodes, each stream starting one further; the first one leads."""
    nodes = sorted(image.nodes)
    first = len(image.streams)
    for number in range(config.partitions):
        replicas = tuple(nodes[(first + number + i) % len(nodes)] for i in range(config.replicas))
        partition = PartitionImage(replicas, replicas[0], 0, replicas, 0)
        yield partition_changed(config.name, number, partition)


def _led_anew(image: Image, node_id: NodeId) -> Iterator[PartitionChanged]:
    for name in sorted(image.streams):
        for number, known in enumerate(image.streams[name].partitions):
            if known.leader == node_id:
                yield partition_changed(
                    name,
                    number,
                    PartitionImage(
                        known.replicas,
                        known.leader,
                        known.leader_epoch + 1,
                        known.isr,
                        known.partition_epoch + 1,
                    ),
                )
