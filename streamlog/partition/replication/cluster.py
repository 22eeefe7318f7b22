"""What replication needs of the rest of the cluster."""

from collections.abc import Awaitable, Iterable
from typing import Any, NamedTuple, Protocol

from streamlog.metadata.commands import Command
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.model import NodeId, TopicPartition


class GrantedCommand(Protocol):
    """``metadata.forwarding.Granted``."""

    @property
    def result(self) -> dict[str, Any]: ...


class ClusterMetadata(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def node_epoch(self) -> int: ...
    @property
    def lease(self) -> Lease: ...

    def request(self, command: Command) -> Awaitable[GrantedCommand]:
        """Carried out by the controller. Raises StreamlogError, as RequestTimedOut where nobody
        knows whether it was.
        """

    def report_leader(
        self, tp: TopicPartition, leader: NodeId, leader_epoch: int
    ) -> Awaitable[None]:
        """This node is in sync and cannot reach the leader."""

    def tell_offline(self, offline: Iterable[TopicPartition]) -> None:
        """All partitions that cannot be written here: others are to lead them."""

    def tell_full(self, full: bool) -> None:
        """Whether the disk is full: others are to lead what they have room for."""


class FetchPeer(NamedTuple):
    """A node to be fetched from."""

    node_id: NodeId
    host: str
    port: int
