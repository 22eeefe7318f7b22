"""TCP between simulated machines: bytes in order, or late, or a connection that is over.

What a link loses is sent again a little later; over a cut link nothing comes until it is mended,
and neither side is told. A process that ends has its connections closed by the kernel, and its port
refuses new ones; a machine without power says nothing, and does not know old connections later.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from streamlog.model import NodeId
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import Links

KAFKA_PORT = 9092
NATS_PORT = 4222
RESEND_US = 200_000
CONNECT_AGAIN_US = 1_000_000


class _End:
    """The last that is sent one way. ``reset``: by the kernel, for a process that is gone."""

    def __init__(self, *, reset: bool) -> None:
        self.reset = reset


class Endpoint:
    """One side of a connection, in one life of its host."""

    def __init__(self, tcp: "Tcp", host: Host, far: Host, port: int) -> None:
        self.host = host
        self.port = port
        """Of the side that was called."""
        self.closed = False
        """By this side."""
        self.ended = False
        """By the other side: what is in the buffer is the last of it."""
        self.broken = False
        """Nothing can be sent or received any more."""
        self.buffer = bytearray()
        self.on_change: Callable[[], None] | None = None
        """Called when there is something to be read, or the end has come."""
        self._life = host.life
        self._out = _Pipe(tcp, self, host, far)

    @property
    def far(self) -> Host:
        return self._out.far

    def join(self, other: "Endpoint") -> None:
        self._out.target, other._out.target = other, self

    @property
    def alive(self) -> bool:
        """Its process is."""
        return self.host.life == self._life and self.host.process is not None

    def send(self, data: bytes) -> None:
        """Raises ConnectionResetError."""
        if self.broken or self.closed:
            raise ConnectionResetError(104, "Connection reset by peer")
        self._out.push(data)

    def close(self, *, reset: bool = False) -> None:
        if not self.closed:
            self.closed = True
            if not self.broken:
                self._out.push(_End(reset=reset))

    def fileno(self) -> int:
        return -1 if self.closed else 1

    def receive(self, item: "bytes | _End") -> None:
        """From the network."""
        if isinstance(item, _End):
            self.ended = True
            self.broken = self.broken or item.reset
        else:
            self.buffer += item
        self._tell()

    def reset(self) -> None:
        self.broken = self.ended = True
        self._tell()

    def take(self, length: int) -> bytes:
        data = bytes(self.buffer[:length])
        del self.buffer[:length]
        return data

    def _tell(self) -> None:
        def tell() -> None:
            if self.on_change is not None:
                self.on_change()

        if self.alive:
            self.host.after(0, tell)


class _Pipe:
    """One way of a connection."""

    def __init__(self, tcp: "Tcp", source: Endpoint, host: Host, far: Host) -> None:
        self.target: Endpoint
        self._tcp = tcp
        self._source = source
        self._host = host
        self.far = far
        self._queue: deque[bytes | _End] = deque()
        self._due_us = 0
        self._resending = False

    def push(self, item: bytes | _End) -> None:
        events = self._host.events
        near, far = self._host.node_id, self.far.node_id
        delay_us = self._tcp.links.delay_us(near, far) if near != far else 1
        self._due_us = max(self._due_us, events.now_us + delay_us)
        self._queue.append(item)
        events.after(self._due_us - events.now_us, self._deliver)

    def _deliver(self) -> None:
        if self._resending or not self._queue:
            return
        links, near, far = self._tcp.links, self._host.node_id, self.far.node_id
        if near != far and (
            links.is_cut(near, far)
            or (near, far, self._source.port) in self._tcp.held
            or links.loses()
        ):
            self._resending = True
            self._host.events.after(RESEND_US, self._resend)
            return
        item = self._queue.popleft()
        if self.target.alive and not self.target.closed:
            self.target.receive(item)
        elif self.far.powered and not isinstance(item, _End):
            self._tcp.reset(self._source)

    def _resend(self) -> None:
        """All that has gathered, in one go."""
        self._resending = False
        if not self._host.powered:
            self._queue.clear()
        while self._queue and not self._resending:
            self._deliver()


class Tcp:
    """Who can be connected to."""

    def __init__(self, links: Links, hosts: Mapping[NodeId, Host]) -> None:
        self.links = links
        self._hosts = hosts
        self.held: set[tuple[int, int, int]] = set()
        """Ways on which nothing of one port's connections passes, while other ports' do: from, to, port."""
        self._open: dict[Host, list[Endpoint]] = {}
        for host in hosts.values():
            self.add(host)

    def add(self, host: Host) -> None:
        """A machine that calls others."""
        self._open[host] = []
        host.on_end.append(partial(self._process_ended, host))

    def endpoints(self, port: int) -> list[Endpoint]:
        """Those of the connections to that port that are not over."""
        return [
            it
            for endpoints in self._open.values()
            for it in endpoints
            if it.port == port and not (it.closed or it.broken)
        ]

    def connect(
        self,
        source: Host,
        target: NodeId,
        connected: Callable[[Endpoint], None],
        refused: Callable[[], None],
        *,
        port: int = KAFKA_PORT,
    ) -> None:
        """One of the two is called, or none, for as long as the machine does not answer."""
        far = self._hosts[target]
        life = source.life
        done = False

        def answer(call: Callable[[], None]) -> None:
            def arrive() -> None:
                nonlocal done
                if not done and source.life == life:
                    done = True
                    source.after(0, call)

            self.links.carry(target, source.node_id, arrive, once=True)

        def arrive() -> None:
            nonlocal done
            if done or source.life != life or not far.powered:
                return
            accept = None if far.process is None else far.process.acceptor(port)
            if accept is None:
                answer(refused)
                return
            near_end, far_end = self._join(source, far, port)
            far.after(0, lambda: accept(far_end))
            answer(lambda: connected(near_end))

        def ask() -> None:
            if not done and source.life == life:
                self.links.carry(source.node_id, target, arrive, once=True)
                source.events.after(CONNECT_AGAIN_US, ask)

        ask()

    def _join(self, source: Host, far: Host, port: int) -> tuple[Endpoint, Endpoint]:
        near_end, far_end = Endpoint(self, source, far, port), Endpoint(self, far, source, port)
        near_end.join(far_end)
        self._open[source].append(near_end)
        self._open[far].append(far_end)
        return near_end, far_end

    def reset(self, endpoint: Endpoint) -> None:
        """Whoever sent something to nobody is told."""
        target = endpoint.host.node_id
        source = endpoint._out.far.node_id
        self.links.carry(source, target, endpoint.reset, once=True)

    def _process_ended(self, host: Host, kernel: bool) -> None:
        endpoints, self._open[host] = self._open[host], []
        for endpoint in endpoints:
            if kernel:
                endpoint.close(reset=True)
