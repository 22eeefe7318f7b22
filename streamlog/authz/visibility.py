"""What a principal may see of a node: its partitions, and the cluster's metadata.

``Partitions`` and ``Metadata`` are what handlers of Kafka's and of JetStream's requests use: all that
the node has, or an ``AuthorizedPartitions`` and an ``AuthorizedMetadata``, which leave out the streams
that the principal may not know of.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

from streamlog.authz.permissions import Permissions
from streamlog.errors import PartitionNotFound
from streamlog.metadata.commands import Command, Granted
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.raft.messages import Answer, Request, SnapshotId

if TYPE_CHECKING:
    from immutables import Map


class Partitions(Protocol):
    """The partitions of this node."""

    def partition(self, tp: TopicPartition) -> Partition:
        """Raises PartitionNotFound."""

    def partitions(self) -> Iterator[Partition]: ...


class Metadata(Protocol):
    """The cluster's metadata, and the ways to change them."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def controller_id(self) -> NodeId | None:
        """The leader of the quorum, as this node knows it."""

    @property
    def lease(self) -> Lease: ...
    @property
    def is_current(self) -> bool:
        """The image has all that was decided by now, as far as that is known without a question."""

    async def change_stream(
        self, command: Command, name: str, *, deleted: StreamImage | None = None
    ) -> Granted:
        """A command about this stream, carried out by the controller. This node, and the nodes that lead the
        stream, have done all that it asks for when this returns. ``deleted``: the stream as it was.
        """

    async def request(self, command: Command) -> Granted:
        """Carried out by the controller, wherever that is; this node knows of it afterwards."""

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        """Carried out here or, unless another node has forwarded it already, by the controller."""

    async def raft_request(self, request: Request) -> Answer:
        """Another member of the quorum asks; may wait. Raises NoController."""

    async def read_snapshot(
        self, snapshot: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        """A piece of it, and how long it is in all. Raises OffsetOutOfRange where it is gone."""


class VisibleStreams(Mapping[str, StreamImage]):
    """Nothing is copied; each name is judged when it is asked for."""

    __slots__ = ("_access", "_all", "_finds")

    def __init__(
        self,
        everything: Mapping[str, StreamImage],
        access: Permissions,
        finds: Callable[[str], bool],
    ) -> None:
        self._all = everything
        self._access = access
        self._finds = finds

    def __getitem__(self, name: str) -> StreamImage:
        if not self._finds(name):
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if self._access.sees(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class VisibleNames(Mapping[bytes, str]):
    """The same, by the ids of the streams."""

    __slots__ = ("_access", "_all", "_finds")

    def __init__(
        self, everything: Mapping[bytes, str], access: Permissions, finds: Callable[[str], bool]
    ) -> None:
        self._all = everything
        self._access = access
        self._finds = finds

    def __getitem__(self, stream_id: bytes) -> str:
        name = self._all[stream_id]
        if not self._finds(name):
            raise KeyError(stream_id)
        return name

    def __iter__(self) -> Iterator[bytes]:
        return (it for it, name in self._all.items() if self._access.sees(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Visibility:
    """Images as one principal sees them. The last one is kept: it is asked for again and again."""

    __slots__ = ("_access", "_finds", "_image", "_visible")

    def __init__(self, access: Permissions, *, audited: bool = True) -> None:
        """``audited``: a name that is looked up was asked for by the principal, so that a refusal is audited."""
        self._access = access
        self._finds = access.finds if audited else access.sees
        self._image: MetadataImage | None = None
        self._visible: MetadataImage | None = None

    def of(self, image: MetadataImage) -> MetadataImage:
        """To be read only: nothing can be applied to it."""
        if image is not self._image or self._visible is None:
            streams, names = _both(image, self._access, self._finds)
            self._image, self._visible = image, replace(image, streams=streams, names=names)
        return self._visible


def _both(
    image: MetadataImage, access: Permissions, finds: Callable[[str], bool]
) -> "tuple[Map[str, StreamImage], Map[bytes, str]]":
    """Readers need no more of a Map than a Mapping has."""
    streams = VisibleStreams(image.streams, access, finds)
    names = VisibleNames(image.names, access, finds)
    return cast("Map[str, StreamImage]", streams), cast("Map[bytes, str]", names)


class AuthorizedPartitions:
    """Those of the node, without partitions of streams that the principal may not know of."""

    def __init__(self, everything: Partitions, access: Permissions) -> None:
        self._all = everything
        self._access = access

    def partition(self, tp: TopicPartition) -> Partition:
        """Raises PartitionNotFound."""
        if not self._access.finds(tp.stream):
            raise PartitionNotFound(f"partition {tp} is not on this node")
        return self._all.partition(tp)

    def partitions(self) -> Iterator[Partition]:
        return (it for it in self._all.partitions() if self._access.sees(it.tp.stream))


class AuthorizedMetadata:
    """Without the streams that the principal may not know of. Whether a change is allowed has been
    checked by the handler.
    """

    def __init__(self, everything: Metadata, access: Permissions) -> None:
        self._all = everything
        self._sight = Visibility(access)

    @property
    def image(self) -> MetadataImage:
        return self._sight.of(self._all.image)

    @property
    def controller_id(self) -> NodeId | None:
        return self._all.controller_id

    @property
    def lease(self) -> Lease:
        return self._all.lease

    @property
    def is_current(self) -> bool:
        return self._all.is_current

    async def change_stream(
        self, command: Command, name: str, *, deleted: StreamImage | None = None
    ) -> Granted:
        return await self._all.change_stream(command, name, deleted=deleted)

    async def request(self, command: Command) -> Granted:
        return await self._all.request(command)

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        return await self._all.take(command, forwarded=forwarded)

    async def raft_request(self, request: Request) -> Answer:
        return await self._all.raft_request(request)

    async def read_snapshot(
        self, snapshot: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        return await self._all.read_snapshot(snapshot, position, max_bytes)
