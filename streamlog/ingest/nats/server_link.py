"""The node's connection to the nats-servers that it is a client of. It is made again for as long as it is wanted.

``ServerPool`` decides which server is next, ``OutgoingCall`` has the handshake, ``ServerConnection`` the protocol.
``ServerLink`` gets in by ``NatsOptions``, never says a secret in the clear, waits longer for a server that refuses
it, outlives error lines that leave the connection alone, and notices when it was cut off as a slow consumer.

**A wordless end.** nats-server closes the connection of a slow consumer without a word. So after such an end the
same server is tried first: if it is still the same process, it has cut this node off.
"""

import asyncio
import ipaddress
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from urllib.parse import ParseResult, urlparse

import nats.errors

from streamlog import __version__
from streamlog.condition import FAULT
from streamlog.errors import ConfigError, StreamlogError
from streamlog.ingest.nats.errors import EndedEarly, InTheClear, SlowConsumerCut, Unusable
from streamlog.ingest.nats.options import PING_INTERVAL_S, PINGS_OUTSTANDING_MAX, NatsOptions
from streamlog.ingest.nats.subscription_list import Subscriptions, unsubscribe_commands
from streamlog.nats.links import OutgoingCall, connect_url, dialled
from streamlog.nats.router import Router, Subscription
from streamlog.nats.server_connection import ServerConnection
from streamlog.nats.sockets import CloseReason, Sockets, TlsFilter

logger = logging.getLogger(__name__)

DEFAULT_PORT: Final = 4222
CONNECT_S: Final = 2.0
"""Until the socket is connected, and again until the server greets."""
HANDSHAKE_S: Final = 5.0
"""From the greeting until the server has let us in."""
WRITE_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Answers that NATS has not taken yet. Above it nothing more is read from it."""
PENDING_BYTES_MAX: Final = 1 << 30
"""The same, whatever is read. Answers to what is in flight are less."""
WRITTEN_LOOK_S: Final = 0.005
FRAME_OVERHEAD_BYTES: Final = 64 * 1024
"""Of a message beside the payload that the server allows."""
DEFAULT_PAYLOAD_BYTES_MAX: Final = 1024 * 1024
SUBJECTS_BYTES_MAX: Final = 4096 - len("HPUB   1234567890 1234567890\r\n")
"""Of a subject and a reply subject: nats-server takes a line of 4096 bytes by default."""

_SURVIVABLE: Final = (
    "permissions violation",
    "invalid subject",
    "invalid publish subject",
    "maximum subscriptions exceeded",
)
_WORDLESS: Final = (CloseReason.PEER, CloseReason.SOCKET, CloseReason.TLS)


class Server:
    """One server, and what is known of it."""

    def __init__(
        self, url: ParseResult, *, is_discovered: bool = False, tls_name: str = ""
    ) -> None:
        """``is_discovered``: another server has told of it. ``tls_name``: what its certificate is for, where that
        is not its host.
        """
        self.url = url
        self.host = url.hostname or ""
        self.port = url.port or DEFAULT_PORT
        self.is_discovered = is_discovered
        self.tls_name = tls_name
        self.last_attempt_s: float | None = None
        self.refusals = 0
        """In a row; one that cannot be reached has refused nothing."""

    @property
    def place(self) -> str:
        """As other servers name it."""
        return connect_url(self.host, self.port)


class ServerPool:
    """Which server is tried next: each in turn, beginning with any. Pure but for chance."""

    def __init__(self, addresses: Iterable[str], *, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._servers = [Server(urlparse(_with_scheme(address))) for address in addresses]
        self._rng.shuffle(self._servers)
        self.current: Server | None = None
        """That was connected last."""
        self.returns = False
        """It is to be tried first."""

    def next(self) -> Server:
        """Which goes to the end of the row."""
        returns, self.returns = self.returns, False
        first = 0
        if returns and self.current in self._servers:
            first = self._servers.index(self.current)
        server = self._servers.pop(first)
        self._servers.append(server)
        return server

    def discover(self, told: Sequence[str], by: Server, *, is_encrypted: bool) -> None:
        """What the servers tell of each other is used, for as long as they tell it. An address without a name
        has the certificate of ``by``.
        """
        if not told:
            return
        told = [place.lower() for place in told]
        self._servers = [
            server
            for server in self._servers
            if not server.is_discovered or server is by or server.place in told
        ]
        known = {server.place for server in self._servers}
        found = []
        for place in told:
            try:
                url = urlparse(f"nats://{place}")
                tls_name = by.host if is_encrypted and _is_address(url.hostname or "") else ""
                server = Server(url, is_discovered=True, tls_name=tls_name)
            except ValueError:
                continue
            if server.host and server.place not in known:
                known.add(server.place)
                found.append(server)
        self._rng.shuffle(found)
        self._servers += found


class ServerLink:
    """``run`` until it is closed or cancelled. What is subscribed to outlives connections.

    Invariant: a sid that has ended is never said again, but is heard until it is forgotten.
    """

    def __init__(
        self,
        options: NatsOptions,
        router: Router,
        sockets: Sockets,
        subscriptions: Subscriptions,
        *,
        name: str,
        connected: Callable[[], None],
        disconnected: Callable[[Exception | None], None],
        failed: Callable[[Exception], None],
        echo: bool = True,
        heeds_room: bool = True,
        is_marked: bool = False,
        domain_prefix: bytes = b"",
        connect_s: float = CONNECT_S,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        """``connected``: the server is there, or there again, and all has been said to it; ``disconnected``: with
        what the connection has ended for, where that is known; ``failed``: an attempt failed, or the server
        complains. ``echo``: the server sends it what it publishes itself. ``heeds_room``: nothing is read where
        there is no room. ``is_marked``: the router's marks go over it. ``domain_prefix``: as of ``Connection``.
        ``connect_s``: until the socket is connected, and again until the server greets.
        """
        self.max_payload = DEFAULT_PAYLOAD_BYTES_MAX
        """Of a message to the server, its headers included."""
        self.connected_url: ParseResult | None = None
        """Of the server that is there, or was last."""
        self._options = options
        self._router = router
        self._sockets = sockets
        self._subscriptions = subscriptions
        self._name = name
        self._connected = connected
        self._disconnected = disconnected
        self._failed = failed
        self._echo = echo
        self._heeds_room = heeds_room
        self._is_marked = is_marked
        self._domain_prefix = domain_prefix
        self._connect_s = connect_s
        self._handshake_s = handshake_s
        self._pool = ServerPool(options.servers)
        self._call: OutgoingCall | None = None
        """That was let in."""
        self._pongs: deque[asyncio.Future[bool] | None] = deque()
        """What waits for a PONG, in the order of the PINGs."""
        self._pings_outstanding = 0
        self._cut_off_by: object = None
        """The id of the server that has ended the last connection without a word."""
        self._closed = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self._call is not None and not self._call.connection.is_closed

    async def run(self) -> None:
        """Be connected until ``close``; wait for a NATS that is not there."""
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(self._keep_calling())
            await self._closed.wait()
            calling.cancel()

    def close(self) -> None:
        """Write what the socket takes, and connect never again."""
        self._closed.set()
        self._leave()

    # What is said

    def write(self, data: bytes) -> None:
        """Whole lines of the protocol; dropped without a connection, as NATS itself drops messages."""
        if data and self._call is not None:
            self._call.connection.send(data)

    @property
    def is_full(self) -> bool:
        """The server has taken too little."""
        return self._call is not None and self._call.unwritten_bytes > WRITE_BUFFER_BYTES_MAX

    async def wait_written(self) -> None:
        """Wait while the server takes too little, and is there."""
        while self.is_connected and self.is_full:  # noqa: ASYNC110 (the system tells no one)
            await asyncio.sleep(WRITTEN_LOOK_S)

    async def round_trip(self, timeout_s: float) -> bool:
        """All that was written is at the server, and all that it had sent before is received."""
        if not self.is_connected:
            return False
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ping(pong)
        try:
            async with asyncio.timeout(timeout_s):
                return await pong
        except TimeoutError:
            return False

    def hear(self, subscription: Subscription) -> Callable[[], None]:
        """Have it told of messages, now or when the server is there; what this returns ends that at once."""
        sid = self._subscriptions.add(subscription)
        self.subscribe([sid])

        def end() -> None:
            self._subscriptions.remove(sid)
            self.unsubscribe([sid])
            self.forget([sid])

        return end

    def subscribe(self, sids: Sequence[int]) -> None:
        """Say those of the subscriptions in one write, now or when the server is there."""
        if self.is_connected:
            self._bind(sids)
            self.write(self._subscriptions.commands(sids))

    def unsubscribe(self, sids: Iterable[int]) -> None:
        """What is under way still comes."""
        self.write(unsubscribe_commands(sids))

    def forget(self, sids: Iterable[int]) -> None:
        """Drop what still comes for them, which ended before."""
        if self._call is not None:
            connection = _of_server(self._call)
            for sid in sids:
                connection.unbind(sid)

    def _bind(self, sids: Iterable[int]) -> None:
        assert self._call is not None, "connected"
        connection = _of_server(self._call)
        for sid in sids:
            connection.bind(sid, self._subscriptions.subscription(sid))

    # Its task

    async def _keep_calling(self) -> None:
        """A server that cannot be reached is tried again soon, one that refuses us later."""
        while not self._sockets.is_closed:
            server = self._pool.next()
            if server.last_attempt_s is not None:
                due_s = server.last_attempt_s + self._options.pause_s(server.refusals)
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            await self._try(server)

    async def _try(self, server: Server) -> None:
        """Until the connection has ended."""
        server.last_attempt_s = time.monotonic()
        try:
            async with asyncio.timeout(self._connect_s):
                sock = await dialled(server.host, server.port)
        except OSError as error:  # a time-out, too
            server.last_attempt_s, server.refusals = time.monotonic(), 0
            self._failed(error)
            return
        if self._sockets.is_closed:
            sock.close()
            return
        try:
            await self._talk(server, sock)
        except (OSError, StreamlogError, nats.errors.Error) as error:
            self._failed(error)
        except Exception as error:
            logger.exception(FAULT.logged_as("connecting to NATS failed"))
            self._failed(error)
        else:
            server.refusals = 0
            return
        server.last_attempt_s = time.monotonic()
        server.refusals += 1

    async def _talk(self, server: Server, sock: Any) -> None:
        """Raises what it was not let in for."""
        connection = ServerConnection(
            self._router, fd=sock.fileno(), pending_bytes_max=PENDING_BYTES_MAX
        )
        connection.domain_prefix = self._domain_prefix
        call: OutgoingCall = OutgoingCall(
            self._sockets,
            sock,
            connection,
            connect=lambda info: self._introduction(call, server, info),
            tls=lambda info: self._tls_to(server, info),
            tls_first=self._options.tls.first,
            refused=lambda words: self._refused(call, words),
            told=lambda info: self._informed(call, server, info),
            ponged=self._ponged,
            heeds_room=self._heeds_room,
            unwritten_bytes_max=WRITE_BUFFER_BYTES_MAX,
        )
        try:
            if not await call.is_let_in(greeting_s=self._connect_s, handshake_s=self._handshake_s):
                raise EndedEarly(call.is_encrypted)
            self._begin(call, server)
            await self._stay(call)
        finally:
            call.close()
            self._end(call)

    def _begin(self, call: OutgoingCall, server: Server) -> None:
        self._call, self._pool.current = call, server
        self._pings_outstanding = 0
        if self._is_marked:
            self._router.join_marks(call.connection)
        self.connected_url = server.url._replace(netloc=server.place)
        sids = self._subscriptions.sids()
        self._bind(sids)
        self.write(self._subscriptions.commands(sids))
        self._connected()
        cut_off_by, self._cut_off_by = self._cut_off_by, None
        if cut_off_by is not None and cut_off_by == call.info.get("server_id"):
            self._failed(SlowConsumerCut())

    async def _stay(self, call: OutgoingCall) -> None:
        """Until it has ended, or answers no PING."""
        while True:
            await asyncio.wait((call.over,), timeout=PING_INTERVAL_S)
            if call.over.done():
                break
            if self._heeds_room and self._sockets.is_paused:
                self._pings_outstanding = 0  # an answer may be there, and is not read
            self._pings_outstanding += 1
            if self._pings_outstanding > PINGS_OUTSTANDING_MAX:
                return
            self._ping(None)
        if call.over.result() in _WORDLESS:
            self._cut_off_by = call.info.get("server_id")
            self._pool.returns = True

    def _end(self, call: OutgoingCall) -> None:
        if self._call is call:
            self._leave()
            self._disconnected(call.error)

    def _leave(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.close()
        pongs, self._pongs = self._pongs, deque()
        for pong in pongs:
            if pong is not None and not pong.done():
                pong.set_result(False)

    # The handshake

    def _tls_to(self, server: Server, info: dict[str, Any]) -> TlsFilter | None:
        """Raises InTheClear and Unusable."""
        tls = self._options.tls
        offered = info.get("tls_required") or info.get("tls_available")
        if tls.required and not (tls.first or offered):
            raise InTheClear
        if not (tls.required or tls.first or info.get("tls_required")):
            return None
        try:
            context = tls.context()
        except ConfigError as error:
            raise Unusable(str(error)) from None
        return TlsFilter(context, server_name=tls.server_name or server.tls_name or server.host)

    def _introduction(
        self, call: OutgoingCall, server: Server, info: dict[str, Any]
    ) -> dict[str, Any]:
        """Raises Unusable."""
        self._informed(call, server, info)
        try:
            login = self._options.login.fields(str(info.get("nonce", "")))
        except ConfigError as error:
            raise Unusable(str(error)) from None
        headers = bool(info.get("headers"))
        return {
            "verbose": False,
            "pedantic": False,
            "lang": "streamlog",
            "version": __version__,
            "protocol": 1,
            "name": self._name,
            "headers": headers,
            "no_responders": headers,
            "echo": self._echo,
            **login,
        }

    def _informed(self, call: OutgoingCall, server: Server, info: dict[str, Any]) -> None:
        """At the greeting, and whenever something has changed."""
        limit = info.get("max_payload", self.max_payload)
        if isinstance(limit, int) and limit > 0:
            self.max_payload = limit
            call.connection.payload_bytes_max = limit + FRAME_OVERHEAD_BYTES
        told = info.get("connect_urls")
        if isinstance(told, list):
            places = [it for it in told if isinstance(it, str)]
            self._pool.discover(places, server, is_encrypted=call.is_encrypted)

    def _refused(self, call: OutgoingCall, words: str) -> None:
        if self._call is not call:
            call.end(CloseReason.LOGIN, nats.errors.Error(f"nats: {words}"))
            return
        text = words.strip("'")
        error = nats.errors.Error(f"nats: {text}")
        self._failed(error)
        if not is_survivable(text):
            call.end(CloseReason.PROTOCOL, error)

    def _ping(self, pong: "asyncio.Future[bool] | None") -> None:
        assert self._call is not None, "connected"
        self._pongs.append(pong)
        self._call.connection.ping()

    def _ponged(self) -> None:
        self._pings_outstanding = 0
        if self._pongs:
            pong = self._pongs.popleft()
            if pong is not None and not pong.done():  # else the waiter has given up
                pong.set_result(True)


def is_survivable(words: str) -> bool:
    """The server keeps the connection after such an error line."""
    return any(it in words.lower() for it in _SURVIVABLE)


def _of_server(call: OutgoingCall) -> ServerConnection:
    assert isinstance(call.connection, ServerConnection), "it is one"
    return call.connection


def _with_scheme(address: str) -> str:
    return address if "://" in address else f"nats://{address}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
