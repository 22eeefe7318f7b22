"""Publishing with stock nats-py to a node with a real log, through a real nats-server."""

import asyncio
import errno
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, ServiceUnavailableError

from streamlog.log.storage.disk import OsDisk, OsFile
from streamlog.nats.sockets import CloseReason
from streamlog.partition.partition import Partition
from tests.changed_streams import delete_stream, update_stream
from tests.local_node import LocalNode, until
from tools.nodes.server_process import NatsServer

AT_ONCE_S = 4.0
"""On a busy machine, too: whoever hears nothing waits for five."""

NewNode = Callable[..., Awaitable[LocalNode]]


@pytest.fixture
async def start_node(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[NewNode]:
    """Starts nodes on one folder, one after the other."""
    nodes: list[LocalNode] = []

    async def start(**settings: Any) -> LocalNode:
        node = LocalNode(tmp_path / "data", nats_server.url, **settings)
        nodes.append(node)
        return await node.__aenter__()

    yield start
    MoodyDisk.may_sync.set()
    for node in nodes:
        await node.__aexit__()


@pytest.fixture
async def node(start_node: NewNode) -> LocalNode:
    return await start_node()


@pytest.fixture
async def nc(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await nats.connect(nats_server.url, reconnect_time_wait=0.02)
    yield client
    await client.close()


async def test_message_ids_are_kept_beside_a_log_that_grows(
    node: LocalNode, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the node runs: one that is killed reads little of its logs at its next start."""
    monkeypatch.setattr("streamlog.ingest.dedup_recovery.snapshots.BEHIND_BYTES", 1)
    partition = await node.create("orders")
    await nc.jetstream().publish("orders", b"x", headers={"Nats-Msg-Id": "one"})
    await until(lambda: partition.read_beside("message-ids.snapshot") != b"")


async def values(node: LocalNode, stream: str) -> list[bytes | None]:
    return [record.value for record in await node.records(stream)]


async def test_publish_request_and_js_publish(node: LocalNode, nc: Client) -> None:
    await node.create("orders", subjects=("orders.>",))
    await nc.publish("orders.a", b"silent")
    answer = await nc.request("orders.b", b"asked")
    assert json.loads(answer.data) == {"stream": "orders", "seq": 2}
    ack = await nc.jetstream().publish("orders.c", b"js", headers={"X-Colour": "red"})
    assert (ack.stream, ack.seq, ack.duplicate) == ("orders", 3, None)
    records = await node.records("orders")
    assert [record.value for record in records] == [b"silent", b"asked", b"js"]
    assert records[2].headers == (("subject", b"orders.c"), ("X-Colour", b"red"))


async def test_a_full_window_of_async_publishes_is_acked_in_order(
    node: LocalNode, nc: Client
) -> None:
    await node.create("orders")
    js = nc.jetstream()
    acks = [await js.publish_async("orders", b"%d" % i) for i in range(4000)]
    got = await asyncio.gather(*acks)
    assert [ack.seq for ack in got] == list(range(1, 4001))
    assert await values(node, "orders") == [b"%d" % i for i in range(4000)]
    assert node.count("streamlog_publish_acked_total") == 4000


async def test_a_reply_that_is_no_inbox_is_kept_and_acked(node: LocalNode, nc: Client) -> None:
    await node.create("orders")
    replies = await nc.subscribe("desk.7")
    await nc.publish("orders", b"x", reply="desk.7")
    assert json.loads((await replies.next_msg(2)).data)["seq"] == 1
    assert (await node.records("orders"))[0].headers == (
        ("subject", b"orders"),
        ("reply", b"desk.7"),
    )


async def test_streams_on_one_subject_each_store_and_ack(node: LocalNode, nc: Client) -> None:
    await node.create("one", subjects=("shared.*",))
    await node.create("two", subjects=("shared.>",))
    inbox = nc.new_inbox()
    replies = await nc.subscribe(inbox)
    await nc.publish("shared.x", b"both", reply=inbox)
    acks = [json.loads((await replies.next_msg(2)).data) for _ in range(2)]
    assert sorted(ack["stream"] for ack in acks) == ["one", "two"]
    assert await values(node, "one") == await values(node, "two") == [b"both"]


async def test_partitions_listen_on_subjects_of_their_own(node: LocalNode, nc: Client) -> None:
    await node.create("parts", subjects=("parts",), partitions=3)
    for subject in ("parts", "parts.1", "parts.2"):
        assert json.loads((await nc.request(subject, subject.encode())).data)["seq"] == 1
    assert [r.value for r in await node.records("parts", 2)] == [b"parts.2"]
    with pytest.raises(nats.errors.NoRespondersError):
        await nc.request("parts.3", b"")


async def refused(coroutine: Awaitable[Any]) -> tuple[int | None, int | None, str | None]:
    """The refusal's code, err_code and description; it must come at once."""
    with pytest.raises(APIError) as caught:
        async with asyncio.timeout(AT_ONCE_S):
            await coroutine
    return caught.value.code, caught.value.err_code, caught.value.description


async def outcome(publishing: Awaitable[Any]) -> int:
    """The refusal's err_code, or the sequence with a minus sign."""
    try:
        ack = await publishing
    except APIError as error:
        return error.err_code or 0
    return -int(ack.seq)


async def test_refusals_have_jetstreams_codes(node: LocalNode, nc: Client) -> None:
    await node.create("small", message_bytes_max=10)
    js = nc.jetstream()
    await js.publish("small", b"first")

    async def publish(headers: dict[str, str] | None = None, payload: bytes = b"x") -> Any:
        return await js.publish("small", payload, headers=headers)

    assert await refused(publish(payload=b"x" * 11)) == (
        400, 10054, "message size exceeds maximum allowed",
    )  # fmt: skip
    wrong = {"Nats-Expected-Last-Sequence": "7"}
    with pytest.raises(BadRequestError):
        await publish(wrong)
    await node.create("wide")
    for headers, expected in (
        ({"Nats-Expected-Last-Sequence": "7"}, (400, 10071, "wrong last sequence: 0")),
        ({"Nats-Expected-Stream": "narrow"}, (400, 10060, "expected stream does not match")),
        ({"Nats-Expected-Last-Msg-Id": "z"}, (400, 10070, "wrong last msg ID: ")),
        ({"Nats-TTL": "1s"}, (400, 10166, "per-message TTL is disabled")),
        ({"Nats-Rollup": "all"}, (500, 10111, "rollup not permitted")),
        ({"Nats-Batch-Id": "b"}, (400, 10174, "atomic publish is disabled")),
    ):
        assert await refused(js.publish("wide", b"x", headers=headers)) == expected
    assert await values(node, "wide") == []
    assert node.count("streamlog_publish_rejected_total", reason="too_large") == 2


async def test_expectations_that_hold_pass(node: LocalNode, nc: Client) -> None:
    await node.create("orders")
    js = nc.jetstream()
    await js.publish("orders", b"0", headers={"Nats-Expected-Last-Sequence": "0"})
    await js.publish("orders", b"1", stream="orders", headers={"Nats-Msg-Id": "one"})
    headers = {"Nats-Expected-Last-Msg-Id": "one", "Nats-Expected-Last-Sequence": "2"}
    assert (await js.publish("orders", b"2", headers=headers)).seq == 3


async def test_nobody_listens_for_a_stream_that_is_gone(node: LocalNode, nc: Client) -> None:
    js = nc.jetstream()
    with pytest.raises(NoStreamResponseError):
        await js.publish("orders", b"x")
    await node.create("orders")
    await js.publish("orders", b"x")
    await delete_stream(node.metadata, "orders")
    with pytest.raises(NoStreamResponseError):
        await js.publish("orders", b"x")


async def test_another_subject_and_limit_hold_after_an_update(node: LocalNode, nc: Client) -> None:
    partition = await node.create("orders", subjects=("a", "b"))
    js = nc.jetstream()
    await js.publish("a", b"x", headers={"Nats-Msg-Id": "1"})
    await update_stream(
        node.metadata, partition.config.changed(subjects=("b", "c"), message_bytes_max=60)
    )
    with pytest.raises(NoStreamResponseError):
        await js.publish("a", b"x")
    assert (await js.publish("c", b"y")).seq == 2
    assert (await refused(js.publish("b", b"x" * 61)))[1] == 10054
    assert (await js.publish("b", b"", headers={"Nats-Msg-Id": "1"})).duplicate


async def test_duplicates_are_known_also_after_a_restart(start_node: NewNode, nc: Client) -> None:
    node = await start_node()
    js = nc.jetstream()
    for name in ("plain", "packed"):
        await node.create(name, compression="none" if name == "plain" else "zstd")
        assert (await js.publish(name, b"no id")).seq == 1
        for i in range(20):
            ack = await js.publish(name, b"%d" % i, headers={"Nats-Msg-Id": f"id-{i}"})
            assert ack.seq == i + 2 and not ack.duplicate
    for _ in range(2):
        again = await js.publish("plain", b"again", headers={"Nats-Msg-Id": "id-3"})
        assert (again.seq, again.duplicate) == (5, True)
        await node.stop()
        node = await start_node()
    packed = await js.publish("packed", b"again", headers={"Nats-Msg-Id": "id-19"})
    assert (packed.seq, packed.duplicate) == (21, True)
    headers = {"Nats-Expected-Last-Msg-Id": "id-19"}
    assert (await js.publish("packed", b"next", headers=headers)).seq == 22
    assert len(await node.records("plain")) == 21


async def test_a_duplicate_in_the_same_read_has_the_seq_of_the_first(
    node: LocalNode, nc: Client
) -> None:
    await node.create("orders")
    js = nc.jetstream()
    acks = [
        await js.publish_async("orders", b"x", headers={"Nats-Msg-Id": f"{i // 3}"})
        for i in range(300)
    ]
    got = await asyncio.gather(*acks)
    assert [ack.seq for ack in got] == [i // 3 + 1 for i in range(300)]
    assert [bool(ack.duplicate) for ack in got] == [i % 3 > 0 for i in range(300)]
    assert len(await node.records("orders")) == 100
    assert node.count("streamlog_publish_duplicates_total") == 200


async def test_streamlog_ack_header(node: LocalNode, nc: Client) -> None:
    await node.create("orders")
    js = nc.jetstream()
    inbox = nc.new_inbox()
    replies = await nc.subscribe(inbox)
    for wish in ("none", "leader", "all"):
        await nc.publish("orders", wish.encode(), reply=inbox, headers={"Streamlog-Ack": wish})
    answers = [json.loads((await replies.next_msg(2)).data) for _ in range(2)]
    assert sorted(answer["seq"] for answer in answers) == [2, 3]
    assert (await refused(js.publish("orders", b"", headers={"Streamlog-Ack": "some"})))[0] == 400
    assert await values(node, "orders") == [b"none", b"leader", b"all"]


async def test_no_ack_streams_never_answer(node: LocalNode, nc: Client) -> None:
    await node.create("quiet", no_ack=True, message_bytes_max=5)
    inbox = nc.new_inbox()
    replies = await nc.subscribe(inbox)
    await nc.publish("quiet", b"x", reply=inbox)
    await nc.publish("quiet", b"too long", reply=inbox)
    await nc.publish("quiet", b"", reply=inbox, headers={"Nats-Expected-Last-Sequence": "9"})
    await until(lambda: node.partition("quiet").high_watermark == 1)
    with pytest.raises(nats.errors.TimeoutError):
        await replies.next_msg(0.1)


async def test_nats_comes_late_goes_and_comes_back(
    start_node: NewNode, nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    nats_server.kill()
    node = await start_node(wait_connected=False)
    partition = await node.create("orders")
    await until(lambda: "waiting for NATS" in caplog.text)
    await asyncio.sleep(0.2)
    assert caplog.text.count("waiting for NATS") == 1
    for round_number in range(3):
        nats_server.start()
        await until(lambda: node.source.is_connected)
        client = await nats.connect(nats_server.url)
        assert (await client.jetstream().publish("orders", b"x")).seq == round_number + 1
        await client.close()
        nats_server.kill()
        await until(lambda: not node.source.is_connected)
    assert partition.high_watermark == 3
    assert node.count("streamlog_nats_reconnects_total") == 2


async def test_a_connection_that_a_fault_has_ended_is_made_again(
    node: LocalNode, nc: Client
) -> None:
    await node.create("orders")
    for sequence in (1, 2):
        assert (await nc.jetstream().publish("orders", b"x")).seq == sequence
        link = node.source._listening._link
        assert link is not None and link._call is not None
        link._call.end(CloseReason.PROTOCOL)
        await until(lambda n=sequence: node.count("streamlog_nats_reconnects_total") == n)  # type: ignore[misc]
        await until(lambda: node.source.is_connected)
        await nc.flush()
    assert len(await node.records("orders")) == 2


def reasons(caplog: pytest.LogCaptureFixture) -> str:
    """What was told of why NATS is not there."""
    return " ".join(getattr(record, "error", "") for record in caplog.records)


@pytest.mark.parametrize(
    ("flags", "login"),
    [
        (["--user", "ann", "--pass", "secret"], {"user": "ann", "password": "secret"}),
        (["--auth", "secret"], {"token": "secret"}),
    ],
)
async def test_authentication(
    start_node: NewNode,
    nats_server: NatsServer,
    caplog: pytest.LogCaptureFixture,
    flags: list[str],
    login: dict[str, str],
) -> None:
    nats_server.kill()
    nats_server.command += flags
    nats_server.start()
    wrong = await start_node(nats=dict.fromkeys(login, "wrong"), wait_connected=False)
    await until(lambda: "Authorization Violation" in reasons(caplog))
    assert not wrong.source.is_connected
    await wrong.stop()
    node = await start_node(nats=login)
    await node.create("orders")
    client = await nats.connect(nats_server.url, **login)
    assert (await client.jetstream().publish("orders", b"x")).seq == 1
    await client.close()


async def test_a_stop_loses_nothing_that_was_acked_and_leaves_nobody_waiting(
    start_node: NewNode, nats_server: NatsServer
) -> None:
    node = await start_node()
    await node.create("orders")
    client = await nats.connect(nats_server.url)
    js = client.jetstream()
    acked: list[int] = []
    refusals = 0

    async def publish_until_refused() -> None:
        nonlocal refusals
        for i in range(100_000):
            try:
                acked.append((await js.publish("orders", b"%d" % i, timeout=2)).seq)
            except (NoStreamResponseError, ServiceUnavailableError):
                refusals += 1
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(publish_until_refused())
        await until(lambda: len(acked) > 500)
        await node.stop()
    await client.close()
    assert refusals == 20  # nobody waited for a time-out
    again = await start_node()
    assert len(await again.records("orders")) == len(acked)


class MoodyDisk(OsDisk):
    """A real disk whose syncs can be held up and whose writes can be made to fail."""

    may_sync = threading.Event()
    may_sync.set()

    def __init__(self) -> None:
        self.write_error = 0

    def open(self, path: str, *, writable: bool = True) -> OsFile:
        return self._moody(super().open(path, writable=writable))

    def create(self, path: str) -> OsFile:
        return self._moody(super().create(path))

    def _moody(self, file: OsFile) -> OsFile:
        moody = MoodyFile(file.fileno())
        moody.disk = self
        return moody


class MoodyFile(OsFile):
    disk: MoodyDisk

    def sync(self) -> None:
        assert self.disk.may_sync.wait(30)
        super().sync()

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        if self.disk.write_error:
            raise OSError(self.disk.write_error, "as asked for")
        return super().pwrite(data, position)


async def test_a_hanging_disk_stalls_then_refuses_then_goes_on(
    start_node: NewNode, nc: Client
) -> None:
    disk = MoodyDisk()
    limits = {
        "in_flight_bytes_max": 65536,
        "backpressure_timeout_ms": 50,
        "read_buffer_bytes": 8192,
    }
    node = await start_node(disk=disk, ingest=limits)
    await node.create("orders")
    await node.create("others")
    js = nc.jetstream()
    disk.may_sync.clear()
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(outcome(js.publish("orders", b"x" * 1000))) for _ in range(300)
        ]
        await until(lambda: sum(each.done() for each in waiting) > 50)
        assert {each.result() for each in waiting if each.done()} == {10167}
        assert (await refused(js.publish("others", b"x")))[:2] == (429, 10167)
        assert node.count("streamlog_ingest_paused_seconds_total") >= 0.04
        assert 65536 < node.count("streamlog_in_flight_bytes") < 2 * 65536
        disk.may_sync.set()
    assert (await js.publish("others", b"x")).seq == 1
    acked = sorted(-each.result() for each in waiting if each.result() < 0)
    assert acked == list(range(1, len(acked) + 1))
    assert 20 < len(acked) == len(await node.records("orders"))


async def test_a_full_disk_refuses_until_there_is_room(start_node: NewNode, nc: Client) -> None:
    disk = MoodyDisk()
    node = await start_node(disk=disk)
    await node.create("orders")
    js = nc.jetstream()
    assert (await js.publish("orders", b"1", headers={"Nats-Msg-Id": "1"})).seq == 1
    disk.write_error = errno.ENOSPC
    headers = {"Nats-Msg-Id": "2"}
    assert (await refused(js.publish("orders", b"2", headers=headers)))[:2] == (503, 10077)
    disk.write_error = 0
    async with asyncio.timeout(10):  # the node looks for room each second
        while (sequence := await outcome(js.publish("orders", b"2", headers=headers))) == 10077:
            pass
    assert sequence == -2
    assert await values(node, "orders") == [b"1", b"2"]


async def test_a_failing_disk_stops_one_stream_not_the_others(
    start_node: NewNode, nc: Client
) -> None:
    disk = MoodyDisk()
    node = await start_node(disk=disk)
    await node.create("broken")
    await node.create("whole")
    js = nc.jetstream()
    await js.publish("broken", b"1")
    disk.write_error = errno.EIO
    assert (await refused(js.publish("broken", b"2")))[:2] == (503, 10077)
    disk.write_error = 0
    assert (await refused(js.publish("broken", b"3")))[:2] == (503, 10077)
    assert (await js.publish("whole", b"1")).seq == 1
    assert await values(node, "broken") == [b"1"]


async def test_a_bug_in_one_stream_does_not_stop_the_others(
    node: LocalNode, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = await node.create("broken")
    await node.create("whole")

    whole_append = Partition.append

    def append(partition: Partition, *arguments: Any, **named: Any) -> int:
        if partition is broken:
            raise ZeroDivisionError
        return whole_append(partition, *arguments, **named)

    monkeypatch.setattr(Partition, "append", append)
    js = nc.jetstream()
    outcomes = await asyncio.gather(
        *(outcome(js.publish(("broken", "whole")[i % 2], b"x")) for i in range(100))
    )
    assert outcomes[::2] == [10077] * 50
    assert outcomes[1::2] == list(range(-1, -51, -1))


async def test_many_streams_are_listened_to_over_one_connection(
    start_node: NewNode, nc: Client
) -> None:
    node = await start_node()
    for i in range(60):
        await node.create(f"s{i}")
    tasks_before = len(asyncio.all_tasks())
    await node.stop()
    node = await start_node()
    acks = await asyncio.gather(*(nc.jetstream().publish(f"s{i}", b"x") for i in range(60)))
    assert [ack.seq for ack in acks] == [1] * 60
    assert len(asyncio.all_tasks()) <= tasks_before + 5
