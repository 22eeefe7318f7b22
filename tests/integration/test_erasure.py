"""Single messages are purged and deleted with stock nats-py, over starts and kills."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from tests.local_node import LocalNode, until
from tools.nodes.server_process import NatsServer

LOG = {"segment_bytes": 4_096, "checkpoint_interval_ms": 20}


@pytest.fixture
async def node(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[LocalNode]:
    async with LocalNode(tmp_path / "data", nats_server.url, log=LOG) as started:
        yield started


@pytest.fixture
def js(nc: Client) -> JetStreamContext:
    return nc.jetstream(domain="streamlog")


async def publish(js: JetStreamContext, subject: str, count: int) -> list[int]:
    return [await published(js, subject, b"%d" % number) for number in range(count)]


async def published(js: JetStreamContext, subject: str, payload: bytes) -> int:
    """A node that has just started may not be listening yet."""
    async with asyncio.timeout(10):
        while True:
            try:
                return (await js.publish(subject, payload)).seq
            except NoStreamResponseError:
                await asyncio.sleep(0.02)


async def error_of(awaitable: Awaitable[Any]) -> tuple[int | None, int | None]:
    with pytest.raises(APIError) as caught:
        await awaitable
    return caught.value.code, caught.value.err_code


async def purge(nc: Client, stream: str, **fields: Any) -> int:
    subject = f"$JS.streamlog.API.STREAM.PURGE.{stream}"
    reply = json.loads((await nc.request(subject, json.dumps(fields).encode(), timeout=5)).data)
    return int(reply["purged"])


async def deleted(nc: Client, stream: str) -> dict[str, Any]:
    subject = f"$JS.streamlog.API.STREAM.INFO.{stream}"
    reply = json.loads((await nc.request(subject, b'{"deleted_details":true}', timeout=5)).data)
    return dict(reply["state"])


async def test_a_purge_by_subject(node: LocalNode, js: JetStreamContext, nc: Client) -> None:
    await node.create("orders", subjects=("orders.*",))
    for number in range(6):  # sequences 1 to 6
        await js.publish(f"orders.{number % 2}", b"%d" % number)
    assert await js.purge_stream("orders", subject="orders.1")
    state = (await js.stream_info("orders")).state
    assert (state.messages, state.first_seq, state.last_seq) == (3, 1, 6)
    assert state.num_deleted == 3  # without the erasure, which follows the last message
    assert (await deleted(nc, "orders"))["deleted"] == [2, 4, 6]
    for seq in (2, 4, 6, 7):
        assert await error_of(js.get_msg("orders", seq)) == (404, 10037)
    assert (await js.get_msg("orders", 5)).data == b"4"
    assert await error_of(js.get_last_msg("orders", "orders.1")) == (404, 10037)
    assert (await js.get_last_msg("orders", "orders.0")).seq == 5
    assert (await js.get_msg("orders", seq=2, next=True, subject="orders.*")).seq == 3
    assert (await js.publish("orders.1", b"new")).seq == 8
    assert (await deleted(nc, "orders"))["deleted"] == [2, 4, 6, 7]
    assert (await js.get_last_msg("orders", "orders.1")).seq == 8
    assert await purge(nc, "orders", filter="orders.2") == 0
    assert (await js.stream_info("orders")).state.last_seq == 8  # nothing was written for it


async def test_up_to_a_sequence_and_all_but_the_last(
    node: LocalNode, js: JetStreamContext, nc: Client
) -> None:
    await node.create("s", subjects=("s.*",))
    for _ in range(5):
        await publish(js, "s.a", 1)
        await publish(js, "s.b", 1)
    assert await purge(nc, "s", filter="s.a", seq=6) == 3  # 1, 3, 5
    assert (await js.stream_info("s")).state.first_seq == 2
    assert await purge(nc, "s", filter="s.b", keep=2) == 3  # 2, 4, 6
    state = await deleted(nc, "s")
    assert (state["first_seq"], state["messages"]) == (7, 4)
    assert (state["last_seq"], state.get("deleted")) == (10, None)
    assert await purge(nc, "s", keep=3) == 1  # 7: erasures are not counted
    assert (await js.stream_info("s")).state.first_seq == 8
    assert await purge(nc, "s", filter="s.*", keep=100) == 0
    assert await purge(nc, "s", filter=">") == 3
    state = await deleted(nc, "s")
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 13, 12)
    assert state.get("num_deleted", 0) == 0


async def test_one_message_is_deleted(node: LocalNode, js: JetStreamContext, nc: Client) -> None:
    await node.create("s")
    await publish(js, "s", 4)
    assert await js.delete_msg("s", 2)
    assert await error_of(js.get_msg("s", 2)) == (404, 10037)
    assert await error_of(js.delete_msg("s", 2)) == (400, 10043)
    assert await error_of(js.delete_msg("s", 99)) == (500, 10057)
    state = (await js.stream_info("s")).state
    assert (state.messages, state.last_seq, state.num_deleted) == (3, 4, 1)
    assert await js.delete_msg("s", 1)  # the first: the log begins at the third now
    state = (await js.stream_info("s")).state
    assert (state.messages, state.first_seq) == (2, 3)
    assert await error_of(js.delete_msg("s", 1)) == (500, 10057)


async def test_what_is_erased_stays_so_over_a_start(
    tmp_path: Path, nats_server: NatsServer, js: JetStreamContext, nc: Client
) -> None:
    for start in range(3):
        async with LocalNode(tmp_path / "data", nats_server.url, log=LOG) as node:
            await node.create("s", subjects=("s.*",))
            await publish(js, "s.a", 20)
            await publish(js, "s.b", 20)
            assert await purge(nc, "s", filter="s.b", keep=1) == (19 if start == 0 else 20)
            state = await deleted(nc, "s")
            assert state["messages"] == 20 * (start + 1) + 1
            assert await error_of(js.get_msg("s", 25)) == (404, 10037)


async def test_against_a_dictionary(node: LocalNode, js: JetStreamContext, nc: Client) -> None:
    """What JetStream does, in four lines each."""
    await node.create("s", subjects=("s.>",))
    chosen, there = random.Random(7), dict[int, str]()
    subjects = ["s.a", "s.b", "s.a.c", "s.b.c"]
    for _ in range(60):
        match chosen.randrange(5):
            case 0:
                seq = chosen.choice([*there, 1])
                if seq in there:
                    assert await js.delete_msg("s", seq)
                    del there[seq]
            case 1:
                pattern = chosen.choice(["s.a", "s.*", "s.b.>", "s.*.c", ">", ""])
                fields = chosen.choice([{}, {"keep": 2}, {"seq": max(there, default=0)}])
                gone = [it for it, subject in there.items() if matches(pattern, subject)]
                if fields.get("seq"):
                    gone = [it for it in gone if it < fields["seq"]]
                gone = gone[: max(0, len(gone) - fields.get("keep", 0))]
                assert await purge(nc, "s", filter=pattern, **fields) == len(gone)
                there = {it: subject for it, subject in there.items() if it not in gone}
            case _:
                for subject in chosen.choices(subjects, k=3):
                    there[(await js.publish(subject, subject.encode())).seq] = subject
        state = await deleted(nc, "s")
        assert state["messages"] == len(there)
        assert state["first_seq"] == min(there, default=state["last_seq"] + 1)
        first, last = state["first_seq"], state["last_seq"]
        assert state.get("deleted", []) == [it for it in range(first, last + 1) if it not in there]
        for subject in subjects:
            wanted = max((it for it in there if there[it] == subject), default=None)
            try:
                assert (await js.get_last_msg("s", subject)).seq == wanted
            except NotFoundError:
                assert wanted is None


def matches(pattern: str, subject: str) -> bool:
    depth = len(subject.split("."))
    return {
        "s.a": subject == "s.a",
        "s.*": depth == 2,
        "s.b.>": subject == "s.b.c",
        "s.*.c": depth == 3,
    }.get(pattern, True)


async def test_many_at_once(node: LocalNode, js: JetStreamContext) -> None:
    await node.create("s")
    await publish(js, "s", 200)
    assert all(await asyncio.gather(*(js.delete_msg("s", seq) for seq in range(2, 201, 2))))
    state = (await js.stream_info("s")).state
    assert (state.messages, state.last_seq, state.num_deleted) == (100, 200, 100)


CLEANING = {
    "segment_bytes": 4_096,
    "checkpoint_interval_ms": 20,
    "compaction_interval_ms": 20,
    "erasure_lag_ms": 20,
}


async def test_the_files_let_go_of_what_is_erased(
    tmp_path: Path, nats_server: NatsServer, js: JetStreamContext, nc: Client
) -> None:
    async with LocalNode(tmp_path / "data", nats_server.url, log=CLEANING) as node:
        await node.create("s", subjects=("s.*",), duplicate_window_ms=100)
        for _ in range(40):
            await publish(js, "s.a", 1)
            await js.publish("s.b", b"a secret" + bytes(200))
        assert await purge(nc, "s", filter="s.b", keep=1) == 39
        partition = node.partition("s")
        await until(lambda: not partition.state.log.erasures.unremoved)
        there = [it.offset + 1 for it in await node.records("s")]
        assert there == [*range(1, 80, 2), 80]
        folder = tmp_path / "data" / "streams" / "s" / "0"
        held = sum(file.read_bytes().count(b"a secret") for file in folder.glob("*.log"))
        assert held == 1  # the last one
        assert (await js.stream_info("s")).state.messages == 41
        assert (await js.publish("s.b", b"")).seq == 82
    async with LocalNode(tmp_path / "data", nats_server.url, log=CLEANING):
        assert (await js.stream_info("s")).state.messages == 42
        assert await error_of(js.get_msg("s", 2)) == (404, 10037)
