"""The node's own NATS port: sockets, turns of the event loop, timers. What a client says means what
``port_session`` and ``client_connection`` say.

**One turn.** All sockets are watched by one epoll object, which the event loop watches: a turn reads each
readable socket once, and only then is anything appended, acknowledged or written (``Router.end_turn``). So
what 256 clients say at once is one append for each partition, one commit and one write a client, and a lone
client's message is appended at once.

**Backpressure.** Where more waits for a commit than the ingest allows, no client is read, for as long as the
ingest says. A client that takes its messages too slowly costs ``pending_bytes_max`` of memory, then its
connection.
"""

import asyncio
import contextlib
import errno
import logging
import select
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from streamlog import __version__
from streamlog.condition import FAULT, Condition
from streamlog.config import NatsListenSection
from streamlog.errors import ConfigError
from streamlog.metrics import NodeMetrics
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.port_session import TOO_MANY_CONNECTIONS, CloseReason, PortSession
from streamlog.nats.router import Router

logger = logging.getLogger(__name__)

CANNOT_ACCEPT: Final = Condition(
    "SL-0418",
    "the NATS port cannot accept",
    "raise the limit of open files: streamlog doctor says how far",
    meaning="The system gives the process no further connection.",
)
CONNECTION_CLOSED: Final = Condition(
    "SL-0419",
    "NATS client closed",
    "see its reason: a slow client must read faster, a login must be right",
    meaning="The node closed the connection of a client of its NATS port.",
)

NATS_VERSION: Final = "2.12.0"
"""The nats-server whose protocol this port speaks: clients decide by it what they ask for."""
READ_BYTES: Final = 512 * 1024
EVENTS_PER_TURN: Final = 512
ACCEPTS_PER_TURN: Final = 64
BACKLOG: Final = 1024
FULL_PAUSE_S: Final = 0.2
"""How long not to accept when the process has no file descriptor left."""
LOOK_S: Final = 0.5
"""How often it is looked for clients that are silent, slow or late."""
CLOSE_LOG_PERIOD_S: Final = 1.0
QUIET_REASONS: Final = frozenset({CloseReason.CLIENT, CloseReason.STOP})


class Room(Protocol):
    """Of what waits for a commit."""

    @property
    def has_room(self) -> bool: ...
    async def wait(self) -> None: ...


LogIn = Callable[[PortSession, Mapping[str, Any]], None]


class _TlsStream:
    """TLS between a socket and a connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_open = False
        """The handshake is over."""

    def take(self, data: bytes) -> bytes:
        """What the client says, in the clear; b"" where more of it is to come. Raises ssl.SSLError."""
        self._incoming.write(data)
        if not self.is_open:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self.is_open = True
        parts = []
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while part := self._ssl.read(READ_BYTES):
                parts.append(part)
        return b"".join(parts)

    def put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._ssl.write(view) :]

    def sealed(self) -> bytes:
        """What is to be sent."""
        return self._outgoing.read()

    @property
    def peer_certificate(self) -> bytes | None:
        return self._ssl.getpeercert(binary_form=True) if self.is_open else None


class PortClient:
    """One client's socket."""

    __slots__ = (
        "blocked_s", "bytes_seen", "closing", "connection", "expiry", "opened_s", "sealed", "session",
        "sock", "tls",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, session: PortSession, tls: _TlsStream | None) -> None:
        self.sock = sock
        self.session = session
        self.connection = session.connection
        self.tls = tls
        self.sealed = b""
        """Encrypted, and not yet written."""
        self.opened_s = time.monotonic()
        self.blocked_s: float | None = None
        """Since when the socket takes nothing."""
        self.bytes_seen = -1
        """How many had come when it was last looked at."""
        self.closing: CloseReason | None = None
        self.expiry: asyncio.TimerHandle | None = None


class Port:
    """``open`` binds, ``run`` serves, ``retire`` tells clients to leave, ``stop`` closes."""

    def __init__(
        self,
        settings: NatsListenSection,
        router: Router,
        *,
        node_id: int,
        cluster_id: str,
        domain: str,
        room: Room,
        metrics: NodeMetrics,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        connect_urls: Callable[[], list[str]] = list,
        log_in: LogIn | None = None,
        nonce: Callable[[], str] = str,
    ) -> None:
        """``connect_urls``: of all nodes' ports, as clients reach them. ``log_in``: checks a login, and
        ends in ``admit`` or ``refuse`` of the session; None: no client has to log in.
        """
        self._settings = settings
        self._router = router
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._domain = domain
        self._room = room
        self._metrics = metrics
        self._tls = tls
        self._connect_urls = connect_urls
        self._log_in = log_in
        self._nonce = nonce
        self._sock: socket.socket | None = None
        self._watch = select.epoll() if hasattr(select, "epoll") else None
        self._clients: dict[int, PortClient] = {}
        """By file descriptor."""
        self._by_session: dict[PortSession, PortClient] = {}
        self._hosts: Counter[str] = Counter()
        self._closing: list[PortClient] = []
        self._due: dict[PortClient, float] = {}
        """When to look whether a client is there, in the order of these times."""
        self._late: dict[PortClient, float] = {}
        """Clients that have not logged in, in the order in which they came, and until when they may."""
        self._blocked: set[PortClient] = set()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._client_id = 0
        self._told_s: dict[CloseReason, float] = {}
        self._untold: Counter[CloseReason] = Counter()
        self._paused = asyncio.Event()
        """No client is read: there is no room."""
        self._is_woken = False
        self._stopping = asyncio.Event()
        self._retiring = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port as bound."""
        assert self._sock is not None, "open() comes first"
        host, port = self._sock.getsockname()[:2]
        return host, port

    @property
    def client_count(self) -> int:
        return len(self._clients)

    def open(self) -> None:
        """Bind, so that clients may connect; they are answered when ``run`` runs. Raises ConfigError."""
        where = (self._settings.host, self._settings.port or 0)
        try:
            family = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)[0][0]
            self._sock = socket.create_server(where, family=family, backlog=BACKLOG)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            problem = f"cannot listen on {where[0]}:{where[1]} ({reason})"
            in_use = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
            key, remedy = (
                ("nats_listen.port", "free the port or choose another")
                if in_use
                else ("nats_listen.host", "name an address of this machine")
            )
            raise ConfigError(key, problem, remedy) from None
        self._sock.setblocking(False)

    async def run(self) -> None:
        """Serve clients until ``stop``."""
        assert self._sock is not None, "open() comes first"
        loop = self._loop = asyncio.get_running_loop()
        self._router.wake = self._wake
        logger.info("NATS port listening", extra={"address": "{}:{}".format(*self.address)})
        loop.add_reader(self._sock, self._accept)
        if self._watch is not None:
            loop.add_reader(self._watch, self._ready)
        try:
            async with asyncio.TaskGroup() as tasks:
                looking = tasks.create_task(self._look_after())
                waiting = tasks.create_task(self._wait_for_room())
                await self._stopping.wait()
                looking.cancel()
                waiting.cancel()
        finally:
            self._close_all()

    def retire(self) -> None:
        """Accept no further client, and have clients look for another node (lame-duck mode)."""
        if self._retiring:
            return
        self._retiring = True
        if self._loop is not None and self._sock is not None:
            self._loop.remove_reader(self._sock)
        self.tell_info()

    async def stop(self) -> None:
        """Write what is to be written, and close every connection. May be called again."""
        self.retire()
        self._stopping.set()
        if self._loop is None and self._sock is not None:
            self._sock.close()

    def tell_info(self) -> None:
        """Have each client know what has changed: the other nodes' ports, or that this one is to close."""
        for client in list(self._clients.values()):
            client.session.tell_info()

    def _close_all(self) -> None:
        assert self._loop is not None and self._sock is not None, "run() runs"
        for client in list(self._clients.values()):
            self.close(client.session, CloseReason.STOP)
        self._end_turn()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        if self._watch is not None:
            self._loop.remove_reader(self._watch)
            self._watch.close()
        self._router.wake = None

    # Turns

    def _wake(self) -> None:
        """Something is to be written that no turn of ours brought."""
        if not self._is_woken and self._loop is not None:
            self._is_woken = True
            self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._is_woken = False
        self._end_turn()

    def _ready(self) -> None:
        """One turn: each socket that is ready, once."""
        if not self._room.has_room:
            self._pause()
            return
        assert self._watch is not None
        self._router.begin_turn()
        clients = self._clients
        try:
            for fd, event in self._watch.poll(0, EVENTS_PER_TURN):
                client = clients.get(fd)
                if client is None:
                    continue
                if event & select.EPOLLOUT:
                    self._unblock(client)
                if event & ~select.EPOLLOUT:
                    self._read(client)
        finally:
            self._end_turn()

    def _readable(self, client: PortClient) -> None:
        """Where there is no epoll: one socket is a turn."""
        if not self._room.has_room:
            self._pause()
            return
        self._router.begin_turn()
        try:
            self._read(client)
        finally:
            self._end_turn()

    def _read(self, client: PortClient) -> None:
        if client.closing is not None:
            return
        try:
            if client.tls is not None:
                self._read_tls(client, client.tls)
            elif client.connection.receive(self._buffer) == 0:
                self.close(client.session, CloseReason.CLIENT)
        except ssl.SSLError:
            self.close(client.session, CloseReason.TLS)
        except OSError:
            self.close(client.session, CloseReason.CLIENT)
        except Exception:
            logger.exception(FAULT.logged_as("a NATS client could not be served"))
            self.close(client.session, CloseReason.PROTOCOL)

    def _read_tls(self, client: PortClient, tls: _TlsStream) -> None:
        try:
            count = client.sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        if not count:
            self.close(client.session, CloseReason.CLIENT)
            return
        was_open = tls.is_open
        try:
            data = tls.take(bytes(self._buffer[:count]))
        finally:
            self._write_sealed(client, tls)  # also why a handshake has failed
        if tls.is_open and not was_open and self._settings.tls_first:
            client.session.greet()
        if data:
            client.connection.feed(data)

    def _end_turn(self) -> None:
        self._router.end_turn()
        while self._closing:
            closing, self._closing = self._closing, []
            for client in closing:
                self._finish(client)

    def _pause(self) -> None:
        if not self._paused.is_set() and self._loop is not None:
            self._paused.set()
            if self._watch is not None:
                self._loop.remove_reader(self._watch)
            else:
                for client in self._clients.values():
                    self._loop.remove_reader(client.sock)

    async def _wait_for_room(self) -> None:
        assert self._loop is not None
        while True:
            await self._paused.wait()
            await self._room.wait()
            self._paused.clear()
            if self._watch is not None:
                self._loop.add_reader(self._watch, self._ready)
            else:
                for client in self._clients.values():
                    self._loop.add_reader(client.sock, self._readable, client)

    # Writing

    def _block(self, client: PortClient) -> None:
        """Its socket takes no more for now."""
        assert self._loop is not None
        if client.blocked_s is None:
            client.blocked_s = time.monotonic()
            self._blocked.add(client)
            if self._watch is not None:
                self._watch.modify(client.sock, select.EPOLLIN | select.EPOLLOUT)
            else:
                self._loop.add_writer(client.sock, self._unblock, client)

    def _unblock(self, client: PortClient) -> None:
        assert self._loop is not None
        pending = client.connection.pending_bytes + len(client.sealed)
        done = (
            client.connection.flush()
            if client.tls is None
            else self._write_sealed(client, client.tls)
        )
        if done:
            client.blocked_s = None
            self._blocked.discard(client)
            if self._watch is not None:
                self._watch.modify(client.sock, select.EPOLLIN)
            else:
                self._loop.remove_writer(client.sock)
        elif client.connection.pending_bytes + len(client.sealed) < pending:
            client.blocked_s = time.monotonic()

    def _write_tls(self, client: PortClient, tls: _TlsStream) -> None:
        """At the end of a turn."""
        if tls.is_open:
            if data := client.connection.take_output():
                tls.put(data)
            self._write_sealed(client, tls)

    def _write_sealed(self, client: PortClient, tls: _TlsStream) -> bool:
        """Whether that was all."""
        client.sealed += tls.sealed()
        while client.sealed:
            try:
                count = client.sock.send(client.sealed)
            except BlockingIOError:
                if len(client.sealed) > self._settings.pending_bytes_max:
                    self.close(client.session, CloseReason.SLOW)
                else:
                    self._block(client)
                return False
            except OSError:
                self.close(client.session, CloseReason.CLIENT)
                return False
            client.sealed = client.sealed[count:]
        return True

    # Clients come and go

    def _accept(self) -> None:
        assert self._sock is not None
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as error:
                logger.warning(CANNOT_ACCEPT, extra={"problem": str(error)})
                self._accept_later()
                break
            self._admit(sock, address[0])
        self._end_turn()

    def _accept_later(self) -> None:
        assert self._loop is not None and self._sock is not None
        sock, loop = self._sock, self._loop
        loop.remove_reader(sock)
        loop.call_later(
            FULL_PAUSE_S, lambda: None if self._retiring else loop.add_reader(sock, self._accept)
        )

    def _admit(self, sock: socket.socket, host: str) -> None:
        settings, context = self._settings, self._tls()
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # it has gone meanwhile
            sock.close()
            return
        self._client_id += 1
        connection = ClientConnection(
            self._router,
            fd=sock.fileno(),
            line_bytes_max=settings.control_line_bytes_max,
            payload_bytes_max=settings.payload_bytes_max,
            pending_bytes_max=settings.pending_bytes_max,
        )
        session = PortSession(
            connection,
            self,
            client_id=self._client_id,
            host=host,
            nonce=self._nonce(),
            login_required=self._log_in is not None,
            subscriptions_max=settings.subscriptions_max,
        )
        client = PortClient(sock, session, None if context is None else _TlsStream(context))
        connection.blocked = lambda: self._block(client)
        if client.tls is not None:
            tls = client.tls
            connection.flushed = lambda: self._write_tls(client, tls)
        self._clients[sock.fileno()] = client
        self._by_session[session] = client
        self._hosts[host] += 1
        self._metrics.nats_port_connections.inc()
        self._due[client] = client.opened_s + settings.ping_interval_ms / 1000
        if session.awaits_login or client.tls is not None:
            self._late[client] = client.opened_s + settings.login_timeout_ms / 1000
        if self._watch is not None:
            self._watch.register(sock, select.EPOLLIN)
        elif self._loop is not None:
            self._loop.add_reader(sock, self._readable, client)
        if len(self._clients) > settings.connections_max or (
            self._hosts[host] > settings.connections_per_address_max
        ):
            connection.put_error(TOO_MANY_CONNECTIONS)
            self.close(session, CloseReason.LIMIT)
        elif not (client.tls is not None and settings.tls_first):
            session.greet()
            if client.tls is not None:  # this comes in the clear, and has the client begin TLS
                client.sealed += connection.take_output()
                self._write_sealed(client, client.tls)

    def _finish(self, client: PortClient) -> None:
        """Write what the socket takes, and close it."""
        assert client.closing is not None
        with contextlib.suppress(OSError):
            if client.closing is CloseReason.SLOW:
                pass
            elif client.tls is None:
                client.connection.flush()
            else:
                self._write_tls(client, client.tls)
        client.connection.close()
        fd = client.sock.fileno()
        del self._clients[fd]
        del self._by_session[client.session]
        self._hosts[client.session.host] -= 1
        if not self._hosts[client.session.host]:
            del self._hosts[client.session.host]
        self._due.pop(client, None)
        self._late.pop(client, None)
        self._blocked.discard(client)
        if client.expiry is not None:
            client.expiry.cancel()
        if self._watch is not None:
            self._watch.unregister(client.sock)
        elif self._loop is not None:
            self._loop.remove_reader(client.sock)
            self._loop.remove_writer(client.sock)
        client.sock.close()
        self._metrics.nats_port_connections.dec()
        self._metrics.nats_port_closed.labels(client.closing.value).inc()
        self._tell_closed(client)

    def _tell_closed(self, client: PortClient) -> None:
        """Of many with one reason, of one a second with their number."""
        reason, now_s = client.closing, time.monotonic()
        assert reason is not None
        if reason in QUIET_REASONS:
            return
        if now_s - self._told_s.get(reason, -CLOSE_LOG_PERIOD_S) < CLOSE_LOG_PERIOD_S:
            self._untold[reason] += 1
            return
        self._told_s[reason] = now_s
        extra: dict[str, object] = {
            "reason": reason.value,
            "peer": client.session.host,
            "client_name": client.session.name,
        }
        if untold := self._untold.pop(reason, 0):
            extra["more_of_these"] = untold
        logger.warning(CONNECTION_CLOSED, extra=extra)

    async def _look_after(self) -> None:
        """Ping clients that are silent; close those that are slow, or late with their login."""
        settings = self._settings
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = time.monotonic()
            while self._late:
                client, until_s = next(iter(self._late.items()))
                if until_s > now_s:
                    break
                del self._late[client]
                if client.session.awaits_login:
                    client.session.give_up_login()
                elif client.tls is not None and not client.tls.is_open:
                    self.close(client.session, CloseReason.TLS)
            while self._due:
                client, due_s = next(iter(self._due.items()))
                if due_s > now_s:
                    break
                del self._due[client]
                self._due[client] = now_s + settings.ping_interval_ms / 1000
                if client.connection.bytes_in == client.bytes_seen:
                    client.session.ping()
                client.bytes_seen = client.connection.bytes_in
            for client in tuple(self._blocked):
                blocked_s = client.blocked_s
                if blocked_s is not None and now_s - blocked_s > settings.write_timeout_ms / 1000:
                    self.close(client.session, CloseReason.SLOW)
            self._end_turn()

    # As the server of the sessions

    def info(self, session: PortSession) -> dict[str, Any]:
        host, port = self.address
        info: dict[str, Any] = {
            "server_id": f"streamlog-{self._cluster_id}-{self._node_id}",
            "server_name": f"streamlog-{self._node_id}",
            "version": NATS_VERSION,
            "streamlog": __version__,
            "proto": 1,
            "go": "",
            "host": host,
            "port": port,
            "headers": True,
            "max_payload": session.connection.payload_bytes_max,
            "jetstream": True,
            "client_id": session.client_id,
            "client_ip": session.host,
            "cluster": self._cluster_id,
            "domain": self._domain,
        }
        if self._log_in is not None:
            info["auth_required"] = True
        if session.nonce:
            info["nonce"] = session.nonce
        if self._tls() is not None:
            info["tls_required"] = True
        if urls := self._connect_urls():
            info["connect_urls"] = urls
        if self._retiring:
            info["ldm"] = True
        return info

    def log_in(self, session: PortSession, options: Mapping[str, Any]) -> None:
        assert self._log_in is not None, "a login is required"
        self._log_in(session, options)

    def close(self, session: PortSession, reason: CloseReason) -> None:
        client = self._by_session.get(session)
        if client is None or client.closing is not None:
            return
        client.closing = reason
        client.connection.suspend()
        self._closing.append(client)
        self._wake()

    def publish_denied(self, session: PortSession, subject: bytes, reply: bytes) -> None:
        """The client has been told by an error line."""

    def expire_at(self, session: PortSession, at_s: float) -> None:
        """End the session when its login does, by the event loop's clock."""
        client = self._by_session.get(session)
        if client is not None and self._loop is not None:
            client.expiry = self._loop.call_at(at_s, session.expire)

    def peer_certificate(self, session: PortSession) -> bytes | None:
        """What the client has shown, as DER; None: nothing."""
        client = self._by_session.get(session)
        return None if client is None or client.tls is None else client.tls.peer_certificate

    def is_encrypted(self, session: PortSession) -> bool:
        client = self._by_session.get(session)
        return client is not None and client.tls is not None


def connect_url(host: str, port: int) -> str:
    """As INFO names one."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
