"""What DescribeCluster answers: the quorum and the nodes, as one node knows them. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from streamlog.metadata.image.feature_level import LEVEL_MAX, LevelRange
from streamlog.metadata.image.image_types import NodeLoad
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId
from streamlog.raft.node import RaftNode


def describe(
    raft: RaftNode,
    image: MetadataImage,
    now_ms: int,
    heard_of: AbstractSet[NodeId],
    levels: Mapping[NodeId, LevelRange],
) -> dict[str, Any]:
    """JSON. ``replicas`` is known to the leader alone, and empty elsewhere; of one node's, the one
    that fetched last stands last.

    ``heard_of``: the nodes that the controller has heard of in its own time in office; ``levels``:
    what they know by their own word.
    """
    end_offset = raft.log.end_offset
    return {
        "controller": raft.leader,
        "level": image.level,
        "level_max": LEVEL_MAX,
        "epoch": raft.epoch,
        "role": raft.role.value,
        "end_offset": end_offset,
        "high_watermark": raft.high_watermark,
        "voters": [
            {
                "node_id": voter.node_id,
                "host": voter.host,
                "port": voter.port,
                "directory_id": voter.directory_id and str(voter.directory_id),
            }
            for voter in raft.voters.by_id.values()
        ],
        "returning": sorted(image.returning),
        "replicas": [
            {
                "node_id": replica.key.node_id,
                "directory_id": str(replica.key.directory_id),
                "end_offset": replica.end_offset,
                "lag": max(0, end_offset - replica.end_offset),
                "last_fetch_ms": replica.last_fetch_ms,
            }
            for replica in raft.replicas(now_ms)
        ],
        "nodes": [
            {
                "node_id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "epoch": node.epoch,
                "fenced": node.fenced,
                "heard": node_id in heard_of,
                "draining": node.draining,
                "full": node.full,
                "unfit": node.unfit,
                "levels": levels.get(node_id),
                "replicas": image.loads.get(node_id, NodeLoad()).replicas,
                "leaders": image.loads.get(node_id, NodeLoad()).leaders,
            }
            for node_id, node in sorted(image.nodes.items())
        ],
    }
