"""What a Metadata answer says, as values."""

from typing import Any, NamedTuple, Self
from uuid import UUID

from streamlog.errors import PartitionNotFound
from streamlog.model import NodeId
from streamlog.wire.errors import check


class NodeInfo(NamedTuple):
    """A node, and where it is reached."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class PartitionInfo(NamedTuple):
    """Who keeps a partition; without a leader ``leader`` is NO_LEADER."""

    partition: int
    leader: NodeId
    leader_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline: tuple[NodeId, ...]


class TopicInfo(NamedTuple):
    """A stream as the socket API shows it; ``partitions[i]`` is partition i."""

    name: str
    topic_id: UUID | None
    partitions: tuple[PartitionInfo, ...]

    def partition(self, number: int) -> PartitionInfo:
        if not 0 <= number < len(self.partitions):
            raise PartitionNotFound(f"stream {self.name!r} has no partition {number}")
        return self.partitions[number]


class Topology(NamedTuple):
    """A cluster at one moment; ``topics`` are those that were asked for."""

    cluster_id: str | None
    controller: NodeId
    nodes: dict[NodeId, NodeInfo]
    topics: dict[str, TopicInfo]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Self:
        """Raises what an asked topic's error code stands for."""
        nodes = [
            NodeInfo(NodeId(it["node_id"]), it["host"], it["port"], it.get("rack"))
            for it in answer["brokers"]
        ]
        topics = [_topic(it) for it in answer["topics"]]
        return cls(
            answer.get("cluster_id"),
            NodeId(answer["controller_id"]),
            {node.node_id: node for node in nodes},
            {topic.name: topic for topic in topics},
        )


def _topic(it: dict[str, Any]) -> TopicInfo:
    check(it["error_code"], f"stream {it['name']!r}")
    partitions = sorted(map(_partition, it["partitions"]))
    return TopicInfo(it["name"], it.get("topic_id"), tuple(partitions))


def _partition(it: dict[str, Any]) -> PartitionInfo:
    return PartitionInfo(
        it["partition_index"],
        NodeId(it["leader_id"]),
        it.get("leader_epoch", -1),
        tuple(it["replica_nodes"]),
        tuple(it["isr_nodes"]),
        tuple(it.get("offline_replicas", ())),
    )
