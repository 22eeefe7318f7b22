"""A channel over TLS does what one in the clear does, and tells what a handshake failed for."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop

from streamlog.client.tls_stream import TlsStream
from streamlog.errors import NodeUnreachable, TlsFailed
from streamlog.kafka.net.channel import ChannelIdle, SliceTruncated, SocketChannel
from streamlog.kafka.net.tls_channel import RECORD_BYTES, TlsChannel
from tests.certificate_authority import CertificateAuthority
from tests.fake_partition import FileRange
from tests.kafka_node import until
from tests.unit.kafka.net.waiting import waiting

LARGE = bytes(range(256)) * 12_000
HOST = "localhost"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Pipe(NamedTuple):
    channel: TlsChannel
    peer: TlsStream
    sock: socket.socket

    async def received(self, size: int) -> bytes:
        whole = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            count = await self.peer.receive_into(whole[filled:])
            assert count
            filled += count
        return bytes(whole)


@contextlib.asynccontextmanager
async def piped(
    server: ssl.SSLContext, client: ssl.SSLContext, *, idle_timeout_ms: int = 10_000
) -> AsyncIterator[Pipe]:
    """Before the handshake."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
    loop = asyncio.get_running_loop()
    channel = TlsChannel.over(ours, server, loop, idle_timeout_ms)
    try:
        yield Pipe(channel, TlsStream(theirs, client, HOST, "node"), theirs)
    finally:
        channel.close()
        theirs.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
async def pipe(authority: CertificateAuthority) -> AsyncIterator[Pipe]:
    async with opened(authority.server(authority.issue("node")), authority.client()) as made:
        yield made


@contextlib.asynccontextmanager
async def opened(
    server: ssl.SSLContext, client: ssl.SSLContext, *, idle_timeout_ms: int = 10_000
) -> AsyncIterator[Pipe]:
    async with piped(server, client, idle_timeout_ms=idle_timeout_ms) as pipe:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pipe.channel.open())
            tasks.create_task(pipe.peer.shake_hands())
        yield pipe


async def test_bytes_arrive_and_the_end_is_empty(pipe: Pipe) -> None:
    await pipe.peer.send_all(b"hello")
    assert await pipe.channel.receive() == b"hello"
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(pipe.channel.receive())
        await asyncio.sleep(0.01)
        await pipe.peer.send_all(b"again")
        assert await waiting == b"again"
    pipe.sock.shutdown(socket.SHUT_RDWR)
    assert await pipe.channel.receive() == b""
    assert await pipe.channel.receive() == b""


async def part(pipe: Pipe) -> None:
    """The peer says that this is the end, and waits to hear the same: the socket stays open."""
    with contextlib.suppress(ssl.SSLWantReadError):
        pipe.peer._tls.unwrap()
    await pipe.peer._flush()


@pytest.mark.parametrize("size", [0, 5, RECORD_BYTES])
async def test_the_end_is_known_from_then_on(pipe: Pipe, size: int) -> None:
    """It is read from the socket once, perhaps together with what was said before it."""
    if size:
        await pipe.peer.send_all(bytes(size))
    await part(pipe)
    received = 0
    async with asyncio.timeout(5):
        while data := await pipe.channel.receive():
            received += len(data)
        assert received == size
        assert await pipe.channel.receive() == b""


async def test_the_end_that_a_watch_has_seen_is_received(pipe: Pipe) -> None:
    async with waiting(pipe.channel) as wait:
        await part(pipe)
        await until(lambda: wait.ended)
    async with asyncio.timeout(5):
        assert await pipe.channel.receive() == b""


async def test_much_goes_both_ways(pipe: Pipe) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pipe.channel.send(LARGE))
        assert await pipe.received(len(LARGE)) == LARGE
    found = bytearray()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pipe.peer.send_all(LARGE))
        while len(found) < len(LARGE):
            found += await pipe.channel.receive() or b""
    assert found == LARGE


async def test_small_pieces_wait_for_the_last_one(pipe: Pipe) -> None:
    await pipe.channel.send(b"head ", more=True)
    await pipe.channel.send(b"neck ", more=True)
    assert pipe.channel._held == b"head neck "
    await pipe.channel.send(b"")
    assert await pipe.received(10) == b"head neck "
    await pipe.channel.send(b"before ", more=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pipe.channel.send(LARGE, more=True))
        assert await pipe.received(7 + len(LARGE)) == b"before " + LARGE


async def test_the_watch_keeps_what_came(pipe: Pipe) -> None:
    async with waiting(pipe.channel) as wait:
        await asyncio.sleep(0.01)
        assert not wait.is_followed
        await pipe.peer.send_all(b"next request")
        await until(lambda: wait.is_followed)
        await pipe.peer.send_all(b", and one more")
        assert not wait.ended
    assert await pipe.channel.receive() == b"next request"
    assert await pipe.channel.receive() == b", and one more"
    async with waiting(pipe.channel) as wait:
        pipe.sock.shutdown(socket.SHUT_RDWR)
        await until(lambda: wait.ended)
    assert await pipe.channel.receive() == b""


async def test_the_peer_hears_of_the_end(pipe: Pipe) -> None:
    pipe.channel.close()
    assert await pipe.peer.receive_into(memoryview(bytearray(1))) == 0


async def test_a_peer_that_takes_nothing_or_says_nothing_is_idle(
    authority: CertificateAuthority,
) -> None:
    server = authority.server(authority.issue("node"))
    async with opened(server, authority.client(), idle_timeout_ms=200) as pipe:
        with pytest.raises(ChannelIdle):
            await pipe.channel.send(LARGE)
    async with piped(server, authority.client(), idle_timeout_ms=200) as silent:
        with pytest.raises(ChannelIdle):
            await silent.channel.open()


async def test_slices_are_read_and_encrypted(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(LARGE)
    with path.open("rb") as file, ThreadPoolExecutor(1) as readers:
        part = FileRange(file, 1_000, len(LARGE) - 2_000)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pipe.channel.send_slice(part, readers))
            found = await pipe.received(len(part) // 16_384 * 16_384)
            await pipe.channel.send(b"")
            found += await pipe.received(len(part) - len(found))
        assert found == LARGE[1_000:-1_000]
        with pytest.raises(SliceTruncated):
            await pipe.channel.send_slice(FileRange(file, len(LARGE), 10), readers)


async def test_the_subject_of_a_trusted_certificate_is_known(
    authority: CertificateAuthority,
) -> None:
    node, alice = authority.issue("node"), authority.issue("alice", organization="Example")
    for auth, own, subject in (
        ("required", alice, "CN=alice,OU="),
        ("optional", alice, "CN=alice,OU="),
        ("optional", None, None),
        ("none", alice, None),
    ):
        server = authority.server(node, auth)  # type: ignore[arg-type]
        async with opened(server, authority.client(own)) as pipe:
            found = pipe.channel.peer_subject
            assert found is subject is None or str(found).startswith(str(subject)), (auth, found)
    assert SocketChannel.peer_subject is None


def bad_clients(authority: CertificateAuthority, tmp_path: Path) -> dict[str, ssl.SSLContext]:
    """What the server says of them, and their contexts."""
    stranger = CertificateAuthority(tmp_path / "stranger").issue("stranger")
    expired = authority.issue("expired", days=-1)
    return {
        "it showed no certificate, and one is required here": authority.client(),
        "its certificate is not accepted: certificate has expired": authority.client(expired),
        "its certificate is not accepted: unable to get local issuer certificate": (
            authority.client(stranger)
        ),
    }


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_bad_clients_are_told_why_and_so_is_the_node(
    authority: CertificateAuthority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    clients = bad_clients(authority, tmp_path)
    revoked = authority.issue("revoked")
    crl = authority.revoke(revoked)
    clients["its certificate is not accepted: certificate revoked"] = authority.client(revoked)
    server = authority.server(authority.issue("node"), "required", crl)
    for expected, client in clients.items():
        client.maximum_version = version
        async with piped(server, client) as pipe:
            async with asyncio.TaskGroup() as tasks:
                theirs = tasks.create_task(saying_something(pipe))
                with pytest.raises(TlsFailed) as caught:
                    await pipe.channel.open()
                pipe.channel.close()
            assert str(caught.value) == expected
            assert theirs.result().startswith("node: TLS: it"), theirs.result()
            assert "left" not in theirs.result(), (expected, theirs.result())


async def saying_something(pipe: Pipe) -> str:
    """What a client finds out that shakes hands, asks, and waits for the answer; then it leaves."""
    try:
        await pipe.peer.shake_hands()
        await pipe.peer.send_all(b"request")
        await pipe.peer.receive_into(memoryview(bytearray(1)))
    except NodeUnreachable as error:
        return str(error)
    finally:
        with contextlib.suppress(OSError):
            pipe.sock.shutdown(socket.SHUT_RDWR)
    return "let in"


async def test_bad_servers_are_told_of_by_both(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    stranger = CertificateAuthority(tmp_path / "stranger").issue("node")
    revoked = authority.issue("revoked-node")
    crl = authority.revoke(revoked)
    for own, expected in (
        (authority.issue("late", days=-1), "certificate has expired"),
        (authority.issue("else", "elsewhere.example"), "hostname mismatch"),
        (stranger, "unable to get local issuer certificate"),
        (revoked, "certificate revoked"),
    ):
        async with piped(authority.server(own), authority.client(crl=crl)) as pipe:
            async with asyncio.TaskGroup() as tasks:
                theirs = tasks.create_task(saying_something(pipe))
                with pytest.raises(TlsFailed) as caught:
                    await pipe.channel.open()
                    await pipe.channel.receive()
                pipe.channel.close()
            assert f"its certificate is not accepted: {expected}" in theirs.result()
            assert "our certificate" in str(caught.value) or "it does not" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0\0\0\x13\0\x12\0\0\0\0\0\x01\0\x03abc", "it does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP in the clear"),
        (b"\x16\x03\x01\0\x05hello", "."),
    ],
)
async def test_what_is_no_tls_is_told(
    authority: CertificateAuthority, data: bytes, expected: str
) -> None:
    server = authority.server(authority.issue("node"))
    async with piped(server, authority.client()) as pipe:
        pipe.sock.send(data)
        pipe.sock.shutdown(socket.SHUT_WR)
        with pytest.raises(TlsFailed, match=expected):
            await pipe.channel.open()


async def test_who_says_nothing_at_all_has_just_left(authority: CertificateAuthority) -> None:
    """A probe of the port, for one."""
    server = authority.server(authority.issue("node"))
    async with piped(server, authority.client()) as pipe:
        pipe.sock.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionResetError):
            await pipe.channel.open()
