"""The sockets of the NATS protocol in one node, and the turns of the event loop in which they are served.

**One turn.** All sockets are watched by one epoll object, which the event loop watches: a turn reads each
readable socket once, and only then is anything appended, acknowledged or written (``Router.end_turn``). So
what 256 clients say at once is one append for each partition, one commit and one write a client, and a lone
client's message is appended at once.

**Lingering.** A client with one message in flight sends the next one some 20 us after its answer. To sleep until then,
and to be woken, costs the node as much processor time as to stay awake, and the client a quarter of its rate. So after
a turn that answered a lone peer the loop looks once more for a moment, as long as that pays (``Lingering``).

**Backpressure.** While more waits for a commit than the ingest allows, nothing is read, for as long as the
ingest says; sockets that had been full are written to nevertheless. A peer that takes its messages too slowly
costs ``pending_bytes_max`` of memory, then its connection. A nats-server that this node is a client of is not
read while it takes too little: what it is owed are answers to what it has sent.

**The last word.** A system that closes a socket with bytes unread resets the connection, and the reset may
overtake what was written last. A peer that is told why its connection ends is therefore listened to for a
moment longer, and what it says is thrown away.
"""

import asyncio
import contextlib
import logging
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from typing import Final, Protocol

from streamlog.condition import FAULT
from streamlog.nats.connection import Connection
from streamlog.nats.router import Router

logger = logging.getLogger(__name__)

LINGER_S: Final = 0.000_05
"""How long the event loop stays awake for a lone peer's next message."""
PASSES_MAX: Final = 64
"""Answers after which it does not, where it was in vain; at most."""
READ_BYTES: Final = 512 * 1024
EVENTS_PER_TURN: Final = 512
TURN_BYTES: Final = 4 * 1024 * 1024
"""After reading this much in a turn, the other sockets wait for the next one, and other tasks run."""
STALL_S: Final = 0.005
STALL_S_MAX: Final = 0.25
"""The longest wait of a publisher for a subscriber that is behind; then the subscriber's limit decides."""
LOOK_S: Final = 0.5
"""Interval between checks for peers that take nothing."""
DRAIN_S: Final = 1.0
DRAIN_BYTES_MAX: Final = 4 * 1024 * 1024
"""How long, and for how many bytes, a peer is listened to that has got its last word."""
DRAINS_MAX: Final = 128
"""Peers that are listened to so at a time; for one more the oldest is closed."""


class CloseReason(Enum):
    """Why a connection ended; the label of its metric."""

    PEER = "peer"
    LOGIN = "login"
    PROTOCOL = "protocol"
    SLOW = "slow"
    STALE = "stale"
    EXPIRED = "expired"
    LIMIT = "limit"
    SOCKET = "socket"
    TLS = "tls"
    STOP = "stop"


LAST_WORDS: Final = frozenset(
    {
        CloseReason.LOGIN,
        CloseReason.PROTOCOL,
        CloseReason.STALE,
        CloseReason.EXPIRED,
        CloseReason.LIMIT,
        CloseReason.TLS,
    }
)
"""Ends whose reason the peer is told."""


class Room(Protocol):
    """How much may still wait for a commit."""

    @property
    def has_room(self) -> bool: ...
    async def wait(self) -> None: ...


class Lingering:
    """Whether the event loop stays awake once a lone peer has its answer.

    Where its next message does not come in time (the peer is on another machine, or in no hurry), twice as many answers
    as before are passed over until it is tried again. So what is spent in vain is less than 1 us an answer.
    """

    __slots__ = ("_left", "_passes", "_until_s", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        self._until_s = 0.0
        self._passes = 0
        """How many answers were passed over last, or are to be."""
        self._left = 0
        """Of these."""

    def answered(self, now_s: float) -> bool:
        """Whether the loop is to stay awake from now on, and did not before."""
        if self._left:
            self._left -= 1
            return False
        was_on, self.is_on, self._until_s = self.is_on, True, now_s + LINGER_S
        return not was_on

    def heard(self) -> None:
        """Something came."""
        if self.is_on:
            self._passes = 0

    def goes_on(self, now_s: float) -> bool:
        """Whether the loop is to stay awake further."""
        if now_s >= self._until_s:
            self.is_on = False
            self._left = self._passes = min(2 * self._passes or 1, PASSES_MAX)
        return self.is_on


class TlsFilter:
    """TLS between a socket and a connection."""

    def __init__(self, context: ssl.SSLContext, *, server_name: str | None = None) -> None:
        """``server_name``: of the other side, where this is the client."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self.is_open = False
        """The handshake is over."""
        self.has_ended = False
        """The peer says nothing more (close_notify), and may wait for us to close."""
        self.error: ssl.SSLError | None = None
        """Why it has failed."""

    def take(self, data: bytes) -> bytes:
        """What the peer says, in the clear; b"" where more of it is to come. Raises ssl.SSLError."""
        try:
            return self._take(data)
        except ssl.SSLError as error:
            self.error = error
            raise

    def _take(self, data: bytes) -> bytes:
        self._incoming.write(data)
        if not self.is_open:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self.is_open = True
        parts = []
        try:
            while part := self._ssl.read(READ_BYTES):
                parts.append(part)
            self.has_ended = True
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)

    def put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._ssl.write(view) :]

    def end(self) -> None:
        """Announce the end of the data, so that the peer can distinguish it from a cut connection."""
        if self.is_open:
            with contextlib.suppress(ssl.SSLError):  # its own goodbye is not waited for
                self._ssl.unwrap()

    def sealed(self) -> bytes:
        """What is to be sent."""
        return self._outgoing.read()

    @property
    def peer_certificate(self) -> bytes | None:
        """As DER."""
        return self._ssl.getpeercert(binary_form=True) if self.is_open else None


class ServedSocket:
    """One socket, and the connection over it."""

    __slots__ = (
        "at_end",
        "blocked_s",
        "closing",
        "connection",
        "ended",
        "fd",
        "is_read",
        "opened",
        "sealed",
        "sock",
        "tls",
        "unwritten_bytes_max",
        "watch",
    )

    def __init__(
        self,
        sock: socket.socket,
        connection: Connection,
        tls: TlsFilter | None,
        ended: Callable[["ServedSocket", CloseReason], None],
        opened: Callable[[], None] | None,
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.connection = connection
        self.tls = tls
        self.ended = ended
        self.opened = opened
        """Called when the TLS handshake is over."""
        self.sealed = bytearray()
        """Encrypted, and not yet written."""
        self.blocked_s: float | None = None
        """Since when the socket takes nothing."""
        self.closing: CloseReason | None = None
        self.is_read = False
        """Its socket is watched for what it brings."""
        self.at_end = False
        """The peer says nothing more, and what it has said is not yet carried out."""
        self.unwritten_bytes_max: int | None = None
        """Above it nothing more is read from the peer. It may take its time; None: it has limits instead."""
        self.watch: select.epoll | None = None
        """That looks for what its socket brings."""

    @property
    def unwritten_bytes(self) -> int:
        return self.connection.pending_bytes + len(self.sealed)

    def drop_sealed(self, count: int) -> None:
        """The socket has taken so many."""
        del self.sealed[:count]
        self.connection.sealed_bytes = len(self.sealed)


class Sockets:
    """``begin`` on the event loop that is to serve them, ``run`` for as long, ``close`` at the end."""

    def __init__(
        self,
        router: Router,
        *,
        write_timeout_ms: int,
        read_buffer_bytes: int = READ_BYTES,
        around_turn: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        """``read_buffer_bytes``: of one read at most. ``around_turn``: called around each turn that reads."""
        self._router = router
        self._room: Room | None = None
        self._write_timeout_s = write_timeout_ms / 1000
        self._around_turn = around_turn or contextlib.nullcontext
        has_epoll = hasattr(select, "epoll")
        self._watch = select.epoll() if has_epoll else None
        """Sockets that are read where there is room."""
        self._steady_watch = select.epoll() if has_epoll else None
        """Sockets that are read whether there is room or not."""
        self._full = select.epoll() if has_epoll else None
        """Sockets that took no more, to be written to."""
        self._peers: dict[int, ServedSocket] = {}
        """By file descriptor."""
        self._closing: list[ServedSocket] = []
        self._drains: dict[socket.socket, Callable[[], None]] = {}
        """Sockets whose peer has got its last word, and how to close each; the oldest first."""
        self._blocked: set[ServedSocket] = set()
        self._buffer = memoryview(bytearray(read_buffer_bytes))
        self._paused = asyncio.Event()
        """Nothing is read: there is no room."""
        self._unserved: list[tuple[int, int]] = []
        """Events of the last turn that are yet to be looked at."""
        self._by_connection: dict[Connection, ServedSocket] = {}
        self._is_woken = False
        self._lingering = Lingering()
        self._lone: tuple[Connection, int] | None = None
        """The only one that the last turn read, if it has no answer yet, and how many bytes had been written to it."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def begin(self, room: Room | None = None) -> None:
        """Serve, on the running event loop. Nothing is read while ``room`` has none."""
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._router.wake = self.wake
        self._router.failed = _failed
        if self._watch is not None:
            self._loop.add_reader(self._watch, self._ready)
        if self._steady_watch is not None:
            self._loop.add_reader(self._steady_watch, self._steady_ready, self._steady_watch)
        if self._full is not None:
            self._loop.add_reader(self._full, self._writable)

    async def run(self) -> None:
        """Read on when there is room again; close what takes nothing for too long."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._wait_for_room())
            tasks.create_task(self._look_after())

    def close(self) -> None:
        """Write what the sockets take, and close them all. No other is taken."""
        self._is_closed = True
        for peer in list(self._peers.values()):
            self.end(peer, CloseReason.STOP)
        self.end_turn()
        for close in tuple(self._drains.values()):
            close()
        for watch in (self._watch, self._steady_watch, self._full):
            if watch is not None:
                if self._loop is not None:
                    self._loop.remove_reader(watch)
                watch.close()
        self._router.wake = None

    @property
    def is_closed(self) -> bool:
        """The node stops. A call to another server that begins now, or ends now, is for nothing."""
        return self._is_closed

    @property
    def is_paused(self) -> bool:
        """Nothing is read, since there is no room for it."""
        return self._paused.is_set()

    def add(
        self,
        sock: socket.socket,
        connection: Connection,
        *,
        tls: TlsFilter | None,
        ended: Callable[[ServedSocket, CloseReason], None],
        opened: Callable[[], None] | None = None,
        heeds_room: bool = True,
        unwritten_bytes_max: int | None = None,
    ) -> ServedSocket:
        """Serve a socket that does not block. ``ended`` is called once it is closed. ``heeds_room`` False: it is
        read also where there is no room. ``unwritten_bytes_max``: see there.
        """
        assert self._loop is not None, "begin() comes first"
        peer = ServedSocket(sock, connection, tls, ended, opened)
        peer.unwritten_bytes_max = unwritten_bytes_max
        peer.watch = self._watch if heeds_room else self._steady_watch
        self._bind(peer)
        self._peers[peer.fd] = peer
        self._watch_input(peer)
        return peer

    def replace(self, peer: ServedSocket, connection: Connection) -> None:
        """Give the socket to another connection, with the input and the output that are still waiting."""
        old = peer.connection
        rest, output = old.take_rest(), old.take_output()
        del self._by_connection[old]
        old.close()
        peer.connection = connection
        self._bind(peer)
        if output:
            connection.send(output)
        if rest:
            connection.feed(rest)

    def _bind(self, peer: ServedSocket) -> None:
        connection = peer.connection
        self._by_connection[connection] = peer
        connection.blocked = lambda: self._block(peer)
        if peer.tls is not None:
            tls = peer.tls
            connection.flushed = lambda: self._write_tls(peer, tls)

    def end(self, peer: ServedSocket, reason: CloseReason) -> None:
        """Write what the socket takes, and close it, at the end of this turn."""
        if peer.closing is None:
            peer.closing = reason
            peer.connection.suspend()
            self._closing.append(peer)
            self.wake()

    def send_clear(self, peer: ServedSocket) -> None:
        """What is to be written now comes before TLS."""
        assert peer.tls is not None, "TLS follows"
        peer.sealed += peer.connection.take_output()
        self._write_sealed(peer, peer.tls)

    def start_tls(self, peer: ServedSocket, tls: TlsFilter) -> None:
        """From now on all is encrypted; this side begins."""
        peer.tls = tls
        self._bind(peer)
        with contextlib.suppress(ssl.SSLError):
            tls.take(b"")
        self._write_sealed(peer, tls)

    # Turns

    def wake(self) -> None:
        """Have ``end_turn`` called soon: something happened outside of a turn."""
        if not self._is_woken and self._loop is not None:
            self._is_woken = True
            self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._is_woken = False
        self.end_turn()
        self._linger_if_answered()

    def _linger_if_answered(self) -> None:
        if self._lone is None:
            return
        connection, bytes_out = self._lone
        if connection.bytes_out > bytes_out:
            self._lone = None
            if self._lingering.answered(time.monotonic()) and self._loop is not None:
                self._loop.call_soon(self._linger)

    def _linger(self) -> None:
        """A loop with something to do does not sleep, and all else has its turn."""
        if self._lingering.goes_on(time.monotonic()) and self._loop is not None:
            self._loop.call_soon(self._linger)

    def _ready(self) -> None:
        """One turn: each socket that is ready, once."""
        if self._room is not None and not self._room.has_room:
            self._pause()
            return
        assert self._watch is not None
        events, self._unserved = self._unserved or self._watch.poll(0, EVENTS_PER_TURN), []
        self._unserved = self._turn(events)

    def _steady_ready(self, watch: select.epoll) -> None:
        self._turn(watch.poll(0, EVENTS_PER_TURN))

    def _turn(self, events: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of the events that are left for the next one."""
        self._lingering.heard()
        peers, read_bytes = self._peers, 0
        lone = peers.get(events[0][0]) if len(events) == 1 else None
        self._lone = None if lone is None else (lone.connection, lone.connection.bytes_out)
        with self._around_turn():
            self._router.begin_turn()
            try:
                for place, (fd, _) in enumerate(events):
                    peer = peers.get(fd)
                    if peer is None:
                        continue
                    read_bytes += self._read(peer)
                    if read_bytes > TURN_BYTES:
                        return events[place + 1 :]
            finally:
                self.end_turn()
        self._linger_if_answered()
        return []

    def _writable(self) -> None:
        """Sockets that were full take more."""
        assert self._full is not None
        for fd, _ in self._full.poll(0, EVENTS_PER_TURN):
            if (peer := self._peers.get(fd)) is not None:
                self._unblock(peer)
        self.end_turn()

    def _readable(self, peer: ServedSocket) -> None:
        """A turn without epoll serves one socket."""
        if self._room is not None and not self._room.has_room:
            self._pause()
            return
        with self._around_turn():
            self._router.begin_turn()
            try:
                self._read(peer)
            finally:
                self.end_turn()

    def end_turn(self) -> None:
        """Append, acknowledge and write what this turn brought; then close what is to be closed."""
        self._router.end_turn()
        if self._router.stalled:
            self._stall()
        while self._closing:
            closing, self._closing = self._closing, []
            for peer in closing:
                self._finish(peer)
            self._router.end_turn()

    def _stall(self) -> None:
        """Read nothing, for a moment, from those whose messages are for a connection that is behind."""
        stalled, self._router.stalled = self._router.stalled, []
        for source, target in stalled:
            peer = self._by_connection.get(source)  # type: ignore[call-overload]  # or another endpoint
            if peer is None or not isinstance(target, Connection):
                source.is_stalled = False
            else:
                self._watch_input(peer)
                self._go_on_later(peer, target, time.monotonic() + STALL_S_MAX)

    def _go_on_later(self, peer: ServedSocket, target: Connection, until_s: float) -> None:
        assert self._loop is not None, "begin() comes first"

        def look() -> None:
            is_behind = target.pending_bytes > target.pending_bytes_max // 2
            if is_behind and not target.is_closed and time.monotonic() < until_s:
                self._go_on_later(peer, target, until_s)
                return
            peer.connection.is_stalled = False
            if self._peers.get(peer.fd) is peer:
                self._watch_input(peer)

        self._loop.call_later(STALL_S, look)

    def _watch_input(self, peer: ServedSocket) -> None:
        """Have its socket read, or not. One that is not read is not watched, since what it brings, or its
        end, would be told again and again.
        """
        assert self._loop is not None, "begin() comes first"
        is_read = not (peer.at_end or peer.connection.is_stalled or peer.connection.is_closed)
        if peer.watch is None:
            is_read = is_read and not self._paused.is_set()
        if is_read == peer.is_read:
            return
        peer.is_read = is_read
        if peer.watch is None:
            if is_read:
                self._loop.add_reader(peer.sock, self._readable, peer)
            else:
                self._loop.remove_reader(peer.sock)
        elif is_read:
            peer.watch.register(peer.sock, select.EPOLLIN)
        else:
            peer.watch.unregister(peer.sock)

    def _wait_until_written(self, peer: ServedSocket, unwritten_bytes_max: int) -> None:
        """Read on when it has taken half of what it may leave."""
        assert self._loop is not None, "begin() comes first"
        loop = self._loop

        def look() -> None:
            if self._peers.get(peer.fd) is not peer or peer.closing is not None:
                return
            if peer.unwritten_bytes > unwritten_bytes_max // 2:
                loop.call_later(STALL_S, look)
                return
            peer.connection.is_stalled = False
            self._watch_input(peer)

        peer.connection.is_stalled = True
        self._watch_input(peer)
        loop.call_later(STALL_S, look)

    def _read(self, peer: ServedSocket) -> int:
        """How many bytes there were."""
        if peer.closing is not None or peer.at_end or peer.connection.is_stalled:
            return 0
        before = peer.connection.bytes_in
        try:
            if peer.tls is not None:
                self._read_tls(peer, peer.tls)
            elif peer.connection.receive(self._buffer) == 0:
                self._take_end(peer)
        except ssl.SSLError:
            self.end(peer, CloseReason.TLS)
        except OSError:
            self.end(peer, CloseReason.PEER)
        except Exception:
            logger.exception(FAULT.logged_as("a NATS connection could not be served"))
            self.end(peer, CloseReason.PROTOCOL)
        limit = peer.unwritten_bytes_max
        if limit is not None and peer.unwritten_bytes > limit and peer.closing is None:
            self._wait_until_written(peer, limit)
        return peer.connection.bytes_in - before

    def _take_end(self, peer: ServedSocket) -> None:
        """The peer sends nothing more. Frames that wait for its login are still carried out."""
        if peer.connection.is_suspended:
            peer.at_end = True
            self._watch_input(peer)
        else:
            self.end(peer, CloseReason.PEER)

    def login_ended(self, peer: ServedSocket) -> None:
        """The frames that had waited are carried out. The peer may have sent its last."""
        if peer.at_end:
            self.end(peer, CloseReason.PEER)

    def _read_tls(self, peer: ServedSocket, tls: TlsFilter) -> None:
        try:
            count = peer.sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        if not count:
            self._take_end(peer)
            return
        was_open = tls.is_open
        try:
            data = tls.take(bytes(self._buffer[:count]))
        finally:
            self._write_sealed(peer, tls)  # also why a handshake has failed
        if tls.is_open and not was_open and peer.opened is not None:
            peer.opened()
        if data:
            peer.connection.feed(data)
        if tls.has_ended:  # it may wait for ours before it closes the socket
            self._take_end(peer)

    # Backpressure

    def _pause(self) -> None:
        if not self._paused.is_set() and self._loop is not None:
            self._paused.set()
            if self._watch is not None:
                self._loop.remove_reader(self._watch)
            else:
                for peer in self._peers.values():
                    self._watch_input(peer)

    async def _wait_for_room(self) -> None:
        assert self._loop is not None, "begin() comes first"
        while True:
            await self._paused.wait()
            if self._room is not None:
                await self._room.wait()
            self._paused.clear()
            if self._watch is not None:
                self._loop.add_reader(self._watch, self._ready)
            else:
                for peer in self._peers.values():
                    self._watch_input(peer)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = time.monotonic()
            for peer in tuple(self._blocked):
                if peer.unwritten_bytes_max is not None:
                    continue  # it is pinged
                if peer.blocked_s is not None and now_s - peer.blocked_s > self._write_timeout_s:
                    self.end(peer, CloseReason.SLOW)

    # Writing

    def _block(self, peer: ServedSocket) -> None:
        """Its socket takes no more for now."""
        assert self._loop is not None, "begin() comes first"
        if peer.blocked_s is None:
            peer.blocked_s = time.monotonic()
            self._blocked.add(peer)
            if self._full is not None:
                self._full.register(peer.sock, select.EPOLLOUT)
            else:
                self._loop.add_writer(peer.sock, self._unblock, peer)

    def _unblock(self, peer: ServedSocket) -> None:
        assert self._loop is not None, "begin() comes first"
        if peer.closing is not None:
            return
        pending = peer.unwritten_bytes
        tls = peer.tls
        done = peer.connection.flush() if tls is None else self._write_sealed(peer, tls)
        if done:
            self._forget_blocked(peer)
        elif peer.unwritten_bytes < pending:
            peer.blocked_s = time.monotonic()

    def _forget_blocked(self, peer: ServedSocket) -> None:
        assert self._loop is not None, "begin() comes first"
        if peer.blocked_s is not None:
            peer.blocked_s = None
            self._blocked.discard(peer)
            if self._full is not None:
                self._full.unregister(peer.sock)
            else:
                self._loop.remove_writer(peer.sock)

    def _write_tls(self, peer: ServedSocket, tls: TlsFilter) -> None:
        """At the end of a turn."""
        if tls.is_open:
            try:
                if data := peer.connection.take_output():
                    tls.put(data)
            except ssl.SSLError:  # the peer has ended TLS
                self.end(peer, CloseReason.TLS)
            self._write_sealed(peer, tls)

    def _write_sealed(self, peer: ServedSocket, tls: TlsFilter) -> bool:
        """Returns True if the socket took everything."""
        peer.sealed += tls.sealed()
        peer.connection.sealed_bytes = len(peer.sealed)
        while peer.sealed:
            try:
                count = peer.sock.send(peer.sealed)
            except BlockingIOError:
                if len(peer.sealed) > peer.connection.pending_bytes_max:
                    self.end(peer, CloseReason.SLOW)
                else:
                    self._block(peer)
                return False
            except OSError:
                self.end(peer, CloseReason.PEER)
                return False
            peer.drop_sealed(count)
        return True

    def _finish(self, peer: ServedSocket) -> None:
        """Write what the socket takes, and close it."""
        assert peer.closing is not None, "it is to be closed"
        with contextlib.suppress(OSError):
            if peer.closing is CloseReason.SLOW:
                pass
            elif peer.tls is None:
                peer.connection.flush()
            else:
                self._write_tls(peer, peer.tls)
                peer.tls.end()
                self._write_sealed(peer, peer.tls)
        peer.connection.close()
        del self._peers[peer.fd]
        self._by_connection.pop(peer.connection, None)
        self._forget_blocked(peer)
        self._watch_input(peer)
        if peer.closing in LAST_WORDS:
            self._drain(peer.sock)
        else:
            peer.sock.close()
        peer.ended(peer, peer.closing)

    def _drain(self, sock: socket.socket) -> None:
        """Close it when its peer has closed, or after a moment, and throw away what comes until then."""
        assert self._loop is not None, "begin() comes first"
        loop, left = self._loop, DRAIN_BYTES_MAX
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:  # the peer has gone
            sock.close()
            return

        def read() -> None:
            nonlocal left
            try:
                count = sock.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            left -= count
            if not count or left <= 0:
                close()

        def close() -> None:
            timer.cancel()
            loop.remove_reader(sock)
            del self._drains[sock]
            sock.close()

        if len(self._drains) >= DRAINS_MAX:
            next(iter(self._drains.values()))()
        timer = loop.call_later(DRAIN_S, close)
        loop.add_reader(sock, read)
        self._drains[sock] = close


def _failed(error: Exception) -> None:
    logger.error(FAULT.logged_as("a NATS connection could not be served"), exc_info=error)
