"""The management API on three nodes: any answers, whoever leads; over a real nats-server."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from streamlog.control.leaders import leader_router
from streamlog.control.leaders.local_leader import StreamPartition
from streamlog.control.leaders.node_requests import decode_answer, encode_request
from streamlog.errors import DeletionDenied, NotLeader, StreamlogError, StreamNotFound
from streamlog.jetstream.direct_get import direct_get
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.integration.management_world import FRONT, IDS, Member, World
from tools.nodes.server_process import NatsServer


@pytest.fixture
async def world(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[World]:
    world = World(tmp_path, nats_server.url)
    async with asyncio.TaskGroup() as group:
        await world.start(group)
        yield world
        for member in world.members.values():
            await member.api.stop()
            await member.registry.close()
            member.sockets.close()
        for task in asyncio.all_tasks():
            if task.get_name().startswith(("registry", "sockets")):
                task.cancel()


@pytest.fixture
def js(nc: Client) -> JetStreamContext:
    """Asks the front node."""
    return nc.jetstream()


async def error_of(awaitable: Awaitable[Any]) -> tuple[int | None, int | None]:
    with pytest.raises(APIError) as caught:
        await awaitable
    return caught.value.code, caught.value.err_code


async def request(nc: Client, verb: str, body: object = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    answer = await nc.request(f"$JS.API.{verb}", data, timeout=5)
    reply: dict[str, Any] = json.loads(answer.data)
    return reply


async def test_one_node_answers_for_all_leaders(world: World, js: JetStreamContext) -> None:
    names = [f"s{i}" for i in range(6)]
    for name in names:
        await js.add_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
    assert {world.leader(name) for name in names} == set(IDS)
    for i, name in enumerate(names):
        await world.store_all(name, *(b"%d" % n for n in range(i + 3)))
    for i, name in enumerate(names):
        info = await js.stream_info(name)
        assert (info.state.messages, info.state.last_seq) == (i + 3, i + 3)
        assert info.cluster is not None and info.cluster.leader == f"node-{world.leader(name)}"
        for direct in (False, True):
            message = await js.get_msg(name, 2, direct=direct)
            assert (message.subject, message.data) == (f"{name}.1", b"1")
            assert (await js.get_last_msg(name, f"{name}.*", direct=direct)).seq == i + 3
            with pytest.raises(NotFoundError):
                await js.get_msg(name, 99, direct=direct)
    listed = await js.streams_info()
    assert [info.state.messages for info in listed] == [3, 4, 5, 6, 7, 8]
    stored = sum(world.led(name).statistics().size_bytes for name in names)
    assert (await js.account_info()).storage == stored > 0
    for name in names:
        assert await js.purge_stream(name, keep=1)
        assert (await js.stream_info(name)).state.messages == 1
        assert await js.purge_stream(name, seq=100)
        assert (await js.stream_info(name)).state.messages == 0


async def test_the_partitions_of_a_stream_add_up_over_their_leaders(
    world: World, js: JetStreamContext
) -> None:
    await js.add_stream(name="parts", metadata={"streamlog.partitions": "3"})
    assert {world.leader("parts", number) for number in range(3)} == set(IDS)
    for number in range(3):
        await world.store_all("parts", *(b"x" for _ in range(number + 1)), number=number)
    state = (await js.stream_info("parts")).state
    assert (state.messages, state.first_seq, state.last_seq) == (6, 1, 3)
    assert await js.purge_stream("parts")
    assert (await js.stream_info("parts")).state.messages == 0


async def test_a_large_message_comes_from_another_node_as_it_is(
    world: World, js: JetStreamContext
) -> None:
    for name in ("a", "b"):
        await js.add_stream(name=name, allow_direct=True)
    name = "a" if world.leader("a") != FRONT else "b"
    payload = bytes(range(256)) * 3_500
    await world.store_all(name, payload)
    assert (await js.get_msg(name, 1, direct=True)).data == payload
    assert (await error_of(js.get_msg(name, 1)))[0] == 500


async def test_what_another_node_was_told_is_known_here(
    world: World, nc: Client, js: JetStreamContext
) -> None:
    world.front.may_see = False
    config = StreamConfig.of(name="new")
    await world.members[IDS[1]].create_stream(config)
    finding = asyncio.create_task(js.find_stream_name_by_subject("new"))
    asking = asyncio.create_task(js.stream_info("new"))
    await asyncio.sleep(0.05)
    assert not finding.done() and not asking.done()
    world.front.may_see = True
    await world.front.see()
    assert await finding == "new" and (await asking).config.name == "new"
    world.front.may_see = False
    await world.members[IDS[1]].delete_stream("new")
    about = asyncio.create_task(request(nc, "STREAM.INFO.new"))
    names = asyncio.create_task(request(nc, "STREAM.NAMES"))
    await asyncio.sleep(0.05)
    world.front.may_see = True
    await world.front.see()
    assert (await about)["error"]["err_code"] == 10059
    assert (await names)["streams"] == []


async def test_without_a_controller_what_there_is_is_told(
    world: World, js: JetStreamContext
) -> None:
    await js.add_stream(name="orders")
    await world.store_all("orders", b"x")
    world.has_controller = False
    assert (await js.stream_info("orders")).state.messages == 1
    assert (await js.get_msg("orders", 1)).data == b"x"
    assert await error_of(js.add_stream(name="more")) == (503, 10008)
    assert await error_of(js.delete_stream("orders")) == (503, 10008)


async def test_stepping_down(world: World, nc: Client, js: JetStreamContext) -> None:
    await js.add_stream(name="orders", num_replicas=3)
    first = world.leader("orders")
    assert await request(nc, "STREAM.LEADER.STEPDOWN.orders") == {
        "type": "io.nats.jetstream.api.v1.stream_leader_stepdown_response",
        "success": True,
    }
    second = world.leader("orders")
    assert second not in (first, -1)
    third = next(node_id for node_id in IDS if node_id not in (first, second))
    body = {"placement": {"preferred": f"node-{third}", "cluster": "", "tags": []}}
    assert "error" not in await request(nc, "STREAM.LEADER.STEPDOWN.orders", body)
    assert world.leader("orders") == third
    cluster = (await request(nc, "STREAM.INFO.orders"))["cluster"]
    assert (cluster["name"], cluster["leader"]) == ("test", f"node-{third}")
    assert [each["name"] for each in cluster["replicas"]] == [
        f"node-{node_id}" for node_id in world.image.stream("orders").partition(0).replicas
        if node_id != third
    ]  # fmt: skip
    await world.fence(first)
    cluster = (await request(nc, "STREAM.INFO.orders"))["cluster"]
    found = {each["name"]: (each["current"], each.get("offline")) for each in cluster["replicas"]}
    assert found == {f"node-{first}": (False, True), f"node-{second}": (True, None)}


@pytest.mark.parametrize(
    ("verb", "body", "err_code"),
    [
        ("STREAM.LEADER.STEPDOWN.alone", None, 10005),
        ("STREAM.LEADER.STEPDOWN.all", {"placement": {"preferred": "node-9"}}, 10005),
        ("STREAM.LEADER.STEPDOWN.all", {"placement": {"tags": ["ssd"]}}, 10005),
        ("STREAM.LEADER.STEPDOWN.all", {"placement": "node-1"}, 10025),
        ("STREAM.LEADER.STEPDOWN.none", None, 10059),
        ("STREAM.PEER.REMOVE.all", {"peer": "node-1"}, 10075),
        ("STREAM.PEER.REMOVE.all", {"peer": "node-9"}, 10040),
        ("STREAM.PEER.REMOVE.all", {}, 10003),
        ("STREAM.PEER.REMOVE.none", {"peer": "node-1"}, 10059),
        ("META.LEADER.STEPDOWN", {"placement": {"preferred": "somebody"}}, 10040),
    ],
)
async def test_what_no_peer_can_do(
    world: World, nc: Client, js: JetStreamContext, verb: str, body: object, err_code: int
) -> None:
    await js.add_stream(name="alone", num_replicas=1)
    await js.add_stream(name="all", num_replicas=3)
    before = world.image
    assert (await request(nc, verb, body))["error"]["err_code"] == err_code
    assert world.image is before and not world.transfers


async def test_removing_a_peer_moves_its_partitions(
    world: World, nc: Client, js: JetStreamContext
) -> None:
    await js.add_stream(name="orders", num_replicas=2, metadata={"streamlog.partitions": "3"})
    before = [partition.replicas for partition in world.image.stream("orders").partitions]
    reply = await request(nc, "STREAM.PEER.REMOVE.orders", {"peer": "node-2"})
    assert reply == {
        "type": "io.nats.jetstream.api.v1.stream_remove_peer_response", "success": True,
    }  # fmt: skip
    for old, now in zip(before, world.image.stream("orders").partitions, strict=True):
        if 2 in old:
            assert (2 in now.target, len(now.target), now.removing) == (False, 2, (2,))
        else:
            assert now.replicas == old
    assert sum(2 in old for old in before) == 2


async def test_the_controller_steps_down(world: World, nc: Client) -> None:
    for body in (None, {"placement": {"preferred": "node-3"}}):
        reply = await request(nc, "META.LEADER.STEPDOWN", body)
        assert reply == {
            "type": "io.nats.jetstream.api.v1.meta_leader_stepdown_response", "success": True,
        }  # fmt: skip
    assert [each.node_id for each in world.transfers] == [None, 3]


async def led_elsewhere(world: World, js: JetStreamContext) -> tuple[str, Member]:
    """A stream with one record that the front node does not lead."""
    for name in ("a", "b"):
        await js.add_stream(name=name)
        if world.leader(name) != FRONT:
            await world.store_all(name, b"x")
            return name, world.members[world.leader(name)]
    raise AssertionError("the leaders are not spread")


async def direct_answer(nc: Client, stream: str, query: dict[str, Any]) -> list[tuple[Any, bytes]]:
    """All messages of an answer: their headers, and what they carry."""
    inbox, found = nc.new_inbox(), list[tuple[Any, bytes]]()
    subscription = await nc.subscribe(inbox)
    await nc.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(query).encode(), reply=inbox)
    while True:
        message = await subscription.next_msg(timeout=5)
        found.append((message.headers, message.data))
        if (message.headers or {}).get("Status"):
            await subscription.unsubscribe()
            return found


@pytest.mark.parametrize(
    "query",
    [
        {"seq": 1, "batch": 30},
        {"seq": 3, "batch": 7},
        {"seq": 1, "batch": 30, "max_bytes": 60},
        {"seq": 2, "batch": 30, "next_by_subj": "*.1"},
        {"start_time": "2000-01-01T00:00:00Z", "batch": 5},
        {"multi_last": ["*.*"]},
        {"multi_last": ["*.1", "*.2"], "up_to_seq": 9},
        {"seq": 99, "batch": 3},
        {"multi_last": ["none"]},
    ],
)
async def test_a_direct_get_comes_from_the_leader_in_parts(
    world: World,
    nc: Client,
    js: JetStreamContext,
    monkeypatch: pytest.MonkeyPatch,
    query: dict[str, Any],
) -> None:
    for name in ("a", "b"):
        await js.add_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
    name = next(name for name in ("a", "b") if world.leader(name) != FRONT)
    for _ in range(4):
        await world.store_all(name, *(b"%d" % i for i in range(4)))
    whole = await direct_answer(nc, name, query)
    monkeypatch.setattr(direct_get, "PART_BYTES", 1)
    assert await direct_answer(nc, name, query) == whole


async def test_an_act_that_stood_still_hits_no_stream_that_has_the_name_since(
    world: World, js: JetStreamContext
) -> None:
    """Between the caller's look and the act the stream is deleted, and made anew."""
    name, leader = await led_elsewhere(world, js)
    before = world.image.stream(name)
    await js.delete_stream(name)
    for _ in range(6):  # so that the other one is led by the same node
        await js.add_stream(name=name, allow_direct=True)
        if world.leader(name) == leader.node_id:
            break
        await js.delete_stream(name)
    await world.store_all(name, b"kept")
    leaders = world.front.control.leaders
    for act in (
        leaders.purge(before, 0),
        leaders.trim(before, 0, None, timeout_s=1),
        leaders.delete(before, 0, 1),
    ):
        with pytest.raises(StreamNotFound, match="another one has its name"):
            await act
    place = StreamPartition.of(before, 0)
    here = world.members[world.leader(name)].control.leader
    with pytest.raises(NotLeader, match="another stream"):
        await here.purge(place, sequence=0, keep=0, pattern="")
    assert (await js.stream_info(name)).state.messages == 1


async def test_what_the_leader_knows_to_be_denied_is_not_purged(
    world: World, js: JetStreamContext
) -> None:
    """A node that is late judged it by older settings."""
    name, leader = await led_elsewhere(world, js)
    before = world.image.stream(name)
    await js.update_stream(name=name, deny_purge=True, deny_delete=True)
    place = StreamPartition.of(before, 0)
    for act in (
        leader.control.leader.purge(place, sequence=0, keep=0, pattern=""),
        leader.control.leader.trim(place, None, timeout_s=1),
        leader.control.leader.delete(place, 1),
    ):
        with pytest.raises(DeletionDenied):
            await act
    assert (await js.stream_info(name)).state.messages == 1


async def test_a_leader_that_is_away_is_an_error_in_time(
    world: World, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_router, "PATIENCE_S", 0.2)
    name, leader = await led_elsewhere(world, js)
    leader.answers_nodes = False
    assert await error_of(js.get_msg(name, 1)) == (503, 10008)
    with pytest.raises(NoRespondersError):  # what nats-py makes of the status 503
        await js.get_msg(name, 1, direct=True)
    assert await error_of(js.purge_stream(name)) == (503, 10008)
    info = await js.stream_info(name)
    assert (info.config.name, info.state.messages) == (name, 0)
    assert len(await js.streams_info()) == len(world.image.streams)


async def test_a_leader_without_the_lease_does_not_tell(world: World, js: JetStreamContext) -> None:
    name, leader = await led_elsewhere(world, js)
    leader.lease.turn(False)
    asking = asyncio.create_task(js.get_msg(name, 1))
    await asyncio.sleep(0.2)
    assert not asking.done()
    leader.lease.turn(True)
    assert (await asking).data == b"x"


async def test_a_leader_that_has_not_heard_of_it_yet_is_waited_for(
    world: World, js: JetStreamContext
) -> None:
    others = [member for member in world.members.values() if member is not world.front]
    for member in others:
        member.may_see = False
    name = ""
    for name in ("a", "b"):
        await js.add_stream(name=name)
        if world.leader(name) != FRONT:
            break
    asking = asyncio.create_task(js.get_msg(name, 1))
    await asyncio.sleep(0.2)
    assert not asking.done()
    for member in others:
        member.may_see = True
        await member.see()
    with pytest.raises(NotFoundError):  # that is, the leader has answered: there is none
        await asking


async def test_who_has_no_lease_leaves_clients_to_the_others(
    world: World, nc: Client, js: JetStreamContext
) -> None:
    await js.add_stream(name="orders")
    asked: list[NodeId] = []
    for member in world.members.values():
        count_requests(member, asked)
    world.front.lease.turn(False)
    async with asyncio.timeout(5):
        while True:
            try:
                await nc.request("$JS.API.INFO", timeout=1)
            except NoRespondersError:
                break
    asked.clear()
    shared = nc.jetstream(domain="streamlog")
    for _ in range(30):
        await shared.stream_info("orders")
    assert len(asked) == 30 and FRONT not in asked
    world.front.lease.turn(True)
    async with asyncio.timeout(5):
        while FRONT not in asked:
            await shared.stream_info("orders")


def count_requests(member: Member, asked: list[NodeId]) -> None:
    reply = member.api._verbs.reply

    async def counted(*args: Any) -> dict[str, Any]:
        asked.append(member.node_id)
        return await reply(*args)

    member.api._verbs.reply = counted  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("NONSENSE", {}), ("MESSAGE", {}), ("STATE", {}), ("STATE", {"partitions": [["a"]]}),
        ("STATE", {"partitions": 7}), ("PURGE", {"stream": 7}),
        ("PURGE", {"stream": "a", "partition": -1}), ("DIRECT", {"stream": "a", "partition": 0}),
        ("PURGE", {"stream": "none", "partition": 0, "seq": 1, "keep": 0, "filter": ""}),
    ],
)  # fmt: skip
async def test_a_question_between_nodes_that_makes_no_sense_costs_one_answer(
    world: World, js: JetStreamContext, verb: str, fields: dict[str, Any]
) -> None:
    answer = await world.front.control.nodes.answer(encode_request(verb, fields))
    with pytest.raises(StreamlogError):
        decode_answer(answer)
    await js.add_stream(name="orders")
