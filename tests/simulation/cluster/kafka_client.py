"""A Kafka client of bare frames, in a process of its own on a simulated machine: it does what its world has it do, also
what no good client would.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from streamlog.errors import MalformedFrame, StreamlogError
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.wire import api_messages, fetch, registry
from streamlog.wire.cursor import Cursor
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.framing import LENGTH_BYTES, frame
from streamlog.wire.header import encode_request_header, read_response_header
from streamlog.wire.registry import APIS, FETCH
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.loop import SimLoop
from tests.simulation.cluster.sockets import PORT, SimSocket, called, host_name
from tests.simulation.cluster.tcp import Tcp

REQUEST_S: Final = 2.0
"""After that an answer is not waited for any more; what was asked may be done all the same."""
BACKOFF_S: Final = 0.06
GROUP: Final = 0
TRANSACTION: Final = 1
"""Kinds of keys that FindCoordinator knows."""

COORDINATOR_MOVES: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    }
)
"""The coordinator is to be looked for again."""


class Unanswered(StreamlogError):
    """Whether the request was carried out is not known."""


class Refused(StreamlogError):
    """An answer with an error."""

    def __init__(self, code: int, what: str) -> None:
        self.error = ErrorCode(code)
        super().__init__(f"{what}: {self.error.name}")


def check(code: int, what: str) -> None:
    """Raises Refused."""
    if code:
        raise Refused(code, what)


class Process:
    """A program that runs on ``host``, from its start on."""

    def __init__(self, host: Host, failed: Callable[[BaseException], None]) -> None:
        self.host = host
        self._failed = failed
        before, Host.current = Host.current, host
        try:
            self.loop = SimLoop(host, self._unhandled)  # type: ignore[abstract]
        finally:
            Host.current = before

    def begin(self, program: Coroutine[Any, Any, None]) -> None:
        self.loop.call_soon(lambda: self.loop.create_task(self._guarded(program)))

    async def _guarded(self, program: Coroutine[Any, Any, None]) -> None:
        try:
            await program
        except Exception as error:
            self._failed(error)

    def _unhandled(self, context: dict[str, Any]) -> None:
        if not self.loop.is_closed():
            self._failed(context.get("exception") or AssertionError(context.get("message")))


class KafkaConnection:
    """To one node. One request is on its way at a time; after any failure it is closed."""

    def __init__(self, sock: SimSocket, name: str) -> None:
        self.is_open = True
        self._sock = sock
        self._name = name
        self._correlation_id = 0

    @classmethod
    async def open(cls, tcp: Tcp, node_id: NodeId) -> "KafkaConnection":
        """Raises Unanswered."""
        name = host_name(node_id)
        try:
            async with asyncio.timeout(REQUEST_S):
                return cls(SimSocket(await called(tcp, name, PORT)), name)
        except (TimeoutError, OSError) as error:
            raise Unanswered(f"{name}: {error!r}") from None

    async def ask(
        self, key: int, version: int, values: api_messages.Message, *, wait_s: float = REQUEST_S
    ) -> dict[str, Any]:
        """Raises Unanswered."""
        api = APIS[key]
        body = api_messages.encode_request(api, version, values)
        cursor = await self._exchange(key, version, body, wait_s)
        return api_messages.read_response(cursor, api, version)

    async def fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        """Raises Unanswered."""
        version = APIS[FETCH].version_max if request.is_by_id else fetch.TOPIC_IDS_FROM - 1
        body = fetch.encode_request(request, version)
        wait_s = REQUEST_S + request.max_wait_ms / 1000
        return fetch.read_response(await self._exchange(FETCH, version, body, wait_s), version)

    def close(self) -> None:
        self.is_open = False
        self._sock.close()

    async def _exchange(self, key: int, version: int, body: bytes, wait_s: float) -> Cursor:
        self._correlation_id += 1
        api = APIS[key]
        header = encode_request_header(api, version, self._correlation_id, "simulated")
        try:
            async with asyncio.timeout(wait_s):
                await self._sock.send_all(frame(header, body))
                length = int.from_bytes(await self._receive(LENGTH_BYTES), "big")
                cursor = Cursor(await self._receive(length))
            if read_response_header(cursor, api, version) != self._correlation_id:
                raise MalformedFrame(f"{self._name}: an answer to something else")
        except (TimeoutError, OSError) as error:
            self.close()
            raise Unanswered(f"{self._name}: {api.name}: {error!r}") from None
        except BaseException:
            self.close()
            raise
        return cursor

    async def _receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = await self._sock.receive(length - len(data))
            if not more:
                raise ConnectionResetError(104, "closed by the node")
            data += more
        return data


class KafkaClient:
    """Knows leaders and coordinators as the nodes have said, and asks again when they say something else."""

    def __init__(self, host: Host, tcp: Tcp, nodes: Sequence[NodeId]) -> None:
        self.rng = host.rng
        self._tcp = tcp
        self._nodes = nodes
        self._connections: dict[NodeId, KafkaConnection] = {}
        self._leaders: dict[TopicPartition, NodeId] = {}
        self._coordinators: dict[tuple[int, str], NodeId] = {}
        self.topic_ids: dict[str, bytes] = {}
        """As far as they were asked for."""

    def any_node(self) -> NodeId:
        return self.rng.choice(self._nodes)

    async def connection(self, node_id: NodeId) -> KafkaConnection:
        """Raises Unanswered."""
        known = self._connections.get(node_id)
        if known is None or not known.is_open:
            known = self._connections[node_id] = await KafkaConnection.open(self._tcp, node_id)
        return known

    async def ask(
        self, node_id: NodeId, key: int, version: int, values: api_messages.Message
    ) -> dict[str, Any]:
        """Raises Unanswered."""
        return await (await self.connection(node_id)).ask(key, version, values)

    async def leader(self, tp: TopicPartition) -> NodeId:
        """Raises Unanswered, Refused."""
        if tp not in self._leaders:
            await self._look_up(tp.stream)
        if tp not in self._leaders:
            raise Refused(ErrorCode.leader_not_available, str(tp))
        return self._leaders[tp]

    async def topic_id(self, name: str) -> bytes:
        """Raises Unanswered, Refused."""
        if name not in self.topic_ids:
            await self._look_up(name)
        if name not in self.topic_ids:
            raise Refused(ErrorCode.unknown_topic_or_partition, name)
        return self.topic_ids[name]

    async def _look_up(self, topic: str) -> None:
        asked = {
            "topics": [{"name": topic, "topic_id": None}],
            "allow_auto_topic_creation": False,
        }
        answer = await self.ask(self.any_node(), registry.METADATA, 12, asked)
        for found in answer["topics"]:
            if found["error_code"]:
                continue
            self.topic_ids[topic] = found["topic_id"].bytes
            for it in found["partitions"]:
                if it["leader_id"] != NO_LEADER:
                    tp = TopicPartition(topic, it["partition_index"])
                    self._leaders[tp] = NodeId(it["leader_id"])

    def forget_leader(self, tp: TopicPartition) -> None:
        self._leaders.pop(tp, None)

    async def coordinator(self, kind: int, key: str) -> NodeId:
        """Raises Unanswered, Refused."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        asked = {"key_type": kind, "coordinator_keys": [key]}
        answer = await self.ask(self.any_node(), registry.FIND_COORDINATOR, 5, asked)
        (found,) = answer["coordinators"]
        check(found["error_code"], f"the coordinator of {key}")
        self._coordinators[kind, key] = NodeId(found["node_id"])
        return NodeId(found["node_id"])

    async def ask_coordinator(
        self, kind: int, key: str, api: int, version: int, values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Raises Unanswered, Refused."""
        try:
            return await self.ask(await self.coordinator(kind, key), api, version, values)
        except StreamlogError:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def pause(self) -> None:
        """Before something is tried again."""
        await asyncio.sleep(self.rng.uniform(0.5, 2) * BACKOFF_S)
