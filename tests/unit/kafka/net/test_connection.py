"""What clients do wrong: Kafka's error, or a closed connection with one log line and a count."""

import asyncio
import errno
import os
import random
import socket

import pytest

from streamlog.kafka.net import connection as connection_module
from streamlog.wire.fetch import FetchRequest, encode_request
from streamlog.wire.framing import frame
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import API_VERSIONS, APIS, FETCH, METADATA
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at, wanted

ALL_TOPICS = {"topics": None}


def closed_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{it.__dict__['reason']}: {it.__dict__['problem']}"
        for it in caplog.records
        if it.message == "connection closed"
    ]


async def still_serves(node: KafkaNode) -> None:
    """Whatever one client did, the next one is served."""
    async with RawClient(node.port) as client:
        answer = await client.ask(METADATA, 12, ALL_TOPICS)
        assert answer["cluster_id"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", "frame of 1195725856 bytes"),
        (b"\xff\xff\xff\xff", "frame of length -1"),
        (b"\x7f\xff\xff\xff", "frame of 2147483647 bytes"),
        ((2_000_001).to_bytes(4, "big"), "frame of 2000001 bytes, allowed are 2000000"),
        (frame(b""), "frame ends inside a field"),
        (frame(b"\x00\x03\x00\x0c"), "frame ends inside a field"),
        (frame(b"\x00\x63\x00\x00" + bytes(20)), "API key 99 is not offered"),
        (frame(b"\x00\x01\x00\x03" + bytes(20)), "Fetch version 3 is not offered"),
        (frame(b"\x00\x01\x00\x13" + bytes(20)), "Fetch version 19 is not offered"),
        (frame(b"\x00\x03\x00\x0e" + bytes(20)), "Metadata version 14 is not offered"),
        (frame(b"\x00\x00\x00\x0e" + bytes(20)), "Produce version 14 is not offered"),
        (
            frame(encode_request_header(APIS[METADATA], 12, 1, "x"), b"\xff\xff\xff\xff\x0f"),
            "array of 4294967294",
        ),
        (frame(encode_request_header(APIS[METADATA], 4, 1, "x")), "frame ends inside"),
    ],
)
async def test_what_is_no_request_closes_the_connection(
    data: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with KafkaNode(request_bytes_max=2_000_000) as node:
        async with RawClient(node.port) as client:
            client.write(data)
            assert await client.closed()
        (line,) = closed_lines(caplog)
        assert line.startswith(f"protocol: {problem}")
        assert node.metric("streamlog_protocol_errors_total") == 1
        assert node.metric("streamlog_connections_closed_total", reason="protocol") == 1
        await still_serves(node)


async def test_garbage_of_all_kinds_never_harms_the_others(node: KafkaNode) -> None:
    rng = random.Random(9)
    for _ in range(60):
        async with RawClient(node.port) as client:
            body = rng.randbytes(rng.randrange(200))
            client.write(frame(body) if rng.random() < 0.7 else body)
            client.half_close()
            async with asyncio.timeout(10):
                while not await client.closed():
                    pass
    await still_serves(node)
    assert node.metric("streamlog_connections_closed_total", reason="failure") == 0


@pytest.mark.parametrize("size", [1, 3, 4, 10, 19])
async def test_half_a_frame_and_then_the_end(
    node: KafkaNode, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = frame(encode_request_header(APIS[METADATA], 12, 1, "x"), b"\x00\x00\x00\x00")
    async with RawClient(node.port) as client:
        client.write(whole[:size])
        client.half_close()
        assert await client.closed()
    assert closed_lines(caplog) == [f"protocol: the peer left after {size} bytes of a frame"]


async def test_leaving_between_frames_is_no_error(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with RawClient(node.port) as client:
        await client.ask(METADATA, 12, ALL_TOPICS)
        client.half_close()
        assert await client.closed()
    assert closed_lines(caplog) == []
    assert node.metric("streamlog_protocol_errors_total") == 0


async def test_frames_may_come_byte_by_byte_and_many_at_once(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        request = frame(encode_request_header(APIS[API_VERSIONS], 0, 7, "x"))
        for byte in request:
            client.write(bytes([byte]))
            await asyncio.sleep(0)
        first = await client.frame()
        assert first[:4] == b"\x00\x00\x00\x07"
        client.write(request * 500)
        for _ in range(500):
            assert await client.frame() == first


async def test_answers_come_in_the_order_of_the_requests(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.append([b"one"])
    async with RawClient(node.port) as client:
        sent = [
            client.send_fetch(wanted(at(1), max_wait_ms=30)),
            client.send(METADATA, 4, ALL_TOPICS),
            client.send_fetch(wanted(at(0)), 4),
            client.send(API_VERSIONS, 3, {}),
            client.send_fetch(wanted(at(1), max_wait_ms=10)),
            client.send(METADATA, 9, ALL_TOPICS),
        ]
        for request in sent:
            await client.answer(request)


async def test_an_idle_connection_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with KafkaNode(idle_timeout_ms=1_000) as node, RawClient(node.port) as client:
        await client.ask(METADATA, 12, ALL_TOPICS)
        assert await client.closed()
        assert node.metric("streamlog_connections_closed_total", reason="idle") == 1
        assert closed_lines(caplog) == ["idle: no byte in 1000 ms"]


async def test_a_poll_is_not_idleness_but_waits_no_longer() -> None:
    async with KafkaNode(idle_timeout_ms=1_000) as node, RawClient(node.port) as client:
        await node.add_stream("flights")
        (found,) = (await client.fetch(wanted(at(0), max_wait_ms=2**31 - 1))).partitions
        assert (found.fetched.error_code, len(found.records)) == (0, 0)
        await client.ask(METADATA, 12, ALL_TOPICS)
        assert node.metric("streamlog_connections_closed_total", reason="idle") == 0


async def test_a_reader_who_does_not_read_costs_a_connection_and_no_memory() -> None:
    """Nobody else waits for it, its slice stays open meanwhile, and in the end it is closed."""
    async with KafkaNode(idle_timeout_ms=1_000) as node:
        partition = await node.add_stream("flights")
        for _ in range(12):
            partition.append([bytes(1_000_000)])
        with socket.create_connection(("127.0.0.1", node.port)) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.sendall(fetch_frame(wanted(at(0, max_bytes=2**30))))
            await until(lambda: bool(partition.slices))
            async with RawClient(node.port) as quick:
                for _ in range(20):
                    answer = await quick.fetch(wanted(at(11)))
                    assert len(answer.partitions[0].records) > 1_000_000
            await until(lambda: all(it.closed for it in partition.slices))
            assert node.metric("streamlog_connections_closed_total", reason="slow") == 1


def fetch_frame(request: FetchRequest) -> bytes:
    return frame(encode_request_header(APIS[FETCH], 12, 1, "slow"), encode_request(request, 12))


async def test_a_peer_that_leaves_in_the_middle_of_an_answer(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    for _ in range(12):
        partition.append([bytes(1_000_000)])
    for _ in range(3):
        async with RawClient(node.port) as client:
            client.send_fetch(wanted(at(0, max_bytes=2**30)))
            await client.read(100_000)
    await until(lambda: all(it.closed for it in partition.slices))
    assert node.metric("streamlog_connections_closed_total", reason="failure") == 0
    await still_serves(node)


async def test_a_file_shorter_than_promised_closes_the_connection(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await node.add_stream("flights")
    partition.append([bytes(100_000)])
    os.ftruncate(partition.batches[0].file.fileno(), 50_000)
    async with RawClient(node.port) as client:
        client.send_fetch(wanted(at(0)))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.frame()
    assert closed_lines(caplog)[0].startswith("truncated: file ends at 50000")
    assert all(it.closed for it in partition.slices)


async def test_a_small_slice_shorter_than_promised_closes_the_connection(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    await node.add_stream("flights", 2)
    for partition in node.local.values():
        partition.append([b"x" * 100])
    os.ftruncate(partition.batches[0].file.fileno(), 50)
    async with RawClient(node.port) as client:
        client.send_fetch(wanted(at(0), at(0, partition=1)))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.frame()
    assert closed_lines(caplog)[0].startswith("truncated:")


async def test_a_fault_of_ours_ends_one_connection_with_a_traceback(
    node: KafkaNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **_more: object) -> None:
        raise ZeroDivisionError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(connection_module.dispatch, "answer", fails)  # type: ignore[attr-defined]
        async with RawClient(node.port) as client:
            client.send(METADATA, 12, ALL_TOPICS)
            assert await client.closed()
    assert closed_lines(caplog) == ["failure: ours"]
    assert any(it.exc_info for it in caplog.records)
    await still_serves(node)


async def test_slices_are_closed_when_sending_is_cancelled(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    for _ in range(12):
        partition.append([bytes(1_000_000)])
    async with RawClient(node.port) as client:
        client.send_fetch(wanted(at(0, max_bytes=2**30)))
        await client.read(10)
        await node.listener.stop(timeout_s=0.05)
    assert partition.slices
    assert all(it.closed for it in partition.slices)


async def test_a_disk_that_fails_is_not_taken_for_a_peer_that_left(
    node: KafkaNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await node.add_stream("flights")
    partition.append([bytes(10_000)])

    def fails(*_: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("streamlog.kafka.net.channel.os.sendfile", fails)
        async with RawClient(node.port) as client:
            client.send_fetch(wanted(at(0)))
            with pytest.raises(asyncio.IncompleteReadError):
                await client.frame()
    assert closed_lines(caplog) == ["failure: [Errno 5] Input/output error"]
    assert all(it.closed for it in partition.slices)
