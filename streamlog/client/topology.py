"""What a client knows of a cluster: nodes, streams, leaders; and how it finds out. Pure.

``MetadataCache`` decides whom to ask for what, and reads the answers; both shells, ``cluster`` on
an event loop and ``blocking`` without one, carry its steps out.
"""

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import UUID

from streamlog.errors import (
    InvalidRequest,
    NotLeader,
    PartitionNotFound,
    StreamlogError,
    Unavailable,
)
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.wire import registry
from streamlog.wire.api_messages import Message
from streamlog.wire.errors import check
from streamlog.wire.fetch import READ_COMMITTED
from streamlog.wire.special_offsets import LATEST

_CONSUMER: Final = -1

T = TypeVar("T")

Address = tuple[str, int]


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


class FoundOffsets(NamedTuple):
    """Of one partition."""

    error_code: int
    offset: int
    timestamp_ms: int


def list_offsets_request(
    epochs: Mapping[TopicPartition, int], timestamp: int, *, committed: bool = False
) -> Message:
    """``epochs``: of the leader, as the asker knows it. ``timestamp``: or one of the markers. ``committed``: nothing
    from the first open transaction on.
    """
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, epoch in epochs.items():
        topics.setdefault(tp.stream, []).append(
            {
                "partition_index": tp.partition,
                "timestamp": timestamp,
                "current_leader_epoch": epoch,
            }
        )
    named = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    level = READ_COMMITTED if committed else 0
    return {"replica_id": _CONSUMER, "isolation_level": level, "topics": named}


def listed_offsets(answer: Message) -> dict[TopicPartition, FoundOffsets]:
    """What is known of each partition that was asked for."""
    return {
        TopicPartition(topic["name"], it["partition_index"]): FoundOffsets(
            it["error_code"], it["offset"], it["timestamp"]
        )
        for topic in answer["topics"]
        for it in topic["partitions"]
    }


class Ask(NamedTuple):
    """A request to be sent."""

    node: NodeInfo | None
    """None: to any node."""
    key: int
    values: Message


Steps = Generator[Ask, dict[str, Any], T]
"""Requests, each for its answer or for the error that it ended with; then the result."""


class MetadataCache:
    """As last reported by a node; what proves wrong is forgotten, and asked for again."""

    def __init__(self, servers: Sequence[Address]) -> None:
        """``servers``: addresses to start from."""
        self._servers = list(servers)
        self._nodes: dict[NodeId, NodeInfo] = {}
        self._topics: dict[str, TopicInfo] = {}

    @property
    def addresses(self) -> list[Address]:
        """The addresses to start from, then those of the nodes known."""
        return list(dict.fromkeys((*self._servers, *self._known)))

    def candidates(self, connected: Iterable[Address]) -> list[Address]:
        """Where to send what any node answers: the nodes connected to, then those known, then the
        addresses to start from.
        """
        return list(dict.fromkeys((*connected, *self._known, *self._servers)))

    @property
    def _known(self) -> list[Address]:
        return [(node.host, node.port) for node in self._nodes.values()]

    def node(self, node_id: NodeId) -> NodeInfo | None:
        return self._nodes.get(node_id)

    def forget(self, name: str) -> None:
        """The next use of the stream asks again which nodes lead it."""
        self._topics.pop(name, None)

    def topology(self, names: Sequence[str] | None = None) -> Steps[Topology]:
        """The nodes, and these streams; None: all of them. Raises StreamNotFound."""
        topics = None if names is None else [{"name": name, "topic_id": None} for name in names]
        request = {"topics": topics, "allow_auto_topic_creation": False}
        topology = Topology.of((yield Ask(None, registry.METADATA, request)))
        self._nodes = topology.nodes
        self._topics.update(topology.topics)
        return topology

    def topic(self, name: str) -> Steps[TopicInfo]:
        """As last reported, else asked for. Raises StreamNotFound."""
        if name not in self._topics:
            yield from self.topology([name])
        return self._topics[name]

    def leader(self, tp: TopicPartition) -> Steps[tuple[NodeInfo, int]]:
        """The node that leads, and its epoch. Raises NotLeader where there is none."""
        info = (yield from self.topic(tp.stream)).partition(tp.partition)
        node = self._nodes.get(info.leader)
        if info.leader == NO_LEADER or node is None:
            self.forget(tp.stream)
            raise NotLeader(f"{tp} has no leader")
        return node, info.leader_epoch

    def list_offsets(
        self, tps: Iterable[TopicPartition], timestamp: int, *, committed: bool = False
    ) -> Steps[dict[TopicPartition, FoundOffsets]]:
        """LATEST: the high watermarks, or where readers of committed records end; EARLIEST: the log starts; else the
        first offsets of that time (ms) or later, NOT_FOUND where there is none. By one request to each leader.

        All of them or none: raises what any partition's leader answers, or that it has none.
        """
        offsets: dict[TopicPartition, FoundOffsets] = {}
        for node, epochs in (yield from self._by_leader(tps)).items():
            with self._forgetting(epochs):
                request = list_offsets_request(epochs, timestamp, committed=committed)
                answer = yield Ask(node, registry.LIST_OFFSETS, request)
                for tp, found in listed_offsets(answer).items():
                    check(found.error_code, str(tp))
                    offsets[tp] = found
        return offsets

    def latest_offsets(self, tps: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, int]]:
        """The high watermarks, by one request to each leader.

        What cannot be known just now is left out: streams that are gone, leaders that are away.
        """
        by_leader: dict[NodeInfo, dict[TopicPartition, int]] = {}
        for tp in tps:
            with contextlib.suppress(InvalidRequest, Unavailable):
                node, epoch = yield from self.leader(tp)
                by_leader.setdefault(node, {})[tp] = epoch
        ends: dict[TopicPartition, int] = {}
        for node, epochs in by_leader.items():
            request = list_offsets_request(epochs, LATEST)
            try:
                answer = yield Ask(node, registry.LIST_OFFSETS, request)
            except StreamlogError:
                self._forget_all(epochs)
                continue
            for tp, found in listed_offsets(answer).items():
                if found.error_code == 0:
                    ends[tp] = found.offset
                else:
                    self.forget(tp.stream)
        return ends

    def log_bytes(self, tps: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, int]]:
        """What each partition takes on its leader's disk."""
        sizes: dict[TopicPartition, int] = {}
        for node, epochs in (yield from self._by_leader(tps)).items():
            topics: dict[str, list[int]] = {}
            for stream, number in epochs:
                topics.setdefault(stream, []).append(number)
            asked = [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
            with self._forgetting(epochs):
                answer = yield Ask(node, registry.DESCRIBE_LOG_DIRS, {"topics": asked})
                for folder in answer["results"]:
                    check(folder["error_code"], node.address)
                    sizes.update(_sizes(folder["topics"]))
        return sizes

    def _by_leader(
        self, tps: Iterable[TopicPartition]
    ) -> Steps[dict[NodeInfo, dict[TopicPartition, int]]]:
        """With the leaders' epochs."""
        found: dict[NodeInfo, dict[TopicPartition, int]] = {}
        for tp in tps:
            node, epoch = yield from self.leader(tp)
            found.setdefault(node, {})[tp] = epoch
        return found

    @contextlib.contextmanager
    def _forgetting(self, tps: Iterable[TopicPartition]) -> Iterator[None]:
        """After an error the next use asks again which nodes lead these."""
        try:
            yield
        except StreamlogError:
            self._forget_all(tps)
            raise

    def _forget_all(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self.forget(tp.stream)


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


def _sizes(topics: Iterable[Message]) -> Iterator[tuple[TopicPartition, int]]:
    for topic in topics:
        for it in topic["partitions"]:
            yield TopicPartition(topic["name"], it["partition_index"]), it["partition_size"]
