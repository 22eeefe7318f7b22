"""The node's own NATS port: it accepts clients, limits them, and ends those that are silent or late.

What a client says means what ``port_session`` and ``client_connection`` say; ``sockets`` serves it.
"""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from streamlog import __version__
from streamlog.condition import Condition
from streamlog.config import NatsListenSection
from streamlog.errors import AuthenticationFailed, ConfigError
from streamlog.metrics import NodeMetrics
from streamlog.nats.auth import err
from streamlog.nats.auth.port_authenticator import AdmittedClient, PortAuthenticator
from streamlog.nats.auth.stream_access import StreamAccess, StreamIndex
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.domain import domain_prefix
from streamlog.nats.message_trace import MessageTrace
from streamlog.nats.port_session import PortSession
from streamlog.nats.router import Router
from streamlog.nats.sockets import CloseReason, ServedSocket, Sockets, TlsFilter
from streamlog.rate_limit import CloseLog
from streamlog.tls.certificate import read_certificate

logger = logging.getLogger(__name__)

CANNOT_ACCEPT: Final = Condition(
    "SL-0418",
    "the NATS port cannot accept",
    "raise the limit of open files: streamlog doctor says how far",
    meaning="The system gives the process no further connection.",
)
CLIENT_CLOSED: Final = Condition(
    "SL-0419",
    "NATS client closed",
    "see its reason: a slow client must read faster, a login must be right",
    meaning="The node closed the connection of a client of its NATS port.",
)

NATS_VERSION: Final = "2.14.0"
"""The nats-server whose protocol this port speaks: clients decide by it what they ask for."""
ACCEPTS_PER_TURN: Final = 64
BACKLOG: Final = 1024
FULL_PAUSE_S: Final = 0.2
"""Pause in accepting when the process has no file descriptor left."""
LOOK_S: Final = 0.5
"""Interval between checks for clients that are silent or late."""
FIRST_PING_S: Final = 2.0
"""As nats-server: each client has its first PING so soon, silent or not. There are programs that wait
for it to see that a server serves.
"""
LOGIN_LOOK_S: Final = 5.0
"""Interval between checks for logins that were revoked."""
QUIET_REASONS: Final = frozenset({CloseReason.PEER, CloseReason.STOP})
FLOODS: Final = frozenset(it.value for it in CloseReason if it not in QUIET_REASONS)
"""Reasons that clients can bring about as often as they like."""


class PortClient:
    """One client's connection."""

    __slots__ = ("bytes_seen", "expiry", "peer", "session")

    def __init__(self, session: PortSession) -> None:
        self.session = session
        self.peer: ServedSocket | None = None
        self.bytes_seen = -1
        """Bytes received at the last check."""
        self.expiry: asyncio.TimerHandle | None = None


class Port:
    """``open`` binds, ``run`` accepts, ``retire`` tells clients to leave, ``stop`` closes."""

    def __init__(
        self,
        settings: NatsListenSection,
        router: Router,
        sockets: Sockets,
        *,
        node_id: int,
        cluster_id: str,
        domain: str,
        metrics: NodeMetrics,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        api_level: int = 0,
        connect_urls: Callable[[], list[str]] = list,
        authenticator: PortAuthenticator | None = None,
        streams: StreamIndex | None = None,
        refusal: Callable[[str], bytes] = lambda _: b"",
        link: Callable[[ServedSocket, object], bool] | None = None,
    ) -> None:
        """``api_level``: of the JetStream API that is answered. ``connect_urls``: of all nodes' ports, as
        clients reach them. ``authenticator``: None: no client has to log in. ``streams``: by which access
        rules hold. ``refusal``: the answer to a message for a stream that its publisher may not write to.
        ``link``: makes a link to another node of a connection that asks for one; False: it may not.
        """
        self._settings = settings
        self._first_ping_s = min(FIRST_PING_S, settings.ping_interval_ms / 1000)
        self._router = router
        self._sockets = sockets
        self._server_id = f"streamlog-{cluster_id}-{node_id}"
        self._server_name = f"streamlog-{node_id}"
        self._cluster_id = cluster_id
        self._domain = domain
        self._domain_prefix = domain_prefix(domain)
        self._metrics = metrics
        self._tls = tls
        self._api_level = api_level
        self._connect_urls = connect_urls
        self._authenticator = authenticator
        self._streams = streams or StreamIndex()
        self._refusal = refusal
        self._accounts: Counter[str] = Counter()
        """Number of connections by the public key of their account."""
        self._tasks: asyncio.TaskGroup | None = None
        self._link = link
        self._sock: socket.socket | None = None
        self._address: tuple[str, int] | None = None
        self._clients: dict[PortSession, PortClient] = {}
        self._hosts: Counter[str] = Counter()
        self._due: dict[PortClient, float] = {}
        """When each client is pinged if it stays silent; the earliest first."""
        self._first_pings: dict[PortClient, float] = {}
        """When each client is pinged for the first time; the earliest first."""
        self._late: dict[PortClient, float] = {}
        """Clients that have not logged in, and until when they may; the earliest first."""
        self._client_id = 0
        self._traces = 0
        self._closings = CloseLog(FLOODS)
        self._stopping = asyncio.Event()
        self._retiring = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port as bound."""
        assert self._address is not None, "open() comes first"
        return self._address

    @property
    def is_open(self) -> bool:
        return self._sock is not None and not self._stopping.is_set()

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
        host, port = self._sock.getsockname()[:2]
        self._address = host, port

    async def run(self) -> None:
        """Accept clients until ``stop``."""
        assert self._sock is not None, "open() comes first"
        if self._retiring:
            return
        loop = self._loop = asyncio.get_running_loop()
        logger.info("NATS port listening", extra={"address": "{}:{}".format(*self.address)})
        loop.add_reader(self._sock, self._accept)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                looking = [tasks.create_task(self._look_after())]
                if self._authenticator is not None:
                    looking.append(tasks.create_task(self._look_at_logins()))
                await self._stopping.wait()
                for task in looking:
                    task.cancel()
        finally:
            self.retire()

    def retire(self) -> None:
        """Accept no further client, and have clients look for another node (lame-duck mode)."""
        if self._retiring:
            return
        self._retiring = True
        if self._sock is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._sock)
            self._sock.close()  # a client that waits to be accepted tries another node at once
        self.tell_info()

    async def stop(self) -> None:
        """Write what is to be written, and close every connection. May be called again."""
        self.retire()
        for client in tuple(self._clients.values()):
            self.close(client.session, CloseReason.STOP)
        self._sockets.end_turn()
        self._stopping.set()

    def tell_info(self) -> None:
        """Have each client know what has changed: the other nodes' ports, or that this one is to close."""
        for client in tuple(self._clients.values()):
            client.session.tell_info()

    # Clients come and go

    def _accept(self) -> None:
        assert self._sock is not None, "open() comes first"
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
        self._sockets.end_turn()

    def _accept_later(self) -> None:
        assert self._loop is not None and self._sock is not None, "run() runs"
        sock, loop = self._sock, self._loop
        loop.remove_reader(sock)

        def again() -> None:
            if not self._retiring:
                loop.add_reader(sock, self._accept)

        loop.call_later(FULL_PAUSE_S, again)

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
        connection.domain_prefix = self._domain_prefix
        session = PortSession(
            connection,
            self,
            client_id=self._client_id,
            host=host,
            nonce=self._new_nonce(),
            login_required=self._authenticator is not None,
            subscriptions_max=settings.subscriptions_max,
        )
        client = PortClient(session)
        tls = None if context is None else TlsFilter(context)
        greets_late = tls is not None and settings.tls_first
        client.peer = self._sockets.add(
            sock,
            connection,
            tls=tls,
            ended=partial(self._ended, client),
            opened=session.greet if greets_late else None,
        )
        self._clients[session] = client
        self._hosts[host] += 1
        self._metrics.nats_port_connections.inc()
        now_s = time.monotonic()
        self._due[client] = now_s + settings.ping_interval_ms / 1000
        self._first_pings[client] = now_s + self._first_ping_s
        if session.awaits_login or tls is not None:
            self._late[client] = now_s + settings.login_timeout_ms / 1000
        if len(self._clients) > settings.connections_max or (
            self._hosts[host] > settings.connections_per_address_max
        ):
            connection.put_error(err.CONNECTIONS_EXCEEDED)
            self.close(session, CloseReason.LIMIT)
        elif not greets_late:
            session.greet()
            if tls is not None:  # the greeting is in the clear, and has the client begin TLS
                self._sockets.send_clear(client.peer)

    def _ended(self, client: PortClient, _: ServedSocket, reason: CloseReason) -> None:
        self._forget(client)
        self._metrics.nats_port_closed.labels(reason.value).inc()
        closed: dict[str, object] = {
            "reason": reason.value,
            "peer": client.session.host,
            "client_name": client.session.name,
        }
        if reason not in QUIET_REASONS and (line := self._closings.line(closed, time.monotonic())):
            logger.warning(CLIENT_CLOSED, extra=line)

    def _forget(self, client: PortClient) -> None:
        del self._clients[client.session]
        self._hosts[client.session.host] -= 1
        if not self._hosts[client.session.host]:
            del self._hosts[client.session.host]
        self._due.pop(client, None)
        self._first_pings.pop(client, None)
        self._late.pop(client, None)
        if client.expiry is not None:
            client.expiry.cancel()
        login = client.session.login
        if login is not None and login.account:
            self._accounts[login.account] -= 1
        if login is not None and login.is_tolerated:
            self._metrics.unauthenticated_connections.dec()
        self._metrics.nats_port_connections.dec()

    async def _look_after(self) -> None:
        """Ping clients that are new or silent; close those that are late with their login."""
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = time.monotonic()
            while self._late:
                client, until_s = next(iter(self._late.items()))
                if until_s > now_s:
                    break
                del self._late[client]
                self._end_if_late(client)
            while self._first_pings:
                client, due_s = next(iter(self._first_pings.items()))
                if due_s > now_s:
                    break
                del self._first_pings[client]
                if client.session.is_served:
                    client.session.ping()
                else:
                    self._first_pings[client] = now_s + self._first_ping_s
            while self._due:
                client, due_s = next(iter(self._due.items()))
                if due_s > now_s:
                    break
                del self._due[client]
                self._due[client] = now_s + self._settings.ping_interval_ms / 1000
                if client.session.connection.bytes_in == client.bytes_seen:
                    client.session.ping()
                client.bytes_seen = client.session.connection.bytes_in
            self._sockets.end_turn()

    def _end_if_late(self, client: PortClient) -> None:
        tls = None if client.peer is None else client.peer.tls
        if tls is not None and not tls.is_open:
            self.close(client.session, CloseReason.TLS)
        elif client.session.awaits_login:
            client.session.give_up_login()

    # As the server of the sessions

    def info(self, session: PortSession) -> dict[str, Any]:
        host, port = self.address
        info: dict[str, Any] = {
            "server_id": self._server_id,
            "server_name": self._server_name,
            "version": NATS_VERSION,
            "streamlog": __version__,
            "proto": 1,
            "go": "",
            "host": host,
            "port": port,
            "headers": True,
            "max_payload": session.connection.payload_bytes_max,
            "jetstream": True,
            "api_lvl": self._api_level,
            "client_id": session.client_id,
            "client_ip": session.host,
            "cluster": self._cluster_id,
            "domain": self._domain,
        }
        if self._authenticator is not None and self._authenticator.required:
            info["auth_required"] = True
        if session.nonce:
            info["nonce"] = session.nonce
        if (tls := self._tls()) is not None:
            info["tls_required"] = True
            if tls.verify_mode is ssl.CERT_REQUIRED:
                info["tls_verify"] = True
        if urls := self._connect_urls():
            info["connect_urls"] = urls
        if self._retiring:
            info["ldm"] = True
        return info

    def log_in(self, session: PortSession, options: Mapping[str, Any]) -> None:
        assert self._tasks is not None, "run() runs"
        self._tasks.create_task(self._check_login(session, options))

    async def _check_login(self, session: PortSession, options: Mapping[str, Any]) -> None:
        authenticator, client = self._authenticator, self._clients.get(session)
        assert authenticator is not None, "a login is required"
        if client is None or client.peer is None:
            return
        tls = client.peer.tls
        shown = None if tls is None else tls.peer_certificate
        try:
            login = await authenticator.log_in(
                options,
                nonce=session.nonce,
                host=session.host,
                tls_subject=None if shown is None else read_certificate(shown).subject,
                is_encrypted=tls is not None,
            )
        except AuthenticationFailed:
            session.refuse()
        else:
            if session in self._clients:
                self._let_in(client, login)
        self._sockets.login_ended(client.peer)
        self._sockets.end_turn()

    def _let_in(self, client: PortClient, login: AdmittedClient) -> None:
        session, account = client.session, login.account
        before = session.login
        if before is not None and before.account:  # it has logged in again
            self._accounts[before.account] -= 1
        account_max = login.limits.account_connections_max
        if account and account_max is not None and self._accounts[account] >= account_max:
            session.expire(err.ACCOUNT_CONNECTIONS_EXCEEDED)
            return
        if account:
            self._accounts[account] += 1
        if login.is_tolerated and (before is None or not before.is_tolerated):
            self._metrics.unauthenticated_connections.inc()
        if client.expiry is not None:
            client.expiry.cancel()
            client.expiry = None
        if login.expires_s is not None and self._loop is not None:
            client.expiry = self._loop.call_at(login.expires_s, session.expire, login.expiry)
        self._late.pop(client, None)
        session.admit(login, StreamAccess(login, self._streams))

    async def _look_at_logins(self) -> None:
        """Close connections whose login has been taken back."""
        while True:
            await asyncio.sleep(LOGIN_LOOK_S)
            for client in tuple(self._clients.values()):
                login = client.session.login
                if login is not None and (words := await login.ending()) is not None:
                    client.session.expire(words)
            self._sockets.end_turn()

    def _new_nonce(self) -> str:
        authenticator = self._authenticator
        if authenticator is None or not authenticator.nonce_wanted:
            return ""
        return authenticator.new_nonce()

    def become_link(self, session: PortSession, asked: object) -> bool:
        client = self._clients.get(session)
        if self._link is None or client is None or client.peer is None:
            return False
        peer = client.peer
        if not self._link(peer, asked):
            return False
        self._forget(client)
        return True

    def close(self, session: PortSession, reason: CloseReason) -> None:
        client = self._clients.get(session)
        if client is not None and client.peer is not None:
            self._sockets.end(client.peer, reason)

    def publish_denied(self, stream: str, reply: bytes) -> None:
        self._router.reply(reply, self._refusal(stream))

    def publish_trace(self, session: PortSession, trace: MessageTrace) -> None:
        self._traces += 1
        server = {
            "name": self._server_name,
            "host": self.address[0],
            "id": self._server_id,
            "cluster": self._cluster_id,
            "domain": self._domain,
            "ver": NATS_VERSION,
            "jetstream": True,
            "seq": self._traces,
        }
        text = trace.text(
            server,
            session.connection,
            account="" if session.login is None else session.login.account,
            streams=self._streams.taking,
            now_ns=time.time_ns(),
        )
        self._router.publish(
            trace.request.destination.encode(errors="replace"),
            text,
            source=session.connection,  # a trace asks for nothing that its client may not ask for
            echo=True,
        )
