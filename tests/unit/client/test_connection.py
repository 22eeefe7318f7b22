import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from streamlog.client.connection import Connection
from streamlog.config import SaslSection
from streamlog.errors import (
    FrameTooLarge,
    MalformedFrame,
    NodeUnreachable,
    RequestTimedOut,
    UnsupportedVersion,
)
from streamlog.model import NodeId
from streamlog.wire import api_messages, registry
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from streamlog.wire.framing import frame
from streamlog.wire.registry import API_VERSIONS, APIS, FETCH, METADATA
from tests.certificate_authority import CertificateAuthority
from tests.kafka_node import KafkaNode, until
from tests.raw_client import at, wanted

REQUESTS = "streamlog_requests_total"
ALL_TOPICS = {"topics": None}
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def fake_node(talk: Talk) -> AsyncIterator[int]:
    """A node that says what a test wants it to, on a free port. A client that gives up at once may never
    have been heard.
    """
    talks = list[asyncio.Task[Any]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.append(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await talk(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*talks)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def versions(offered: dict[int, tuple[int, int]], correlation_id: bytes) -> bytes:
    keys = [{"api_key": k, "min_version": a, "max_version": b} for k, (a, b) in offered.items()]
    body = api_messages.encode_response(APIS[API_VERSIONS], 0, {"api_keys": keys})
    return frame(correlation_id, body)


async def agree(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    offered: dict[int, tuple[int, int]] | None = None,
) -> None:
    """The first exchange of every connection."""
    request = await read_frame(reader)
    everything = {api.key: (api.version_min, api.version_max) for api in APIS.values()}
    writer.write(versions(everything if offered is None else offered, request[4:8]))


async def test_requests_are_answered(node: KafkaNode) -> None:
    await node.add_stream("flights")
    async with await Connection.open("127.0.0.1", node.port) as connection:
        answer = await connection.request(METADATA, ALL_TOPICS)
        assert [it["name"] for it in answer["topics"]] == ["flights"]
        assert not connection.broken
    assert connection.broken
    with pytest.raises(NodeUnreachable, match="closed"):
        await connection.request(METADATA, ALL_TOPICS)


async def test_requests_of_many_tasks_take_turns(node: KafkaNode) -> None:
    async with await Connection.open("127.0.0.1", node.port) as connection:
        answers = await asyncio.gather(
            *(connection.request(METADATA, {"topics": [{"name": f"s{i}"}]}) for i in range(50))
        )
    assert [it["topics"][0]["name"] for it in answers] == [f"s{i}" for i in range(50)]


async def test_record_bytes_are_views_into_one_buffer(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.append([bytes(300_000)])
    async with await Connection.open("127.0.0.1", node.port) as connection:
        topic = FetchTopic("flights", [FetchPartition(0, 0, 2**20)])
        answer = await connection.fetch(FetchRequest([topic], 0, 1, 2**20))
    (found,) = answer.partitions
    assert bytes(found.records) == partition.slices[0].read()
    assert found.records.readonly


async def test_the_highest_version_that_both_speak_is_used() -> None:
    asked: list[bytes] = []

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agree(reader, writer, {METADATA: (2, 5), API_VERSIONS: (0, 0), 999: (0, 1)})
        asked.append(await read_frame(reader))
        body = api_messages.encode_response(APIS[METADATA], 5, {"cluster_id": "old"})
        writer.write(frame(asked[0][4:8], body))

    async with fake_node(old) as port, await Connection.open("127.0.0.1", port) as connection:
        assert (await connection.request(METADATA, ALL_TOPICS))["cluster_id"] == "old"
        assert asked[0][:4] == b"\x00\x03\x00\x05"
        with pytest.raises(UnsupportedVersion, match="does not speak our ListOffsets"):
            await connection.request(registry.LIST_OFFSETS, {})


@pytest.mark.parametrize("offered", [{}, {FETCH: (13, 18)}, {FETCH: (0, 3)}])
async def test_no_version_in_common(offered: dict[int, tuple[int, int]]) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agree(reader, writer, offered)
        await reader.read()

    async with fake_node(other) as port, await Connection.open("127.0.0.1", port) as connection:
        with pytest.raises(UnsupportedVersion):
            await connection.fetch(FetchRequest([], 0, 1, 1))
        assert not connection.broken


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NodeUnreachable, match=rf"127.0.0.1:{port}: Connection refused"):
        await Connection.open("127.0.0.1", port)


async def test_no_such_host() -> None:
    with pytest.raises(NodeUnreachable, match=r"no\.such\.host\.invalid:9092"):
        await Connection.open("no.such.host.invalid", 9092)


async def test_the_node_leaves_in_the_middle_of_an_answer() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agree(reader, writer)
        await read_frame(reader)
        writer.write(b"\x00\x00\x01\x00half")

    async with fake_node(cut) as port:
        connection = await Connection.open("127.0.0.1", port)
        with pytest.raises(NodeUnreachable, match="closed the connection"):
            await connection.request(METADATA, ALL_TOPICS)
        assert connection.broken


async def test_an_answer_that_does_not_come_breaks_the_connection() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agree(reader, writer)
        await reader.read()

    async with fake_node(silent) as port:
        connection = await Connection.open("127.0.0.1", port, timeout_ms=1_000)
        with pytest.raises(RequestTimedOut, match="Metadata after 1000 ms"):
            await connection.request(METADATA, ALL_TOPICS)
        with pytest.raises(NodeUnreachable):
            await connection.request(METADATA, ALL_TOPICS)


async def test_a_connection_closed_between_two_reads_is_an_unreachable_node(
    node: KafkaNode,
) -> None:
    """As when this node stops amid an answer: there is no socket to wait for any more."""
    connection = await Connection.open("127.0.0.1", node.port)
    connection.close()
    with pytest.raises(NodeUnreachable, match="closed"):
        async with asyncio.timeout(5) as silence:
            await connection._receive(4, silence, 5_000)
    await connection.hurry()


async def test_an_answer_may_take_long_while_something_comes() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version = APIS[METADATA].version_min
        await agree(reader, writer, {METADATA: (version, version)})
        correlation_id = (await read_frame(reader))[4:8]
        body = api_messages.encode_response(APIS[METADATA], version, {"brokers": [], "topics": []})
        answer = frame(correlation_id, body)
        for start in range(0, len(answer), 6):
            writer.write(answer[start : start + 6])
            await asyncio.sleep(0.5)
        await reader.read()

    async with (
        fake_node(slow) as port,
        await Connection.open("127.0.0.1", port, timeout_ms=1_500) as connection,
    ):
        assert (await connection.request(METADATA, {"topics": []}))["brokers"] == []


async def test_a_node_that_does_not_agree_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with fake_node(silent) as port:
        with pytest.raises(RequestTimedOut):
            await Connection.open("127.0.0.1", port, timeout_ms=100)


async def test_a_cancelled_request_breaks_the_connection(node: KafkaNode) -> None:
    """Its answer would be taken for the next one's."""
    await node.add_stream("flights")
    connection = await Connection.open("127.0.0.1", node.port)
    topic = FetchTopic("flights", [FetchPartition(0, 0, 2**20)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await connection.fetch(FetchRequest([topic], 60_000, 1, 2**20))
    assert connection.broken


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"\x7f\xff\xff\xff", FrameTooLarge),
        (b"\xff\xff\xff\xff", FrameTooLarge),
        (frame(b"\x00\x00\x00\x63\x00"), MalformedFrame),
        (frame(b""), MalformedFrame),
    ],
)
async def test_answers_that_are_none(answer: bytes, error: type[Exception]) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agree(reader, writer)
        await read_frame(reader)
        writer.write(answer)
        await reader.read()

    async with fake_node(babble) as port:
        connection = await Connection.open("127.0.0.1", port)
        with pytest.raises(error):
            await connection.request(METADATA, ALL_TOPICS)
        assert connection.broken


async def test_who_hurries_a_node_reads_past_its_answer(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.append([b"x"])
    partition.node_epochs = {NodeId(8): 40}
    request = wanted(
        at(1), replica_id=NodeId(8), replica_epoch=40, session_epoch=0, max_wait_ms=60_000
    )
    async with await Connection.open("127.0.0.1", node.port) as connection:
        loop = asyncio.get_running_loop()
        for number in (1, 2, 3):
            waiting = loop.create_task(connection.fetch(request))
            await until(lambda n=number: node.metric(REQUESTS, api="Fetch") == n)  # type: ignore[misc]
            await connection.hurry()
            assert (await waiting).session_id > 0
        await connection.hurry()
        assert (await connection.request(METADATA, {"topics": []}))["cluster_id"]
        assert not connection.broken


async def test_a_broken_connection_hurries_nobody(node: KafkaNode) -> None:
    connection = await Connection.open("127.0.0.1", node.port)
    connection.close()
    await connection.hurry()
    assert connection.broken


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b'INFO {"server_id":"N"}\r\n', "a nats-server answers there"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP is spoken there"),
        (b"\x15\x03\x03\0\x02\x02\x46", "TLS is spoken there"),
    ],
)
async def test_another_servers_port_is_known_by_what_it_says(said: bytes, told: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        await writer.drain()

    async with fake_node(talk) as port:
        with pytest.raises(MalformedFrame, match=told):
            await Connection.open("127.0.0.1", port)


async def test_forgotten_tls_is_hinted_at(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    context = authority.server(authority.issue("node"))
    async with KafkaNode(tls=lambda: context) as node:
        with pytest.raises((NodeUnreachable, MalformedFrame), match="--tls-ca"):
            await Connection.open("127.0.0.1", node.port)


async def test_a_forgotten_login_is_hinted_at() -> None:
    sasl = SaslSection(mechanisms=("SCRAM-SHA-256",))
    async with (
        KafkaNode(sasl=sasl) as node,
        await Connection.open("127.0.0.1", node.port) as connection,
    ):
        with pytest.raises(NodeUnreachable, match="--user and --password-file"):
            await connection.request(METADATA, ALL_TOPICS)


async def test_a_host_that_cannot_be_a_name_is_not_reached() -> None:
    with pytest.raises(NodeUnreachable, match="cannot be a name"):
        await Connection.open(".", 9092, timeout_ms=1_000)
