import contextlib
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from streamlog.client.addresses import parse_addresses
from streamlog.client.blocking.connection import TIMEOUT_MS, BlockingConnection
from streamlog.client.list_offsets import found_in, request_for
from streamlog.client.login import ClientLogin
from streamlog.client.topology import NodeInfo, TopicInfo, Topology
from streamlog.errors import NodeUnreachable, NotLeader, StreamlogError, Unavailable
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.wire import registry
from streamlog.wire.control import Message
from streamlog.wire.errors import check

T = TypeVar("T")


class BlockingCluster:
    """A cluster as a client sees it: addresses to start from, then whoever leads what is wanted."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        tls: ssl.SSLContext | None = None,
        login: ClientLogin | None = None,
    ) -> None:
        self._servers = list(servers)
        self._timeout_ms = timeout_ms  # of silence
        self._tls = tls
        self._login = login
        self._nodes: dict[NodeId, NodeInfo] = {}  # as last heard of
        self._topics: dict[str, TopicInfo] = {}  # as last asked for; forgotten when it proves wrong
        self._connections: dict[tuple[str, int], BlockingConnection] = {}

    @classmethod
    def at(
        cls,
        servers: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        tls: ssl.SSLContext | None = None,
        login: ClientLogin | None = None,
    ) -> Self:
        """``servers``: ``host:port,host:port``. Raises ConfigError."""
        return cls(parse_addresses(servers), timeout_ms=timeout_ms, tls=tls, login=login)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def topology(self, names: Sequence[str] | None = None) -> Topology:
        """The nodes, and these streams; None: all of them. Raises StreamNotFound."""
        topics = None if names is None else [{"name": name, "topic_id": None} for name in names]
        request = {"topics": topics, "allow_auto_topic_creation": False}
        topology = Topology.of(self.ask_any(registry.METADATA, request))
        self._nodes = topology.nodes
        self._topics.update(topology.topics)
        return topology

    def topic(self, name: str) -> TopicInfo:
        """As last heard of, else asked for. Raises StreamNotFound."""
        if name not in self._topics:
            self.topology([name])
        return self._topics[name]

    def forget(self, name: str) -> None:
        """The next use of the stream asks anew who leads it."""
        self._topics.pop(name, None)

    def node(self, node_id: NodeId) -> NodeInfo | None:
        """As last heard of."""
        return self._nodes.get(node_id)

    def leader(self, tp: TopicPartition) -> tuple[NodeInfo, int]:
        """The node that leads, and its epoch. Raises NotLeader where there is none."""
        info = self.topic(tp.stream).partition(tp.partition)
        node = self._nodes.get(info.leader)
        if info.leader == NO_LEADER or node is None:
            self.forget(tp.stream)
            raise NotLeader(f"{tp} has no leader")
        return node, info.leader_epoch

    def connection(self, node: NodeInfo) -> BlockingConnection:
        """The one to this node, opened where it is not. Raises NodeUnreachable, RequestTimedOut."""
        return self._connection(node.host, node.port)

    def connect(self, node: NodeInfo) -> BlockingConnection:
        """A new connection, the caller's to close. Raises NodeUnreachable, RequestTimedOut."""
        return self._open(node.host, node.port)

    def ask(self, node: NodeInfo, key: int, values: Message) -> dict[str, Any]:
        """What this node answers. Raises NodeUnreachable, RequestTimedOut."""
        return self.connection(node).request(key, values)

    def ask_any(self, key: int, values: Message) -> dict[str, Any]:
        """What the first node to answer says; a question, which may be asked twice."""
        return self._any(lambda host, port: self._connection(host, port).request(key, values))

    def list_offsets(
        self, tps: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """LATEST: the high watermarks; EARLIEST: the log starts; else the first offsets of that
        time (ms) or later, NOT_FOUND where there is none. By one request to each leader.

        All of them or none: raises what any partition's leader answers, or that it has none.
        """
        offsets: dict[TopicPartition, int] = {}
        for node, epochs in self._by_leader(tps).items():
            with self._forgetting(epochs):
                answer = self.ask(node, registry.LIST_OFFSETS, request_for(epochs, timestamp))
                for tp, found in found_in(answer).items():
                    check(found.error_code, str(tp))
                    offsets[tp] = found.offset
        return offsets

    def log_bytes(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What each partition takes on its leader's disk."""
        sizes: dict[TopicPartition, int] = {}
        for node, epochs in self._by_leader(tps).items():
            topics: dict[str, list[int]] = {}
            for stream, number in epochs:
                topics.setdefault(stream, []).append(number)
            asked = [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
            with self._forgetting(epochs):
                answer = self.ask(node, registry.DESCRIBE_LOG_DIRS, {"topics": asked})
                for folder in answer["results"]:
                    check(folder["error_code"], node.address)
                    sizes.update(_sizes(folder["topics"]))
        return sizes

    def _by_leader(
        self, tps: Iterable[TopicPartition]
    ) -> dict[NodeInfo, dict[TopicPartition, int]]:
        """With the leaders' epochs."""
        found: dict[NodeInfo, dict[TopicPartition, int]] = {}
        for tp in tps:
            node, epoch = self.leader(tp)
            found.setdefault(node, {})[tp] = epoch
        return found

    @contextlib.contextmanager
    def _forgetting(self, tps: Iterable[TopicPartition]) -> Iterator[None]:
        """After an error the next use asks anew who leads these."""
        try:
            yield
        except StreamlogError:
            for tp in tps:
                self.forget(tp.stream)
            raise

    def _any(self, attempt: Callable[[str, int], T]) -> T:
        """The nodes connected to, then those known, then those that we were told of at the start.

        Raises NodeUnreachable with the reason of each.
        """
        known = [(node.host, node.port) for node in self._nodes.values()]
        problems = []
        for host, port in dict.fromkeys((*self._connections, *known, *self._servers)):
            try:
                return attempt(host, port)
            except Unavailable as error:
                problems.append(str(error))
        raise NodeUnreachable("; ".join(problems))

    def _connection(self, host: str, port: int) -> BlockingConnection:
        connection = self._connections.get((host, port))
        if connection is not None and connection.broken:
            connection.close()
            del self._connections[host, port]
            connection = None
        if connection is None:
            connection = self._connections[host, port] = self._open(host, port)
        return connection

    def _open(self, host: str, port: int) -> BlockingConnection:
        return BlockingConnection.open(
            host, port, timeout_ms=self._timeout_ms, tls=self._tls, login=self._login
        )


def _sizes(topics: Iterable[Message]) -> Iterator[tuple[TopicPartition, int]]:
    for topic in topics:
        for it in topic["partitions"]:
            yield TopicPartition(topic["name"], it["partition_index"]), it["partition_size"]
