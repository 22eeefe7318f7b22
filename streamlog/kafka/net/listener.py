"""The listener of the socket API: accepts, counts and closes Kafka clients' connections."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from streamlog.condition import Condition
from streamlog.errors import ConfigError
from streamlog.kafka.auth.login_rate_limit import place_of
from streamlog.kafka.context import Context
from streamlog.kafka.net.channel import SocketChannel
from streamlog.kafka.net.connection import CONNECTION_CLOSED, ClientConnection
from streamlog.kafka.net.request_memory import RequestMemory
from streamlog.kafka.net.tls_channel import OptionalTlsChannel, TlsChannel
from streamlog.kafka.net.unauthenticated_limit import UnauthenticatedLimit
from streamlog.rate_limit import CloseLog

FLOODS: Final = frozenset({"limit", "address limit", "unauthenticated", "tls", "slow", "memory"})
"""Reasons that anybody can bring about as often as they like, and for next to nothing."""

logger = logging.getLogger(__name__)

CANNOT_ACCEPT: Final = Condition(
    "SL-0613",
    "cannot accept",
    "raise the limit of open files: streamlog doctor says how far",
    meaning="The system gives the process no further connection.",
)

_PORT_TROUBLE: Final = {errno.EADDRINUSE, errno.EACCES, errno.EPERM}
_CONGESTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)  # Linux
BACKLOG: Final = 1024
ACCEPTS_PER_TURN: Final = 64
DISK_READERS: Final = 4
"""Threads that read ahead what is not in the page cache; not those that sync."""
FULL_PAUSE_S: Final = 0.2
"""How long not to accept when the process has no file descriptor left."""


class Listener:
    """The port of the socket API, and the connections that came through it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sock: socket.socket | None = None  # from open() until the end of run()
        self._running = False  # run() has begun
        self._acceptable: asyncio.Future[None] | None = None  # while run() waits for a client
        self._connections: dict[ClientConnection, asyncio.Task[None]] = {}
        self._hosts: Counter[str] = Counter()  # connections by the place they come from
        settings = context.settings
        self._unauthenticated = UnauthenticatedLimit(
            settings.unauthenticated_connections_max, settings.handshake_timeout_ms
        )
        self._room = RequestMemory(
            settings.queued_request_bytes_max, settings.queued_request_bytes_per_client_max
        )
        self._closings = CloseLog(FLOODS)
        self._readers = ThreadPoolExecutor(DISK_READERS, thread_name_prefix="cold-read")
        self._stopping = asyncio.Event()  # set once
        self._ended = asyncio.Event()  # the port and every connection are closed

    @property
    def address(self) -> tuple[str, int]:
        """Host and port as bound; the port is the system's choice where the settings say 0."""
        assert self._sock is not None, "open() comes first"
        host, port = self._sock.getsockname()[:2]
        return host, port

    def open(self) -> None:
        """Binds, so that clients may connect; they are answered when ``run`` runs."""
        settings = self._context.settings
        where = (settings.host, settings.port)
        try:
            family = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)[0][0]
            self._sock = socket.create_server(where, family=family, backlog=BACKLOG)
        except UnicodeError:  # "." and the like, which Python does not ask for
            problem = f"cannot listen on {where[0]}:{where[1]} (the host cannot be a name)"
            raise ConfigError("kafka.host", problem, "name an address of this machine") from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno in _PORT_TROUBLE else error.strerror
            problem = f"cannot listen on {where[0]}:{where[1]} ({reason})"
            if error.errno in _PORT_TROUBLE:
                remedy = "free the port or choose another"
                raise ConfigError("kafka.port", problem, remedy) from None
            remedy = "name an address of this machine"
            raise ConfigError("kafka.host", problem, remedy) from None
        self._sock.setblocking(False)
        spare_pacing(self._sock)

    async def run(self) -> None:
        """Accepts until ``stop``, then waits for the last connection to end."""
        assert self._sock is not None, "open() comes first"
        if self._stopping.is_set():
            return
        self._running = True
        logger.info("listening", extra={"address": "{}:{}".format(*self.address)})
        try:
            async with asyncio.TaskGroup() as tasks:
                while not self._stopping.is_set():
                    await self._wait_acceptable()
                    await self._accept_waiting(tasks)
                self._sock.close()
        finally:
            self._close()

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._unauthenticated.close()
        self._readers.shutdown(wait=False)
        if self._context.authenticator is not None:
            self._context.authenticator.close()
        self._ended.set()

    async def stop(self, timeout_s: float = 2.0) -> None:
        """Those who are being answered get their answer, polls at once; then all is closed."""
        self._stopping.set()
        if not self._running:
            self._close()
        if self._acceptable is not None and not self._acceptable.done():
            self._acceptable.set_result(None)
        for connection in self._connections:
            connection.stop()
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            for task in self._connections.values():
                task.cancel()
            await self._ended.wait()

    async def _wait_acceptable(self) -> None:
        assert self._sock is not None
        loop = asyncio.get_running_loop()
        self._acceptable = waiter = loop.create_future()
        loop.add_reader(self._sock, lambda: None if waiter.done() else waiter.set_result(None))
        try:
            await waiter
        finally:
            loop.remove_reader(self._sock)
            self._acceptable = None

    async def _accept_waiting(self, tasks: asyncio.TaskGroup) -> None:
        """Those who have come since the last turn, up to a bound."""
        assert self._sock is not None
        for _ in range(ACCEPTS_PER_TURN):
            if self._stopping.is_set():
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning(CANNOT_ACCEPT, extra={"problem": str(error)})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FULL_PAUSE_S):
                        await self._stopping.wait()
                return
            self._admit(sock, address[0], address[1], tasks)

    def _admit(self, sock: socket.socket, host: str, port: int, tasks: asyncio.TaskGroup) -> None:
        settings, peer = self._context.settings, f"{host}:{port}"
        if len(self._connections) >= settings.connections_max:
            self._refuse(sock, peer, "limit", settings.connections_max)
            return
        place = place_of(host)
        if self._hosts[place] >= settings.connections_per_address_max:
            self._refuse(sock, peer, "address limit", settings.connections_per_address_max)
            return
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            channel = self._channel(sock)
        except OSError:  # it has gone meanwhile
            sock.close()
            return
        if not self._unauthenticated.admit(channel.end):
            channel.close()
            self._refuse(sock, peer, "unauthenticated", settings.unauthenticated_connections_max)
            return
        connection = ClientConnection(
            channel,
            peer,
            self._context,
            self._readers,
            room=self._room,
            settled=lambda: self._unauthenticated.settle(channel.end),
            tell=self._tell,
        )
        self._context.metrics.connections.inc()
        self._connections[connection] = task = tasks.create_task(connection.run())
        self._hosts[place] += 1
        task.add_done_callback(lambda _: self._forget(connection, channel, place))

    def _channel(self, sock: socket.socket) -> SocketChannel:
        """Raises OSError."""
        settings, context = self._context.settings, self._context.tls()
        limits = settings.idle_timeout_ms, settings.send_timeout_ms
        if context is None:
            return SocketChannel(sock, asyncio.get_running_loop(), *limits)
        if self._context.security_optional:
            return OptionalTlsChannel.over(sock, context, asyncio.get_running_loop(), *limits)
        return TlsChannel.over(sock, context, asyncio.get_running_loop(), *limits)

    def _refuse(self, sock: socket.socket, peer: str, reason: str, limit: int) -> None:
        sock.close()
        self._context.metrics.connections_closed.labels(reason).inc()
        self._tell({"peer": peer, "reason": reason, "limit": limit})

    def _tell(self, closed: dict[str, object]) -> None:
        """Of a connection that this node has closed; of many, of one a second with their number."""
        if (line := self._closings.line(closed, time.monotonic())) is not None:
            logger.warning(CONNECTION_CLOSED, extra=line)

    def _forget(self, connection: ClientConnection, channel: SocketChannel, place: str) -> None:
        self._unauthenticated.settle(channel.end)
        channel.close()  # a task that is cancelled before its first step closes nothing itself
        del self._connections[connection]
        self._hosts[place] -= 1
        if not self._hosts[place]:
            del self._hosts[place]
        self._context.metrics.connections.dec()


def spare_pacing(sock: socket.socket) -> None:
    """Where clients come from this machine only, there is no network to be gentle to.

    Some systems pace what they send (BBR): with an answer at a time that is a timer for each
    packet, which costs as much again as sending does. Those who are accepted inherit this.
    """
    if _CONGESTION is not None and ipaddress.ip_address(sock.getsockname()[0]).is_loopback:
        with contextlib.suppress(OSError):  # it may not be there
            sock.setsockopt(socket.IPPROTO_TCP, _CONGESTION, b"reno")
