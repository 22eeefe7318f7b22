"""Connections and a cluster for programs without an event loop: Spark's workers, one thread each.

What is said and decided is ``protocol`` and ``topology``, as for the shell on an event loop. Not
safe to share between threads. Constructors open nothing. A fetch may be sent before the last one is
decoded.
"""

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from streamlog.client.addresses import parse_addresses, reason
from streamlog.client.protocol import Call, ClientProtocol
from streamlog.client.protocol import Steps as CallSteps
from streamlog.client.retry import Retries
from streamlog.client.security import ClientLogin
from streamlog.client.topology import MetadataCache, NodeInfo, Steps, TopicInfo, Topology
from streamlog.errors import (
    BrokenInvariant,
    NodeUnreachable,
    RequestTimedOut,
    StreamlogError,
    Unavailable,
)
from streamlog.model import NodeId, TopicPartition
from streamlog.tls.errors import trouble
from streamlog.wire import api_messages, registry
from streamlog.wire import fetch as wire
from streamlog.wire.cursor import Cursor
from streamlog.wire.errors import check
from streamlog.wire.framing import LENGTH_BYTES
from streamlog.wire.operation_request import command_result, encode_operation, operation_value

CLIENT_ID: Final = "streamlog-spark"
TIMEOUT_MS: Final = 10_000
"""Of silence."""

Room = Callable[[int], bytearray]
T = TypeVar("T")


class BlockingConnection:
    """One socket to one node, for one thread. After any failure it is closed."""

    def __init__(self, sock: socket.socket, address: str, timeout_ms: int) -> None:
        self._sock = sock
        self._timeout_ms = timeout_ms
        by_tls = isinstance(sock, ssl.SSLSocket)
        self._protocol = ClientProtocol(address, time.monotonic, client_id=CLIENT_ID, by_tls=by_tls)
        self._awaited: tuple[Call, int] | None = None  # what was sent last, and its timeout
        self._closed = False

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        *,
        timeout_ms: int = TIMEOUT_MS,
        tls: ssl.SSLContext | None = None,
        login: ClientLogin | None = None,
    ) -> Self:
        """Connects, agrees on versions, and logs in where that is wanted.

        Raises NodeUnreachable, RequestTimedOut, AuthenticationFailed, UnsupportedMechanism.
        """
        address = f"{host}:{port}"
        connection = cls(_connected(host, port, timeout_ms, tls), address, timeout_ms)
        connection._carry_out(connection._protocol.open(login))
        return connection

    @property
    def broken(self) -> bool:
        """Not to be used again: closed, here or by the node."""
        if self._closed or self._awaited is not None:
            return self._closed
        poll = select.poll()  # select itself knows no socket above 1,023
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))  # nothing was asked, so what comes is the end

    def close(self) -> None:
        self._closed = True
        self._awaited = None
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def request(
        self, key: int, values: api_messages.Message, *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """The answer as a dict; its error codes are the caller's to read.

        ``timeout_ms``: of silence, instead of the connection's. Produce goes this way, too: record
        bytes in, error codes out.
        """
        self._renew()
        call = self._protocol.request(key, values)
        self._send(call, self._timeout_ms if timeout_ms is None else timeout_ms)
        return self._protocol.read(call, self._answer()[1])

    def fetch(self, request: wire.FetchRequest) -> wire.FetchResponse:
        """Record bytes as views into the answer. Waits longer by what the request lets the node."""
        self.send_fetch(request)
        return self.receive_fetch()

    def send_fetch(self, request: wire.FetchRequest) -> None:
        """The node works on it while the caller does something else; then ``receive_fetch``."""
        self._renew()
        self._send(self._protocol.fetch(request), self._timeout_ms)

    def receive_fetch(self, room: Room = bytearray) -> wire.FetchResponse:
        """``room``: gives the bytes for an answer of so many. One that gives the same again spares
        the making of them; what was received there before is then overwritten.
        """
        return self._protocol.read_fetch(*self._answer(room))

    @property
    def fetches_by_id(self) -> bool:
        """Whether a topic is named by its id in a fetch, so that its successor is not mistaken."""
        return self._protocol.fetches_by_id

    def _renew(self) -> None:
        steps = self._protocol.renewal()
        if steps is not None:
            self._carry_out(steps)

    def _carry_out(self, steps: CallSteps) -> None:
        """After any failure the connection is of no use."""
        try:
            key, values = next(steps)
            while True:
                key, values = steps.send(self.request(key, values))
        except StopIteration:
            pass
        except BaseException:
            self.close()
            raise

    def _send(self, call: Call, timeout_ms: int) -> None:
        if self._awaited is not None:
            raise BrokenInvariant("the last answer has not been received")
        if self._closed:
            raise self._protocol.closed_here()
        timeout_ms += call.extra_ms
        self._awaited = call, timeout_ms
        try:
            self._sock.settimeout(timeout_ms / 1000)
            self._sock.sendall(call.frame)
        except TimeoutError:
            self.close()
            raise self._protocol.timed_out(call, timeout_ms) from None
        except OSError as error:
            self.close()
            raise self._protocol.failed(error) from None
        except BaseException:
            self.close()
            raise

    def _answer(self, room: Room = bytearray) -> tuple[Call, Cursor]:
        """What was sent last, and the body of the answer to it."""
        if self._awaited is None:
            raise BrokenInvariant("nothing has been asked")
        call, timeout_ms = self._awaited
        try:
            length = self._protocol.response_bytes(self._receive(LENGTH_BYTES))
            body = self._protocol.body(call, self._receive(length, room))
        except TimeoutError:
            self.close()
            raise self._protocol.timed_out(call, timeout_ms) from None
        except OSError as error:
            self.close()
            raise self._protocol.failed(error) from None
        except BaseException:
            self.close()
            raise
        if body is None:
            raise BrokenInvariant("an answer that is passed over, of a request never sent here")
        self._awaited = None
        return call, body

    def _receive(self, length: int, room: Room = bytearray) -> memoryview:
        """Straight into the buffer that is handed on: only the kernel copies record bytes."""
        whole = memoryview(room(length))[:length]
        filled = 0
        while filled < length:
            count = self._sock.recv_into(whole[filled:])
            if count == 0:
                raise self._protocol.closed_by_node()
            filled += count
        return whole.toreadonly()


class BlockingCluster:
    """A cluster as a client sees it: addresses to start from, then the leaders of what is wanted."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        tls: ssl.SSLContext | None = None,
        login: ClientLogin | None = None,
    ) -> None:
        self._metadata = MetadataCache(servers)
        self._timeout_ms = timeout_ms  # of silence
        self._tls = tls
        self._login = login
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
        return self._run(self._metadata.topology(names))

    def topic(self, name: str) -> TopicInfo:
        """As last reported, else asked for. Raises StreamNotFound."""
        return self._run(self._metadata.topic(name))

    def forget(self, name: str) -> None:
        """The next use of the stream asks again which nodes lead it."""
        self._metadata.forget(name)

    def node(self, node_id: NodeId) -> NodeInfo | None:
        """As last reported."""
        return self._metadata.node(node_id)

    def leader(self, tp: TopicPartition) -> tuple[NodeInfo, int]:
        """The node that leads, and its epoch. Raises NotLeader where there is none."""
        return self._run(self._metadata.leader(tp))

    def connection(self, node: NodeInfo) -> BlockingConnection:
        """The one to this node, opened where it is not. Raises NodeUnreachable, RequestTimedOut."""
        return self._connection(node.host, node.port)

    def connect(self, node: NodeInfo) -> BlockingConnection:
        """A new connection, the caller's to close. Raises NodeUnreachable, RequestTimedOut."""
        return self._open(node.host, node.port)

    def ask(self, node: NodeInfo, key: int, values: api_messages.Message) -> dict[str, Any]:
        """What this node answers. Raises NodeUnreachable, RequestTimedOut."""
        return self.connection(node).request(key, values)

    def ask_any(self, key: int, values: api_messages.Message) -> dict[str, Any]:
        """What the first node to answer says; a question, which may be asked twice.

        Raises NodeUnreachable with the reason of each.
        """
        problems = []
        for host, port in self._metadata.candidates(self._connections):
            try:
                return self._connection(host, port).request(key, values)
            except Unavailable as error:
                problems.append(str(error))
        raise NodeUnreachable("; ".join(problems))

    def operate(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """What comes of an operation of ``control`` that only asks, in JSON's types. Raises NodeUnreachable, and what
        the operation does.
        """
        data = encode_operation(name, arguments)
        values = {"request_data": data, "request_principal": None, "client_host_address": b""}
        answer = self.ask_any(registry.ENVELOPE, values)
        check(answer["error_code"], "the operation")
        return operation_value(command_result(answer["response_data"]))

    def list_offsets(
        self, tps: Iterable[TopicPartition], timestamp: int, *, committed: bool = True
    ) -> dict[TopicPartition, int]:
        """LATEST: where readers of committed records end, or the high watermarks; EARLIEST: the log starts; else the
        first offsets of that time (ms) or later, NOT_FOUND where there is none. All of them or none.
        """
        found = self._run(self._metadata.list_offsets(tps, timestamp, committed=committed))
        return {tp: it.offset for tp, it in found.items()}

    def log_bytes(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What each partition takes on its leader's disk."""
        return self._run(self._metadata.log_bytes(tps))

    def _run(self, steps: Steps[T]) -> T:
        try:
            ask = next(steps)
            while True:
                try:
                    if ask.node is None:
                        answer = self.ask_any(ask.key, ask.values)
                    else:
                        answer = self.ask(ask.node, ask.key, ask.values)
                except StreamlogError as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

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


def with_retries(ask: Callable[[], T], patience_ms: int, *, about: str = "") -> T:
    """What ``ask`` comes to, which is called again where that may help.

    Raises RequestTimedOut with the last reason after ``patience_ms``; it begins with ``about``.
    """
    retries = Retries(patience_ms, time.monotonic(), about=about)
    while True:
        try:
            return ask()
        except StreamlogError as error:
            delay_s = retries.delay_s(error, time.monotonic())
        time.sleep(delay_s)


def _connected(host: str, port: int, timeout_ms: int, tls: ssl.SSLContext | None) -> socket.socket:
    """Tries each address of the host in turn. Raises NodeUnreachable and RequestTimedOut."""
    try:
        sock = socket.create_connection((host, port), timeout_ms / 1000)
    except TimeoutError:
        raise RequestTimedOut(f"{host}:{port}: no connection after {timeout_ms} ms") from None
    except UnicodeError:  # "." and the like, which Python does not ask for
        raise NodeUnreachable(f"{host}:{port}: the host cannot be a name") from None
    except OSError as error:
        raise NodeUnreachable(f"{host}:{port}: {reason(error)}") from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)
    except TimeoutError:
        sock.close()
        raise RequestTimedOut(f"{host}:{port}: no TLS after {timeout_ms} ms") from None
    except OSError as error:
        sock.close()
        raise NodeUnreachable(f"{host}:{port}: TLS: {trouble(error)}") from None
