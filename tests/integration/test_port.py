"""A node's own NATS port, as clients meet it: stock nats-py, bare sockets, TLS, kill -9, SIGTERM."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError

from tests.certificate_authority import CertificateAuthority
from tests.integration.conftest import Read
from tests.integration.raw_publisher import RawPublisher
from tests.raw_nats import RawNats
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.ports import free_port
from tools.nodes.server_process import NatsServer, listens, wait_until

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n'
MIB = 1 << 20
KILLS = 4
PUBLISHERS = 8
ACK_S = 1.0
RETRY_S = 0.02


class PortNode(NodeProcess):
    """A node with a NATS port of its own."""

    port: int

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


def port_node(folder: Path, servers: tuple[str, ...] = (), **sections: dict[str, Any]) -> PortNode:
    port = free_port()
    listen = {"port": port, **sections.pop("nats_listen", {})}
    settings: Settings = {"nats": {"servers": list(servers)}, "nats_listen": listen, **sections}
    node = PortNode(1, folder, settings=settings)
    node.port = port
    return node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PortNode]:
    """One for all tests that leave it as it is; each uses subjects and streams of its own."""
    node = port_node(tmp_path_factory.mktemp("port"))
    try:
        node.start()
        yield node
        assert node.stop() == 0
        assert "Traceback" not in node.log_text()
    finally:
        node.kill()


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[Callable[..., PortNode]]:
    nodes: list[PortNode] = []

    def create(*servers: str, **sections: dict[str, Any]) -> PortNode:
        nodes.append(port_node(tmp_path / f"node-{len(nodes)}", servers, **sections))
        return nodes[-1]

    yield create
    for each in nodes:
        each.kill()


@pytest.fixture
async def client(node: PortNode) -> AsyncIterator[Client]:
    client = await nats.connect(node.url)
    yield client
    await client.close()


async def stream_of(client: Client, name: str, **settings: Any) -> JetStreamContext:
    context = client.jetstream(domain="streamlog")
    await context.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], **settings))
    return context


# Messages between clients


async def test_client_gets_what_another_publishes(node: PortNode, client: Client) -> None:
    other = await nats.connect(node.url)
    try:
        subscription = await client.subscribe("talk.*")
        await client.flush()
        headers = {"Kind": "greeting", "Empty": ""}
        await other.publish("talk.one", b"hello", reply="talk.reply", headers=headers)
        await other.publish("talk.one.two", b"for nobody")
        message = await subscription.next_msg(5)
        assert (message.subject, message.reply, message.data) == (
            "talk.one",
            "talk.reply",
            b"hello",
        )
        assert message.headers is not None
        assert message.headers["Kind"] == "greeting"
        await other.flush()
        assert subscription.pending_msgs == 0
    finally:
        await other.close()


async def test_messages_of_one_publisher_keep_their_order(node: PortNode, client: Client) -> None:
    other = await nats.connect(node.url)
    try:
        subscription = await client.subscribe("order.>", pending_msgs_limit=-1)
        await client.flush()
        for number in range(5_000):
            await other.publish(f"order.{number % 3}", b"%d" % number)
        await other.flush()
        got = [int((await subscription.next_msg(5)).data) for _ in range(5_000)]
        assert got == list(range(5_000))
    finally:
        await other.close()


async def test_queue_group_gets_each_message_once(node: PortNode, client: Client) -> None:
    members = [await nats.connect(node.url) for _ in range(3)]
    got: list[list[bytes]] = [[] for _ in members]
    try:
        for member, mine in zip(members, got, strict=True):

            async def take(message: Msg, mine: list[bytes] = mine) -> None:
                mine.append(message.data)

            await member.subscribe("work", queue="workers", cb=take)
            await member.flush()
        for number in range(600):
            await client.publish("work", b"%d" % number)
        await client.flush()
        for member in members:
            await member.drain()
        assert sorted(int(it) for mine in got for it in mine) == list(range(600))
        assert all(len(mine) > 100 for mine in got)
    finally:
        for member in members:
            await member.close()


async def test_many_requests_are_answered_at_once(node: PortNode, client: Client) -> None:
    service = await nats.connect(node.url)

    async def answer(message: Msg) -> None:
        await message.respond(message.data * 2)

    try:
        await service.subscribe("double", cb=answer)
        await service.flush()
        answers = await asyncio.gather(
            *(client.request("double", b"%d" % number, timeout=10) for number in range(500))
        )
        assert [it.data for it in answers] == [b"%d" % number * 2 for number in range(500)]
    finally:
        await service.close()


async def test_request_that_nobody_answers_is_told_so_at_once(client: Client) -> None:
    with pytest.raises(NoRespondersError):
        await client.request("nobody.here", b"", timeout=5)


async def test_drain_delivers_what_was_sent_before(node: PortNode, client: Client) -> None:
    taker, got = await nats.connect(node.url), list[bytes]()

    async def take(message: Msg) -> None:
        await asyncio.sleep(0)
        got.append(message.data)

    await taker.subscribe("drained", cb=take)
    await taker.flush()
    for number in range(1_000):
        await client.publish("drained", b"%d" % number)
    await client.flush()
    await taker.drain()
    assert got == [b"%d" % number for number in range(1_000)]
    with pytest.raises(NatsError):
        await taker.publish("drained", b"")


# Streams


async def test_stream_is_created_described_and_deleted_through_the_port(
    node: PortNode, client: Client
) -> None:
    context = await stream_of(client, "managed")
    info = await context.stream_info("managed")
    assert (info.config.subjects, info.state.messages) == (["managed.>"], 0)
    ack = await context.publish("managed.a", b"one", headers={"Kind": "x"})
    assert (ack.stream, ack.seq) == ("managed", 1)
    await context.publish("managed.b", b"two")
    message = await context.get_msg("managed", 1)
    assert (message.subject, message.data) == ("managed.a", b"one")
    assert message.headers is not None and message.headers["Kind"] == "x"
    assert (await context.get_last_msg("managed", "managed.>")).data == b"two"
    assert (await context.stream_info("managed")).state.messages == 2
    assert await context.delete_stream("managed")
    with pytest.raises(NotFoundError):
        await context.stream_info("managed")
    with pytest.raises(NatsError):
        await context.publish("managed.a", b"for nobody", timeout=5)


async def test_acked_messages_are_read_by_a_stock_kafka_client(
    node: PortNode, client: Client, read_all: Callable[..., list[Read]]
) -> None:
    context = await stream_of(client, "readback")
    acks = await asyncio.gather(
        *(context.publish(f"readback.{n % 7}", b"%d" % n, timeout=10) for n in range(2_000))
    )
    assert sorted(ack.seq for ack in acks) == list(range(1, 2_001))
    records = await asyncio.to_thread(read_all, node.kafka, "readback")
    assert len(records) == 2_000
    for number, ack in enumerate(acks):
        record = records[ack.seq - 1]
        assert record.value == b"%d" % number
        assert dict(record.headers)["subject"] == b"readback.%d" % (number % 7)


async def test_duplicate_is_acknowledged_with_the_first_sequence(client: Client) -> None:
    context = await stream_of(client, "twice")
    first = await context.publish("twice.a", b"x", headers={"Nats-Msg-Id": "1"})
    again = await context.publish("twice.a", b"x", headers={"Nats-Msg-Id": "1"})
    assert (first.seq, again.seq, again.duplicate) == (1, 1, True)
    assert (await context.stream_info("twice")).state.messages == 1


async def test_message_of_a_stream_reaches_its_subscribers_too(client: Client) -> None:
    context = await stream_of(client, "both")
    subscription = await client.subscribe("both.a")
    ack = await context.publish("both.a", b"x")
    message = await subscription.next_msg(5)
    assert (ack.seq, message.data) == (1, b"x")
    assert message.reply.startswith("_INBOX.")


# kill -9


async def publish_until_acked(
    context: JetStreamContext, acked: dict[str, int], publisher: int, number: int
) -> None:
    identity = f"{publisher}:{number}"
    while True:
        try:
            ack = await context.publish(
                f"killed.{publisher}",
                identity.encode(),
                timeout=ACK_S,
                headers={"Nats-Msg-Id": identity},
            )
        except NatsError:
            await asyncio.sleep(RETRY_S)
            continue
        acked[identity] = ack.seq
        return


@pytest.mark.parametrize("sync", ["commit", "os"])
async def test_kill_loses_and_doubles_no_acked_message(
    new_node: Callable[..., PortNode], read_all: Callable[..., list[Read]], sync: str
) -> None:
    """Clients come back by themselves, and each publisher's messages are in its order."""
    node, acked, choose = new_node(log={"sync": sync}), dict[str, int](), random.Random(5)
    node.start()
    clients = [
        await nats.connect(node.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
        for _ in range(PUBLISHERS)
    ]
    stopping = False

    async def publish(publisher: int, client: Client) -> None:
        context, number = client.jetstream(domain="streamlog"), 0
        while not stopping:
            await publish_until_acked(context, acked, publisher, number)
            number += 1

    try:
        await stream_of(clients[0], "killed")
        async with asyncio.TaskGroup() as tasks:
            for publisher, client in enumerate(clients):
                tasks.create_task(publish(publisher, client))
            for _ in range(KILLS):
                before = len(acked)
                async with asyncio.timeout(30):
                    while len(acked) < before + 200:  # noqa: ASYNC110 (by other tasks)
                        await asyncio.sleep(choose.uniform(0.01, 0.1))
                node.kill()
                await asyncio.to_thread(node.start)
            stopping = True
    finally:
        for client in clients:
            await client.close()
    records = await asyncio.to_thread(read_all, node.kafka, "killed")
    stored = [record.value.decode() for record in records]
    assert sorted(stored) == sorted(acked), "each acked message is there once, and nothing else"
    assert all(stored[seq - 1] == identity for identity, seq in acked.items())
    for publisher in range(PUBLISHERS):
        mine = [int(it.split(":")[1]) for it in stored if it.startswith(f"{publisher}:")]
        assert mine == list(range(len(mine)))


# Limits


def test_client_that_does_not_read_is_cut_off_and_others_go_on(
    new_node: Callable[..., PortNode],
) -> None:
    node = new_node(nats_listen={"pending_bytes_max": 2 * MIB})
    node.start()
    with RawNats(node.port) as slow, RawNats(node.port) as publisher:
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        slow.send(QUIET + b"SUB flood 1\r\nPING\r\n")
        assert slow.line() == b"PONG"
        publisher.send(QUIET + b"SUB flood 1\r\nUNSUB 1\r\n")
        frame = b"PUB flood 65536\r\n" + bytes(65_536) + b"\r\n"
        for _ in range(1_000):
            assert publisher.send(frame)
        publisher.send(b"PING\r\n")
        assert publisher.line() == b"PONG"
        wait_until(lambda: closed_for(node, "slow") == 1, "the slow client is closed")
        assert slow.is_closed()
        publisher.send(b"SUB still 1\r\nPUB still 1\r\nx\r\n")
        while publisher.line() != b"MSG still 1 1":
            pass
    assert "SL-0419" in node.log_text()


def test_publisher_waits_for_a_subscriber_that_is_slow_but_reads(
    new_node: Callable[..., PortNode],
) -> None:
    """A dozen times what may wait for it: it loses nothing, and is not closed. So much may wait that it may be without
    a processor for a while.
    """
    node = new_node(nats_listen={"pending_bytes_max": 8 * MIB})
    node.start()
    payload = bytes(65_536)
    with RawNats(node.port) as slow, RawNats(node.port) as publisher:
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        slow.send(QUIET + b"SUB flood 1\r\nPING\r\n")
        assert slow.line() == b"PONG"
        wanted = 1_600 * len(b"MSG flood 1 65536\r\n" + payload + b"\r\n")

        def publish() -> None:
            publisher.send(QUIET)
            for _ in range(1_600):
                publisher.send(b"PUB flood 65536\r\n" + payload + b"\r\n")

        publishing = threading.Thread(target=publish)
        publishing.start()
        received, tail = 0, b""
        while received < wanted:
            data = slow.sock.recv(16_384)
            assert data, f"closed after {received} of {wanted} bytes"
            pings = (tail + data).count(b"PING\r\n")  # the port looks whether its clients are there
            received += len(data) - 6 * pings
            tail = data[-5:]
            time.sleep(0.0002)
        publishing.join()
        assert received == wanted
    assert closed_for(node, "slow") == 0


def closed_for(node: PortNode, reason: str) -> float:
    name = f'streamlog_nats_port_connections_closed_total{{reason="{reason}"}}'
    for line in node.http("/metrics")[1].splitlines():
        if line.startswith(name):
            return float(line.split()[1])
    return 0.0


def test_client_beyond_the_maximum_is_told_so_and_closed(
    new_node: Callable[..., PortNode],
) -> None:
    node = new_node(nats_listen={"connections_max": 3})
    node.start()
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(RawNats(node.port)) for _ in range(3)]
        with RawNats(node.port, greeted=False) as refused:
            assert refused.line() == b"-ERR 'maximum connections exceeded'"
            assert refused.is_closed()
        for client in kept:
            client.send(b"PING\r\n")
            assert client.line() == b"PONG"
        kept[0].sock.close()
        wait_until(lambda: closed_for(node, "peer") == 1, "one has gone")
        with RawNats(node.port) as another:
            another.send(b"PING\r\n")
            assert another.line() == b"PONG"


def test_client_has_no_more_subscriptions_than_the_maximum(
    new_node: Callable[..., PortNode],
) -> None:
    node = new_node(nats_listen={"subscriptions_max": 2})
    node.start()
    with RawNats(node.port) as client:
        client.send(QUIET + b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nUNSUB 1\r\nSUB d 4\r\nPING\r\n")
        assert client.line() == b"-ERR 'maximum subscriptions exceeded'"
        assert client.line() == b"PONG"


def test_client_is_pinged_soon_after_it_has_connected_as_by_nats_server(
    new_node: Callable[..., PortNode], nats_server: NatsServer
) -> None:
    """jnats-server-runner, which starts servers for tests, waits for it."""
    node = new_node()
    node.start()
    for port in (nats_server.port, node.port):
        with RawNats(port) as client:
            client.send(QUIET)
            assert client.line() == b"PING"


def test_silent_client_is_pinged_and_closed_when_it_does_not_answer(
    new_node: Callable[..., PortNode],
) -> None:
    node = new_node(nats_listen={"ping_interval_ms": 100})
    node.start()
    with RawNats(node.port) as silent:
        silent.send(QUIET)
        said = silent.rest()
        assert said == 2 * b"PING\r\n" + b"-ERR 'Stale Connection'\r\n"


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


def tls_settings(authority: CertificateAuthority) -> Settings:
    own = authority.issue("node").settings()
    return {"tls": {**own, "ca": str(authority.ca)}, "http": {"tls": False}}


@pytest.mark.parametrize("first", [False, True])
async def test_clients_speak_tls(
    new_node: Callable[..., PortNode], authority: CertificateAuthority, first: bool
) -> None:
    """After INFO, as by default, or before it."""
    node = new_node(**tls_settings(authority), nats_listen={"tls_first": first})
    await asyncio.to_thread(node.start)
    context = ssl.create_default_context(cafile=str(authority.ca))
    options: dict[str, Any] = {"tls": context, "tls_handshake_first": first}
    client = await nats.connect(f"tls://localhost:{node.port}", **options)
    try:
        stream = await stream_of(client, "sealed")
        payloads = [os.urandom(size) for size in (0, 1, 70_000, 900_000)]
        subscription = await client.subscribe("sealed.>")
        for number, payload in enumerate(payloads):
            ack = await stream.publish("sealed.a", payload, timeout=10)
            assert ack.seq == number + 1
            assert (await subscription.next_msg(10)).data == payload
    finally:
        await client.close()


def test_client_that_ends_tls_is_closed_and_what_it_said_is_taken(
    new_node: Callable[..., PortNode], authority: CertificateAuthority
) -> None:
    """Many libraries wait for the server to close then."""
    node = new_node(**tls_settings(authority))
    node.start()
    context = ssl.create_default_context(cafile=str(authority.ca))
    with RawNats(node.port) as listener, RawNats(node.port) as client:
        listener.sock = context.wrap_socket(listener.sock, server_hostname="localhost")
        listener.send(QUIET + b"SUB last 1\r\nPING\r\n")
        assert listener.line() == b"PONG"
        listener.take_info()
        client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
        client.send(QUIET + b"PUB last 4\r\nword\r\n")
        with contextlib.suppress(OSError):  # the node closes without an end of TLS of its own
            client.sock.unwrap()
        assert listener.line() + listener.line() == b"MSG last 1 4word"
        wait_until(lambda: closed_for(node, "peer") == 1, "the connection is closed")


def test_client_that_speaks_no_tls_is_closed(
    new_node: Callable[..., PortNode], authority: CertificateAuthority
) -> None:
    node = new_node(**tls_settings(authority), nats_listen={"login_timeout_ms": 1_000})
    node.start()
    with RawNats(node.port) as client:
        assert client.info["tls_required"] is True
        client.send(QUIET + b"PUB a 1\r\nx\r\nPING\r\n")
        assert b"PONG" not in client.rest()
    with RawNats(node.port) as late:  # says nothing at all
        assert late.is_closed()
    wait_until(lambda: closed_for(node, "tls") == 2, "both are closed")


# The end


def test_stop_tells_clients_to_leave_and_then_closes(new_node: Callable[..., PortNode]) -> None:
    node = new_node()
    node.start()
    with RawNats(node.port) as client:
        client.send(QUIET + b"PING\r\n")
        assert client.line() == b"PONG"
        assert "ldm" not in client.take_info()
        node.ask_to_stop()
        assert client.take_info()["ldm"] is True
        assert client.is_closed()
    assert node.wait() == 0
    assert not listens(node.port)


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore:loop is closed:ResourceWarning"
)
async def test_stop_acknowledges_what_was_published_before(
    new_node: Callable[..., PortNode], read_all: Callable[..., list[Read]]
) -> None:
    """Whether acked or not, no acked one is missing after the next start."""
    node = new_node()
    await asyncio.to_thread(node.start)
    client = await nats.connect(node.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
    acked: list[int] = []

    async def publish(number: int) -> None:
        context = client.jetstream(domain="streamlog")
        with contextlib.suppress(NatsError):
            acked.append((await context.publish("stopped.a", b"%d" % number, timeout=2)).seq)

    try:
        await stream_of(client, "stopped")
        await publish(0)
        publishing = asyncio.gather(*(publish(number) for number in range(1, 2_000)))
        await asyncio.sleep(0)
        os.kill(node.pid, signal.SIGTERM)
        await publishing
        assert await asyncio.to_thread(node.wait) == 0
        await asyncio.to_thread(node.start)
    finally:
        await client.close()
        gc.collect()  # nats-py leaves a connection behind whose handshake its node has ended
    records = await asyncio.to_thread(read_all, node.kafka, "stopped")
    assert acked
    assert set(acked) <= {record.offset + 1 for record in records}
    assert len({record.value for record in records}) == len(records)


# Beside a nats-server


async def test_acks_go_to_the_side_that_the_message_came_from(
    new_node: Callable[..., PortNode], nats_server: NatsServer
) -> None:
    node = new_node(nats_server.url)
    await asyncio.to_thread(node.start)
    ours, theirs = await nats.connect(node.url), await nats.connect(nats_server.url)
    try:
        streams = [await stream_of(ours, "sides"), theirs.jetstream(domain="streamlog")]
        strays: list[bytes] = []

        async def stray(message: Msg) -> None:
            strays.append(message.data)

        seqs: list[int] = []
        for number in range(200):
            stream = streams[number % 2]
            ack = await stream.publish("sides.a", b"%d" % number, timeout=5)
            seqs.append(ack.seq)
        assert seqs == list(range(1, 201))
        async with RawPublisher(node.url) as port, RawPublisher(nats_server.url) as link:
            for asked, other in ((port, link), (link, port)):
                heard = await other.client.subscribe("answer.>", cb=stray)
                mine = await asked.client.subscribe("answer.>")
                await other.client.flush()
                await asked.send("sides.a", b"x", reply="answer.1")
                ack_bytes = (await mine.next_msg(5)).data
                assert b'"stream":"sides"' in ack_bytes
                await other.client.flush()
                await heard.unsubscribe()
                await mine.unsubscribe()
        assert not strays
    finally:
        await ours.close()
        await theirs.close()
