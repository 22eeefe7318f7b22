"""The sockets of the port: which are read and written when, and how they end; with and without epoll."""

import asyncio
import contextlib
import select
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.message_trace import MessageTrace
from streamlog.nats.port_session import PortSession
from streamlog.nats.router import Router
from streamlog.nats.sockets import (
    LINGER_S,
    PASSES_MAX,
    CloseReason,
    Lingering,
    ServedSocket,
    Sockets,
    TlsFilter,
)
from tests.certificate_authority import CertificateAuthority
from tests.commit_room import Room

QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
JUNK_BYTES = 256 * 1024


class World:
    """Clients that are served on this event loop, over TCP."""

    def __init__(self) -> None:
        self.router = Router()
        self.sockets = Sockets(self.router, write_timeout_ms=60_000)
        self.room = Room()
        self.ended: list[CloseReason] = []
        self._peers: dict[PortSession, ServedSocket] = {}
        self._theirs: list[socket.socket] = []
        self._is_shut = False

    def client(self, *, pending_bytes_max: int = 1 << 26) -> tuple[socket.socket, ServedSocket]:
        """Its end, and ours."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
        for sock in (theirs, ours):
            sock.setblocking(False)
        connection = ClientConnection(
            self.router, fd=ours.fileno(), pending_bytes_max=pending_bytes_max
        )
        session = PortSession(
            connection, self, client_id=1, host="127.0.0.1", subscriptions_max=100
        )
        peer = self.sockets.add(ours, connection, tls=None, ended=self._ended)
        self._peers[session] = peer
        self._theirs.append(theirs)
        return theirs, peer

    def _ended(self, _: ServedSocket, reason: CloseReason) -> None:
        self.ended.append(reason)

    def shut(self) -> None:
        if not self._is_shut:
            self._is_shut = True
            self.sockets.close()
        for sock in self._theirs:
            sock.close()

    # As the server of the sessions

    def info(self, session: PortSession) -> dict[str, Any]:
        raise NotImplementedError

    def log_in(self, session: PortSession, options: object) -> None:
        """It stays open for ever."""

    def become_link(self, session: PortSession, asked: object) -> bool:
        raise NotImplementedError

    def close(self, session: PortSession, reason: CloseReason) -> None:
        self.sockets.end(self._peers[session], reason)

    def publish_denied(self, stream: str, reply: bytes) -> None:
        raise NotImplementedError

    def publish_trace(self, session: PortSession, trace: MessageTrace) -> None:
        raise NotImplementedError


@pytest.fixture(params=["epoll", "without epoll"])
async def world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    with monkeypatch.context() as patched:
        if request.param != "epoll":
            patched.delattr(select, "epoll", raising=False)
        made = World()
    made.sockets.begin(made.room)
    running = asyncio.create_task(made.sockets.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    made.shut()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the node does."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (any condition, of any task)
            await asyncio.sleep(0.001)


async def read(sock: socket.socket) -> bytes:
    async with asyncio.timeout(10):
        return await asyncio.get_running_loop().sock_recv(sock, 1 << 20)


async def read_all(sock: socket.socket) -> bytes:
    """Until its end. Raises ConnectionResetError."""
    parts = []
    while part := await read(sock):
        parts.append(part)
    return b"".join(parts)


async def sent(sock: socket.socket, data: bytes) -> None:
    async with asyncio.timeout(10):
        await asyncio.get_running_loop().sock_sendall(sock, data)


async def until_silent(sock: socket.socket) -> int:
    """How many bytes come before there are none for a moment."""
    count = 0
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0.1):
                count += len(await asyncio.get_running_loop().sock_recv(sock, 1 << 20))
    return count


async def turns(seconds: float) -> int:
    """How often the event loop goes round meanwhile; a few times where nothing is ready."""
    loop, count = asyncio.get_running_loop(), 0
    original = loop._run_once  # type: ignore[attr-defined]

    def counted() -> None:
        nonlocal count
        count += 1
        original()

    loop._run_once = counted  # type: ignore[attr-defined]
    try:
        await asyncio.sleep(seconds)
    finally:
        loop._run_once = original  # type: ignore[attr-defined]
    return count


async def test_full_socket_is_written_to_while_nothing_is_read(world: World) -> None:
    theirs, peer = world.client()
    await sent(theirs, QUIET + b"PING\r\n")
    assert await read(theirs) == b"PONG\r\n"
    text = b"x" * (8 << 20)
    peer.connection.send(b"+OK " + text + b"\r\n")
    world.sockets.end_turn()
    assert peer.connection.is_blocked
    world.room.free.clear()
    await sent(theirs, b"PING\r\n")
    await until(lambda: world.sockets.is_paused)
    assert await until_silent(theirs) == len(text) + 6
    assert not peer.connection.is_blocked
    world.room.free.set()
    assert await read(theirs) == b"PONG\r\n"


async def test_much_is_written_before_the_turn_ends(world: World) -> None:
    theirs, peer = world.client()
    await sent(theirs, QUIET + b"PING\r\n")
    assert await read(theirs) == b"PONG\r\n"
    world.router.begin_turn()
    peer.connection.send(b"+OK little\r\n")
    world.router.write_early(1_000)
    with pytest.raises(BlockingIOError):
        theirs.recv(10)
    text = b"x" * 1_000
    peer.connection.send(b"+OK " + text + b"\r\n")
    world.router.write_early(1_000)
    assert await read(theirs) == b"+OK little\r\n+OK " + text + b"\r\n"
    peer.connection.send(b"+OK more\r\n")
    world.router.end_turn()
    assert await read(theirs) == b"+OK more\r\n"


async def test_what_is_not_read_keeps_nobody_busy(world: World) -> None:
    theirs, _ = world.client()
    await sent(theirs, QUIET + b"PING\r\n")
    assert await read(theirs) == b"PONG\r\n"
    world.room.free.clear()
    await sent(theirs, b"PING\r\n")
    await until(lambda: world.sockets.is_paused)
    assert await turns(0.1) < 20
    world.room.free.set()
    assert await read(theirs) == b"PONG\r\n"


@pytest.mark.parametrize("has_gone", [False, True])
async def test_publisher_to_one_that_is_behind_is_not_read(world: World, has_gone: bool) -> None:
    slow, slow_peer = world.client(pending_bytes_max=16 << 20)
    fast, fast_peer = world.client()
    await sent(slow, QUIET + b"SUB a 1\r\nPING\r\n")
    assert await read(slow) == b"PONG\r\n"
    message = b"PUB a 100000\r\n%b\r\n" % (b"x" * 100_000)
    await sent(fast, QUIET)
    while not fast_peer.connection.is_stalled:
        await sent(fast, message)
        await asyncio.sleep(0)
    if has_gone:
        fast.close()
    else:
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(fast, b"PING\r\n"), 1)
    before = fast_peer.connection.bytes_in
    assert await turns(0.1) < 60  # it is looked every 5 ms whether the other has caught up
    assert fast_peer.connection.bytes_in == before
    while slow_peer.connection.pending_bytes:
        await until_silent(slow)
    if has_gone:  # its end is read after what it has said
        await until(lambda: bool(world.ended))
    else:
        assert await read(fast) == b"PONG\r\n"
    assert world.ended == ([CloseReason.PEER] if has_gone else [])


async def test_client_that_has_gone_before_its_login_keeps_nobody_busy(world: World) -> None:
    theirs, peer = world.client()
    peer.connection.suspend()
    await sent(theirs, b"PING\r\n")
    theirs.shutdown(socket.SHUT_WR)
    await until(lambda: peer.at_end)
    assert await turns(0.1) < 20
    peer.connection.resume()
    world.sockets.login_ended(peer)
    assert await read_all(theirs) == b"PONG\r\n"


async def test_last_word_comes_though_more_was_said(world: World) -> None:
    theirs, _ = world.client()
    await sent(theirs, QUIET + b"HELLO\r\n" + b"x" * (2 << 20))
    await until(lambda: bool(world.ended))
    await asyncio.sleep(0.05)  # a reset would be there by now
    assert await read_all(theirs) == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert world.ended == [CloseReason.PROTOCOL]


async def test_peer_that_stays_after_its_last_word_is_closed(world: World) -> None:
    theirs, peer = world.client()
    await sent(theirs, QUIET + b"HELLO\r\n")
    assert await read_all(theirs) == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert peer.sock.fileno() >= 0
    await until(lambda: peer.sock.fileno() < 0)


async def test_peer_that_never_stops_talking_is_closed(world: World) -> None:
    theirs, peer = world.client()
    await sent(theirs, QUIET + b"HELLO\r\n")
    with pytest.raises(OSError):
        while True:
            await sent(theirs, b"x" * JUNK_BYTES)
    assert peer.sock.fileno() < 0


async def test_close_ends_those_that_have_got_their_last_word(world: World) -> None:
    theirs, peer = world.client()
    await sent(theirs, QUIET + b"HELLO\r\n")
    assert await read_all(theirs) == b"-ERR 'Unknown Protocol Operation'\r\n"
    world.shut()
    assert peer.sock.fileno() < 0


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_sender_within_the_node_learns_what_waits_for_a_slow_reader(
    world: World, is_encrypted: bool, tmp_path: Path
) -> None:
    """Of TLS what waits is no longer in the connection's own buffer."""
    theirs, peer = world.client()
    tls = None
    if is_encrypted:
        authority = CertificateAuthority(tmp_path)
        issued = authority.issue("node")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.cert, issued.key)
        world.sockets.start_tls(peer, TlsFilter(context))
        tls = ssl.create_default_context(cafile=str(authority.ca))
        tls.check_hostname = False
    reader, writer = await asyncio.open_connection(
        sock=theirs, ssl=tls, server_hostname="node" if tls else None, limit=4096
    )
    writer.write(QUIET + b"SUB in.* 1\r\nPING\r\n")
    assert await reader.readline() == b"PONG\r\n"
    count = 0
    async with asyncio.timeout(10):
        while world.router.unwritten_bytes(b"in.1") < 1 << 20:
            world.router.deliver_as(b"in.1", b"orders", b"x" * JUNK_BYTES, reply=b"r")
            count += 1
            await asyncio.sleep(0)
    assert world.router.unwritten_bytes(b"in.1") == peer.unwritten_bytes
    frame = b"MSG orders 1 r %d\r\n%b\r\n" % (JUNK_BYTES, b"x" * JUNK_BYTES)
    async with asyncio.timeout(10):
        for _ in range(count):
            assert await reader.readexactly(len(frame)) == frame
    await until(lambda: world.router.unwritten_bytes(b"in.1") == 0)
    writer.transport.abort()
    await until(lambda: bool(world.ended))
    assert world.router.interest(b"in.1") == 0


# Lingering


def test_it_lingers_again_as_long_as_that_pays() -> None:
    lingering, now_s = Lingering(), 0.0
    for _ in range(3):
        assert lingering.answered(now_s) is (now_s == 0)
        assert lingering.goes_on(now_s + LINGER_S * 0.9)
        lingering.heard()
        now_s += LINGER_S * 0.95
    assert not lingering.goes_on(now_s + LINGER_S)


def test_where_it_is_in_vain_twice_as_many_answers_are_passed_over() -> None:
    lingering, passed, begun = Lingering(), 0, []
    for answer in range(1_000):
        if lingering.answered(float(answer)):
            begun.append(passed)
            passed = 0
            assert not lingering.goes_on(answer + LINGER_S)
            lingering.heard()  # too late
        else:
            passed += 1
    assert begun[:8] == [0, 1, 2, 4, 8, 16, 32, PASSES_MAX]
    assert set(begun[8:]) == {PASSES_MAX}
    while not lingering.answered(2_000.0):
        pass
    lingering.heard()
    assert not lingering.goes_on(2_001.0)
    assert not lingering.answered(3_000.0)
    assert lingering.answered(3_001.0), "it had paid"


@pytest.mark.parametrize("world", ["epoll"], indirect=True)
async def test_the_loop_stays_awake_for_a_peer_that_is_answered_and_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []

    def answered(_: Lingering, now_s: float) -> bool:
        begun.append(now_s)
        return False

    monkeypatch.setattr(Lingering, "answered", answered)
    one, peer = world.client()
    two, _ = world.client()
    for sock in (one, two):
        sock.send(QUIET + b"PING\r\n")
        assert await read(sock) == b"PONG\r\n"
    begun.clear()
    bytes_in, said = peer.connection.bytes_in, b"PUB a 1\r\nx\r\n"
    one.send(said)
    await until(lambda: peer.connection.bytes_in == bytes_in + len(said))
    assert begun == [], "nothing is waited for"
    one.send(b"PING\r\n")
    assert await read(one) == b"PONG\r\n"
    assert len(begun) == 1
    one.send(b"PING\r\n")
    two.send(b"PING\r\n")
    assert [await read(one), await read(two)] == [b"PONG\r\n"] * 2
    assert len(begun) == 1, "they are not alone"


@pytest.mark.parametrize("world", ["epoll"], indirect=True)
async def test_the_loop_sleeps_when_nothing_comes(world: World) -> None:
    theirs, _ = world.client()
    theirs.send(QUIET + b"PING\r\n")
    assert await read(theirs) == b"PONG\r\n"
    await until(lambda: not world.sockets._lingering.is_on)
    for _ in range(3):
        theirs.send(b"PING\r\n")
        assert await read(theirs) == b"PONG\r\n"
    await until(lambda: not world.sockets._lingering.is_on)
