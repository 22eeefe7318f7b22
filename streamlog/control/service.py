"""What the operations need of this node, and of others: one object a node."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from streamlog.authz.audit import Audit
from streamlog.authz.permissions import Permissions
from streamlog.authz.service import AuthorizationService
from streamlog.authz.visibility import AuthorizedMetadata, Metadata
from streamlog.config import GroupsSection, LogSection
from streamlog.control.balance.measurement import DiskUsage, LoadCounters
from streamlog.control.leaders.group_coordinators import CoordinatorRouter, LocalCoordinators
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.local_leader import LocalLeader
from streamlog.control.leaders.node_requests import NodeRequests
from streamlog.control.leaders.transaction_coordinators import (
    LocalTransactions,
    TransactionRouter,
)
from streamlog.groups.service import GroupService
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.read_barrier import ReadBarrier
from streamlog.metadata.stream.stream_config import is_internal
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.transactions.service import TransactionService

LOOKED_AT_ONCE: Final = 2_000
"""Streams and their subjects, before others have their turn of the event loop."""


class SortedNames:
    """Of all streams but internal ones; sorted again where they have changed."""

    def __init__(self) -> None:
        self._streams: Mapping[str, StreamImage] | None = None
        self._names: list[str] = []

    async def of(self, streams: Mapping[str, StreamImage]) -> Sequence[str]:
        """Of an image's streams, whether a caller may know of them or not."""
        if streams is self._streams:
            return self._names
        names = list[str]()
        for looked, name in enumerate(streams, 1):
            if not is_internal(name) and not streams[name].config.is_restoring:
                names.append(name)
            if looked % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        names.sort()
        self._streams, self._names = streams, names
        return names


class ControlService:
    """The operations of the whole cluster, asked at this node."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        metadata: Metadata,
        partitions: ReplicaManager,
        peers: Peers,
        lease: Lease | None = None,
        audit: Audit | None = None,
        authorization: AuthorizationService | None = None,
        node_user: str | None = None,
        groups: GroupService | None = None,
        transactions: TransactionService | None = None,
        log: LogSection | None = None,
        data_dir: Path = Path(),
        metrics: NodeMetrics | None = None,
        disk_usage: DiskUsage = shutil.disk_usage,
    ) -> None:
        """``peers``: connections of its own to other nodes; ``authorization``: the rules of this node's file;
        ``node_user``: whom nodes log in as; ``log``: the node's limits of messages;
        ``data_dir``: where its partitions are.
        """
        self.node_id = node_id
        self.authorization = authorization
        self.node_user = node_user
        self.data_dir = data_dir
        self.partitions = partitions
        self.audit = audit or Audit()
        self.metrics = metrics or NodeMetrics()
        self.freshness = ReadBarrier(metadata)
        self.nodes = NodeRequests(peers, lambda: metadata.image)
        limits = log or LogSection()
        self.leader = LocalLeader(partitions, lease, message_bytes_max=limits.message_bytes_max)
        self.leader.register(self.nodes)
        self.leaders = LeaderRouter(node_id, self.leader, self.nodes, image=lambda: metadata.image)
        self.load = LoadCounters(
            node_id,
            partitions,
            self.nodes,
            image=lambda: metadata.image,
            data_dir=data_dir,
            disk_usage=disk_usage,
        )
        self.load.register()
        self.groups_settings = GroupsSection() if groups is None else groups.settings
        coordinators = LocalCoordinators(groups)
        coordinators.register(self.nodes)
        self.coordinators = CoordinatorRouter(
            node_id, coordinators, self.nodes, self.leaders, image=lambda: metadata.image
        )
        here = LocalTransactions(transactions)
        here.register(self.nodes)
        self.transactions = TransactionRouter(
            node_id, here, self.nodes, self.leaders, image=lambda: metadata.image
        )
        self.stream_names = SortedNames()
        """Of the image without regard to callers."""
        self._metadata = metadata

    @property
    def image(self) -> MetadataImage:
        """All of it: not for callers."""
        return self._metadata.image

    def metadata_for(self, access: Permissions | None) -> Metadata:
        """Without the streams that the caller may not know of."""
        return self._metadata if access is None else AuthorizedMetadata(self._metadata, access)

    def close(self) -> None:
        """No other node is asked any more."""
        self.nodes.close()
