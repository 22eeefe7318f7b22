"""A node's NATS port and its links to other nodes' ports, on simulated TCP.

All of ``streamlog.nats`` is what runs in production: the turns of ``Sockets``, ``Port``, ``PortSession``,
``NodeLinks``, the connections and the router. Simulated are sockets, and the epoll object that watches them. A
connection reads and writes as under TLS, which is where bytes pass through Python: the filter changes nothing.
"""

import select
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from streamlog.config import NatsListenSection
from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.service import MetadataService
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId
from streamlog.nats.connection import Connection
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.links import NodeLinks, all_urls
from streamlog.nats.port import Port
from streamlog.nats.router import Router
from streamlog.nats.sockets import LINGER_S, CloseReason, Room, ServedSocket, Sockets
from tests.simulation.cluster.loop import SimLoop
from tests.simulation.cluster.settings import CLUSTER_ID
from tests.simulation.cluster.sockets import called, host_name
from tests.simulation.cluster.tcp import NATS_PORT, Endpoint, Tcp

if TYPE_CHECKING:
    from tests.simulation.cluster.node import ClusterNode

ASK_TIMEOUT_S = 1.0
VERB = "NATS_PORT"
LINGER_US = round(LINGER_S * 1e6)

_numbers = count(1)


class SimStream:
    """A socket that does not block."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.number = next(_numbers)
        """In the place of a descriptor, which compiled code would read and write."""
        self.watched: Callable[[], None] = lambda: None
        """Called when there is something to be read."""
        endpoint.on_change = self._changed

    def _changed(self) -> None:
        self.watched()

    @property
    def is_readable(self) -> bool:
        endpoint = self.endpoint
        return bool(endpoint.buffer or endpoint.broken or endpoint.ended)

    def recv_into(self, buffer: memoryview) -> int:
        endpoint = self.endpoint
        if endpoint.buffer:
            data = endpoint.take(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        if endpoint.broken:
            raise ConnectionResetError(104, "Connection reset by peer")
        if endpoint.ended:
            return 0
        raise BlockingIOError

    def send(self, data: bytes | bytearray) -> int:
        self.endpoint.send(bytes(data))
        return len(data)

    def close(self) -> None:
        self.endpoint.close()

    def shutdown(self, how: int) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")  # nothing is drained here

    def fileno(self) -> int:
        return -1

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """As it is already."""


class SimListener:
    """A socket that takes connections, for as long as the process has it open."""

    def __init__(self) -> None:
        self.ready: Callable[[], None] | None = None
        self._waiting: list[Endpoint] = []
        self.is_open = True

    @property
    def is_readable(self) -> bool:
        return bool(self._waiting)

    def take(self, endpoint: Endpoint) -> None:
        if not self.is_open:
            endpoint.close(reset=True)
            return
        self._waiting.append(endpoint)
        if self.ready is not None:
            self.ready()

    def accept(self) -> tuple[SimStream, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        return SimStream(self._waiting.pop(0)), ("peer", 0)

    def close(self) -> None:
        self.is_open = False
        for endpoint in self._waiting:
            endpoint.close(reset=True)


class SimWatch:
    """In the place of an epoll object: it reports again and again what is not read."""

    def __init__(self) -> None:
        self.ready: Callable[[], None] | None = None
        self._watched: dict[SimStream, int] = {}
        """With the events that are looked for."""

    @property
    def is_readable(self) -> bool:
        return any(self._is_ready(sock) for sock in self._watched)

    def register(self, sock: SimStream, events: int) -> None:
        self._watched[sock] = events
        sock.watched = self._ring
        self._ring()

    def unregister(self, sock: SimStream) -> None:
        del self._watched[sock]

    def poll(self, timeout: float, events_max: int) -> list[tuple[int, int]]:
        found = [
            (sock.number, events) for sock, events in self._watched.items() if self._is_ready(sock)
        ]
        return found[:events_max]

    def close(self) -> None:
        self._watched.clear()

    def _is_ready(self, sock: SimStream) -> bool:
        """All that is written is taken at once, so that nothing waits for that."""
        return sock.is_readable and bool(self._watched[sock] & select.EPOLLIN)

    def _ring(self) -> None:
        if self.ready is not None and self.is_readable:
            self.ready()


class Clear:
    """In the place of a TLS filter."""

    is_open = True
    has_ended = False
    peer_certificate = None
    error = None

    def __init__(self, connection: Connection, sockets: "SimSockets") -> None:
        self.connection = connection
        self.sockets = sockets
        self._out = b""

    def take(self, data: bytes) -> bytes:
        return data

    def put(self, data: bytes) -> None:
        self._out += data

    def sealed(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def end(self) -> None:
        """Nothing is said before the socket is closed."""


class SimSockets(Sockets):
    """As its parent, but with simulated sockets."""

    def __init__(self, router: Router) -> None:
        super().__init__(router, write_timeout_ms=10_000)
        for watch in (self._watch, self._steady_watch, self._full):
            if watch is not None:
                watch.close()
        watches: Any = SimWatch(), SimWatch(), SimWatch()
        self._watch, self._steady_watch, self._full = watches

    def add(
        self,
        sock: Any,
        connection: Connection,
        *,
        tls: Any,
        ended: Callable[[ServedSocket, CloseReason], None],
        opened: Callable[[], None] | None = None,
        heeds_room: bool = True,
        unwritten_bytes_max: int | None = None,
    ) -> ServedSocket:
        clear: Any = Clear(connection, self)
        peer = super().add(sock, connection, tls=clear, ended=ended)
        del self._peers[peer.fd]
        peer.fd = sock.number
        self._peers[peer.fd] = peer
        return peer

    def replace(self, peer: ServedSocket, connection: Connection) -> None:
        clear: Any = peer.tls
        clear.connection = connection
        super().replace(peer, connection)

    def _linger(self) -> None:
        """Time stands still while a simulated process works: one that stayed awake would never see its end."""
        loop = self._loop
        assert isinstance(loop, SimLoop)
        if self._lingering.goes_on(loop.time()):
            loop.pass_time(LINGER_US, self._linger)

    def links(self) -> list[ServedSocket]:
        """Of what is open."""
        return [it for it in self._peers.values() if isinstance(it.connection, LeafConnection)]


class NatsPort:
    """Of one life of a node."""

    def __init__(
        self, node: "ClusterNode", router: Router, requests: NodeRequests, metrics: NodeMetrics
    ) -> None:
        self.router = router
        self.sockets = SimSockets(router)
        self._node = node
        node_id = node.host.node_id
        address = host_name(node_id), NATS_PORT
        self.token = f"{node.host.rng.getrandbits(64):x}"
        self._listener = SimListener()
        self._is_open = False

        async def ask(node_id: int) -> Mapping[str, Any]:
            answer = await requests.ask(NodeId(node_id), VERB, {}, timeout_s=ASK_TIMEOUT_S)
            return answer.fields

        async def answer(_: Fields) -> NodeAnswer:
            return NodeAnswer(self.links.answer() if self._is_open else {})

        self.links = NodeLinks(
            router,
            self.sockets,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            token=self.token,
            address=lambda: address,
            ask=ask,
            tls=lambda: None,
            payload_bytes_max=1 << 20,
            changed=lambda: self._port.tell_info() if self._is_open else None,
            linked=lambda linked: node.source.reach(frozenset(map(NodeId, linked))),
        )
        requests.register(VERB, answer)
        self._port = Port(
            NatsListenSection(port=NATS_PORT),
            router,
            self.sockets,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            domain="streamlog",
            metrics=metrics,
            connect_urls=lambda: all_urls(f"{address[0]}:{address[1]}", self.links.urls),
            link=self.links.take,
        )
        self._port._address = address

    @property
    def acceptor(self) -> Callable[[Endpoint], None] | None:
        return self._listener.take if self._is_open and self._listener.is_open else None

    def begin(self, room: Room) -> None:
        self.sockets.begin(room)
        self._node.spawn(self.sockets.run())

    async def open(self, metadata: MetadataService) -> None:
        links, own = self.links, self._node.host.node_id
        self._port._sock = self._listener  # type: ignore[assignment]
        self._is_open = True

        def follow(_: MetadataImage, new: MetadataImage) -> None:
            others = {number: node for number, node in new.nodes.items() if number != own}
            live = frozenset(number for number, node in others.items() if not node.fenced)
            links.apply({number: node.epoch for number, node in others.items()}, live)

        async def begin(image: MetadataImage) -> None:
            follow(MetadataImage(image.cluster_id), image)

        await metadata.attach(follow, begin)
        self._node.spawn(self._port.run())
        self._node.spawn(links.run())

    def retire(self) -> None:
        self._port.retire()

    async def stop(self) -> None:
        await self._port.stop()
        self.sockets.close()


async def dialled(tcp: Tcp, host: str, port: int) -> SimStream:
    """In the place of ``links.dialled``. Raises OSError."""
    return SimStream(await called(tcp, host, port))
