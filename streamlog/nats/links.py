"""Links in NATS's leafnode protocol: to the cluster's other nodes, and to the user's nats-servers.

Over a link each side tells the other what it wants (``LS+``, ``LS-``) and sends what the other wants (``LMSG``).
A message that comes over a link goes to this node's subscriptions alone (``Router.deliver_linked``); each node
has its own link to each other node and to NATS. So a message takes one hop, and there are no loops. nats-servers
know the nodes as one cluster by the name in CONNECT, and pass on nothing from one of them to another.

**The handshake.** The side that was called greets with INFO. The caller starts TLS where that is wanted, sends
CONNECT and PING; the first PONG says that it was let in, and each side begins to tell what it wants.

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

from streamlog.condition import Condition
from streamlog.errors import StreamlogError
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


class Place(NamedTuple):
    """Where to call, and what to show there."""

    host: str
    port: int
    token: str = ""


class LinkState:
    """The state machine of one link on the caller's side, and its end on both. Pure but for ``connection``."""

    def __init__(
        self,
        connection: LeafConnection,
        *,
        greeted: Callable[[dict[str, Any]], None],
        opened: Callable[[], None],
        ended: Callable[[CloseReason], None],
        complained: Callable[[str], None],
    ) -> None:
        """``greeted``: with the first INFO; ``complained``: with the words of an error line."""
        self._greeted = greeted
        self._opened = opened
        self._ended = ended
        self._complained = complained
        self.is_greeted = self.is_open = False
        self.info: dict[str, Any] = {}
        connection.session = self

    def informed(self, info: bytes) -> None:
        try:
            self.info = json.loads(info)
            if not isinstance(self.info, dict):
                raise ValueError
        except (ValueError, RecursionError):
            self._ended(CloseReason.PROTOCOL)
            return
        if not self.is_greeted:
            self.is_greeted = True
            self._greeted(self.info)

    def ponged(self) -> None:
        if self.is_greeted and not self.is_open:
            self.is_open = True
            self._opened()

    def refused(self, words: bytes) -> None:
        self._complained(words.decode(errors="replace").strip("' "))

    def violated(self, error: Exception) -> None:
        self._complained(str(error))
        self._ended(CloseReason.PROTOCOL)

    def too_slow(self) -> None:
        self._ended(CloseReason.SLOW)

    def broken(self, _: OSError) -> None:
        self._ended(CloseReason.SOCKET)


class Link:
    """Calls, and calls again; ``run`` until cancelled."""

    def __init__(
        self,
        name: str,
        router: Router,
        sockets: Sockets,
        *,
        place: Callable[[], Awaitable[Place]],
        connect: Callable[[Place, Mapping[str, Any]], Mapping[str, Any]],
        tls: Callable[[Place, Mapping[str, Any]], TlsFilter | None],
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
        while True:
            try:
                await self._call()
            except (OSError, StreamlogError, TimeoutError) as error:
                self._complain(str(error) or type(error).__name__)
            pause_s = min(self._retry_s * (1 << min(self._refusals, 8)), self._retry_s_max)
            await asyncio.sleep(pause_s)

    async def _call(self) -> None:
        """Until the link has ended."""
        loop = asyncio.get_running_loop()
        self._has_complained = False
        async with asyncio.timeout(HANDSHAKE_S):
            place = await self._place()
            sock = await _dialled(place)
        connection = LeafConnection(
            self._router,
            fd=sock.fileno(),
            line_bytes_max=LINE_BYTES_MAX,
            payload_bytes_max=self._payload_bytes_max,
            interest_max=self._interest_max,
        )
        over: asyncio.Future[CloseReason] = loop.create_future()
        opened: asyncio.Future[None] = loop.create_future()

        def ended(_: ServedSocket, reason: CloseReason) -> None:
            if not over.done():
                over.set_result(reason)

        def greeted(info: dict[str, Any]) -> None:
            try:
                tls = None if self._tls_first else self._tls(place, info)
                if tls is None:
                    self._introduce(connection, place, info)
                else:
                    peer.opened = lambda: self._introduce(connection, place, info)
                    self._sockets.start_tls(peer, tls)
            except StreamlogError as error:
                self._complain(str(error))
                self._sockets.end(peer, CloseReason.LOGIN)

        LinkState(
            connection,
            greeted=greeted,
            opened=lambda: None if opened.done() else opened.set_result(None),
            ended=lambda reason: self._sockets.end(peer, reason),
            complained=self._complain,
        )
        tls = self._tls(place, {}) if self._tls_first else None
        peer = self._sockets.add(sock, connection, tls=None, ended=ended)
        if tls is not None:
            self._sockets.start_tls(peer, tls)
        try:
            await asyncio.wait(
                (over, opened), timeout=HANDSHAKE_S, return_when=asyncio.FIRST_COMPLETED
            )
            if opened.done() and not over.done():
                self._opened(connection)
                await self._stay(connection, over)
            elif not over.done():
                self._complain("no answer to the handshake")
        finally:
            self._sockets.end(peer, CloseReason.STOP)
            self._sockets.end_turn()
            was_open, self._connection = self._connection is not None, None
            self._refusals = 0 if was_open else self._refusals + 1
            if was_open:
                self._changed()
                logger.warning(LINK_LOST, extra={"link": self.name, "error": self.complaint})
            elif over.done() and not self._has_complained:
                self._complain("the other side has closed the connection")

    def _introduce(self, connection: LeafConnection, place: Place, info: Mapping[str, Any]) -> None:
        fields = self._connect(place, info)
        connection.headers = bool(info.get("headers"))
        connection.send(b"CONNECT " + json.dumps(fields).encode() + b"\r\nPING\r\n")

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
            connection.send(b"PING\r\n")
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
        node where its port is; ``changed``: the nodes' ports are others now; ``linked``: called with the
        nodes to which there is a link, whenever these change.
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
        if live != self._live:
            self._live = live
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
                    peer.connection.send(b"PING\r\n")

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

    async def _place(self, node_id: int) -> Place:
        answer = await self._ask(node_id)
        if "port" not in answer:
            raise StreamlogError(f"node {node_id} has no NATS port")
        place = Place(str(answer["host"]), int(answer["port"]), str(answer["token"]))
        self._know(node_id, connect_url(place.host, place.port))
        return place

    def _know(self, node_id: int, url: str | None) -> None:
        if self._urls.get(node_id) != url:
            if url is None:
                del self._urls[node_id]
            else:
                self._urls[node_id] = url
            self._changed()

    def _introduction(self, place: Place, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "verbose": False,
            "headers": True,
            LINK_OPTION: {
                "cluster": self._cluster_id, "node": self._node_id, "token": place.token,
            },
        }  # fmt: skip

    def _tls_to(self, place: Place, info: Mapping[str, Any]) -> TlsFilter | None:
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
        if not isinstance(node_id, int) or not isinstance(token, str):
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
        state = LinkState(
            connection,
            greeted=lambda _: None,
            opened=lambda: None,
            ended=lambda reason: self._sockets.end(peer, reason),
            complained=lambda words: logger.warning(
                LINK_REFUSED, extra={"link": name, "error": words}
            ),
        )
        state.info = {"server_name": f"streamlog-{node_id}"}

        def ended(_: ServedSocket, reason: CloseReason) -> None:
            if self._taken.get(node_id) is peer:
                del self._taken[node_id]
                self._set_linked(node_id, False)
            logger.warning(LINK_LOST, extra={"link": name, "error": reason.value})

        def begin() -> None:  # after the read that brought CONNECT has been carried out
            if peer.closing is None:
                self._sockets.replace(peer, connection)
                connection.open()
                self._set_linked(node_id, True)
                logger.info("link open", extra={"link": name})

        peer.ended = ended
        asyncio.get_running_loop().call_soon(begin)
        return True


async def _dialled(place: Place) -> socket.socket:
    """A connected socket that does not block. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
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
    raise error or OSError(f"{place.host} has no address")


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
