"""Links in NATS's leafnode protocol: to the cluster's other nodes, and to the user's nats-servers.

Over a link each side tells the other what it wants (``LS+``, ``LS-``) and sends what the other wants (``LMSG``).
A message that comes over a link goes to this node's subscriptions alone (``Router.deliver_linked``); each node
has its own link to each other node and to NATS. So a message takes one hop, and there are no loops. nats-servers
know the nodes as one cluster by the name in CONNECT, and pass on nothing from one of them to another.

**The handshake.** The side that was called greets with INFO. The caller starts TLS where that is wanted, sends
CONNECT and PING; the first PONG says that it was let in, and each side begins to tell what it wants.
``OutgoingCall`` is the caller's side of it, of a link and of a client of nats-servers (``ingest.nats``) alike.
Of what came in the clear before TLS nothing but a refusal is believed.

**Between nodes** the one with the greater id calls. It asks the other node over the socket API, where nodes
are authenticated, where the NATS port is, and gets a token of that process with the answer, which it shows in
CONNECT. Each side sends a PING every ``PING_S``. A link that brings nothing for ``SILENCE_S`` is given up; time
in which this node itself reads nothing does not count (``Sockets.is_paused``).
"""

import asyncio
import contextlib
import hmac
import json
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from streamlog.condition import FAULT, Condition
from streamlog.errors import MalformedFrame, ProtocolViolation, StreamlogError
from streamlog.nats.connection import Connection
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.port_session import LINK_OPTION
from streamlog.nats.router import Router
from streamlog.nats.sockets import CloseReason, ServedSocket, Sockets, TlsFilter

logger = logging.getLogger(__name__)

LINK_LOST: Final = Condition(
    "SL-0420",
    "link lost",
    "see that the other side runs and can be reached; messages between the two wait for a new link",
    meaning="A link to another node's NATS port, or to nats-server as a leafnode, has ended.",
)
LINK_REFUSED: Final = Condition(
    "SL-0421",
    "link refused",
    "see the error: the login, the permissions, or the port is another one",
    meaning="The other side of a link does not let this node in, or does not let it do something.",
)

PING_S: Final = 2.0
SILENCE_S: Final = 8.0
"""After so long without a byte the other side is taken for gone."""
HANDSHAKE_S: Final = 5.0
RETRY_S: Final = 0.25
RETRY_S_MAX: Final = 5.0
LINE_BYTES_MAX: Final = 65_536
INTEREST_MAX: Final = 1_000_000
"""Subjects that nats-servers may want."""
NODE_INTEREST_MAX: Final = 1_000_000_000
"""Subjects that another node may want: its clients have limits of their own."""


class LinkAddress(NamedTuple):
    """Where to call, and what to show there."""

    host: str
    port: int
    token: str = ""


class LinkState:
    """The state machine of one link on the caller's side, and its end on both. Pure but for ``connection``."""

    def __init__(
        self,
        connection: Connection,
        *,
        ended: Callable[[CloseReason, Exception | None], None],
        refused: Callable[[str], None],
        greeted: Callable[[dict[str, Any]], None] = lambda _: None,
        told: Callable[[dict[str, Any]], None] = lambda _: None,
        opened: Callable[[], None] = lambda: None,
        ponged: Callable[[], None] = lambda: None,
    ) -> None:
        """``greeted``: with the first INFO; ``told``: with a later one; ``refused``: with the words of an error
        line, as they are; ``opened``: at the first PONG; ``ponged``: at a later one.
        """
        self._ended = ended
        self._refused = refused
        self._greeted = greeted
        self._told = told
        self._opened = opened
        self._ponged = ponged
        self.info: dict[str, Any] = {}
        """What the other side said last of itself."""
        self.is_greeted = self.is_open = False
        self.is_clear = False
        """What comes now could be anybody's: TLS has not begun yet."""
        connection.session = self

    def informed(self, info: bytes) -> None:
        found = _fields(info)
        if self.is_clear:
            self.violated(MalformedFrame("INFO between the greeting and TLS"))
        elif self.is_greeted:
            if found is not None:
                self.info = found
                self._told(found)
        elif found is None:
            self.violated(MalformedFrame("the greeting is no INFO"))
        else:
            self.info = found
            self.is_greeted = True
            self._greeted(found)

    def ponged(self) -> None:
        if self.is_clear:
            self.violated(MalformedFrame("PONG between the greeting and TLS"))
        elif self.is_open:
            self._ponged()
        elif self.is_greeted:
            self.is_open = True
            self._opened()

    def refused(self, words: bytes) -> None:
        self._refused(words.decode(errors="replace").strip())

    def violated(self, error: Exception) -> None:
        self._ended(CloseReason.PROTOCOL, error)

    def too_slow(self) -> None:
        self._ended(CloseReason.SLOW, None)

    def broken(self, error: OSError) -> None:
        self._ended(CloseReason.SOCKET, error)


def _fields(info: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(info)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class OutgoingCall:
    """One connection that this side has dialled, from the greeting to its end."""

    def __init__(
        self,
        sockets: Sockets,
        sock: socket.socket,
        connection: Connection,
        *,
        connect: Callable[[dict[str, Any]], Mapping[str, Any]],
        tls: Callable[[dict[str, Any]], TlsFilter | None],
        tls_first: bool,
        refused: Callable[[str], None],
        told: Callable[[dict[str, Any]], None] = lambda _: None,
        ponged: Callable[[], None] = lambda: None,
        heeds_room: bool = True,
        unwritten_bytes_max: int | None = None,
    ) -> None:
        """``connect``: the fields of CONNECT, for a server that greets so; ``tls``: what begins then, None:
        nothing is encrypted. What they raise ends the call. ``tls_first``: without waiting for the greeting,
        which is {} then; raises what ``tls`` does. The rest: see ``LinkState`` and ``Sockets.add``.
        """
        loop = asyncio.get_running_loop()
        self.connection = connection
        self.info: dict[str, Any] = {}
        """The greeting."""
        self.error: Exception | None = None
        """What it has ended for, as far as that is known."""
        self.over: asyncio.Future[CloseReason] = loop.create_future()
        self._has_greeted: asyncio.Future[None] = loop.create_future()
        self._opened: asyncio.Future[None] = loop.create_future()
        self._sockets = sockets
        self._connect = connect
        self._tls = tls
        self._tls_first = tls_first
        self._state = LinkState(
            connection,
            greeted=self._greeted,
            opened=lambda: self._opened.set_result(None),
            ended=self.end,
            refused=refused,
            told=told,
            ponged=ponged,
        )
        try:
            first = tls({}) if tls_first else None
        except BaseException:
            sock.close()
            raise
        self._peer = sockets.add(
            sock, connection, tls=None, ended=self._over, heeds_room=heeds_room,
            unwritten_bytes_max=unwritten_bytes_max,
        )  # fmt: skip
        if first is not None:
            sockets.start_tls(self._peer, first)

    @property
    def is_encrypted(self) -> bool:
        return self._peer.tls is not None and self._peer.tls.is_open

    @property
    def unwritten_bytes(self) -> int:
        return self._peer.unwritten_bytes

    async def is_let_in(self, *, greeting_s: float, handshake_s: float) -> bool:
        """False: the other side has ended it without a word. Raises what it has ended for, and TimeoutError."""
        for step, timeout_s in ((self._has_greeted, greeting_s), (self._opened, handshake_s)):
            await asyncio.wait(
                (self.over, step), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if self.over.done():
                if self.error is not None:
                    raise self.error
                return False
            if not step.done():
                raise TimeoutError("no answer to the handshake")
        return True

    def end(self, reason: CloseReason, error: Exception | None = None) -> None:
        """Write what the socket takes, and close it, soon. The first error is kept."""
        if self.error is None and not self.over.done():
            self.error = error
        self._sockets.end(self._peer, reason)

    def close(self) -> None:
        """At once."""
        self._sockets.end(self._peer, CloseReason.STOP)
        self._sockets.end_turn()

    def _over(self, peer: ServedSocket, reason: CloseReason) -> None:
        if self.error is None and peer.tls is not None:
            self.error = peer.tls.error
        if not self.over.done():
            self.over.set_result(reason)

    def _greeted(self, info: dict[str, Any]) -> None:
        self.info = info
        self._has_greeted.set_result(None)
        try:
            tls = None if self._tls_first else self._tls(info)
            if tls is None:
                self._introduce()
            else:
                self._state.is_clear = True
                self._peer.opened = self._encrypted
                self._sockets.start_tls(self._peer, tls)
        except Exception as error:  # an unreadable file, for one: ``is_let_in`` raises it
            self.end(CloseReason.LOGIN, error)

    def _encrypted(self) -> None:
        """The TLS handshake is over."""
        self._state.is_clear = False
        if self.connection.take_rest():
            self._state.violated(MalformedFrame("a frame that begins in the clear"))
            return
        try:
            self._introduce()
        except Exception as error:
            self.end(CloseReason.LOGIN, error)

    def _introduce(self) -> None:
        fields = self._connect(self.info)
        self.connection.send(b"CONNECT " + json.dumps(fields).encode() + b"\r\n")
        self.connection.ping()


class Link:
    """A leafnode's link: calls, and calls again; ``run`` until cancelled."""

    def __init__(
        self,
        name: str,
        router: Router,
        sockets: Sockets,
        *,
        place: Callable[[], Awaitable[LinkAddress]],
        connect: Callable[[LinkAddress, Mapping[str, Any]], Mapping[str, Any]],
        tls: Callable[[LinkAddress, Mapping[str, Any]], TlsFilter | None],
        tls_first: bool = False,
        payload_bytes_max: int = 1_048_576,
        interest_max: int = INTEREST_MAX,
        retry_s: float = RETRY_S,
        retry_s_max: float = RETRY_S_MAX,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``place``: where to call next; ``connect``: the fields of CONNECT, for a server that greets so;
        ``tls``: what begins then, None: nothing is encrypted. Both may raise StreamlogError.
        """
        self.name = name
        self.complaint = ""
        """Why it is not open, as far as that is known."""
        self._router = router
        self._sockets = sockets
        self._place = place
        self._connect = connect
        self._tls = tls
        self._tls_first = tls_first
        self._payload_bytes_max = payload_bytes_max
        self._interest_max = interest_max
        self._retry_s = retry_s
        self._retry_s_max = retry_s_max
        self._changed = changed
        self._connection: LeafConnection | None = None
        self._has_complained = False
        """In this attempt."""
        self._refusals = 0
        """In a row."""
        self._told = ""

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @property
    def connection(self) -> LeafConnection | None:
        """None while it is not open."""
        return self._connection

    async def run(self) -> None:
        while not self._sockets.is_closed:
            try:
                await self._call()
            except (OSError, StreamlogError, TimeoutError) as error:
                self._complain(str(error) or type(error).__name__)
            except Exception:
                logger.exception(FAULT.logged_as("a link could not be made"))
                self._complain("a fault of this node: see its log")
            pause_s = min(self._retry_s * (1 << min(self._refusals, 8)), self._retry_s_max)
            await asyncio.sleep(pause_s)

    async def _call(self) -> None:
        """Until the link has ended."""
        self._has_complained = False
        async with asyncio.timeout(HANDSHAKE_S):
            place = await self._place()
            sock = await dialled(place.host, place.port)
        if self._sockets.is_closed:
            sock.close()
            return
        connection = LeafConnection(
            self._router,
            fd=sock.fileno(),
            line_bytes_max=LINE_BYTES_MAX,
            payload_bytes_max=self._payload_bytes_max,
            interest_max=self._interest_max,
        )

        def connect(info: dict[str, Any]) -> Mapping[str, Any]:
            connection.headers = bool(info.get("headers"))
            return self._connect(place, info)

        call = OutgoingCall(
            self._sockets,
            sock,
            connection,
            connect=connect,
            tls=lambda info: self._tls(place, info),
            tls_first=self._tls_first,
            refused=lambda words: self._complain(words.strip("' ")),
        )
        try:
            if await call.is_let_in(greeting_s=HANDSHAKE_S, handshake_s=HANDSHAKE_S):
                self._opened(connection)
                await self._stay(connection, call.over)
                if isinstance(call.error, ProtocolViolation):
                    self._complain(str(call.error))
                elif call.error is not None:
                    self.complaint = str(call.error)
            elif not self._has_complained:
                self._complain("the other side has closed the connection")
        finally:
            call.close()
            was_open, self._connection = self._connection is not None, None
            self._refusals = 0 if was_open else self._refusals + 1
            if was_open:
                self._changed()
                logger.warning(LINK_LOST, extra={"link": self.name, "error": self.complaint})

    def _opened(self, connection: LeafConnection) -> None:
        connection.open()
        self._connection = connection
        self.complaint = self._told = ""
        self._changed()
        logger.info("link open", extra={"link": self.name})

    async def _stay(self, connection: LeafConnection, over: "asyncio.Future[CloseReason]") -> None:
        """Until the link has ended, or is silent."""
        silent_s, seen = 0.0, connection.bytes_in
        while not over.done():
            connection.ping()
            await asyncio.wait((over,), timeout=PING_S)
            is_heard = connection.bytes_in != seen or self._sockets.is_paused
            silent_s = 0.0 if is_heard else silent_s + PING_S
            seen = connection.bytes_in
            if silent_s >= SILENCE_S:
                self.complaint = "nothing comes any more"
                return

    def _complain(self, words: str) -> None:
        self.complaint = words
        self._has_complained = True
        if words != self._told:
            self._told = words
            logger.warning(LINK_REFUSED, extra={"link": self.name, "error": words})


class NodeLinks:
    """The links between this node and each other one: called and taken."""

    def __init__(
        self,
        router: Router,
        sockets: Sockets,
        *,
        node_id: int,
        cluster_id: str,
        token: str,
        address: Callable[[], tuple[str, int]],
        ask: Callable[[int], Awaitable[Mapping[str, Any]]],
        tls: Callable[[], ssl.SSLContext | None],
        payload_bytes_max: int,
        changed: Callable[[], None],
        linked: Callable[[frozenset[int]], None] = lambda _: None,
    ) -> None:
        """``token``: of this process; ``address``: of this node's port, as others reach it; ``ask``: another
        node where its port is; ``changed``: ``urls`` are others now; ``linked``: called with the nodes to which
        there is a link, whenever these change.
        """
        self._urls: dict[int, str] = {}
        """Of the other nodes' ports, by node, as far as they are known."""
        self._live: frozenset[int] = frozenset()
        """Nodes that are alive, as far as the controller knows."""
        self._router = router
        self._sockets = sockets
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._token = token
        self._address = address
        self._ask = ask
        self._tls = tls
        self._payload_bytes_max = payload_bytes_max
        self._changed = changed
        self._tell_linked = linked
        self._linked: frozenset[int] = frozenset()
        self._nodes: dict[int, int] = {}
        """Registration epochs of the other nodes, by node."""
        self._anew = asyncio.Event()
        self._calls: dict[int, tuple[int, asyncio.Task[None]]] = {}
        """By node, with the epoch that is called."""
        self._taken: dict[int, ServedSocket] = {}
        """Links that other nodes have called for."""

    def answer(self) -> dict[str, Any]:
        """To another node that asks where this one's port is."""
        host, port = self._address()
        return {"host": host, "port": port, "token": self._token}

    @property
    def urls(self) -> list[str]:
        """Of the other nodes' ports to which a client may go."""
        return [url for node_id, url in sorted(self._urls.items()) if node_id in self._live]

    def apply(self, nodes: Mapping[int, int], live: frozenset[int]) -> None:
        """The other nodes, with the epochs of their registrations, and which are alive. A link stays
        though the controller takes the node for dead: the two may still reach each other.
        """
        if nodes != self._nodes:
            self._nodes = dict(nodes)
            self._anew.set()
        before = self.urls
        self._live = live
        if self.urls != before:
            self._changed()

    async def run(self) -> None:
        """Keep a link to each other node with a lesser id, and know where the others are."""
        self._tell_linked(self._linked)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._end_silent())
            while True:
                for node_id, (epoch, task) in tuple(self._calls.items()):
                    if self._nodes.get(node_id) != epoch:
                        task.cancel()
                        del self._calls[node_id]
                        self._know(node_id, None)
                for node_id, epoch in self._nodes.items():
                    if node_id not in self._calls:
                        task = tasks.create_task(self._keep(node_id))
                        self._calls[node_id] = epoch, task
                await self._anew.wait()
                self._anew.clear()

    async def _end_silent(self) -> None:
        """Links that other nodes have called for; they get a PING, too, since this node may read nothing
        for a while, and answers none then.
        """
        seen: dict[ServedSocket, tuple[int, float]] = {}
        """How many bytes had come, and for how long nothing has come since."""
        while True:
            await asyncio.sleep(PING_S)
            before, seen = seen, {}
            for peer in tuple(self._taken.values()):
                bytes_in = peer.connection.bytes_in
                then, silent_s = before.get(peer, (-1, 0.0))
                is_heard = bytes_in != then or self._sockets.is_paused
                silent_s = 0.0 if is_heard else silent_s + PING_S
                seen[peer] = bytes_in, silent_s
                if silent_s >= SILENCE_S:
                    self._sockets.end(peer, CloseReason.STALE)
                elif isinstance(peer.connection, LeafConnection):
                    peer.connection.ping()

    async def _keep(self, node_id: int) -> None:
        if node_id < self._node_id:
            link = Link(
                f"node {node_id}",
                self._router,
                self._sockets,
                place=lambda: self._place(node_id),
                connect=self._introduction,
                tls=self._tls_to,
                payload_bytes_max=self._payload_bytes_max,
                interest_max=NODE_INTEREST_MAX,
                changed=lambda: self._set_linked(node_id, link.is_open),
            )
            await link.run()
        while node_id not in self._urls:  # it calls; clients are told of its port
            with contextlib.suppress(StreamlogError, OSError, TimeoutError):
                await self._place(node_id)
            await asyncio.sleep(RETRY_S)

    def _set_linked(self, node_id: int, is_linked: bool) -> None:
        linked = self._linked | {node_id} if is_linked else self._linked - {node_id}
        if linked != self._linked:
            self._linked = linked
            self._tell_linked(linked)

    async def _place(self, node_id: int) -> LinkAddress:
        answer = await self._ask(node_id)
        if "port" not in answer:
            raise StreamlogError(f"node {node_id} has no NATS port")
        place = LinkAddress(str(answer["host"]), int(answer["port"]), str(answer["token"]))
        self._know(node_id, connect_url(place.host, place.port))
        return place

    def _know(self, node_id: int, url: str | None) -> None:
        before = self.urls
        if url is None:
            self._urls.pop(node_id, None)
        else:
            self._urls[node_id] = url
        if self.urls != before:
            self._changed()

    def _introduction(self, place: LinkAddress, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "verbose": False,
            "headers": True,
            LINK_OPTION: {
                "cluster": self._cluster_id, "node": self._node_id, "token": place.token,
            },
        }  # fmt: skip

    def _tls_to(self, place: LinkAddress, info: Mapping[str, Any]) -> TlsFilter | None:
        if not info.get("tls_required"):
            return None
        context = self._tls()
        if context is None:
            raise StreamlogError("the other node's NATS port wants TLS, and tls.cert is not set")
        return TlsFilter(context, server_name=place.host)

    def take(self, peer: ServedSocket, asked: object) -> bool:
        """Make a link of a connection whose CONNECT asks for one; False: it may not be."""
        if not isinstance(asked, dict) or asked.get("cluster") != self._cluster_id:
            return False
        node_id, token = asked.get("node"), asked.get("token")
        if type(node_id) is not int or not isinstance(token, str):  # True is no node
            return False
        if not hmac.compare_digest(token.encode(errors="replace"), self._token.encode()):
            return False
        before = self._taken.get(node_id)
        if before is not None:
            self._sockets.end(before, CloseReason.STOP)
        self._taken[node_id] = peer
        connection = LeafConnection(
            self._router,
            fd=peer.fd,
            line_bytes_max=LINE_BYTES_MAX,
            payload_bytes_max=self._payload_bytes_max,
            interest_max=NODE_INTEREST_MAX,
        )
        name = f"node {node_id}"

        def complain(words: str) -> None:
            logger.warning(LINK_REFUSED, extra={"link": name, "error": words})

        def end(reason: CloseReason, error: Exception | None) -> None:
            if isinstance(error, ProtocolViolation):
                complain(str(error))
            self._sockets.end(peer, reason)

        state = LinkState(connection, ended=end, refused=lambda words: complain(words.strip("' ")))
        state.info = {"server_name": f"streamlog-{node_id}"}

        def ended(_: ServedSocket, reason: CloseReason) -> None:
            if self._taken.get(node_id) is peer:
                del self._taken[node_id]
                self._set_linked(node_id, False)
            logger.warning(LINK_LOST, extra={"link": name, "error": reason.value})

        def begin() -> None:  # after the read that brought CONNECT has been carried out
            if peer.closing is None:
                connection.expect_pongs(peer.connection.pings_outstanding)
                self._sockets.replace(peer, connection)
                connection.open()
                self._set_linked(node_id, True)
                logger.info("link open", extra={"link": name})

        peer.ended = ended
        asyncio.get_running_loop().call_soon(begin)
        return True


async def dialled(host: str, port: int) -> socket.socket:
    """A connected socket that does not block. Raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{host} is no name of a host") from None
    error: OSError | None = None
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as failed:
            sock.close()
            error = failed
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise error or OSError(f"{host} has no address")


def all_urls(own: str, others: Iterable[str]) -> list[str]:
    """Of this cluster's ports, this node's first; none where there is no other one.

    As nats-server's, a lone node names no address: its client has one that works, and its own may
    be another one that does not (through a forwarded port, say).
    """
    found = sorted(others)
    return [own, *found] if found else []


def connect_url(host: str, port: int) -> str:
    """As INFO names one."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
