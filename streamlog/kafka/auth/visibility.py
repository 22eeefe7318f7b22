"""What a handler may use for one peer: partitions and metadata without what he may not know of."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

from streamlog.authn.session import Session
from streamlog.authz.permissions import Permissions
from streamlog.authz.visibility import Visibility
from streamlog.errors import PartitionNotFound
from streamlog.kafka.context import Context
from streamlog.kafka.interfaces import LocalPartition, Metadata, Partitions
from streamlog.metadata.commands import Command
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.config import StreamConfig
from streamlog.model import NodeId, TopicPartition
from streamlog.raft.messages import Answer, Request, SnapshotId


def seen_by(session: Session, context: Context) -> Context:
    """``context``, the node's own, for whoever has this session."""
    access = None if context.authority is None else context.authority.access_of(session)
    if access is None:
        return replace(context, session=session, access=None)
    return replace(
        context,
        session=session,
        access=access,
        partitions=AuthorizedPartitions(context.partitions, access),
        metadata=AuthorizedMetadata(context.metadata, access),
    )


class AuthorizedPartitions:
    """``kafka.interfaces.Partitions``."""

    def __init__(self, everything: Partitions, access: Permissions) -> None:
        self._all = everything
        self._access = access

    def partition(self, tp: TopicPartition) -> LocalPartition:
        """Raises PartitionNotFound."""
        if not self._access.finds(tp.stream):
            raise PartitionNotFound(f"partition {tp} is not on this node")
        return self._all.partition(tp)

    def partitions(self) -> Iterator[LocalPartition]:
        return (it for it in self._all.partitions() if self._access.sees(it.tp.stream))


class AuthorizedMetadata:
    """``kafka.interfaces.Metadata``. What is to be changed has been checked by the handler."""

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

    async def create_stream(
        self, config: StreamConfig, assignments: tuple[tuple[NodeId, ...], ...] = ()
    ) -> tuple[StreamImage, bool]:
        return await self._all.create_stream(config, assignments)

    async def alter_stream(
        self,
        name: str,
        changes: tuple[SettingChange, ...],
        assignments: tuple[tuple[NodeId, ...], ...] = (),
        seen: StreamConfig | None = None,
    ) -> StreamImage:
        return await self._all.alter_stream(name, changes, assignments, seen)

    async def delete_stream(self, name: str, stream_id: UUID | None = None) -> None:
        await self._all.delete_stream(name, stream_id)

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
