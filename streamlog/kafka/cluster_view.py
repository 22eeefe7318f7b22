"""This node as one requester may see it: its partitions and the cluster's metadata."""

from collections.abc import Callable
from dataclasses import dataclass

from streamlog.authz.permissions import Permissions
from streamlog.authz.visibility import Metadata, Partitions
from streamlog.model import NodeId


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """This node, its partitions and the cluster's metadata, as one requester may see them."""

    node_id: NodeId
    address: Callable[[], tuple[str, int]]
    """Host and port at which clients reach this node."""
    partitions: Partitions
    metadata: Metadata
    access: Permissions | None = None
    """What the requester may do; None: everything. Where there is one, ``partitions`` and
    ``metadata`` are without what the requester may not know of: see ``authz.visibility``."""
