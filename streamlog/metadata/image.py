"""The cluster's metadata as an immutable value at one metadata offset. Pure.

``Image.apply`` is the only writer: the same records give the same image, on every node.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from immutables import Map

from streamlog.errors import CorruptData, PartitionNotFound, StreamNotFound
from streamlog.metadata.records import (
    MetadataRecord,
    NodeRegistered,
    PartitionChanged,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
)
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NO_LEADER, NodeId


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A node as it last registered."""

    node_id: NodeId
    incarnation: UUID
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Who keeps a partition. The leader is in the ISR, or is NO_LEADER."""

    replicas: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: int
    isr: tuple[NodeId, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class StreamImage:
    """A stream; ``partitions[i]`` is partition i."""

    config: StreamConfig
    stream_id: UUID
    created_ms: int
    partitions: tuple[PartitionImage, ...]

    @property
    def name(self) -> str:
        return self.config.name

    def partition(self, number: int) -> PartitionImage:
        if not 0 <= number < len(self.partitions):
            raise PartitionNotFound(f"stream {self.name!r} has no partition {number}")
        return self.partitions[number]


class StreamChange(NamedTuple):
    """One stream in two images; ``old`` is None where it is new, ``new`` where it is gone."""

    old: StreamImage | None
    new: StreamImage | None


@dataclass(frozen=True, slots=True)
class Image:
    """All of the metadata log below ``offset``, applied; ``epoch`` is the last record's."""

    cluster_id: str
    offset: int = 0
    epoch: int = 0
    nodes: Map[NodeId, NodeImage] = field(default_factory=Map)
    streams: Map[str, StreamImage] = field(default_factory=Map)
    parent_offset: int = field(default=-1, compare=False)
    """The offset of the image that this one was made of; makes ``changes`` cheap."""
    touched: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the streams that differ from that image."""

    def stream(self, name: str) -> StreamImage:
        found = self.streams.get(name)
        if found is None:
            raise StreamNotFound(f"there is no stream {name!r}")
        return found

    def apply(self, record: MetadataRecord, *, offset: int, epoch: int) -> "Image":
        """The image after ``record``, which stands at ``offset`` and was written in ``epoch``."""
        if offset < self.offset or epoch < self.epoch:
            raise CorruptData(f"metadata record at {offset} of epoch {epoch} comes too late")
        nodes, streams = self.nodes, self.streams
        match record:
            case NodeRegistered():
                nodes = nodes.set(record.node_id, _node(record))
            case StreamCreated():
                streams = self._created(record, offset)
            case StreamUpdated():
                known = self._known(record.config.name, offset)
                streams = streams.set(known.name, replace(known, config=record.config))
            case StreamDeleted():
                if self._known(record.name, offset).stream_id != record.stream_id:
                    raise CorruptData(
                        f"metadata record at {offset} deletes another {record.name!r}"
                    )
                streams = streams.delete(record.name)
            case PartitionChanged():
                streams = self._partition_changed(record, offset)
            case _:
                raise CorruptData(f"metadata record at {offset} has an unknown type")
        return replace(
            self,
            offset=offset + 1,
            epoch=epoch,
            nodes=nodes,
            streams=streams,
            parent_offset=self.offset,
            touched=frozenset(filter(None, (_stream_of(record),))),
        )

    def apply_all(self, records: Iterable[MetadataRecord], *, offset: int, epoch: int) -> "Image":
        """The image after the records of one batch that starts at ``offset``."""
        image = self
        touched: set[str] = set()
        for i, record in enumerate(records):
            image = image.apply(record, offset=offset + i, epoch=epoch)
            touched |= image.touched
        return replace(image, parent_offset=self.offset, touched=frozenset(touched))

    def restored(self, records: Iterable[MetadataRecord], *, offset: int, epoch: int) -> "Image":
        """The image that a snapshot at ``offset`` holds; ``self`` is the empty one."""
        image = self
        for record in records:
            image = replace(image.apply(record, offset=0, epoch=0), offset=0)
        return Image(self.cluster_id, offset, epoch, image.nodes, image.streams)

    def changes(self, old: "Image") -> Iterator[StreamChange]:
        """Streams that are new, gone or different since ``old``; one created anew is first gone."""
        if self.parent_offset == old.offset:
            names: Iterable[str] = sorted(self.touched)
        else:
            names = sorted({*old.streams, *self.streams})
        for name in names:
            before, after = old.streams.get(name), self.streams.get(name)
            if before is after or before == after:
                continue
            if before and after and before.stream_id != after.stream_id:
                yield StreamChange(before, None)
                yield StreamChange(None, after)
            else:
                yield StreamChange(before, after)

    def records(self) -> Iterator[MetadataRecord]:
        """Records that build this image out of an empty one; what a snapshot holds."""
        for node_id in sorted(self.nodes):
            node = self.nodes[node_id]
            yield NodeRegistered(
                node_id=node_id, incarnation=node.incarnation, host=node.host, port=node.port,
                rack=node.rack,
            )  # fmt: skip
        for name in sorted(self.streams):
            stream = self.streams[name]
            yield StreamCreated(
                stream_id=stream.stream_id, config=stream.config, created_ms=stream.created_ms
            )
            for number, partition in enumerate(stream.partitions):
                yield partition_changed(name, number, partition)

    def _known(self, name: str, offset: int) -> StreamImage:
        found = self.streams.get(name)
        if found is None:
            raise CorruptData(f"metadata record at {offset} is about an unknown stream {name!r}")
        return found

    def _created(self, record: StreamCreated, offset: int) -> Map[str, StreamImage]:
        name = record.config.name
        if name in self.streams:
            raise CorruptData(f"metadata record at {offset} creates {name!r} a second time")
        return self.streams.set(
            name, StreamImage(record.config, record.stream_id, record.created_ms, ())
        )

    def _partition_changed(self, record: PartitionChanged, offset: int) -> Map[str, StreamImage]:
        stream = self._known(record.stream, offset)
        number, known = record.partition, stream.partitions
        if not 0 <= number <= len(known):
            raise CorruptData(f"metadata record at {offset} skips partitions of {stream.name!r}")
        if number < len(known) and record.leader_epoch < known[number].leader_epoch:
            raise CorruptData(f"metadata record at {offset} takes back a leader epoch")
        changed = PartitionImage(
            record.replicas, record.leader, record.leader_epoch, record.isr, record.partition_epoch
        )
        partitions = (*known[:number], changed, *known[number + 1 :])
        return self.streams.set(stream.name, replace(stream, partitions=partitions))


def partition_changed(stream: str, number: int, partition: PartitionImage) -> PartitionChanged:
    """The record that says what ``partition`` is."""
    return PartitionChanged(
        stream=stream,
        partition=number,
        replicas=partition.replicas,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
    )


def leader_of(image: Image, stream: str, partition: int) -> NodeImage | None:
    """The node that leads, if it is known; raises StreamNotFound, PartitionNotFound."""
    leader = image.stream(stream).partition(partition).leader
    return None if leader == NO_LEADER else image.nodes.get(leader)


def _node(record: NodeRegistered) -> NodeImage:
    return NodeImage(record.node_id, record.incarnation, record.host, record.port, record.rack)


def _stream_of(record: MetadataRecord) -> str | None:
    match record:
        case StreamCreated() | StreamUpdated():
            return record.config.name
        case StreamDeleted():
            return record.name
        case PartitionChanged():
            return record.stream
        case _:
            return None
