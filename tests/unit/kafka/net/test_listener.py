import asyncio
import contextlib
import os
import resource
import socket
import ssl
import struct
from pathlib import Path

import pytest

from streamlog.client.connection import Connection
from streamlog.client.security import Security
from streamlog.errors import ConfigError, NodeUnreachable
from streamlog.kafka.auth.peer import Peer
from streamlog.kafka.net.listener import Listener
from streamlog.wire import api_messages
from streamlog.wire.framing import frame
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import API_VERSIONS, APIS, METADATA
from tests.certificate_authority import CertificateAuthority
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient

ALL_TOPICS = {"topics": None}


async def test_the_system_chooses_a_port(node: KafkaNode) -> None:
    host, port = node.listener.address
    assert host == "127.0.0.1"
    assert port > 0


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="only Linux has it")
@pytest.mark.parametrize(("host", "paced"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_only_where_no_network_is_between_is_the_systems_choice_not_kept(
    host: str, paced: bool
) -> None:
    def congestion(sock: socket.socket) -> bytes:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")

    with socket.socket() as usual:
        wanted = congestion(usual) if paced else b"reno"
    async with KafkaNode(host=host) as node:
        assert node.listener._sock is not None
        assert congestion(node.listener._sock) == wanted


async def test_a_port_in_use_is_one_line_that_names_the_key(node: KafkaNode) -> None:
    context = node.listener._context
    taken = node.settings.model_copy(update={"port": node.port})
    second = Listener(type(context)(**{**context.__dict__, "settings": taken}))
    with pytest.raises(
        ConfigError, match=r"kafka.port: cannot listen on 127.0.0.1:\d+ \(Address already in use\);"
    ):
        second.open()


async def test_a_host_that_is_not_ours_is_one_line(node: KafkaNode) -> None:
    context = node.listener._context
    for host in ("192.0.2.1", "no such host", "."):
        foreign = node.settings.model_copy(update={"host": host})
        with pytest.raises(ConfigError, match=r"kafka\.host"):
            Listener(type(context)(**{**context.__dict__, "settings": foreign})).open()


async def test_connections_over_the_limit_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with KafkaNode(connections_max=2) as node:
        async with RawClient(node.port) as one, RawClient(node.port) as two:
            for client in (one, two):
                await client.ask(METADATA, 12, ALL_TOPICS)
            assert node.metric("streamlog_connections") == 2
            async with RawClient(node.port) as third:
                assert await third.closed()
            assert node.metric("streamlog_connections_closed_total", reason="limit") == 1
            lines = [it for it in caplog.records if it.message == "connection closed"]
            assert [it.__dict__["reason"] for it in lines] == ["limit"]
            await one.ask(METADATA, 12, ALL_TOPICS)
            one.half_close()
            assert await one.closed()
        async with RawClient(node.port) as next_one:
            await next_one.ask(METADATA, 12, ALL_TOPICS)


async def test_connections_of_one_address_over_its_limit_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with KafkaNode(connections_per_address_max=1, host="0.0.0.0") as node:
        async with RawClient(node.port) as one:
            await one.ask(METADATA, 12, ALL_TOPICS)
            async with RawClient(node.port) as two:
                assert await two.closed()
            loop = asyncio.get_running_loop()
            with socket.socket() as other:
                other.setblocking(False)
                other.bind(("127.0.0.2", 0))
                await loop.sock_connect(other, ("127.0.0.1", node.port))
                header = encode_request_header(APIS[API_VERSIONS], 0, 7, "x")
                await loop.sock_sendall(other, frame(header))
                assert await loop.sock_recv(other, 4), "another address has a limit of its own"
        await until(lambda: node.metric("streamlog_connections") == 0)
        async with RawClient(node.port) as next_one:
            await next_one.ask(METADATA, 12, ALL_TOPICS)
        closed = node.metric("streamlog_connections_closed_total", reason="address limit")
        assert closed == 1
        (line,) = [it for it in caplog.records if it.message == "connection closed"]
        told = line.__dict__
        assert (told["reason"], told["limit"]) == ("address limit", 1)
        assert told["peer"].startswith("127.0.0.1:")
    assert not node.listener._hosts


async def test_the_gauge_follows_connections(node: KafkaNode) -> None:
    for _ in range(3):
        async with RawClient(node.port) as client:
            await client.ask(METADATA, 12, ALL_TOPICS)
            assert node.metric("streamlog_connections") == 1
            client.half_close()
            assert await client.closed()
        assert node.metric("streamlog_connections") == 0


async def test_many_connections_at_once(node: KafkaNode) -> None:
    async def one() -> None:
        async with RawClient(node.port) as client:
            for _ in range(3):
                await client.ask(METADATA, 12, ALL_TOPICS)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(200):
            tasks.create_task(one())
    assert node.metric("streamlog_requests_total", api="Metadata") == 600


async def test_a_stopped_listener_refuses_connections_and_ends_idle_ones(node: KafkaNode) -> None:
    port = node.port
    async with RawClient(port) as client:
        await client.ask(METADATA, 12, ALL_TOPICS)
        await node.listener.stop()
        assert await client.closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    await node.listener.stop()


async def test_stop_before_run_closes_the_port(node: KafkaNode) -> None:
    context = node.listener._context
    listener = Listener(context)
    listener.open()
    port = listener.address[1]
    await listener.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_without_a_file_descriptor_left_it_waits_and_goes_on(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        first_free = os.dup(client.fileno())
        os.close(first_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
        try:
            await loop.sock_connect(client, node.listener.address)
            await until(lambda: "cannot accept" in caplog.messages)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        body = encode_request_header(APIS[API_VERSIONS], 0, 7, "x")
        await loop.sock_sendall(client, frame(body))
        assert await loop.sock_recv(client, 4)
    assert len(caplog.messages) < 10


async def test_run_after_stop_ends_at_once(node: KafkaNode) -> None:
    listener = Listener(node.listener._context)
    listener.open()
    await listener.stop()
    await listener.run()


# Who keeps others waiting


async def test_who_does_not_ask_in_time_is_cut_off_and_who_has_asked_is_not() -> None:
    async with KafkaNode(handshake_timeout_ms=200) as node, RawClient(node.port) as known:
        await known.ask(METADATA, 12, ALL_TOPICS)
        async with RawClient(node.port) as silent, RawClient(node.port) as slow:
            slow.write(b"\0\0\0\x20half")
            assert await silent.closed()
            assert await slow.closed()
        assert node.metric("streamlog_connections_closed_total", reason="unauthenticated") == 2
        await known.ask(METADATA, 12, ALL_TOPICS)


async def test_of_unauthenticated_connections_there_are_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with KafkaNode(unauthenticated_connections_max=2) as node:
        async with RawClient(node.port) as first, RawClient(node.port) as second:
            async with RawClient(node.port) as third:
                assert await third.closed(), "nobody has had a second yet"
            monkeypatch.setattr("streamlog.kafka.net.unauthenticated_limit.GRACE_S", 0.0)
            async with RawClient(node.port) as fourth:
                await fourth.ask(METADATA, 12, ALL_TOPICS)
                assert await first.closed(), "it has been there for longest"
                await second.ask(METADATA, 12, ALL_TOPICS)
        assert node.metric("streamlog_connections_closed_total", reason="unauthenticated") == 2
        assert not len(node.listener._unauthenticated)


async def test_requests_in_part_have_a_room_together(caplog: pytest.LogCaptureFixture) -> None:
    size = 900_000
    async with KafkaNode(queued_request_bytes_max=1_048_576) as node:
        part = size.to_bytes(4, "big") + bytes(size - 100_000)
        async with RawClient(node.port) as one, RawClient(node.port) as two:
            one.write(part)
            await until(lambda: node.listener._room.taken_bytes == size - 100_000 + 4)
            two.write(part)
            assert await two.closed()
            assert node.metric("streamlog_connections_closed_total", reason="memory") == 1
            one.close()
        await until(lambda: node.listener._room.taken_bytes == 0)
        async with RawClient(node.port) as next_one:
            await next_one.ask(METADATA, 12, ALL_TOPICS)


async def test_tls_and_the_clear_do_not_mix(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = CertificateAuthority(tmp_path)
    context = authority.server(authority.issue("node"))
    async with KafkaNode(tls=lambda: context) as node:
        async with RawClient(node.port) as clear:
            clear.send(METADATA, 12, ALL_TOPICS)
            await until(lambda: "connection closed" in caplog.messages)
        (line,) = [it for it in caplog.records if it.message == "connection closed"]
        assert (line.__dict__["reason"], line.__dict__["problem"]) == (
            "tls",
            "it does not speak TLS, or none that is spoken here",
        )
        security = Security(tls=authority.client)
        async with await Connection.open("localhost", node.port, security=security) as sealed:
            assert (await sealed.request(METADATA, ALL_TOPICS))["cluster_id"]
    caplog.clear()
    async with KafkaNode() as node:
        with pytest.raises(NodeUnreachable, match="TLS: it"):
            await Connection.open("localhost", node.port, security=security)
        (line,) = [it for it in caplog.records if it.message == "connection closed"]
        assert "it looks like TLS, which is not spoken here" in line.__dict__["problem"]


@pytest.mark.parametrize("many", [0, 1, 2_000])
@pytest.mark.parametrize("how", ["reset", "end", "farewell"])
async def test_a_client_that_leaves_is_no_news_by_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, many: int
) -> None:
    """With answers on their way to it, or without a word; it is nobody's fault."""
    authority = CertificateAuthority(tmp_path)
    context, trust = authority.server(authority.issue("node")), authority.client()
    security = Security(tls=authority.client)
    api = APIS[API_VERSIONS]
    asked = frame(
        encode_request_header(api, api.version_min, 1, "test"),
        api_messages.encode_request(api, api.version_min, {}),
    )

    def come_and_go(port: int) -> None:
        sock = socket.create_connection(("127.0.0.1", port))
        if many:
            sock = trust.wrap_socket(sock, server_hostname="localhost")
            sock.sendall(asked * many)
        if how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "farewell" and isinstance(sock, ssl.SSLSocket):
            sock.settimeout(0.001)
            with contextlib.suppress(OSError):  # it does not wait for the other's
                sock.unwrap()
        sock.close()

    async with KafkaNode(tls=lambda: context) as node:
        for _ in range(3):
            await asyncio.to_thread(come_and_go, node.port)
            async with await Connection.open("localhost", node.port, security=security) as next_one:
                await next_one.request(METADATA, ALL_TOPICS)
        assert node.metric("streamlog_connections_closed_total", reason="failure") == 0
        assert [it.message for it in caplog.records if it.levelname != "DEBUG"] == []


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        return listening.accept()[0], theirs


async def test_addresses_of_one_ipv6_network_share_a_limit() -> None:
    """Whoever has one address of IPv6 has 2**64 of them."""
    async with KafkaNode(connections_per_address_max=2) as node:
        admitted: list[str] = []
        async with asyncio.TaskGroup() as tasks:
            pairs = [tcp_pair() for _ in range(4)]
            hosts = ("2001:db8::1", "2001:db8::2", "2001:db8::3:4", "2001:db8:0:1::1")
            for (ours, _), host in zip(pairs, hosts, strict=True):
                before = len(node.listener._connections)
                node.listener._admit(ours, host, 1, tasks)
                if len(node.listener._connections) > before:
                    admitted.append(host)
            for _, theirs in pairs:
                theirs.close()
        assert admitted == [hosts[0], hosts[1], hosts[3]]
    assert not node.listener._hosts


def test_what_one_ipv6_network_holds_is_counted_together(node: KafkaNode) -> None:
    places = {Peer(node.context, f"2001:db8::{number:x}").answerable for number in range(9)}
    assert len(places) == 1
    assert Peer(node.context, "10.0.0.7").answerable == "10.0.0.7"
