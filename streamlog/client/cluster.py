import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from streamlog.client.addresses import parse_addresses
from streamlog.client.connection import TIMEOUT_MS, Connection
from streamlog.client.list_offsets import found_in, request_for
from streamlog.client.security import NO_SECURITY, Security
from streamlog.client.topology import NodeInfo, TopicInfo, Topology
from streamlog.errors import (
    InvalidRequest,
    MalformedFrame,
    NodeUnreachable,
    NotLeader,
    RequestTimedOut,
    StreamlogError,
    Unavailable,
)
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.wire import registry
from streamlog.wire.control import Message
from streamlog.wire.errors import check, error_named
from streamlog.wire.offset_marks import EARLIEST, LATEST, MAX_TIMESTAMP, NOT_FOUND

SILENCE_MS: Final = 5_000
"""After that the next node is asked, where any will do, or who leads now."""

T = TypeVar("T")


class Cluster:
    """A cluster as a client sees it: addresses to start from, then whoever leads what is wanted."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        security: Security = NO_SECURITY,
    ) -> None:
        self._servers = list(servers)
        self._timeout_ms = timeout_ms
        self._security = security
        self._nodes: dict[NodeId, NodeInfo] = {}  # as last heard of
        self._topics: dict[str, TopicInfo] = {}  # as last asked for; forgotten when it proves wrong
        self._connections: dict[tuple[str, int], Connection] = {}

    @classmethod
    def at(
        cls, servers: str, *, timeout_ms: int = TIMEOUT_MS, security: Security = NO_SECURITY
    ) -> Self:
        """``servers`` is what Kafka calls bootstrap servers: ``host:port,host:port``."""
        return cls(parse_addresses(servers), timeout_ms=timeout_ms, security=security)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
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

    async def topology(self, names: Sequence[str] | None = None) -> Topology:
        """The nodes, and these streams; None: all of them. Raises StreamNotFound."""
        topics = None if names is None else [{"name": name, "topic_id": None} for name in names]
        request = {"topics": topics, "allow_auto_topic_creation": False}
        topology = Topology.of(await self.ask_any(registry.METADATA, request))
        self._nodes = topology.nodes
        self._topics.update(topology.topics)
        return topology

    async def topic(self, name: str) -> TopicInfo:
        """As last heard of, else asked for. Raises StreamNotFound."""
        if name not in self._topics:
            await self.topology([name])
        return self._topics[name]

    def forget(self, name: str) -> None:
        """The next use of the stream asks anew who leads it."""
        self._topics.pop(name, None)

    async def leader(self, tp: TopicPartition) -> tuple[NodeInfo, int]:
        """The node that leads, and its epoch. Raises NotLeader where there is none."""
        info = (await self.topic(tp.stream)).partition(tp.partition)
        node = self._nodes.get(info.leader)
        if info.leader == NO_LEADER or node is None:
            self.forget(tp.stream)
            raise NotLeader(f"{tp} has no leader")
        return node, info.leader_epoch

    async def command(self, data: bytes, *, timeout_ms: int | None = None) -> dict[str, Any]:
        """What came of a command of ``metadata.commands``: ``{"offset": ..., "result": {...}}``.

        Given to whichever node can be reached, which has the controller carry it out. Raises what
        that answers; NodeUnreachable; RequestTimedOut: it may have been done or not.
        """
        connection = await self._any_connection()
        values = {"request_data": data, "request_principal": None, "client_host_address": b""}
        try:
            answer = await connection.request(registry.ENVELOPE, values, timeout_ms=timeout_ms)
        except NodeUnreachable as error:
            text = f"{error}; whether it was done is not known"
            raise RequestTimedOut(text) from error
        check(answer["error_code"], "the command")
        return _command_result(answer["response_data"])

    async def command_at(
        self, host: str, port: int, data: bytes, *, timeout_ms: int
    ) -> dict[str, Any]:
        """As ``command``, of the node at this address. Raises NodeUnreachable, RequestTimedOut."""
        values = {"request_data": data, "request_principal": None, "client_host_address": b""}
        connection = await Connection.open(
            host, port, timeout_ms=timeout_ms, security=self._security
        )
        async with connection:
            answer = await connection.request(registry.ENVELOPE, values, timeout_ms=timeout_ms)
        check(answer["error_code"], "the command")
        return _command_result(answer["response_data"])

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of the nodes known, and those that we were told of at the start."""
        known = [(node.host, node.port) for node in self._nodes.values()]
        return list(dict.fromkeys((*self._servers, *known)))

    async def ask(self, node: NodeInfo, key: int, values: Message) -> dict[str, Any]:
        """What this node answers. Raises NodeUnreachable, RequestTimedOut."""
        return await (await self._connection(node.host, node.port)).request(key, values)

    async def ask_any(self, key: int, values: Message) -> dict[str, Any]:
        """What the first node to answer says; a question, which may be asked twice."""

        async def ask(host: str, port: int) -> dict[str, Any]:
            return await (await self._connection(host, port)).request(key, values)

        return await self._any(ask)

    async def connect(self, node: NodeInfo) -> Connection:
        """A new connection, the caller's to close; for long polls."""
        timeout_ms = min(self._timeout_ms, SILENCE_MS)
        return await Connection.open(
            node.host, node.port, timeout_ms=timeout_ms, security=self._security
        )

    async def earliest_offset(self, tp: TopicPartition) -> int:
        return (await self._list_offset(tp, EARLIEST))[0]

    async def latest_offset(self, tp: TopicPartition) -> int:
        """The high watermark."""
        return (await self._list_offset(tp, LATEST))[0]

    async def latest_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks, by one request to each leader.

        What cannot be known just now is left out: streams that are gone, leaders that are away.
        """
        by_leader: dict[NodeInfo, dict[TopicPartition, int]] = {}
        for tp in tps:
            with contextlib.suppress(InvalidRequest, Unavailable):
                node, epoch = await self.leader(tp)
                by_leader.setdefault(node, {})[tp] = epoch
        ends: dict[TopicPartition, int] = {}
        for node, epochs in by_leader.items():
            try:
                answer = await self.ask(node, registry.LIST_OFFSETS, request_for(epochs, LATEST))
            except StreamlogError:
                for tp in epochs:
                    self.forget(tp.stream)
                continue
            for tp, found in found_in(answer).items():
                if found.error_code == 0:
                    ends[tp] = found.offset
                else:
                    self.forget(tp.stream)
        return ends

    async def offset_for_timestamp(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset of that time or later."""
        offset, _ = await self._list_offset(tp, timestamp_ms)
        return None if offset == NOT_FOUND else offset

    async def latest_timestamp(self, tp: TopicPartition) -> tuple[int, int] | None:
        """The offset of the largest timestamp, and that."""
        offset, timestamp_ms = await self._list_offset(tp, MAX_TIMESTAMP)
        return None if offset == NOT_FOUND else (offset, timestamp_ms)

    async def _list_offset(self, tp: TopicPartition, timestamp: int) -> tuple[int, int]:
        node, epoch = await self.leader(tp)
        try:
            answer = await self.ask(
                node, registry.LIST_OFFSETS, request_for({tp: epoch}, timestamp)
            )
            found = found_in(answer)[tp]
            check(found.error_code, str(tp))
        except StreamlogError:
            self.forget(tp.stream)
            raise
        return found.offset, found.timestamp_ms

    async def _any_connection(self) -> Connection:
        """To whoever can be reached. Raises NodeUnreachable."""
        return await self._any(self._connection)

    async def _any(self, attempt: Callable[[str, int], Awaitable[T]]) -> T:
        """The nodes connected to, then those known, then those that we were told of at the start.

        One that is silent is not waited for as long as one that must answer.
        """
        known = [(node.host, node.port) for node in self._nodes.values()]
        problems = []
        for host, port in dict.fromkeys((*self._connections, *known, *self._servers)):
            try:
                async with asyncio.timeout(min(self._timeout_ms, SILENCE_MS) / 1000):
                    return await attempt(host, port)
            except TimeoutError:
                problems.append(f"{host}:{port}: no answer")
            except Unavailable as error:
                problems.append(str(error))
            self._drop_broken(host, port)
        raise NodeUnreachable("; ".join(problems))

    def _drop_broken(self, host: str, port: int) -> None:
        """One that others use goes on."""
        connection = self._connections.get((host, port))
        if connection is not None and connection.broken:
            connection.close()
            del self._connections[host, port]

    async def _connection(self, host: str, port: int) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None or connection.broken:
            self._drop_broken(host, port)
            connection = await Connection.open(
                host, port, timeout_ms=self._timeout_ms, security=self._security
            )
            quicker = self._connections.setdefault((host, port), connection)
            if quicker is not connection:  # another task asked for it meanwhile
                connection.close()
                return quicker
        return connection


def _command_result(data: bytes | memoryview | None) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(bytes(data or b""))
        error = result.get("error")
    except (ValueError, AttributeError):
        raise MalformedFrame("the answer to a command does not decode") from None
    if error is not None:
        raise error_named(str(error), str(result.get("message", "")))
    return result
