import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from streamlog.client.addresses import parse_addresses
from streamlog.client.connection import TIMEOUT_MS, Connection
from streamlog.client.retry import Retries
from streamlog.client.security import NO_SECURITY, Security
from streamlog.client.topology import MetadataCache, NodeInfo, Steps, TopicInfo, Topology
from streamlog.errors import (
    NodeUnreachable,
    RequestTimedOut,
    StreamlogError,
    Unavailable,
)
from streamlog.model import TopicPartition
from streamlog.wire import registry
from streamlog.wire.api_messages import Message
from streamlog.wire.errors import check
from streamlog.wire.operation_request import (
    command_result,
    encode_operation,
    operation_value,
)
from streamlog.wire.special_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, NOT_FOUND

SILENCE_MS: Final = 5_000
"""After that the next node is asked, where any will do, or who leads now."""

T = TypeVar("T")


class Cluster:
    """A cluster as a client sees it: addresses to start from, then the leaders of what is wanted."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        security: Security = NO_SECURITY,
    ) -> None:
        self._metadata = MetadataCache(servers)
        self._timeout_ms = timeout_ms
        self._security = security
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
        return await self._run(self._metadata.topology(names))

    async def topic(self, name: str) -> TopicInfo:
        """As last reported, else asked for. Raises StreamNotFound."""
        return await self._run(self._metadata.topic(name))

    def forget(self, name: str) -> None:
        """The next use of the stream asks again which nodes lead it."""
        self._metadata.forget(name)

    async def leader(self, tp: TopicPartition) -> tuple[NodeInfo, int]:
        """The node that leads, and its epoch. Raises NotLeader where there is none."""
        return await self._run(self._metadata.leader(tp))

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
        return command_result(answer["response_data"])

    async def operate(
        self, name: str, arguments: Mapping[str, Any], *, timeout_ms: int | None = None
    ) -> Any:
        """What comes of an operation of ``control``, in JSON's types. Given to whichever node can be
        reached, which forwards it. Raises what ``command`` does.
        """
        data = encode_operation(name, arguments)
        return operation_value(await self.command(data, timeout_ms=timeout_ms))

    async def operate_at(
        self, host: str, port: int, name: str, arguments: Mapping[str, Any], *, timeout_ms: int
    ) -> Any:
        """As ``operate``, of the node at this address. Raises NodeUnreachable, RequestTimedOut."""
        data = encode_operation(name, arguments)
        values = {"request_data": data, "request_principal": None, "client_host_address": b""}
        connection = await Connection.open(
            host, port, timeout_ms=timeout_ms, security=self._security
        )
        async with connection:
            answer = await connection.request(registry.ENVELOPE, values, timeout_ms=timeout_ms)
        check(answer["error_code"], "the operation")
        return operation_value(command_result(answer["response_data"]))

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """To start from, and of the nodes known."""
        return self._metadata.addresses

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

    async def latest_offset(self, tp: TopicPartition, *, committed: bool = True) -> int:
        """Where readers of committed records end (Kafka's last stable offset); not ``committed``: the high watermark,
        below which there may be open transactions.
        """
        return (await self._list_offset(tp, LATEST, committed=committed))[0]

    async def latest_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks, by one request to each leader.

        What cannot be known just now is left out: streams that are gone, leaders that are away.
        """
        return await self._run(self._metadata.latest_offsets(tps))

    async def offset_for_timestamp(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset of that time or later, below ``latest_offset``."""
        offset, _ = await self._list_offset(tp, timestamp_ms)
        return None if offset == NOT_FOUND else offset

    async def latest_timestamp(self, tp: TopicPartition) -> tuple[int, int] | None:
        """The offset of the largest timestamp, and that."""
        offset, timestamp_ms = await self._list_offset(tp, MAX_TIMESTAMP)
        return None if offset == NOT_FOUND else (offset, timestamp_ms)

    async def _list_offset(
        self, tp: TopicPartition, timestamp: int, *, committed: bool = True
    ) -> tuple[int, int]:
        steps = self._metadata.list_offsets([tp], timestamp, committed=committed)
        found = (await self._run(steps))[tp]
        return found.offset, found.timestamp_ms

    async def _run(self, steps: Steps[T]) -> T:
        try:
            ask = next(steps)
            while True:
                try:
                    if ask.node is None:
                        answer = await self.ask_any(ask.key, ask.values)
                    else:
                        answer = await self.ask(ask.node, ask.key, ask.values)
                except StreamlogError as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _any_connection(self) -> Connection:
        """To any node that can be reached. Raises NodeUnreachable."""
        return await self._any(self._connection)

    async def _any(self, attempt: Callable[[str, int], Awaitable[T]]) -> T:
        """At one node after the other, until one answers.

        One that is silent is not waited for as long as one that must answer.
        """
        problems = []
        for host, port in self._metadata.candidates(self._connections):
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


async def with_retries(ask: Callable[[], Awaitable[T]], patience_ms: int, *, about: str = "") -> T:
    """What ``ask`` comes to, which is called again where that may help.

    Raises RequestTimedOut with the last reason after ``patience_ms``; it begins with ``about``.
    """
    loop = asyncio.get_running_loop()
    retries = Retries(patience_ms, loop.time(), about=about)
    while True:
        try:
            return await ask()
        except StreamlogError as error:
            delay_s = retries.delay_s(error, loop.time())
        await asyncio.sleep(delay_s)
