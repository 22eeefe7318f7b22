"""JetStream's management API with stock nats-py and with our own client."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy
from nats.js.errors import (
    APIError,
    NotFoundError,
    ServerError,
    ServiceUnavailableError,
)

from compatibility.management.wire import Wire
from streamlog.errors import (
    NodeUnreachable,
    StreamNotFound,
)
from streamlog.jetstream import request_queue
from streamlog.jetstream.verbs import streams
from streamlog.nats_tools.publisher import Publisher
from streamlog.partition.partition import Partition
from tests.local_node import LocalNode
from tools.nodes.server_process import NatsServer


@pytest.fixture(params=["streamlog", None])
def js(request: pytest.FixtureRequest, node: LocalNode, nc: Client) -> JetStreamContext:
    """Under the domain, and under the bare prefix."""
    return nc.jetstream(domain=request.param) if request.param else nc.jetstream()


async def error_of(awaitable: Awaitable[Any]) -> tuple[int | None, int | None]:
    with pytest.raises(APIError) as caught:
        await awaitable
    return caught.value.code, caught.value.err_code


async def test_a_streams_life(js: JetStreamContext) -> None:
    info = await js.add_stream(name="orders", subjects=["orders.>"], max_age=3600, max_bytes=10**9)
    assert info.did_create and info.config.subjects == ["orders.>"]
    assert (info.config.max_age, info.config.max_bytes) == (3600, 10**9)
    assert info.config.duplicate_window == 120
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (0, 0, 0)
    assert info.created and datetime.now(UTC) - info.created < timedelta(seconds=10)
    again = await js.add_stream(name="orders", subjects=["orders.>"], max_age=3600, max_bytes=10**9)
    assert not again.did_create

    for i in range(10):
        assert (await js.publish(f"orders.{i}", b"x" * i)).seq == i + 1
    info = await js.stream_info("orders")
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (10, 1, 10)
    assert info.state.bytes > 0 and info.cluster is not None and info.cluster.leader == "node-1"

    config = info.config
    config.description = "all orders"
    config.max_msgs = 1000
    info = await js.update_stream(config)
    assert (info.config.description, info.config.max_msgs) == ("all orders", 1000)

    assert await js.purge_stream("orders", seq=4)
    assert (await js.stream_info("orders")).state.first_seq == 4
    assert await js.purge_stream("orders", keep=2)
    assert (await js.stream_info("orders")).state.messages == 2
    assert await js.purge_stream("orders")
    state = (await js.stream_info("orders")).state
    assert (state.messages, state.first_seq, state.last_seq) == (0, 11, 10)
    assert (await js.publish("orders.again", b"")).seq == 11

    assert await js.delete_stream("orders")
    with pytest.raises(NotFoundError):
        await js.stream_info("orders")
    assert await js.streams_info() == []


async def test_lists_and_pages(
    node: LocalNode, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LIST_MAX", 25)
    for i in range(30):
        await node.create(f"s{i:03}", subjects=(f"list.{i % 10}.{i}",))
    first = await js.streams_info()
    rest = await js.streams_info(offset=25)
    names = [info.config.name for info in (*first, *rest)]
    assert (len(first), names) == (25, [f"s{i:03}" for i in range(30)])
    pages: Any = await js.streams_info_iterator(offset=20)
    assert (pages.offset, pages.total, len(list(pages))) == (20, 30, 10)
    assert await js.streams_info(offset=1000) == []
    assert await js.find_stream_name_by_subject("list.7.17") == "s017"
    assert await js.find_stream_name_by_subject("list.3.*") == "s003"
    with pytest.raises(NotFoundError):
        await js.find_stream_name_by_subject("nowhere")


async def test_account_info(js: JetStreamContext) -> None:
    await js.add_stream(name="orders")
    info = await js.account_info()
    assert (info.streams, info.consumers, info.domain) == (1, 0, "streamlog")
    assert info.api.total >= 2 and info.api.errors == 0 and info.api.level == 4
    assert info.limits.max_streams == -1


async def test_getting_messages(js: JetStreamContext) -> None:
    await js.add_stream(name="orders", subjects=["orders.*"], allow_direct=True)
    for i in range(6):
        await js.publish(f"orders.{i % 2}", b"%d" % i, headers={"Nats-Msg-Id": f"{i}", "X": "y"})
    for direct in (False, True):
        message = await js.get_msg("orders", 3, direct=direct)
        assert (message.subject, message.seq, message.data) == ("orders.0", 3, b"2")
        assert message.headers is not None and message.headers["Nats-Msg-Id"] == "2"
        assert message.time and datetime.now(UTC) - message.time < timedelta(seconds=10)
        assert (await js.get_last_msg("orders", "orders.0", direct=direct)).seq == 5
        assert (await js.get_last_msg("orders", "orders.*", direct=direct)).seq == 6
        following = await js.get_msg("orders", 2, subject="orders.0", next=True, direct=direct)
        assert following.seq == 3
        for missing in (
            js.get_msg("orders", 7, direct=direct),
            js.get_last_msg("orders", "orders.7", direct=direct),
        ):
            with pytest.raises(NotFoundError):
                await missing


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"name": "taken", "max_bytes": 7}, (400, 10058)),
        ({"name": "__reserved"}, (500, 10052)),
        ({"name": "a:b"}, (500, 10052)),
        ({"name": "a" * 250}, (500, 10052)),
        ({"name": "a", "subjects": ["a..b"]}, (500, 10052)),
        ({"name": "a", "subjects": ["a.>.b"]}, (500, 10052)),
        ({"name": "a", "subjects": ["a b"]}, (500, 10052)),
        ({"name": "a", "subjects": ["$JS.API.>"]}, (500, 10052)),
        ({"name": "a", "subjects": ["_INBOX.>"]}, (500, 10052)),
        ({"name": "a", "num_replicas": 3}, (500, 10074)),
        ({"name": "a", "retention": RetentionPolicy.WORK_QUEUE}, (500, 10052)),
        ({"name": "a", "allow_rollup_hdrs": True, "deny_purge": True}, (500, 10052)),
    ],
)
async def test_configurations_that_are_refused(
    node: LocalNode, nc: Client, config: dict[str, Any], expected: tuple[int, int]
) -> None:
    await node.create("taken")
    js = nc.jetstream(domain="streamlog")
    assert await error_of(js.add_stream(**config)) == expected
    assert [info.config.name for info in await js.streams_info()] == ["taken"]


async def request(nc: Client, verb: str, body: bytes = b"", **headers: str) -> dict[str, Any]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await nc.request(f"$JS.streamlog.API.{verb}", body, headers=names or None)
    reply: dict[str, Any] = json.loads(answer.data)
    return reply


@pytest.mark.parametrize(
    ("verb", "body", "kind", "expected"),
    [
        ("STREAM.SNAPSHOT.a", b"{}", "stream_snapshot", (400, 10003)),
        ("CONSUMER.CREATE.a.b", b"{}", "consumer_create", (404, 10059)),
        ("CONSUMER.CREATE.taken.b", b"{}", "consumer_create", (500, 10012)),
        ("CONSUMER.DURABLE.CREATE.taken.b", b"{}", "consumer_create", (500, 10012)),
        ("CONSUMER.CREATE.taken.b.x.y", b"{}", "consumer_create", (500, 10012)),
        ("CONSUMER.INFO.taken.b", b"", "consumer_info", (404, 10014)),
        ("nonsense", b"", "system", (400, 10003)),
        ("STREAM.CREATE", b"{}", "system", (400, 10003)),
        ("STREAM.CREATE.a.b", b"{}", "system", (400, 10003)),
        ("STREAM.CREATE.a", b"", "stream_create", (400, 10056)),
        ("STREAM.CREATE.a", b'{"name":"b"}', "stream_create", (400, 10056)),
        ("STREAM.CREATE.a", b"{", "stream_create", (400, 10025)),
        ("STREAM.CREATE.a", b"[1]", "stream_create", (400, 10025)),
        ("STREAM.CREATE.a", b"[" * 100_000, "stream_create", (400, 10025)),
        ("STREAM.CREATE.a", b"\xff\xfe", "stream_create", (400, 10025)),
        ("STREAM.CREATE.a/b", b'{"name":"a/b"}', "stream_create", (400, 10128)),
        ("STREAM.UPDATE.a", b'{"name":"a"}', "stream_update", (404, 10059)),
        ("STREAM.LEADER.STEPDOWN.taken", b"", "stream_leader_stepdown", (503, 10010)),
        ("META.LEADER.STEPDOWN", b"", "meta_leader_stepdown", (503, 10010)),
        ("STREAM.PEER.REMOVE.taken", b'{"peer":"node-1"}', "stream_remove_peer", (503, 10010)),
        ("STREAM.INFO.a", b"", "stream_info", (404, 10059)),
        ("STREAM.INFO.taken", b'{"subjects_filter":5}', "stream_info", (400, 10025)),
        ("STREAM.DELETE.a", b"", "stream_delete", (404, 10059)),
        ("STREAM.DELETE.taken", b'{"a":1}', "stream_delete", (400, 10038)),
        ("STREAM.PURGE.a", b"{}", "stream_purge", (404, 10059)),
        ("STREAM.PURGE.taken", b'{"seq":1,"keep":1}', "stream_purge", (400, 10003)),
        ("STREAM.PURGE.taken", b'{"seq":-1}', "stream_purge", (400, 10025)),
        ("STREAM.PURGE.taken", b'{"filter":1}', "stream_purge", (400, 10025)),
        ("STREAM.MSG.DELETE.taken", b"", "stream_msg_delete", (400, 10003)),
        ("STREAM.MSG.DELETE.taken", b'{"seq":"x"}', "stream_msg_delete", (400, 10025)),
        ("STREAM.MSG.DELETE.taken", b'{"seq":0}', "stream_msg_delete", (500, 10057)),
        ("STREAM.MSG.DELETE.taken", b'{"seq":7}', "stream_msg_delete", (500, 10057)),
        ("STREAM.MSG.DELETE.a", b'{"seq":1}', "stream_msg_delete", (404, 10059)),
        ("STREAM.LIST", b'{"offset":"x"}', "stream_list", (400, 10025)),
        ("STREAM.MSG.GET.taken", b"", "stream_msg_get", (400, 10003)),
        ("STREAM.MSG.GET.taken", b'{"seq":1}', "stream_msg_get", (404, 10037)),
        ("STREAM.MSG.GET.taken", b'{"seq":1,"last_by_subj":"x"}', "stream_msg_get", (400, 10003)),
        ("STREAM.MSG.GET.a", b'{"seq":1}', "stream_msg_get", (404, 10059)),
    ],
)  # fmt: skip
async def test_requests_that_are_refused(
    node: LocalNode, nc: Client, verb: str, body: bytes, kind: str, expected: tuple[int, int]
) -> None:
    await node.create("taken")
    reply = await request(nc, verb, body)
    assert reply["type"] == f"io.nats.jetstream.api.v1.{kind}_response"
    assert set(reply["error"]) == {"code", "err_code", "description"}
    assert (reply["error"]["code"], reply["error"]["err_code"]) == expected


async def test_an_api_level_that_we_have_not(node: LocalNode, nc: Client) -> None:
    body = b'{"name":"a"}'
    reply = await request(nc, "STREAM.CREATE.a", body, Nats_Required_Api_Level="5")
    assert (reply["error"]["code"], reply["error"]["err_code"]) == (412, 10185)
    assert "error" not in await request(nc, "STREAM.CREATE.a", body, Nats_Required_Api_Level="4")


async def test_the_bare_prefix_is_answered_only_if_asked_for(
    tmp_path: Path, nats_server: NatsServer, nc: Client
) -> None:
    async with LocalNode(tmp_path / "data", nats_server.url, default_api_prefix=False):
        with pytest.raises(ServiceUnavailableError):
            await nc.jetstream().account_info()
        assert (await nc.jetstream(domain="streamlog").account_info()).streams == 0
    with pytest.raises(ServiceUnavailableError):
        await nc.jetstream(domain="streamlog").account_info()


async def test_many_requests_at_once(node: LocalNode, nc: Client) -> None:
    js = nc.jetstream(domain="streamlog")
    infos = await asyncio.gather(*(js.add_stream(name=f"s{i % 50}") for i in range(200)))
    assert sum(bool(info.did_create) for info in infos) == 50
    assert len(await js.streams_info()) == 50


async def test_ten_thousand_requests_at_once(node: LocalNode, nc: Client) -> None:
    """Each is answered; what a node has no room for is refused at once."""
    await node.create("orders")
    verbs = ("STREAM.INFO.orders", "STREAM.NAMES", "STREAM.CREATE.orders", "NONSENSE")
    inbox, answers = nc.new_inbox(), asyncio.Queue[dict[str, Any]]()

    async def heard(message: Msg) -> None:
        answers.put_nowait(json.loads(message.data))

    await nc.subscribe(inbox, cb=heard)
    for i in range(10_000):
        await nc.publish(f"$JS.streamlog.API.{verbs[i % 4]}", b"", reply=inbox)
    kinds = Counter[int]()
    for _ in range(10_000):
        answer = await asyncio.wait_for(answers.get(), 60)
        kinds[answer.get("error", {}).get("err_code", 0)] += 1
    assert kinds == {0: 5_000, 10056: 2_500, 10003: 2_500}


async def test_requests_beyond_the_limit_are_refused_at_once(
    node: LocalNode, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_queue, "WAITING_MAX", 0)
    reply = await request(nc, "STREAM.INFO.a")
    assert reply["type"] == "io.nats.jetstream.api.v1.stream_info_response"
    assert (reply["error"]["code"], reply["error"]["err_code"]) == (429, 10167)
    answer = await nc.request("$JS.streamlog.API.DIRECT.GET.a", b'{"seq":1}')
    assert answer.headers is not None and answer.headers["Status"] == "429"
    monkeypatch.undo()
    assert (await request(nc, "STREAM.INFO.a"))["error"]["err_code"] == 10059


async def test_a_stream_is_listening_when_its_creation_is_answered(
    node: LocalNode, nc: Client
) -> None:
    js = nc.jetstream(domain="streamlog")
    for i in range(30):
        await js.add_stream(name=f"s{i}")
        assert (await js.publish(f"s{i}", b"x")).seq == 1


async def test_a_direct_get_must_be_allowed(node: LocalNode, nc: Client) -> None:
    js = nc.jetstream(domain="streamlog")
    await js.add_stream(name="orders")
    await js.publish("orders", b"x")
    for name in ("orders", "none"):
        with pytest.raises(NoRespondersError):
            await nc.request(f"$JS.streamlog.API.DIRECT.GET.{name}", b'{"seq":1}')


@pytest.mark.parametrize("is_purged", [False, True])
async def test_the_last_of_all_subjects_of_an_empty_stream(
    node: LocalNode, nc: Client, is_purged: bool
) -> None:
    js = nc.jetstream(domain="streamlog")
    await js.add_stream(name="orders", subjects=["orders.>"], allow_direct=True)
    if is_purged:
        await js.publish("orders.eu", b"x")
        await js.purge_stream("orders")
    query = b'{"multi_last": ["orders.>"]}'
    reply = await nc.request("$JS.streamlog.API.DIRECT.GET.orders", query)
    assert reply.headers is not None and reply.headers["Status"] == "404"


async def test_a_reply_has_none_of_the_requests_headers(node: LocalNode, nc: Client) -> None:
    answer = await nc.request("$JS.streamlog.API.INFO", b"", headers={"X": "y" * 1000})
    assert not answer.headers


async def test_a_subject_that_is_not_utf_8_costs_one_answer(
    node: LocalNode, nats_server: NatsServer, nc: Client
) -> None:
    async with Wire.to(nats_server.url) as wire:
        (reply,) = await wire.ask(b"$JS.streamlog.API.STREAM.INFO.\xff\xfe", b"")
        assert json.loads(reply.data)["error"]["err_code"] == 10059
        await wire.say(b"$JS.streamlog.API.INFO", b"_INBOX.\xff")
    assert (await nc.jetstream(domain="streamlog").account_info()).streams == 0


@pytest.mark.parametrize(
    "block", [b"N", b"NATS/1.0", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"NATS/1.0 503 \xff\r\n\r\n"]
)
async def test_headers_that_are_none_are_none(
    node: LocalNode, nats_server: NatsServer, block: bytes
) -> None:
    async with Wire.to(nats_server.url) as wire:
        for subject in (b"$JS.streamlog.API.INFO", b"$JS.streamlog.API.INFO", b"$JS.API.INFO"):
            (reply,) = await wire.ask(subject, b"", block)
            assert json.loads(reply.data)["streams"] == 0
        await wire.say(b"_INBOX.streamlog.x", b"", block)
        (reply,) = await wire.ask(b"$JS.streamlog.API.INFO", b"")
        assert json.loads(reply.data)["streams"] == 0


async def test_a_message_too_large_for_the_reply(node: LocalNode, nc: Client) -> None:
    js = nc.jetstream(domain="streamlog")
    await js.add_stream(name="big", allow_direct=True)
    await js.publish("big", b"x" * 900_000)
    with pytest.raises(ServerError):
        await js.get_msg("big", 1)
    assert (await js.get_msg("big", 1, direct=True)).data == b"x" * 900_000


async def test_a_bug_costs_one_answer(
    node: LocalNode, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    js = nc.jetstream(domain="streamlog")
    await js.add_stream(name="orders", allow_direct=True)
    await js.publish("orders", b"x")

    def read(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "read", read)
        for direct in (False, True):
            assert (await error_of(js.get_msg("orders", 1, direct=direct)))[0] == 500
    assert (await js.get_msg("orders", 1)).data == b"x"


async def test_partitions_add_up(node: LocalNode, nc: Client) -> None:
    js = nc.jetstream(domain="streamlog")
    await js.add_stream(name="parts", metadata={"streamlog.partitions": "2", "team": "a"})
    for subject in ("parts", "parts", "parts.1"):
        await js.publish(subject, b"x")
    info = await js.stream_info("parts")
    assert (info.state.messages, info.state.last_seq) == (3, 2)
    assert info.config.metadata == {"streamlog.partitions": "2", "team": "a"}
    with pytest.raises(ServerError):
        await js.purge_stream("parts", seq=1)
    assert await js.purge_stream("parts")
    assert (await js.stream_info("parts")).state.messages == 0


async def test_our_publisher_without_a_node_or_nats(nats_server: NatsServer) -> None:
    async with Publisher(nats_server.url) as publisher:
        with pytest.raises(StreamNotFound):
            await publisher.publish("orders", b"x")
    nats_server.kill()
    with pytest.raises(NodeUnreachable, match="NATS at"):
        await Publisher(nats_server.url, timeout_s=1).__aenter__()
